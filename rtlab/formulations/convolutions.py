"""A convolution, computed in other ways than as a convolution of ONNX."""

from __future__ import annotations

import itertools

from rtlab.formulations.fragment import Fragment
from rtlab.formulations.layer import WeightedNode
from rtlab.formulations.tiles import Tiling, fourier, tile_convolution, winograd

#: Bytes that the transformed weights of one layer may take.
_LARGEST = 192 << 20


def _check_tileable(layer: WeightedNode) -> str:
    """Why a convolution cannot be computed by tiles; empty where it can."""
    a = layer.attributes
    if layer.weight.shape[2:] == (1, 1):
        return "the kernel is 1×1"
    if layer.weight.shape[2] != layer.weight.shape[3]:
        return "the kernel is not square"
    if a["strides"] != [1, 1]:
        return "the stride is not 1"
    if a["dilations"] != [1, 1]:
        return "the kernel is dilated"
    if a["group"] != 1:
        return "the channels are in groups"
    if min(a["pads"]) < 0:
        return "pads are negative"
    return ""


def _check_memory(layer: WeightedNode, tiling: Tiling) -> str:
    weight_bytes = 4 * tiling.products * layer.weight.shape[0] * layer.weight.shape[1]
    if weight_bytes > _LARGEST:
        return f"transformed weights would take {weight_bytes >> 20} MiB"
    return ""


def check_3x3_kernel(layer: WeightedNode) -> str:
    """Whether Winograd's algorithm is for this layer."""
    reason = _check_tileable(layer)
    if not reason and layer.weight.shape[2:] != (3, 3):
        return "the kernel is not 3×3"
    return reason


def winograd_2(layer: WeightedNode, graph: Fragment) -> str:
    """Tiles of 2×2 outputs."""
    return _add_bias(layer, graph, tile_convolution(layer, graph, winograd(2, (3, 3))))


def winograd_4(layer: WeightedNode, graph: Fragment) -> str:
    """Tiles of 4×4 outputs."""
    return _add_bias(layer, graph, tile_convolution(layer, graph, winograd(4, (3, 3))))


def winograd_fits(layer: WeightedNode, step: int) -> str:
    """Whether tiles of this step serve: kernel, map and memory."""
    return check_3x3_kernel(layer) or _check_memory(layer, winograd(step, (3, 3)))


def fourier_fits(layer: WeightedNode, size: int) -> str:
    """Whether tiles of this size serve: kernel, map and memory."""
    kernel = layer.weight.shape[2:]
    reason = _check_tileable(layer)
    if not reason and max(kernel) > size // 2:
        return f"the kernel is larger than {size // 2}×{size // 2}"
    if not reason and max(layer.spatial) <= size // 4:
        return "the map is much smaller than a tile"
    return reason or _check_memory(layer, fourier(size, (kernel[0], kernel[1])))


def fourier_8(layer: WeightedNode, graph: Fragment) -> str:
    """Tiles of 8×8 inputs."""
    return _fourier(layer, graph, 8)


def fourier_16(layer: WeightedNode, graph: Fragment) -> str:
    """Tiles of 16×16 inputs."""
    return _fourier(layer, graph, 16)


def _fourier(layer: WeightedNode, graph: Fragment, size: int) -> str:
    rows, columns = layer.weight.shape[2:]
    return _add_bias(layer, graph, tile_convolution(layer, graph, fourier(size, (rows, columns))))


def direct(layer: WeightedNode, graph: Fragment) -> str:
    """The convolution as the model has it."""
    inputs = [layer.data, graph.constant(layer.weight)]
    if layer.bias is not None:
        inputs.append(graph.constant(layer.bias))
    kernel = list(layer.weight.shape[2:])
    return graph.node("Conv", *inputs, kernel_shape=kernel, **layer.attributes)


def row_major(layer: WeightedNode, graph: Fragment) -> str:
    """A convolution of maps with one slice of depth: ONNX Runtime keeps to its blocked layout for flat maps."""
    batch, channels, height, width = layer.shape
    a = layer.attributes
    outputs, per_group, *kernel = layer.weight.shape
    inputs = [
        graph.reshape(layer.data, (batch, channels, 1, height, width)),
        graph.constant(layer.weight.reshape(outputs, per_group, 1, *kernel)),
    ]
    if layer.bias is not None:
        inputs.append(graph.constant(layer.bias))
    output = graph.node(
        "Conv",
        *inputs,
        kernel_shape=[1, *kernel],
        strides=[1, *a["strides"]],
        dilations=[1, *a["dilations"]],
        pads=[0, *a["pads"][:2], 0, *a["pads"][2:]],
        group=a["group"],
    )
    return graph.reshape(output, (batch, outputs, *layer.spatial))


