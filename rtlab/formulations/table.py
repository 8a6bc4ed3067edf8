"""Every formulation there is, what it does, and for which layers; a layer and a whole model computed by them."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import json
import math
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from functools import partial
from typing import Any, Literal, cast

import numpy as np
import onnx
from numpy.typing import ArrayLike, NDArray
from onnx import TensorProto, helper, numpy_helper

from rtlab.core.arrays import Batch
from rtlab.core.model import Model
from rtlab.core.node import Node
from rtlab.core.value import shape_text
from rtlab.errors import ModelError

#: Operators that can be formulated in more than one way.
Op = Literal["Conv", "Gemm", "MatMul"]
OPS: tuple[Op, ...] = ("Conv", "Gemm", "MatMul")


@dataclasses.dataclass(frozen=True, eq=False)
class WeightedNode:
    """A node that reads one activation and constant weights, all in FP32.

    ``data`` and ``output`` are the values that it reads and writes, ``shape`` the size of the first. ``weight`` and
    ``bias`` are as the node has them. ``attributes`` are the node's own, with nothing left to defaults where shapes
    decide: ``strides``, ``pads`` (beginnings, then ends), ``dilations`` and ``group`` of a convolution.
    """

    node: str
    op: Op
    data: str
    output: str
    shape: tuple[int, ...]
    weight: NDArray[np.float32]
    bias: NDArray[np.float32] | None
    attributes: Mapping[str, Any]

    def __repr__(self) -> str:
        return f"<WeightedNode {self.node}: {self.title}>"

    @property
    def title(self) -> str:
        """What it is, in one line."""
        kind = f"{self.op} {shape_text(self.weight.shape)} on {shape_text(self.shape)}"
        group = self.attributes.get("group", 1)
        return kind + (f", {group} groups" if group != 1 else "")

    @property
    def key(self) -> str:
        """What its time depends on: operator, shapes and attributes, whatever the numbers in it are."""
        attributes = dict(sorted(self.attributes.items()))
        return json.dumps([self.op, self.shape, self.weight.shape, self.bias is not None, attributes])

    @functools.cached_property
    def spatial(self) -> tuple[int, ...]:
        """Height and width of what a convolution writes."""
        a, sizes = self.attributes, zip(self.shape[2:], self.weight.shape[2:], strict=True)
        padded = [size + a["pads"][i] + a["pads"][i + 2] for i, (size, _) in enumerate(sizes)]
        reach = [d * (kernel - 1) for d, kernel in zip(a["dilations"], self.weight.shape[2:], strict=True)]
        return tuple((p - r - 1) // s + 1 for p, r, s in zip(padded, reach, a["strides"], strict=True))

    @property
    def flops(self) -> int:
        """Operations of the direct formulation, a multiplication and an addition counted as two."""
        if self.op == "Conv":
            outputs = self.shape[0] * self.weight.shape[0] * math.prod(self.spatial)
            return int(2 * outputs * math.prod(self.weight.shape[1:]))
        return int(2 * math.prod(self.shape[:-1]) * self.weight.size)


def find_tunable_nodes(model: Model) -> tuple[Node, ...]:
    """Nodes of the main graph whose weights are constants in FP32, and that read one activation."""
    return tuple(n for n in model.top if n.op in OPS and not n.domain and _read_weights(model, n) is not None)


def create_weighted_node(model: Model, node: Node, shape: Sequence[int]) -> WeightedNode | None:
    """A node with the shape that it reads; None where its numbers of dimensions or attributes are not supported.

    Supported are two-dimensional convolutions, products with a matrix, and a Gemm with the plain meaning of both.
    """
    weights = _read_weights(model, node)
    if weights is None:
        return None
    weight, bias = weights
    size, a = tuple(int(d) for d in shape), cast("Mapping[str, Any]", node.attributes)
    attributes: dict[str, Any] = {}
    if node.op == "Conv":
        if len(size) != 4 or weight.ndim != 4 or 0 in size:
            return None
        attributes = _read_window(a, size, weight.shape)
    elif node.op == "Gemm":
        plain = a.get("alpha", 1.0) == 1.0 and a.get("beta", 1.0) == 1.0 and not a.get("transA", 0)
        if not plain or len(size) != 2 or weight.ndim != 2:
            return None
        attributes = {"transB": int(a.get("transB", 0))}
        if bias is not None and bias.size != weight.shape[0 if attributes["transB"] else 1]:
            return None
        bias = None if bias is None else bias.reshape(-1)
    elif len(size) < 2 or weight.ndim != 2 or 0 in size:
        return None
    return WeightedNode(
        node.id, cast("Op", node.op), node.inputs[0], node.outputs[0], size, weight, bias, attributes
    )


def _read_weights(model: Model, node: Node) -> tuple[NDArray[np.float32], NDArray[np.float32] | None] | None:
    constants = model.constants(node.id)
    data, weight, bias = (*node.inputs, "", "", "")[:3]
    names = [weight, bias] if bias else [weight]
    if data in constants or any(n not in constants or constants[n].dtype.name != "FLOAT" for n in names):
        return None
    arrays = [np.asarray(constants[name].numpy(), np.float32) for name in names]
    return arrays[0], arrays[1] if bias else None


def _read_window(a: Mapping[str, Any], size: tuple[int, ...], weight: tuple[int, ...]) -> dict[str, Any]:
    """Strides, pads, dilations and groups, with the pads that ``auto_pad`` stands for."""
    strides, dilations = (list(a.get(k, (1, 1))) for k in ("strides", "dilations"))
    mode = a.get("auto_pad", "NOTSET")
    pads = list(a.get("pads", (0, 0, 0, 0))) if mode == "NOTSET" else [0, 0, 0, 0]
    if mode.startswith("SAME"):
        for i in range(2):
            reach = dilations[i] * (weight[2 + i] - 1) + 1
            total = max(0, (math.ceil(size[2 + i] / strides[i]) - 1) * strides[i] + reach - size[2 + i])
            small, large = total // 2, total - total // 2
            pads[i], pads[2 + i] = (small, large) if mode == "SAME_UPPER" else (large, small)
    return {"strides": strides, "pads": pads, "dilations": dilations, "group": int(a.get("group", 1))}


class Fragment:
    """Collects nodes and constants; names begin with ``prefix``, so that they meet no other of the model.

    All nodes are of operator sets that any model from version 11 on has.
    """

    def __init__(self, prefix: str) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []
        self._prefix = prefix

    def node(self, op: str, *inputs: str, **attributes: Any) -> str:
        """Add a node; returns the name of what it writes."""
        name = f"{self._prefix}/{op}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, inputs, [name], name=name, **attributes))
        return name

    def constant(self, value: ArrayLike, dtype: type[np.generic] = np.float32) -> str:
        """Add a constant; returns its name."""
        name = f"{self._prefix}/constant_{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.ascontiguousarray(value, dtype), name))
        return name

    def shape(self, sizes: Sequence[int]) -> str:
        """Add a constant of whole numbers; returns its name."""
        return self.constant(sizes, np.int64)

    def reshape(self, value: str, shape: Sequence[int]) -> str:
        """The same elements in another shape."""
        return self.node("Reshape", value, self.shape(shape))

    def cut(
        self, value: str, starts: Sequence[int], ends: Sequence[int], steps: Sequence[int] = (1, 1)
    ) -> str:
        """A part of rows and columns, the axes 2 and 3."""
        return self.node("Slice", value, *map(self.shape, (starts, ends, (2, 3), steps)))


#: Where the polynomials are evaluated, besides infinity; small ones round least.
_POINTS = tuple(Fraction(p) for p in ("0", "1", "-1", "2", "-2", "1/2", "-1/2"))
#: Rows and columns of a kernel.
_KERNEL = 3


@functools.cache
def compute_transforms(step: int) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """The matrices ``B``, ``G`` and ``A`` of ``F(step×step, 3×3)``, by the method of Toom and Cook.

    With ``r = (step + 2)²`` products their shapes are ``(r, r)``, ``(r, 9)`` and ``(step², r)``.
    """
    size = step + _KERNEL - 1
    points = _POINTS[: size - 1]
    before, weights, after = [], [], []
    for at in points:
        others = [p for p in points if p != at]
        scale = math.prod(at - p for p in others)
        before.append([*_expand_roots(others), Fraction(0)])
        weights.append([at**k / scale for k in range(_KERNEL)])
        after.append([at**i for i in range(step)])
    before.append(_expand_roots(list(points)))
    weights.append([Fraction(int(k == _KERNEL - 1)) for k in range(_KERNEL)])
    after.append([Fraction(int(i == step - 1)) for i in range(step)])
    b, g, a = np.array(before, float), np.array(weights, float), np.array(after, float).T
    return np.kron(b, b), np.kron(g, g), np.kron(a, a)


def _expand_roots(roots: list[Fraction]) -> list[Fraction]:
    """Coefficients of the polynomial with these roots, the constant first; exact."""
    coefficients, zero = [Fraction(1)], Fraction(0)
    for root in roots:
        pairs = zip([zero, *coefficients], [*coefficients, zero], strict=True)
        coefficients = [shifted - root * own for shifted, own in pairs]
    return coefficients


def convolve_tiles(layer: WeightedNode, graph: Fragment, step: int) -> str:
    """Add a convolution 3×3 of stride 1, without groups and dilations, by tiles; returns the value that it writes."""
    batch, channels, *size = layer.shape
    outputs, tile = layer.weight.shape[0], step + _KERNEL - 1
    begins = layer.attributes["pads"][:2]
    counts = [-(-out // step) for out in layer.spatial]
    # The last tiles reach beyond the map.
    ends = [(n - 1) * step + tile - pad - length for n, pad, length in zip(counts, begins, size, strict=True)]
    before, kernel, after = compute_transforms(step)
    products = len(before)
    # A convolution whose step is that of the tiles cuts and transforms them at once.
    tiles = graph.node(
        "Conv",
        graph.reshape(layer.data, (batch * channels, 1, *size)),
        graph.constant(before.reshape(products, 1, tile, tile)),
        strides=[step, step],
        pads=[*begins, *ends],
    )
    parts = graph.node("Transpose", graph.reshape(tiles, (batch, channels, products, -1)), perm=[0, 2, 1, 3])
    kernels = np.tensordot(kernel, layer.weight.reshape(outputs, channels, -1), (1, 2))
    # The products of matrices, one for each row of B: ONNX Runtime is faster at groups of a convolution than at
    # a batch of products whose constant side it does not pack.
    channel_sums = graph.node(
        "Conv",
        graph.reshape(parts, (batch, products * channels, *counts)),
        graph.constant(kernels.reshape(products * outputs, channels, 1, 1)),
        group=products,
    )
    output = graph.node("MatMul", graph.constant(after), graph.reshape(channel_sums, (batch, products, -1)))
    output = graph.reshape(output, (batch, step * step * outputs, *counts))
    output = graph.node("DepthToSpace", output, blocksize=step)
    if any(n * step != out for n, out in zip(counts, layer.spatial, strict=True)):
        output = graph.cut(output, (0, 0), layer.spatial)
    return output


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
