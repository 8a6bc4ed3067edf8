"""Concatenations and slices that need no layer: what is beside them reads or writes memory at the right place."""

from __future__ import annotations

from collections import defaultdict

from rtlab.backends.classic.network import COPY, Network, NetworkLayer

#: Along which axis a part of a tensor is a tensor of its own: those before it have to be of size one.
_CHANNELS = 1


def slices(network: Network) -> None:
    """Slices along the channels read at their place in what they are taken from."""
    for layer in network:
        if layer.kind != "Slice" or len(layer.ops) != 1:
            continue
        why = _kept(network, layer)
        if why:
            network.refuse((), layer, "slice removal", why)
            continue
        source = network.data(layer)[0]
        network.unslice(layer, source, "slice removal")


def _kept(network: Network, layer: NetworkLayer) -> str:
    """Why a Slice stays a layer; empty where it goes."""
    node, known = layer.node, network.model.known
    held = [known[v].numpy().tolist() if v in known else None for v in node.inputs[1:]]
    axes = held[2] if len(held) > 2 else node.attributes.get("axes")
    steps = held[3] if len(held) > 3 else [1]
    if not isinstance(axes, list) or axes != [_CHANNELS]:
        return "it does not slice along the channels alone"
    if steps != [1]:
        return "it leaves out elements"
    if layer.writes[0] in network.outputs:
        return "what it writes is an output of the model"
    return "" if network.writer.get(network.data(layer)[0]) is not None else "it slices an input of the model"


def concats(network: Network) -> None:
    """Concats along the channels go: what wrote their inputs writes at its place in their output, or is copied."""
    placed: dict[str, str] = {}
    for layer in network:
        if layer.kind != "Concat" or len(layer.ops) != 1:
            continue
        if why := _stays(network, layer):
            network.refuse((), layer, "concat removal", why)
            continue
        _eliminate(network, layer, placed)


def _stays(network: Network, layer: NetworkLayer) -> str:
    """Why a Concat stays a layer; empty where it goes."""
    axis = layer.node.attributes.get("axis", _CHANNELS)
    shape = network.shape(layer.node.outputs[0])
    rank = len(shape) if shape is not None else 4
    if not isinstance(axis, int) or axis % max(rank, 1) != _CHANNELS:
        return f"it joins along axis {axis}, and only channels are written in place"
    if any(v in network.constants for v in layer.reads):
        return "one of its inputs is a constant"
    return ""


def _eliminate(network: Network, layer: NetworkLayer, placed: dict[str, str]) -> None:
    network.eliminate(layer, "concat removal")
    copies: defaultdict[str, list[str]] = defaultdict(list)
    moved: list[str] = []
    for value in layer.reads:
        name = _copied(network, value, placed)
        if name:
            copies[name].append(value)
        else:
            moved.append(value)
            placed[value] = layer.name
    for name, values in copies.items():
        network.copy(name, values, layer, "concat removal")
    for value in moved:
        network.retarget(value, layer)


def _copied(network: Network, value: str, placed: dict[str, str]) -> str:
    """What a copy of a value is called, a layer or the value itself; empty where it is written in place."""
    writer = network.writer.get(value)
    if writer is None or value in network.outputs or value in placed or writer.kind == COPY:
        return value
    # A merged layer writes several values side by side.
    return writer.name if " || " in writer.name else ""
