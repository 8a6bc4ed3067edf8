"""The passes over a network in the order of TensorRT: each decides by rules, and its end counts the layers."""

from __future__ import annotations

import datetime
import functools
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence

import onnx

from rtlab.backends import compiler_info
from rtlab.backends.classic import rules
from rtlab.backends.classic.network import COPY, Network, NetworkLayer, check_sole_reader, sort_topologically
from rtlab.backends.classic.rules import FusionRule
from rtlab.backends.readers import optimized
from rtlab.core.engine import Engine, Layer
from rtlab.core.model import Model
from rtlab.core.node import ONNX_DOMAINS
from rtlab.core.progress import check
from rtlab.core.protocols import Availability, BuildRequest, Capabilities, Progress, Ruled
from rtlab.core.variant import SUPPORTED_TARGETS, Precision, Target
from rtlab.errors import BuildError, VariantError

_Q, _DQ = "QuantizeLinear", "DequantizeLinear"
#: Layers over which a Q or DQ may go: they choose or move elements, and compute none.
_COMMUTING = frozenset({"MaxPool", "Reshape", "Transpose", "Flatten", "Squeeze", "Unsqueeze", "Slice"})
#: Layers without weights that have a form on integers; they need a pair on either side.
_QUANTIZABLE = frozenset({"AveragePool", "GlobalAveragePool", "Add", "Sum", "MatMul", "Mul"})


def propagate_quantizers(network: Network) -> None:
    """Equal QuantizeLinears of one value become one, and go backward over layers that do not compute."""
    for layer in network:
        # Those of weights stay with them.
        if layer.kind == _Q and network.get_data_inputs(layer) and network.layers.get(layer.name) is layer:
            _merge_duplicates(network, layer)
    for layer in network:
        while layer.kind == _Q and (before := _find_commuting_layer(network, layer)) is not None:
            network.swap(before, layer, "VanillaSwapWithFollowingQ")


def _merge_duplicates(network: Network, layer: NetworkLayer) -> None:
    for other in network.get_readers(layer.reads[0]):
        if other is layer or other.kind != _Q or other.node.index < layer.node.index:
            continue
        if any(v in network.outputs for v in other.writes) or _scale_key(network, other) != _scale_key(
            network, layer
        ):
            continue
        network.remove_duplicate(other, layer, "HorizontalMergeQNodes")


def _scale_key(network: Network, layer: NetworkLayer) -> tuple[object, ...]:
    """The numbers of a Q or DQ, by value where they are known."""
    constants = network.model.known
    parameters = (constants[v].numpy().tolist() if v in constants else v for v in layer.node.inputs[1:] if v)
    return (*map(repr, parameters), layer.node.attributes.get("axis"))


def _find_commuting_layer(network: Network, layer: NetworkLayer) -> NetworkLayer | None:
    """The layer over which a QuantizeLinear may go backward."""
    data = network.get_data_inputs(layer)
    before = network.writer.get(data[0]) if len(data) == 1 else None
    if before is None or before.kind not in _COMMUTING or check_sole_reader(network, before, layer):
        return None
    data_inputs = network.get_data_inputs(before)
    if len(data_inputs) != 1 or len(before.writes) != 1 or data_inputs[0] in network.outputs:
        return None
    # Elsewhere a swap would only move the work.
    writer = network.writer.get(data_inputs[0])
    is_sole_reader = network.get_readers(data_inputs[0]) == (before,)
    computes = writer is not None and writer.kind in rules.LINEAR | rules.ACTIVATIONS | rules.SUMS
    return before if is_sole_reader and computes else None


def fuse_quantized_inputs(network: Network) -> None:
    """Layers with weights take in the pairs of their weights, and the DequantizeLinear of what they read."""
    for start in network:
        if start.kind in rules.LINEAR:
            slots = [w for v in start.node.inputs[:2] if (w := network.writer.get(v)) and w.kind == _DQ]
            if len(slots) == 2:
                _absorb_dequantizers(network, start, *slots)


