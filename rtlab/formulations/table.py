"""Every formulation there is, what it does, and for which layers."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Mapping
from functools import partial

from rtlab.formulations.fragment import Fragment
from rtlab.formulations.layer import WeightedNode
from rtlab.formulations.winograd import convolve_tiles

#: What each node is as the model has it.
DIRECT = "direct"
#: Bytes that the transformed weights of one layer may take.
_MAX_WEIGHT_BYTES = 192 << 20


@dataclasses.dataclass(frozen=True)
class Formulation:
    """One way to compute a layer.

    ``fits`` says why it is not for a layer, empty where it is; ``build`` adds its nodes and returns the value that
    they write. ``tolerance`` is the greatest error beside the direct formulation that rounding explains, relative to
    the greatest value: sums in another order keep near the last bit, transforms lose some.
    """

    name: str
    how: str
    tolerance: float
    fits: Callable[[WeightedNode], str]
    build: Callable[[WeightedNode, Fragment], str]


def list_formulations(layer: WeightedNode) -> tuple[Formulation, ...]:
    """The formulations that fit a layer, the direct one first."""
    return tuple(f for f in FORMULATIONS[layer.op] if not f.fits(layer))


def _fits_always(_: WeightedNode) -> str:
    return ""


def _build_direct(layer: WeightedNode, graph: Fragment) -> str:
    inputs = [layer.data, graph.constant(layer.weight)]
    if layer.bias is not None:
        inputs.append(graph.constant(layer.bias))
    return graph.node(layer.op, *inputs, **layer.attributes)


def _check_gemm(layer: WeightedNode) -> str:
    if layer.weight.shape[2:] != (1, 1):
        return "the kernel is not 1×1"
    if any(layer.attributes["pads"]):
        return "the map is padded"
    return "the channels are in groups" if layer.attributes["group"] != 1 else ""


def _build_gemm(layer: WeightedNode, graph: Fragment) -> str:
    """A kernel of 1×1 is a product of matrices: weights by pixels."""
    batch, channels, *size = layer.shape
    data = layer.data
    if layer.attributes["strides"] != [1, 1]:
        data = graph.cut(data, (2, 3), (0, 0), size, layer.attributes["strides"])
    outputs = layer.weight.shape[0]
    flat = graph.reshape(data, (batch, channels, -1))
    product = graph.node("MatMul", graph.constant(layer.weight.reshape(outputs, channels)), flat)
    return _add_bias(layer, graph, graph.reshape(product, (batch, outputs, *layer.spatial)))


def _check_im2col(layer: WeightedNode) -> str:
    if layer.weight.shape[2:] == (1, 1):
        return "the kernel is 1×1: there is nothing to unfold"
    return "pads are negative" if min(layer.attributes["pads"]) < 0 else ""


def _build_im2col(layer: WeightedNode, graph: Fragment) -> str:
    """What each output reads becomes a column, and the convolution one product of matrices."""
    a, batch, pixels = layer.attributes, layer.shape[0], layer.spatial[0] * layer.spatial[1]
    groups, (outputs, per_group) = a["group"], layer.weight.shape[:2]
    y_begin, x_begin, y_end, x_end = a["pads"]
    padded = layer.data
    if any(a["pads"]):
        padded = graph.node("Pad", padded, graph.shape((0, 0, y_begin, x_begin, 0, 0, y_end, x_end)))
    taps = []
    for row, column in itertools.product(*map(range, layer.weight.shape[2:])):
        starts = (row * a["dilations"][0], column * a["dilations"][1])
        ends = [
            s + (n - 1) * step + 1 for s, n, step in zip(starts, layer.spatial, a["strides"], strict=True)
        ]
        tap = graph.cut(padded, (2, 3), starts, ends, a["strides"])
        taps.append(graph.reshape(tap, (batch, groups, per_group, pixels)))
    columns = graph.node("Concat", *taps, axis=2)
    # Rows of columns come tap by tap, and within a tap channel by channel.
    weight = layer.weight.transpose(0, 2, 3, 1).reshape(groups, outputs // groups, -1)
    if groups == 1:
        columns, weight = graph.reshape(columns, (batch, -1, pixels)), weight[0]
    product = graph.node("MatMul", graph.constant(weight), columns)
    return _add_bias(layer, graph, graph.reshape(product, (batch, outputs, *layer.spatial)))


def check_winograd(layer: WeightedNode, step: int) -> str:
    """Why tiles of ``step`` rows and columns of output are not for a layer; empty where they are."""
    a, (outputs, channels, *kernel) = layer.attributes, layer.weight.shape
    if kernel != [3, 3]:
        return "the kernel is not 3×3"
    if a["strides"] != [1, 1]:
        return "the stride is not 1"
    if a["dilations"] != [1, 1]:
        return "the kernel is dilated"
    if a["group"] != 1:
        return "the channels are in groups"
    if min(a["pads"]) < 0:
        return "pads are negative"
    weight_bytes = 4 * (step + 2) ** 2 * outputs * channels
    if weight_bytes > _MAX_WEIGHT_BYTES:
        return f"transformed weights would take {weight_bytes >> 20} MiB"
    return ""


def _build_winograd(layer: WeightedNode, graph: Fragment, step: int) -> str:
    return _add_bias(layer, graph, convolve_tiles(layer, graph, step))


def _add_bias(layer: WeightedNode, graph: Fragment, value: str) -> str:
    if layer.bias is None:
        return value
    return graph.node("Add", value, graph.constant(layer.bias.reshape(1, -1, 1, 1)))


_DIRECT = Formulation(DIRECT, "as the model has it", 2e-5, _fits_always, _build_direct)
#: The formulations by operator, the direct one first.
FORMULATIONS: Mapping[str, tuple[Formulation, ...]] = {
    "Conv": (
        _DIRECT,
        Formulation("im2col", "unfold, then one GEMM", 2e-5, _check_im2col, _build_im2col),
        Formulation("GEMM", "weights by pixels", 2e-5, _check_gemm, _build_gemm),
        Formulation(
            "Winograd 2×2",
            "16 products for 4 outputs in place of 36",
            2e-4,
            partial(check_winograd, step=2),
            partial(_build_winograd, step=2),
        ),
        Formulation(
            "Winograd 4×4",
            "36 products for 16 outputs in place of 144",
            1e-3,
            partial(check_winograd, step=4),
            partial(_build_winograd, step=4),
        ),
    ),
    "Gemm": (_DIRECT,),
    "MatMul": (_DIRECT,),
}
