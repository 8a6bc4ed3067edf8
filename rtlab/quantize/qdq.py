"""Reading the quantize and dequantize pairs of a model's main graph."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from collections.abc import Set as AbstractSet
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx_ir as ir

from rtlab.core.node import ONNX_DOMAINS
from rtlab.quantize.placement import WEIGHTED

if TYPE_CHECKING:
    from numpy.typing import NDArray

INT8 = frozenset({ir.DataType.INT8, ir.DataType.UINT8})
_BOUNDS = {
    ir.DataType.INT8: (-128, 127), ir.DataType.UINT8: (0, 255),
    ir.DataType.INT16: (-(2**15), 2**15 - 1), ir.DataType.UINT16: (0, 2**16 - 1),
}  # fmt: skip
#: They re-index memory, so they give the same in INT8 as in FP32.
VIEWS = frozenset({
    "Identity", "Dropout", "Reshape", "Flatten", "Squeeze", "Unsqueeze", "Transpose", "DepthToSpace", "SpaceToDepth",
})  # fmt: skip
MAXIMA = frozenset({"MaxPool", "GlobalMaxPool"})
#: Quantizing before or behind one of these is the same for a compiler; the first input carries the data.
PASSES = VIEWS | MAXIMA | {"Concat", "Slice", "Split", "Expand", "Tile", "Gather", "Resize", "Pad"}
ACTIVATIONS = frozenset({
    "Relu", "LeakyRelu", "PRelu", "Clip", "Sigmoid", "Tanh", "Elu", "Selu", "HardSwish", "HardSigmoid", "Gelu", "Mish",
    "Softplus", "Swish",
})  # fmt: skip
#: What a kernel of a weighted node takes in behind its product.
FUSIBLE = ACTIVATIONS | {"BatchNormalization", "Add", "Mul"}
NORMS = frozenset({
    "LayerNormalization", "InstanceNormalization", "GroupNormalization", "RMSNormalization", "Softmax", "LogSoftmax",
    "ReduceMean", "ReduceSum", "ReduceMax", "ReduceL2", "Pow", "Sqrt", "Exp", "Erf", "Log", "Reciprocal",
    "Div", "Sub", "Neg", "Abs", "Sin", "Cos", "Where", "Cast", "Not", "Equal", "Less", "Greater", "ArgMax",
})  # fmt: skip
SIZES = frozenset({"Shape", "Size", "ConstantOfShape", "NonZero"})
POOLS = frozenset({"AveragePool", "GlobalAveragePool"})


@dataclasses.dataclass(frozen=True, eq=False)
class QdqPair:
    """A QuantizeLinear and one DequantizeLinear of its output, or a DequantizeLinear of stored integers.

    ``source`` is what enters: an FP32 value, or the integers where there is no ``q``. ``scale`` and ``zero`` are
    the DequantizeLinear's; ``scale`` is None where it is no constant. ``axis`` is None for one scale per tensor.
    ``is_constant`` marks a weight. ``opaque`` marks one that the rules do not cover: in blocks, between integer
    operators, or with two scales that differ.
    """

    q: ir.Node | None
    dq: ir.Node
    source: ir.Value
    scale: NDArray[np.float32] | None
    zero: NDArray[Any]
    dtype: ir.DataType
    axis: int | None
    is_constant: bool
    opaque: bool

    @property
    def out(self) -> ir.Value:
        """The dequantized value."""
        return self.dq.outputs[0]

    @property
    def id(self) -> str:
        """The node to name it by."""
        return (self.q or self.dq).name or ""

    @property
    def nodes(self) -> tuple[str, ...]:
        """Ids of its nodes."""
        return tuple(n.name or "" for n in (self.q, self.dq) if n is not None)

    @property
    def is_stored(self) -> bool:
        """Whether the numbers of what enters are stored."""
        return get_constant_tensor(self.source) is not None

    @property
    def shape_mismatch(self) -> str:
        """What of scales, zero points and axis does not fit the tensor; empty where all fits, or is not known."""
        if self.scale is None or "block_size" in self.dq.attributes:
            return ""
        scales, zeros = self.scale.size, self.zero.size
        if scales == 0:
            return "no scale"
        if zeros not in {1, scales}:
            return f"{zeros} zero points for {scales} scales"
        sizes = self.source.shape
        if scales == 1 or sizes is None:
            return ""
        axis = get_axis(self.dq)
        if not -len(sizes) <= axis < len(sizes):
            return f"{scales} scales on axis {axis} of {len(sizes)} dimensions"
        channels = sizes[axis]
        if self.scale.ndim != 1 or (isinstance(channels, int) and channels != scales):
            return f"{scales} scales on axis {axis}, which has {channels} channels"
        return ""

    @property
    def is_usable(self) -> bool:
        """Whether it is of 8 bits, by scales that are known and can be divided by."""
        return self.dtype in INT8 and self.scale is not None and bool(are_scales(self.scale).all())

    @property
    def is_symmetric(self) -> bool:
        """Whether it is INT8, or a float, with zero point 0."""
        return self.dtype != ir.DataType.UINT8 and not np.any(self.zero.astype(np.float32))

    @property
    def bounds(self) -> tuple[int, int]:
        """The smallest and the largest integer of its type, of 8 or 16 bits."""
        return _BOUNDS[self.dtype]

    @property
    def rectifies(self) -> bool:
        """Whether it cuts everything below zero. ONNX Runtime leaves a Relu to such a pair and drops the node."""
        return self.dtype in _BOUNDS and bool(np.all(self.zero.astype(np.int32) == self.bounds[0]))

    def has_same_parameters(self, other: QdqPair) -> bool:
        """Whether both quantize alike."""
        return (
            self.scale is not None
            and other.scale is not None
            and self.dtype == other.dtype
            and self.axis == other.axis
            and np.array_equal(self.scale.ravel(), other.scale.ravel())
            and np.array_equal(self.zero.ravel(), other.zero.ravel())
        )


def are_scales(numbers: NDArray[np.float32]) -> NDArray[np.bool_]:
    """Which numbers are positive and finite, as a scale has to be."""
    return np.isfinite(numbers) & (numbers > 0)


def get_axis(node: ir.Node) -> int:
    """The axis of a QuantizeLinear or DequantizeLinear with several scales."""
    attribute = node.attributes.get("axis")
    return 1 if attribute is None else attribute.as_int()


def get_constant(value: ir.Value | None) -> NDArray[Any] | None:
    """The numbers of an initializer or a Constant, also behind Identity; None for other values."""
    tensor = get_constant_tensor(value)
    return None if tensor is None else tensor.numpy()


def get_constant_tensor(
    value: ir.Value | None, through: AbstractSet[str] = frozenset({"Identity"})
) -> ir.TensorProtocol | None:
    """The same as a tensor that is not read yet, behind the operators ``through``."""
    while value is not None:
        maker = value.producer()
        if maker is None:
            return None if value.is_graph_input() else value.const_value
        if maker.op_type == "Constant" and (attribute := maker.attributes.get("value")) is not None:
            return attribute.as_tensor()
        if maker.op_type not in through or not maker.inputs:
            return None
        value = maker.inputs[0]
    return None


def is_nonnegative(value: ir.Value | None) -> bool:
    """Whether the operators behind a value show that no number of it is below zero."""
    while value is not None and (maker := value.producer()) is not None:
        if maker.op_type in {"Relu", "Sigmoid", "HardSigmoid", "Softmax", "Abs", "Exp", "Sqrt", "Softplus"}:
            return True
        if maker.op_type not in {*VIEWS, *MAXIMA, *POOLS, "QuantizeLinear", "DequantizeLinear"}:
            return False
        value = maker.inputs[0]
    return False


class QuantizedGraph:
    """What is quantized in a main graph.

    ``constants`` are the values known before the first inference, ``pairs`` the pairs by their dequantized value, and
    ``cover`` the pairs that a value comes from, straight or through operators that give the same in INT8.
    """

    def __init__(self, graph: ir.Graph) -> None:
        self.graph = graph
        self.constants = {v for v in graph.initializers.values() if not v.is_graph_input()}
        self.pairs: dict[ir.Value, QdqPair] = {}
        self.cover: dict[ir.Value, tuple[QdqPair, ...]] = {}
        for node in graph:
            self._add_node(node)

    def _add_node(self, node: ir.Node) -> None:
        inputs = [v for v in node.inputs if v is not None]
        if node.op_type == "Constant" or (inputs and all(v in self.constants for v in inputs)):
            self.constants.update(node.outputs)
        if node.domain not in ONNX_DOMAINS:
            return
        if node.op_type == "DequantizeLinear" and len(node.inputs) > 1 and node.inputs[0] is not None:
            pair = self._make_pair(node, node.inputs[0])
            self.pairs[pair.out] = pair
            self.cover[pair.out] = (pair,)
        elif node.op_type in PASSES:
            data = inputs if node.op_type == "Concat" else inputs[:1]
            if data and all(v in self.cover for v in data):
                pairs = tuple(dict.fromkeys(p for v in data for p in self.cover[v]))
                self.cover.update((out, pairs) for out in node.outputs)

    def _make_pair(self, dq: ir.Node, stored_value: ir.Value) -> QdqPair:
        maker = stored_value.producer()
        q = maker if maker is not None and maker.op_type == "QuantizeLinear" and maker.inputs else None
        scale, zero = _read_scale(dq), _read_zero_point(dq)
        tensor = get_constant_tensor(stored_value)
        stored_dtype = stored_value.dtype if q is None else _get_quantized_dtype(q)
        dtype = tensor.dtype if tensor is not None else stored_dtype or ir.DataType.UNDEFINED
        source = q.inputs[0] if q is not None and q.inputs[0] is not None else stored_value
        opaque = (
            "block_size" in dq.attributes
            or (q is None and tensor is None)
            or (q is not None and not _has_equal_parameters(q, dq, scale, zero))
        )
        axis = None
        if scale is not None and scale.size > 1:
            axis = get_axis(dq)
            rank = None if source.shape is None else len(source.shape)
            if axis < 0 and rank is not None:
                axis += rank
        return QdqPair(q, dq, source, scale, zero, dtype, axis, source in self.constants, opaque)

    @property
    def activations(self) -> Iterator[QdqPair]:
        """Pairs that the rules may judge and that run at every inference."""
        return (p for p in self.pairs.values() if not p.is_constant and not p.opaque)

    @property
    def weights(self) -> Iterator[QdqPair]:
        """Pairs that the rules may judge and that a compiler may compute before the first inference."""
        return (p for p in self.pairs.values() if p.is_constant and not p.opaque)

    @property
    def weighted_nodes(self) -> Iterator[tuple[ir.Node, int | None]]:
        """Products, each with the position of its weight among its inputs; None where both are activations."""
        for node in self.graph:
            if node.op_type in WEIGHTED and node.domain in ONNX_DOMAINS and len(node.inputs) > 1:
                yield node, find_weight_slot(node, self.constants)

    def get_pairs(self, value: ir.Value | None) -> tuple[QdqPair, ...]:
        """The pairs that a value comes from; empty where it is not quantized."""
        return () if value is None else self.cover.get(value, ())

    def find_pairs_of(self, q: ir.Node | None) -> list[QdqPair]:
        """Every pair that this QuantizeLinear begins."""
        return [p for p in self.pairs.values() if p.q is q and q is not None]

    def readers(self, value: ir.Value) -> list[tuple[ir.Node | None, int]]:
        """Inputs that read a value; None is a model's output or a body."""
        uses = [(use.node if use.node.graph is self.graph else None, use.idx) for use in value.uses()]
        return [*uses, *([(None, -1)] if value.is_graph_output() else [])]

    def find_product(self, value: ir.Value | None) -> ir.Node | None:
        """The product that a value comes from, through pairs and through what its kernel takes in."""
        stack, visited = [value], set[ir.Value]()
        while stack:
            value = stack.pop()
            if value is None or value in visited or (node := value.producer()) is None:
                continue
            visited.add(value)
            if node.op_type in WEIGHTED:
                return node
            if value in self.pairs:
                stack.append(self.pairs[value].source)
            elif node.op_type in {"BatchNormalization", "Add", "Mul"}:
                stack += [v for v in node.inputs if v not in self.constants]
        return None

    def find_direct_pair(self, node: ir.Node, position: int) -> tuple[ir.Node, int, QdqPair] | None:
        """Where an input leaves its pair, looked up through views that only this input reads."""
        for reader, at, value in self._walk_views(node, position):
            if value in self.pairs:
                pair = self.pairs[value]
                return None if pair.opaque else (reader, at, pair)
        return None

    def find_pair(self, node: ir.Node, position: int) -> tuple[ir.Node, int, QdqPair] | None:
        """A pair on the same tensor, here or in front of views and maxima that only this input reads."""
        table = {p.source: p for p in self.activations if p.is_symmetric and p.dtype == ir.DataType.INT8}
        for reader, at, value in self._walk_views(node, position):
            if value in table and table[value].axis is None:
                return reader, at, table[value]
        return None

    def _walk_views(self, node: ir.Node, position: int) -> Iterator[tuple[ir.Node, int, ir.Value]]:
        while (value := node.inputs[position]) is not None:
            yield node, position, value
            maker = value.producer()
            if maker is None or maker.op_type not in VIEWS | MAXIMA or len(self.readers(value)) != 1:
                return
            node, position = maker, 0


