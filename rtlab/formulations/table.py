"""Every formulation there is, what it does, and for which layers; a layer and a whole model computed by them."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Mapping
from functools import partial

import onnx
from onnx import TensorProto, helper

from rtlab.core.arrays import Batch
from rtlab.core.model import Model
from rtlab.errors import ModelError
from rtlab.formulations.layer import Fragment, WeightedNode
from rtlab.formulations.winograd import convolve_tiles

#: What each node is as the model has it.
DIRECT = "direct"
#: The oldest operator set that has what the formulations are made of.
OLDEST = 11
#: Bytes that the transformed weights of one layer may take.
_MAX_WEIGHT_BYTES = 192 << 20


@dataclasses.dataclass(frozen=True)
class Formulation:
    """One way to compute a layer.

    ``fits`` says whether it is for a layer; ``build`` adds its nodes and returns the value that they write.
    ``tolerance`` is the greatest error beside the direct formulation that rounding explains, relative to
    the greatest value: sums in another order keep near the last bit, transforms lose some.
    """

    name: str
    how: str
    tolerance: float
    fits: Callable[[WeightedNode], bool]
    build: Callable[[WeightedNode, Fragment], str]


def list_formulations(layer: WeightedNode) -> tuple[Formulation, ...]:
    """The formulations that fit a layer, the direct one first."""
    return tuple(f for f in FORMULATIONS[layer.op] if f.fits(layer))


def _build_direct(layer: WeightedNode, graph: Fragment) -> str:
    inputs = [layer.data, graph.constant(layer.weight)]
    if layer.bias is not None:
        inputs.append(graph.constant(layer.bias))
    return graph.node(layer.op, *inputs, **layer.attributes)


def _fits_gemm(layer: WeightedNode) -> bool:
    a = layer.attributes
    return layer.weight.shape[2:] == (1, 1) and not any(a["pads"]) and a["group"] == 1


def _build_gemm(layer: WeightedNode, graph: Fragment) -> str:
    """A kernel of 1×1 is a product of matrices: weights by pixels."""
    batch, channels, *size = layer.shape
    data = layer.data
    if layer.attributes["strides"] != [1, 1]:
        data = graph.cut(data, (0, 0), size, layer.attributes["strides"])
    outputs = layer.weight.shape[0]
    flat = graph.reshape(data, (batch, channels, -1))
    product = graph.node("MatMul", graph.constant(layer.weight.reshape(outputs, channels)), flat)
    return _add_bias(layer, graph, graph.reshape(product, (batch, outputs, *layer.spatial)))


def _fits_im2col(layer: WeightedNode) -> bool:
    return layer.weight.shape[2:] != (1, 1) and min(layer.attributes["pads"]) >= 0


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
        ends = [s + (n - 1) * by + 1 for s, n, by in zip(starts, layer.spatial, a["strides"], strict=True)]
        tap = graph.cut(padded, starts, ends, a["strides"])
        taps.append(graph.reshape(tap, (batch, groups, per_group, pixels)))
    columns = graph.node("Concat", *taps, axis=2)
    # Rows of columns come tap by tap, and within a tap channel by channel.
    weight = layer.weight.transpose(0, 2, 3, 1).reshape(groups, outputs // groups, -1)
    if groups == 1:
        columns, weight = graph.reshape(columns, (batch, -1, pixels)), weight[0]
    product = graph.node("MatMul", graph.constant(weight), columns)
    return _add_bias(layer, graph, graph.reshape(product, (batch, outputs, *layer.spatial)))


def fits_winograd(layer: WeightedNode, step: int) -> bool:
    """Whether tiles of ``step`` rows and columns of output are for a layer: its form, and the size of its weights."""
    a, (outputs, channels, *kernel) = layer.attributes, layer.weight.shape
    plain = a["strides"] == a["dilations"] == [1, 1] and a["group"] == 1 and min(a["pads"]) >= 0
    return kernel == [3, 3] and plain and 4 * (step + 2) ** 2 * outputs * channels <= _MAX_WEIGHT_BYTES


def _build_winograd(layer: WeightedNode, graph: Fragment, step: int) -> str:
    return _add_bias(layer, graph, convolve_tiles(layer, graph, step))


def _add_bias(layer: WeightedNode, graph: Fragment, value: str) -> str:
    if layer.bias is None:
        return value
    return graph.node("Add", value, graph.constant(layer.bias.reshape(1, -1, 1, 1)))


_DIRECT = Formulation(DIRECT, "as the model has it", 2e-5, lambda _: True, _build_direct)
#: The formulations by operator, the direct one first.
FORMULATIONS: Mapping[str, tuple[Formulation, ...]] = {
    "Conv": (
        _DIRECT,
        Formulation("im2col", "unfold, then one GEMM", 2e-5, _fits_im2col, _build_im2col),
        Formulation("GEMM", "weights by pixels", 2e-5, _fits_gemm, _build_gemm),
        Formulation(
            "Winograd 2×2",
            "16 products for 4 outputs in place of 36",
            2e-4,
            partial(fits_winograd, step=2),
            partial(_build_winograd, step=2),
        ),
        Formulation(
            "Winograd 4×4",
            "36 products for 16 outputs in place of 144",
            1e-3,
            partial(fits_winograd, step=4),
            partial(_build_winograd, step=4),
        ),
    ),
    "Gemm": (_DIRECT,),
    "MatMul": (_DIRECT,),
}


def build_layer_model(layer: WeightedNode, formulation: Formulation) -> onnx.ModelProto:
    """One layer as a model with one input and one output, which bear the names that the layer knows."""
    graph = Fragment(formulation.name)
    output = formulation.build(layer, graph)
    graph.nodes.append(helper.make_node("Identity", [output], [layer.output]))
    return helper.make_model(
        helper.make_graph(
            graph.nodes,
            layer.node,
            [helper.make_tensor_value_info(layer.data, TensorProto.FLOAT, layer.shape)],
            [helper.make_tensor_value_info(layer.output, TensorProto.FLOAT, None)],
            graph.constants,
        ),
        opset_imports=[helper.make_opsetid("", 17)],
        ir_version=8,
    )


def compose_model(
    model: Model, batch: Batch, choices: Mapping[str, tuple[WeightedNode, Formulation]]
) -> onnx.ModelProto:
    """The model for the shapes of ``batch``, with the formulations ``choices`` by node in place of these nodes.

    Raises:
        ModelError: its operator set is too old for the formulations, or weights cannot be read.
    """
    if choices and model.opset < OLDEST:
        raise ModelError(
            f'Cannot put layers of model "{model.name}" in other words: it is of operator set {model.opset}, and at '
            f"least {OLDEST} is needed. Convert it with onnx.version_converter.convert_version(model, 17)."
        )
    proto = model.proto()
    graph = proto.graph
    for graph_input in graph.input:
        if graph_input.name in batch:
            dims = graph_input.type.tensor_type.shape.dim
            for dim, size in zip(dims, batch[graph_input.name].shape, strict=True):
                dim.dim_value = size
    # What was known of inner values may be of other sizes.
    del graph.value_info[:]
    for graph_output in graph.output:
        graph_output.type.tensor_type.ClearField("shape")
    nodes = list(graph.node)
    del graph.node[:]
    for node in nodes:
        if node.name not in choices:
            graph.node.append(node)
            continue
        layer, formulation = choices[node.name]
        fragment = Fragment(f"{node.name}/{formulation.name}")
        output = formulation.build(layer, fragment)
        last = next(n for n in fragment.nodes if output in n.output)
        last.output[list(last.output).index(output)] = node.output[0]
        graph.node.extend(fragment.nodes)
        graph.initializer.extend(fragment.constants)
    # A body may read weights of the main graph by their names.
    if not any(a.HasField("g") or a.graphs for node in graph.node for a in node.attribute):
        read = {name for node in graph.node for name in node.input} | {o.name for o in graph.output}
        used_initializers = [t for t in graph.initializer if t.name in read]
        del graph.initializer[:]
        graph.initializer.extend(used_initializers)
    return proto
