"""Concatenations and slices that need no layer: what is beside them reads or writes memory at the right place."""

from __future__ import annotations

from collections import defaultdict

from rtlab.backends.classic.network import COPY, Network, NetworkLayer

#: Along which axis a part of a tensor is a tensor of its own: those before it have to be of size one.
_CHANNELS = 1


def remove_slices(network: Network) -> None:
    """Slices along the channels read at their place in what they are taken from."""
    for layer in network:
        if layer.kind != "Slice" or len(layer.ops) != 1:
            continue
        if reason := _check_slice(network, layer):
            network.record_refusal((), layer, "slice removal", reason)
            continue
        network.remove_slice(layer, network.get_data_inputs(layer)[0], "slice removal")


def _check_slice(network: Network, layer: NetworkLayer) -> str:
    """Why a Slice stays a layer; empty where it goes."""
    node, constants = layer.node, network.model.known
    arguments = [constants[v].numpy().tolist() if v in constants else None for v in node.inputs[1:]]
    axes = arguments[2] if len(arguments) > 2 else node.attributes.get("axes")
    steps = arguments[3] if len(arguments) > 3 else [1]
    if not isinstance(axes, list) or axes != [_CHANNELS]:
        return "it does not slice along the channels alone"
    if steps != [1]:
        return "it leaves out elements"
    if layer.writes[0] in network.outputs:
        return "what it writes is an output of the model"
    is_input = network.writer.get(network.get_data_inputs(layer)[0]) is None
    return "it slices an input of the model" if is_input else ""


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
    network.remove_concat(layer, "concat removal")
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