def find_weight_slot(node: ir.Node, constants: AbstractSet[ir.Value]) -> int | None:
    """Which input of a weighted node is its weight; None where both are activations."""
    if len(node.inputs) > 1 and node.inputs[1] in constants:
        return 1
    return 0 if node.op_type == "MatMul" and node.inputs and node.inputs[0] in constants else None


def is_vector_product(node: ir.Node) -> bool:
    """Whether a MatMul reads a vector or a weight of one column, so that moving numbers is all its work."""
    if node.op_type != "MatMul" or len(node.inputs) < 2:
        return False
    lhs, rhs = (None if v is None or v.shape is None else list(v.shape) for v in node.inputs[:2])
    return (lhs is not None and len(lhs) == 1) or (rhs is not None and (len(rhs) == 1 or rhs[-1] == 1))


def find_channel_axis(node: ir.Node, slot: int) -> int | None:
    """The axis of the stored weight that holds the output channels, looked up through Transpose; None if unknown."""
    value = node.inputs[slot]
    if value is None or value.shape is None:
        return None
    rank = len(value.shape)
    is_transposed = (a := node.attributes.get("transB")) is not None and a.as_int()
    if node.op_type == "MatMul":
        axis = rank - 1 if slot else rank - 2
    else:
        axis = {"Conv": 0, "ConvTranspose": 1, "Gemm": 0 if is_transposed else 1}[node.op_type]
    if axis < 0:
        return None
    while (maker := value.producer()) is not None and maker.op_type not in {"DequantizeLinear", "Constant"}:
        if maker.op_type == "Transpose":
            order = maker.attributes.get("perm")
            axis = order.as_ints()[axis] if order is not None else rank - 1 - axis
        elif maker.op_type not in {"Identity", "Dropout"}:
            return None
        value = maker.inputs[0]
        if value is None:
            return None
    return axis


