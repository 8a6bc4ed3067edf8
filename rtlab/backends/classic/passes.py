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


def fold_constants(network: Network) -> None:
    """What reads constants alone is computed once; sizes are computed on the host."""
    for layer in network:
        is_constant = all(v in network.constants for v in layer.reads)
        is_size = layer.kind in _SIZES
        # The pairs of weights are those of the layer that reads them.
        if (
            (is_constant or is_size)
            and layer.kind not in _PAIRS | _RANDOM
            and layer.node.op not in {"If", "Loop", "Scan"}
        ):
            if any(v in network.outputs for v in layer.writes):
                continue
            network.constants.update(layer.writes)
            network.drop(layer, "constant folding")


def remove_dead_layers(network: Network) -> None:
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
        if _is_identity(network, layer) and layer.writes[0] not in network.outputs:
            network.remove(layer, "identity removal")


def _is_identity(network: Network, layer: NetworkLayer) -> bool:
    """Whether a layer gives what it reads."""
    if layer.kind in _IDLE:
        return len(layer.writes) == 1 or not any(network.get_readers(v) for v in layer.writes[1:])
    if layer.kind == "Cast":
        types = {v.dtype for n in (layer.reads[0], layer.writes[0]) if (v := network.model.values.get(n))}
        return len(types) == 1 and "" not in types
    return False


def fuse_reductions(network: Network) -> None:
    """Activations and reductions in several operators become one, and averages over height and width a pooling."""
    for layer in network:
        if layer.kind in ROOTS:
            for fused_kind, tree in PATTERNS:
                if (pattern_match := match(network, layer, tree)) is not None:
                    _fuse_pattern(network, pattern_match[0], fused_kind)
                    break
    for layer in network:
        if layer.kind == "ReduceMean" and _is_spatial_mean(network, layer):
            network.change_kind(layer, "REDUCE", "POOLING", "ReduceToPooling")
            layer.kind = "AveragePool"


def _fuse_pattern(network: Network, matched_layers: Sequence[NetworkLayer], kind: str) -> None:
    layer = matched_layers[0]
    for other in matched_layers[1:]:
        network.log(f"{kind}Fusion: Fusing {layer.name} with {other.name}")
        layer = network.join(layer, [other], f"{layer.name} + {other.name}", "reduction fusion")
    layer.kind = kind
    layer.ops = [kind]


def _is_spatial_mean(network: Network, layer: NetworkLayer) -> bool:
    """Whether a mean is one over height and width of N×C×H×W."""
    axes = layer.node.attributes.get("axes")
    if axes is None and len(layer.node.inputs) > 1:
        axes_tensor = network.model.known.get(layer.node.inputs[1])
        axes = axes_tensor.numpy().tolist() if axes_tensor is not None else None
    rank = len(network.get_shape(layer.node.inputs[0]) or ())
    return isinstance(axes, list) and rank == 4 and sorted(int(a) % 4 for a in axes) == [2, 3]


def _fuse_pairs(
    network: Network,
    table: Sequence[FusionRule],
    join: Callable[[NetworkLayer, NetworkLayer, str], NetworkLayer],
) -> None:
    """Each layer with the one that reads it, as long as a rule holds."""
    for start in network:
        layer: NetworkLayer | None = start if network.layers.get(start.name) is start else None
        while layer is not None:
            layer = _fuse_with_reader(network, layer, table, join)


def _fuse_with_reader(
    network: Network,
    layer: NetworkLayer,
    table: Sequence[FusionRule],
    join: Callable[[NetworkLayer, NetworkLayer, str], NetworkLayer],
) -> NetworkLayer | None:
    for reader in network.get_consumers(layer):
        for rule in table:
            if layer.kind not in rule.first or reader.kind not in rule.second:
                continue
            reason = rule.find_obstacle(network, layer, reader)
            if not reason and len(layer.nodes) + len(reader.nodes) > _MOST:
                reason = f"a layer has at most {_MOST} nodes here"
            if not reason:
                kind = reader.kind if layer.kind == "Pad" else layer.kind
                node = reader.node if layer.kind == "Pad" else layer.node
                fused_layer = join(layer, reader, rule.name)
                if fused_layer.kind != "PointWise":
                    fused_layer.kind, fused_layer.node = kind, node
                return fused_layer
            network.record_refusal(layer.nodes, reader, rule.name, reason)
    return None


