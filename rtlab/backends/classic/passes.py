"""The passes over a network in the order of TensorRT: each decides by rules, and its end counts the layers."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence

from rtlab.backends.classic import concats, pairs, rules
from rtlab.backends.classic.network import Network, NetworkLayer
from rtlab.backends.classic.patterns import PATTERNS, ROOTS, match
from rtlab.backends.classic.rules import FusionRule

#: Nodes of one layer: each that joins makes its name and its lists anew.
_MOST = 500
#: Nodes whose outputs do not follow from their inputs alone.
_RANDOM = frozenset(
    {"RandomNormal", "RandomUniform", "RandomNormalLike", "RandomUniformLike", "Multinomial", "Bernoulli"}
)
_SIZES = frozenset({"Shape", "Size"})
_PAIRS = frozenset({"QuantizeLinear", "DequantizeLinear"})
_IDLE = frozenset({"Identity", "Dropout"})


def fold(network: Network) -> None:
    """What reads constants alone is computed once; sizes are computed on the host."""
    for layer in network:
        known = all(v in network.constants for v in layer.reads)
        sized = layer.kind in _SIZES
        # The pairs of weights are those of the layer that reads them.
        if (
            (known or sized)
            and layer.kind not in _PAIRS | _RANDOM
            and layer.node.op not in {"If", "Loop", "Scan"}
        ):
            if any(v in network.outputs for v in layer.writes):
                continue
            network.constants.update(layer.writes)
            network.drop(layer, "constant folding")


def bury(network: Network) -> None:
    """What no output depends on goes, and so does what gives on what it reads."""
    needed: set[int] = set()
    todo = [y for o in network.outputs if (y := network.writer.get(o)) is not None]
    while todo:
        layer = todo.pop()
        if id(layer) not in needed:
            needed.add(id(layer))
            todo += [w for v in layer.reads if (w := network.writer.get(v)) is not None]
    for layer in network:
        if id(layer) not in needed:
            network.drop(layer, "dead-layer removal")
    for layer in network:
        if _idle(network, layer) and layer.writes[0] not in network.outputs:
            network.remove(layer, "identity removal")


def _idle(network: Network, layer: NetworkLayer) -> bool:
    """Whether a layer gives what it reads."""
    if layer.kind in _IDLE:
        return len(layer.writes) == 1 or not any(network.readers(v) for v in layer.writes[1:])
    if layer.kind == "Cast":
        types = {v.dtype for n in (layer.reads[0], layer.writes[0]) if (v := network.model.values.get(n))}
        return len(types) == 1 and "" not in types
    return False


def views(network: Network) -> None:
    """Shuffles one after the other become one."""
    _pairwise(network, rules.VIEWS, network.fuse)


def reductions(network: Network) -> None:
    """Activations and reductions in several operators become one, and averages over height and width a pooling."""
    for layer in network:
        if layer.kind in ROOTS:
            for made, tree in PATTERNS:
                if (found := match(network, layer, tree)) is not None:
                    _gather(network, found[0], made)
                    break
    for layer in network:
        if layer.kind == "ReduceMean" and _plane(network, layer):
            network.become(layer, "REDUCE", "POOLING", "ReduceToPooling")
            layer.kind = "AveragePool"


def _gather(network: Network, taken: Sequence[NetworkLayer], kind: str) -> None:
    layer = taken[0]
    for other in taken[1:]:
        network.say(f"{kind}Fusion: Fusing {layer.name} with {other.name}")
        layer = network.join(layer, [other], f"{layer.name} + {other.name}", "reduction fusion")
    layer.kind = kind
    layer.ops = [kind]


def _plane(network: Network, layer: NetworkLayer) -> bool:
    """Whether a mean is one over height and width of N×C×H×W."""
    axes = layer.node.attributes.get("axes")
    if axes is None and len(layer.node.inputs) > 1:
        held = network.model.known.get(layer.node.inputs[1])
        axes = held.numpy().tolist() if held is not None else None
    rank = len(network.shape(layer.node.inputs[0]) or ())
    return isinstance(axes, list) and rank == 4 and sorted(int(a) % 4 for a in axes) == [2, 3]


def scales(network: Network) -> None:
    """Scales go into the weights of the layer before them."""

    def join(first: NetworkLayer, second: NetworkLayer, rule: str) -> NetworkLayer:
        return network.scale(first, second, rule)

    _pairwise(network, rules.SCALES, join)


def vertical(network: Network) -> None:
    """Activations and sums go into the layer before them."""
    _pairwise(network, rules.VERTICAL, network.fuse)


def pointwise(network: Network) -> None:
    """What computes each element for itself becomes one layer with its like."""
    _pairwise(network, rules.POINTWISE, network.chain)


def _pairwise(
    network: Network,
    table: Sequence[FusionRule],
    join: Callable[[NetworkLayer, NetworkLayer, str], NetworkLayer],
) -> None:
    """Each layer with the one that reads it, as long as a rule holds."""
    for start in network:
        layer: NetworkLayer | None = start if network.layers.get(start.name) is start else None
        while layer is not None:
            layer = _joined(network, layer, table, join)


def _joined(
    network: Network,
    layer: NetworkLayer,
    table: Sequence[FusionRule],
    join: Callable[[NetworkLayer, NetworkLayer, str], NetworkLayer],
) -> NetworkLayer | None:
    for reader in network.following(layer):
        for rule in table:
            if layer.kind not in rule.first or reader.kind not in rule.second:
                continue
            why = rule.hinder(network, layer, reader)
            if not why and len(layer.nodes) + len(reader.nodes) > _MOST:
                why = f"a layer has at most {_MOST} nodes here"
            if not why:
                kind = reader.kind if layer.kind == "Pad" else layer.kind
                node = reader.node if layer.kind == "Pad" else layer.node
                made = join(layer, reader, rule.name)
                if made.kind != "PointWise":
                    made.kind, made.node = kind, node
                return made
            network.refuse(layer.nodes, reader, rule.name, why)
    return None


def merge(network: Network) -> None:
    """Convolutions that read one value with equal parameters become one wider convolution."""
    siblings: defaultdict[tuple[object, ...], list[NetworkLayer]] = defaultdict(list)
    for layer in network:
        if layer.kind == "Conv" and (key := _likeness(network, layer)) is not None:
            siblings[key].append(layer)
    for group in siblings.values():
        if len(group) > 1:
            network.merge(group, "tensor merging")


def _likeness(network: Network, layer: NetworkLayer) -> tuple[object, ...] | None:
    """What convolutions have to share to become one; None for one that cannot."""
    told = layer.node.attributes
    read = network.data(layer)
    if len(read) != 1 or told.get("group", 1) != 1 or any(o in rules.SUMS | rules.POOLS for o in layer.ops):
        return None
    weight = network.shape(layer.node.inputs[1])
    kernel = told.get("kernel_shape") or (list(weight[2:]) if weight else None)
    if kernel is None:
        return None
    shape = network.shape(layer.node.outputs[0])
    window = (kernel, told.get("strides"), told.get("pads"), told.get("dilations"), told.get("auto_pad"))
    # A padding of 0 and a stride of 1 are not always written.
    plain = tuple(
        None if isinstance(w, list) and set(w) <= {unit} else w
        for w, unit in zip(window[1:4], (1, 0, 1), strict=True)
    )
    after = tuple(o for o in layer.ops if o in rules.ACTIVATIONS)
    bounds = tuple(_bounds(network, n) for n in layer.nodes if network.model.by_id[n].op == "Clip")
    size = shape[2:] if shape is not None else None
    return (read[0], repr(kernel), repr(plain), window[4], after, bounds, layer.int8, layer.narrow, size)


def _bounds(network: Network, node: str) -> str:
    """Between what a Clip keeps its values, as text."""
    clip = network.model.by_id[node]
    held = [
        network.model.known[v].numpy().tolist() if v in network.model.known else v for v in clip.inputs[1:]
    ]
    return repr((held, clip.attributes.get("min"), clip.attributes.get("max")))


#: The passes by name, in their order. Names are those of TensorRT's log where it has one.
PASSES: tuple[tuple[str, Callable[[Network], None]], ...] = (
    ("constant folding", fold),
    ("dead-layer removal", bury),
    ("shuffle fusions", views),
    ("Q/DQ propagation", pairs.propagate),
    ("scale fusion", scales),
    ("reduction fusions", reductions),
    ("Q/DQ fusion with weights and inputs", pairs.inputs),
    ("vertical fusions", vertical),
    ("Q/DQ fusion with outputs", pairs.outputs),
    ("pointwise fusions", pointwise),
    ("final dead-layer removal", bury),
    ("tensor merging", merge),
    ("slice removal", concats.slices),
    ("concat removal", concats.concats),
)


def run(network: Network, each: Callable[[str], object] = lambda _: None) -> Network:
    """Run all passes; ``each`` is called with the name of a pass before it, and may raise."""
    network.say(f"Original: {len(network)} layers")
    for name, work in PASSES:
        each(name)
        work(network)
        network.ended(name)
    return network


def layers_of(network: Network, nodes: Iterable[str]) -> list[NetworkLayer]:
    """The layers that do the work of some nodes."""
    wanted = set(nodes)
    return [y for y in network if wanted.intersection((*y.nodes, *y.absorbed))]