def _absorb_dequantizers(
    network: Network, layer: NetworkLayer, data: NetworkLayer, weight: NetworkLayer
) -> None:
    weight_quantizer = network.writer.get(weight.reads[0])
    if data is not weight and _is_sole_use(network, data, layer) and _is_sole_use(network, weight, layer):
        layer = network.absorb(layer, [data, weight], "QuantizeDoubleInputNodes")
    else:
        # A pair of which others read too is taken in by each of them.
        for part in {data.name: data, weight.name: weight}.values():
            network.share(layer, part, "QuantizeDoubleInputNodes")
    layer.int8 = True
    if (
        weight_quantizer is not None
        and weight_quantizer.kind == _Q
        and not check_sole_reader(network, weight_quantizer, layer)
    ):
        kind, node = layer.kind, layer.node
        layer = network.fuse(weight_quantizer, layer, "ConstWeightsFusion")
        layer.kind, layer.node = kind, node


def _is_sole_use(network: Network, part: NetworkLayer, layer: NetworkLayer) -> bool:
    """Whether only one layer ever took in a part."""
    return not part.shared and not check_sole_reader(network, part, layer)


def fuse_quantized_outputs(network: Network) -> None:
    """Layers on integers take in what quantizes their output; so do those without weights."""
    for start in network:
        layer = start
        if network.layers.get(layer.name) is not layer:
            continue
        if layer.kind in rules.LINEAR and layer.int8:
            layer = _absorb_output_quantizer(network, layer)
        elif layer.kind in _QUANTIZABLE:
            _quantize_weightless(network, layer)
    _fuse_pairs(network, rules.POOLING, network.fuse)


def _absorb_output_quantizer(network: Network, layer: NetworkLayer) -> NetworkLayer:
    """A quantized layer with the DequantizeLinear of a sum's other operand, and with the QuantizeLinear behind it.

    What is added is quantized where the output is, and only there: else the sum is one of floating point.
    """
    after = network.get_consumers(layer)
    quantizers = [r for r in after if r.kind == _Q]
    if not quantizers:
        return layer
    addends = _list_addends(network, layer)
    unquantized_values = [v for v in addends if (w := network.writer.get(v)) is None or w.kind != _DQ]
    reason = check_sole_reader(network, layer, quantizers[0]) or (
        f'"{unquantized_values[0]}", which it adds, is not quantized' if unquantized_values else ""
    )
    if reason:
        network.record_refusal(layer.nodes, quantizers[0], "QuantizeDoubleInputNodes", reason)
        return layer
    for value in addends:
        other = network.writer[value]
        if _is_sole_use(network, other, layer):
            layer = network.absorb(layer, [other], "QuantizeDoubleInputNodes")
        else:
            network.share(layer, other, "QuantizeDoubleInputNodes")
    layer = network.absorb(layer, quantizers, "QuantizeDoubleInputNodes")
    layer.narrow = True
    return layer


def _list_addends(network: Network, layer: NetworkLayer) -> list[str]:
    """What the sum of a layer adds to the rest of it."""
    nodes = [network.model.by_id[n] for n in layer.nodes]
    return [
        v
        for n in nodes
        if n.op in rules.SUMS
        for v in n.inputs
        if v in layer.reads and v not in network.constants
    ]


