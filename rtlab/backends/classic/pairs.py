"""Quantize and dequantize pairs: moved towards each other's layers, and taken in by what computes on integers.

A DequantizeLinear goes forward and a QuantizeLinear backward over what does not compute; a layer with weights takes in
the DequantizeLinear before it, and the QuantizeLinear behind it where all that it reads is quantized.
"""

from __future__ import annotations

from rtlab.backends.classic import rules
from rtlab.backends.classic.network import Network, NetworkLayer, check_sole_reader

_Q, _DQ = "QuantizeLinear", "DequantizeLinear"
#: Layers over which a Q or DQ may go: they choose or move elements, and compute none.
_COMMUTING = frozenset({"MaxPool", "Reshape", "Transpose", "Flatten", "Squeeze", "Unsqueeze", "Slice"})
#: Layers without weights that have a form on integers; they need a pair on either side.
_QUANTIZABLE = frozenset({"AveragePool", "GlobalAveragePool", "Add", "Sum", "MatMul", "Mul"})


def propagate(network: Network) -> None:
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


def fuse_inputs(network: Network) -> None:
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


def fuse_outputs(network: Network) -> None:
    """Layers on integers take in what quantizes their output, and then a pooling; so do those without weights."""
    for start in network:
        layer = start
        if network.layers.get(layer.name) is not layer:
            continue
        if layer.kind in rules.LINEAR and layer.int8:
            layer = _absorb_output_quantizer(network, layer)
        elif layer.kind in _QUANTIZABLE:
            _quantize_weightless(network, layer)
    for rule in rules.VERTICAL:
        if rule.name == "ConvPoolFusion":
            _fuse_pools(network, rule)


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


def _fuse_pools(network: Network, rule: rules.FusionRule) -> None:
    for layer in network:
        after = network.get_consumers(layer)
        if layer.kind in rule.first and layer.int8 and len(after) == 1 and after[0].kind in rule.second:
            if not (reason := rule.find_obstacle(network, layer, after[0])):
                network.fuse(layer, after[0], rule.name)
            else:
                network.record_refusal(layer.nodes, after[0], rule.name, reason)