def merge_siblings(network: Network) -> None:
    """Convolutions that read one value with equal parameters become one wider convolution."""
    siblings: defaultdict[tuple[object, ...], list[NetworkLayer]] = defaultdict(list)
    for layer in network:
        if layer.kind == "Conv" and (key := _compute_merge_key(network, layer)) is not None:
            siblings[key].append(layer)
    for group in siblings.values():
        if len(group) > 1:
            network.merge(group, "tensor merging")


def _compute_merge_key(network: Network, layer: NetworkLayer) -> tuple[object, ...] | None:
    """What convolutions have to share to become one; None for one that cannot."""
    attributes = layer.node.attributes
    data_inputs = network.get_data_inputs(layer)
    if (
        len(data_inputs) != 1
        or attributes.get("group", 1) != 1
        or any(o in rules.SUMS | rules.POOLS for o in layer.ops)
    ):
        return None
    weight = network.get_shape(layer.node.inputs[1])
    kernel = attributes.get("kernel_shape") or (list(weight[2:]) if weight else None)
    if kernel is None:
        return None
    shape = network.get_shape(layer.node.outputs[0])
    # A padding of 0 and a stride of 1 are not always written.
    window = [
        None if isinstance(w := attributes.get(name), list) and set(w) <= {unit} else w
        for name, unit in (("strides", 1), ("pads", 0), ("dilations", 1))
    ]
    after = tuple(o for o in layer.ops if o in rules.ACTIVATIONS)
    bounds = tuple(
        _format_clip_bounds(network, n) for n in layer.nodes if network.model.by_id[n].op == "Clip"
    )
    size = shape[2:] if shape is not None else None
    parameters = repr((kernel, window, attributes.get("auto_pad")))
    return data_inputs[0], parameters, after, bounds, layer.int8, layer.narrow, size


def _format_clip_bounds(network: Network, node: str) -> str:
    """Between what a Clip keeps its values, as text."""
    clip = network.model.by_id[node]
    limits = [
        network.model.known[v].numpy().tolist() if v in network.model.known else v for v in clip.inputs[1:]
    ]
    return repr((limits, clip.attributes.get("min"), clip.attributes.get("max")))


#: The passes by name, in their order. Names are those of TensorRT's log where it has one.
PASSES: tuple[tuple[str, Callable[[Network], None]], ...] = (
    ("constant folding", fold_constants),
    ("dead-layer removal", remove_dead_layers),
    ("shuffle fusions", lambda network: _fuse_pairs(network, rules.VIEWS, network.fuse)),
    ("Q/DQ propagation", pairs.propagate),
    ("scale fusion", lambda network: _fuse_pairs(network, rules.SCALES, network.fold_scale)),
    ("reduction fusions", fuse_reductions),
    ("Q/DQ fusion with weights and inputs", pairs.fuse_inputs),
    ("vertical fusions", lambda network: _fuse_pairs(network, rules.VERTICAL, network.fuse)),
    ("Q/DQ fusion with outputs", pairs.fuse_outputs),
    ("pointwise fusions", lambda network: _fuse_pairs(network, rules.POINTWISE, network.fuse_pointwise)),
    ("final dead-layer removal", remove_dead_layers),
    ("tensor merging", merge_siblings),
    ("slice removal", concats.remove_slices),
    ("concat removal", concats.remove_concats),
)


def run(network: Network, each: Callable[[str], object] = lambda _: None) -> Network:
    """Run all passes; ``each`` is called with the name of a pass before it, and may raise."""
    network.log(f"Original: {len(network)} layers")
    for name, work in PASSES:
        each(name)
        work(network)
        network.log(f"After {name}: {len(network)} layers")
    return network


def find_layers(network: Network, nodes: Iterable[str]) -> list[NetworkLayer]:
    """The layers that do the work of some nodes."""
    node_ids = set(nodes)
    return [y for y in network if node_ids.intersection((*y.nodes, *y.absorbed))]