def pointwise_fits(layer: WeightedNode) -> str:
    """Whether the kernel is one point."""
    if layer.weight.shape[2:] != (1, 1):
        return "the kernel is not 1×1"
    if any(layer.attributes["pads"]):
        return "the map is padded"
    return "the channels are in groups" if layer.attributes["group"] != 1 else ""


def pointwise(layer: WeightedNode, graph: Fragment) -> str:
    """A kernel of 1×1 is a product of matrices: weights by pixels."""
    batch, channels, *size = layer.shape
    data = layer.data
    if layer.attributes["strides"] != [1, 1]:
        data = graph.cut(data, (2, 3), (0, 0), size, layer.attributes["strides"])
    outputs = layer.weight.shape[0]
    flat = graph.reshape(data, (batch, channels, -1))
    product = graph.node("MatMul", graph.constant(layer.weight.reshape(outputs, channels)), flat)
    return _add_bias(layer, graph, graph.reshape(product, (batch, outputs, *layer.spatial)))


def channels_last(layer: WeightedNode, graph: Fragment) -> str:
    """The same with the channels of a pixel side by side (NHWC): pixels by weights."""
    batch, channels, *size = layer.shape
    data = layer.data
    if layer.attributes["strides"] != [1, 1]:
        data = graph.cut(data, (2, 3), (0, 0), size, layer.attributes["strides"])
    outputs = layer.weight.shape[0]
    rows = graph.reshape(graph.transpose(data, (0, 2, 3, 1)), (-1, channels))
    product = graph.node("MatMul", rows, graph.constant(layer.weight.reshape(outputs, channels).T))
    if layer.bias is not None:
        product = graph.node("Add", product, graph.constant(layer.bias))
    return graph.transpose(graph.reshape(product, (batch, *layer.spatial, outputs)), (0, 3, 1, 2))


def unfold_fits(layer: WeightedNode) -> str:
    """Whether there is something to unfold."""
    if layer.weight.shape[2:] == (1, 1):
        return "the kernel is 1×1: there is nothing to unfold"
    return "pads are negative" if min(layer.attributes["pads"]) < 0 else ""


def unfold(layer: WeightedNode, graph: Fragment) -> str:
    """im2col: what each output reads becomes a column, and the convolution one product of matrices."""
    groups, batch = layer.attributes["group"], layer.shape[0]
    outputs, per_group = layer.weight.shape[:2]
    pixels = layer.spatial[0] * layer.spatial[1]
    tap_columns = [
        graph.reshape(part, (batch, groups, per_group, pixels)) for part in _cut_taps(layer, graph)
    ]
    columns = graph.node("Concat", *tap_columns, axis=2) if len(tap_columns) > 1 else tap_columns[0]
    # Rows of columns come tap by tap, and within a tap channel by channel.
    weight = layer.weight.transpose(0, 2, 3, 1).reshape(groups, outputs // groups, -1)
    if groups == 1:
        columns, weight = graph.reshape(columns, (batch, -1, pixels)), weight[0]
    product = graph.node("MatMul", graph.constant(weight), columns)
    return _add_bias(layer, graph, graph.reshape(product, (batch, outputs, *layer.spatial)))


def shifted_sum_fits(layer: WeightedNode) -> str:
    """Whether each channel is on its own."""
    group = layer.attributes["group"]
    if not group == layer.shape[1] == layer.weight.shape[0] or group == 1:
        return "it is not depthwise"
    return unfold_fits(layer)


def sum_shifted(layer: WeightedNode, graph: Fragment) -> str:
    """Depthwise: the map, shifted for each weight of the kernel, times the weight, all added."""
    taps = layer.weight.reshape(layer.weight.shape[0], -1).T
    total = ""
    for part, weight in zip(_cut_taps(layer, graph), taps, strict=True):
        term = graph.node("Mul", part, graph.constant(weight.reshape(1, -1, 1, 1)))
        total = graph.node("Add", total, term) if total else term
    return _add_bias(layer, graph, total)


def _cut_taps(layer: WeightedNode, graph: Fragment) -> list[str]:
    """For each weight of the kernel the part of the padded map that it meets."""
    a = layer.attributes
    y_begin, x_begin, y_end, x_end = a["pads"]
    padded_map = graph.pad(layer.data, (0, 0, y_begin, x_begin, 0, 0, y_end, x_end))
    parts = []
    for row, column in itertools.product(*map(range, layer.weight.shape[2:])):
        starts = (row * a["dilations"][0], column * a["dilations"][1])
        ends = [
            s + (n - 1) * step + 1 for s, n, step in zip(starts, layer.spatial, a["strides"], strict=True)
        ]
        parts.append(graph.cut(padded_map, (2, 3), starts, ends, a["strides"]))
    return parts


def _add_bias(layer: WeightedNode, graph: Fragment, value: str) -> str:
    if layer.bias is None:
        return value
    return graph.node("Add", value, graph.constant(layer.bias.reshape(1, -1, 1, 1)))