def _quantize_weightless(network: Network, layer: NetworkLayer) -> None:
    """A layer without weights between DequantizeLinears and a QuantizeLinear."""
    before = [network.writer.get(v) for v in network.get_data_inputs(layer)]
    after = network.get_consumers(layer)
    dqs = [b for b in before if b is not None and b.kind == _DQ]
    if (
        not dqs
        or len(dqs) != len(before)
        or len(after) != 1
        or after[0].kind != _Q
        or check_sole_reader(network, layer, after[0])
    ):
        return
    rule = "QuantizeDoubleInputNodes" if len(dqs) > 1 else "QuantizeSingleInputNodes"
    unique = list({d.name: d for d in dqs}.values())
    exclusive_dqs = [d for d in unique if _is_sole_use(network, d, layer)]
    for dq in unique:
        if dq not in exclusive_dqs:
            network.share(layer, dq, rule)
    layer = network.absorb(layer, exclusive_dqs, rule) if exclusive_dqs else layer
    layer = network.absorb(layer, after, rule)
    layer.int8 = layer.narrow = True


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
    """Averages over height and width become a pooling."""
    for layer in network:
        if layer.kind == "ReduceMean" and _is_spatial_mean(network, layer):
            network.lines.append(f"Swap the layer type of {layer.name} from REDUCE to POOLING")
            layer.kind = "AveragePool"
            layer.rules.append("ReduceToPooling")


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
            name = " || ".join(layer.name for layer in group)
            network.lines.append(f"Merging layers: {name}")
            network.join(group[0], group[1:], name, "tensor merging")


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


#: Along which axis a part of a tensor is a tensor of its own: those before it have to be of size one.
_CHANNELS = 1


def remove_concats(network: Network) -> None:
    """Concats along the channels go: what wrote their inputs writes at its place in their output, or is copied."""
    in_place: dict[str, str] = {}
    for layer in network:
        if layer.kind != "Concat" or len(layer.ops) != 1:
            continue
        if reason := _check_concat(network, layer):
            network.record_refusal((), layer, "concat removal", reason)
            continue
        _eliminate(network, layer, in_place)


def _check_concat(network: Network, layer: NetworkLayer) -> str:
    """Why a Concat stays a layer; empty where it goes."""
    axis = layer.node.attributes.get("axis", _CHANNELS)
    shape = network.get_shape(layer.node.outputs[0])
    rank = len(shape) if shape is not None else 4
    if not isinstance(axis, int) or axis % max(rank, 1) != _CHANNELS:
        return f"it joins along axis {axis}, and only channels are written in place"
    if any(v in network.constants for v in layer.reads):
        return "one of its inputs is a constant"
    return ""


def _eliminate(network: Network, layer: NetworkLayer, in_place: dict[str, str]) -> None:
    network.lines.append(f"Eliminating concatenation {layer.name}")
    network.discard(layer, "concat removal")
    copies: defaultdict[str, list[str]] = defaultdict(list)
    in_place_values: list[str] = []
    for value in layer.reads:
        name = _choose_copy_name(network, value, in_place)
        if name:
            copies[name].append(value)
        else:
            in_place_values.append(value)
            in_place[value] = layer.name
    for name, values in copies.items():
        network.add_copy(name, values, layer, "concat removal")
    for value in in_place_values:
        network.retarget(value, layer)


def _choose_copy_name(network: Network, value: str, in_place: dict[str, str]) -> str:
    """What a copy of a value is called, a layer or the value itself; empty where it is written in place."""
    writer = network.writer.get(value)
    if writer is None or value in network.outputs or value in in_place or writer.kind == COPY:
        return value
    # A merged layer writes several values side by side.
    return writer.name if " || " in writer.name else ""


#: The passes by name, in their order. Names are those of TensorRT's log where it has one.
PASSES: tuple[tuple[str, Callable[[Network], None]], ...] = (
    ("constant folding", fold_constants),
    ("dead-layer removal", remove_dead_layers),
    ("shuffle fusions", lambda network: _fuse_pairs(network, rules.VIEWS, network.fuse)),
    ("Q/DQ propagation", propagate_quantizers),
    ("scale fusion", lambda network: _fuse_pairs(network, rules.SCALES, network.fold_scale)),
    ("reduction fusions", fuse_reductions),
    ("Q/DQ fusion with weights and inputs", fuse_quantized_inputs),
    ("vertical fusions", lambda network: _fuse_pairs(network, rules.VERTICAL, network.fuse)),
    ("Q/DQ fusion with outputs", fuse_quantized_outputs),
    ("pointwise fusions", lambda network: _fuse_pairs(network, rules.POINTWISE, network.fuse_pointwise)),
    ("final dead-layer removal", remove_dead_layers),
    ("tensor merging", merge_siblings),
    ("concat removal", remove_concats),
)