def _read_scale(node: ir.Node) -> NDArray[np.float32] | None:
    scale = get_constant(node.inputs[1]) if len(node.inputs) > 1 else None
    return None if scale is None else np.asarray(scale).astype(np.float32)


def _read_zero_point(node: ir.Node) -> NDArray[Any]:
    zero_point = get_constant(node.inputs[2]) if len(node.inputs) > 2 else None
    return np.zeros((), np.int8) if zero_point is None else np.asarray(zero_point)


def _get_quantized_dtype(q: ir.Node) -> ir.DataType | None:
    """The type that a QuantizeLinear writes: its zero point's, or its attribute's, or else ONNX's default, UINT8."""
    if len(q.inputs) > 2 and q.inputs[2] is not None:
        tensor = get_constant_tensor(q.inputs[2])
        return tensor.dtype if tensor is not None else q.inputs[2].dtype
    attribute = q.attributes.get("output_dtype")
    return ir.DataType((attribute.as_int() if attribute is not None else 0) or ir.DataType.UINT8)


def _has_equal_parameters(
    q: ir.Node, dq: ir.Node, scale: NDArray[np.float32] | None, zero: NDArray[Any]
) -> bool:
    """Whether both nodes of a pair have the same parameters, so that only rounding lies between its ends."""
    first = _read_scale(q)
    if first is None or scale is None:
        return q.inputs[1] is dq.inputs[1]
    return (
        np.array_equal(first.ravel(), scale.ravel(), equal_nan=True)
        and np.array_equal(_read_zero_point(q).astype(np.float32).ravel(), zero.astype(np.float32).ravel())
        and (scale.size == 1 or get_axis(q) == get_axis(dq))
        and "block_size" not in q.attributes
    )