def run(network: Network, each: Callable[[str], object] = lambda _: None) -> Network:
    """Run all passes; ``each`` is called with the name of a pass before it, and may raise."""
    network.lines.append(f"Original: {len(network.layers)} layers")
    for name, work in PASSES:
        each(name)
        work(network)
        network.lines.append(f"After {name}: {len(network.layers)} layers")
    return network


def find_layers(network: Network, nodes: Iterable[str]) -> list[NetworkLayer]:
    """The layers that do the work of some nodes."""
    node_ids = set(nodes)
    return [y for y in network if node_ids.intersection((*y.nodes, *y.absorbed))]


_CANNOT_PREDICT = 'Backend "classic" cannot predict'
_RELEASES = "3 to 10"
_NOTE = (
    "Predicted by the documented rules of TensorRT 3 to 10: nothing was compiled. Kernels, formats and what TensorRT 8 "
    "and later hand to Myelin (attention, products after the last convolution) are not predicted."
)


class Classic:
    """The backend that predicts layers by ``PASSES``, with no compiler and no GPU; it runs nothing."""

    name = "classic"

    def availability(self) -> Availability:
        """It is part of rtlab."""
        return Availability(ok=True, version=_RELEASES)

    def capabilities(self) -> Capabilities:
        """Every target and precision: the rules do not depend on them, but for what stands in the graph."""
        return Capabilities(
            tuple(Target(t) for t in ("sm86", *(t for t in SUPPORTED_TARGETS if t != "sm86"))),
            tuple(Precision),
            builds=True,
            explains=True,
            maker=compiler_info.CLASSIC,
        )

    def build(self, request: BuildRequest, progress: Progress) -> Engine:
        """Run the passes; the log tells what each decided.

        Raises:
            BuildError: the model has an operator that is none of ONNX's, or the limit of time is passed.
            VariantError: the target is none of a GPU.
            Cancelled: ``progress`` asked to stop.
        """
        model, target = request.model, request.variant.target
        if target.sm is None:
            raise VariantError(
                f'{_CANNOT_PREDICT} "{model.name}" for target "{target}": TensorRT is for GPUs. Choose a target such '
                'as "sm86".'
            )
        start = time.perf_counter()

        def each(pass_name: str) -> None:
            check(progress, "the prediction")
            progress.phase(f"Predicting: {pass_name}")
            if time.perf_counter() - start > request.limits.seconds:
                raise BuildError(
                    f'{_CANNOT_PREDICT} "{model.name}": {request.limits.seconds:g} s are over. Raise the limit.'
                )

        check(progress, "the prediction")
        _reject_unknown_operators(model)
        network = run(Network(model), each)
        layers = _make_layers(network)
        return Engine(
            backend=self.name,
            version=_RELEASES,
            target=target,
            layers=layers,
            inputs=optimized.to_tensors(model.values, model.inputs),
            outputs=optimized.to_tensors(model.values, model.outputs),
            log="\n".join((_NOTE, *network.lines, "")),
            seconds=time.perf_counter() - start,
            built=datetime.datetime.now(datetime.timezone.utc),
            notes=(_NOTE,),
            maker=compiler_info.CLASSIC,
        )

    def explain(self, model: Model, first: str, second: str) -> Ruled:
        """Whether two nodes become one layer, by which rule, and what hinders; ``BuildError`` as from ``build``."""
        return explain_fusion(_create_network(model), first, second)


@functools.lru_cache(2)
def _create_network(model: Model) -> Network:
    """The network behind all passes; those of the models that were asked about last stay."""
    _reject_unknown_operators(model)
    return run(Network(model))


def explain_fusion(network: Network, first: str, second: str) -> Ruled:
    """What the rules say of two nodes."""
    layer_names = [{y.name for y in find_layers(network, [n])} for n in (first, second)]
    if layer_names[0] & layer_names[1]:
        rule = next((rule for rule, nodes in network.fusions if {first, second} <= {*nodes}), "")
        rule = rule or _find_shared_rule(network, first, second)
        return Ruled(
            fused=True, rule=rule, source=rules.get_source(rule), text=f"{rule} makes them one layer."
        )
    for node, names_of_node in zip((first, second), layer_names, strict=True):
        if not names_of_node:
            rule = network.removed_nodes.get(node, "")
            text = f'"{node}" has no layer: {rule} takes it away.'
            return Ruled(fused=None, rule=rule, source=rules.get_source(rule), text=text)
    ops = [network.model.by_id[n].op for n in (first, second)]
    refused_rules = network.refusals.get((first, second), {})
    if not refused_rules:
        possible = rules.find_rules(*ops)
        if not possible:
            text = f"No documented rule makes {ops[0]} and {ops[1]} one layer."
            return Ruled(fused=False, rule="", source=rules.CATALOG, text=text)
        names = " or ".join(dict.fromkeys(r.name for r in possible))
        text = f"{names} would, and another fusion took one of them first, or something stands between them."
        return Ruled(fused=False, rule=possible[0].name, source=possible[0].source, text=text)
    rule = [*refused_rules][-1]
    text = " ".join(f"{name} does not hold: {why}." for name, why in refused_rules.items())
    return Ruled(fused=False, rule=rule, source=rules.get_source(rule), text=text)


def _find_shared_rule(network: Network, first: str, second: str) -> str:
    """The rule by which a layer does the work of a node together with others."""
    layer = next(y for y in find_layers(network, [first]) if {first, second} <= {*y.nodes, *y.absorbed})
    return layer.rules[-1] if layer.rules else ""


def _reject_unknown_operators(model: Model) -> None:
    """Raise ``BuildError`` where TensorRT would ask for a plugin."""
    functions = {n.scope[0].removeprefix("function ") for n in model.nodes if n.scope}
    for node in model.nodes:
        if (
            node.domain not in ONNX_DOMAINS | _PLUGINS
            and node.op not in functions
            and not onnx.defs.has(node.op, node.domain)
        ):
            raise BuildError(
                f'{_CANNOT_PREDICT} "{model.name}": operator {node.domain}::{node.op} of "{node.id}" is none of '
                "ONNX's, and TensorRT would need a plugin for it. Choose standard operators."
            )


#: Domains whose operators TensorRT's parser knows.
_PLUGINS = frozenset({"trt", "com.microsoft", "ai.onnx.contrib"})


def _make_layers(network: Network) -> tuple[Layer, ...]:
    """The layers of a network as those of an engine."""
    model = network.model
    inner_nodes: dict[str, list[str]] = {}
    for node in model.nodes:
        if node.scope:
            inner_nodes.setdefault(node.scope[0], []).append(node.id)
    for node in model.top:
        if (function := f"function {node.op}") in inner_nodes:
            inner_nodes[node.id] = inner_nodes[function]
    layers = []
    for index, layer in enumerate(sort_topologically(network.layers.values())):
        nodes = dict.fromkeys([*layer.nodes, *layer.absorbed])
        rule_names = dict.fromkeys(layer.rules)
        sources = dict.fromkeys(map(rules.get_source, rule_names))
        layers.append(
            Layer(
                id=f"{index}:{layer.name}",
                name=layer.name,
                kind=layer.kind,
                index=index,
                inputs=optimized.to_tensors(model.values, network.get_data_inputs(layer)),
                outputs=optimized.to_tensors(model.values, layer.writes),
                constants=optimized.to_tensors(
                    model.values, (v for v in layer.reads if v in network.constants)
                ),
                origins=tuple(n for i in nodes for n in (i, *inner_nodes.get(i, ()))),
                attributes={"Rules": ", ".join(rule_names), "Sources": "; ".join(sources)}
                if rule_names
                else {},
            )
        )
    return tuple(layers)
