"""How much every ONNX node computes and moves, from its shapes.

What is counted, and how:

- ``macs``: multiply-accumulates of convolutions, matrix products and recurrences, without biases, at full size: padding
  zeros and masked attention count, as the usual counters have it (thop, fvcore, onnx-tool).
- ``flops``: two per multiply-accumulate, one per addition of a bias, and one per output element for each step of other
  arithmetic, a comparison, division or exponential like an addition. Normalizations take 7 per element (mean,
  difference, square, its sum, scale, gamma, beta), batch normalization 2, Softmax 5, Q/DQ 2, pooling one per
  element of a window.
- ``read`` and ``written``: bytes of the node's inputs and outputs, once each, were it to run alone; none for what only
  renames memory. A lookup reads what it takes out, not the whole table.
- ``count_parameters``: numbers in constant tensors of floating type, or quantized, biases in INT32 among them; not
  scales of Q/DQ, not the mean and variance that a batch normalization observed, not single numbers and not sizes.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Mapping, Sequence

import onnx_ir as ir

from rtlab.core.model import Model
from rtlab.core.node import Node
from rtlab.core.sizes import Sizes
from rtlab.core.trt_operators import DOMAIN, TRT_OPS
from rtlab.core.value import describe, shape_text
from rtlab.errors import ModelError
from rtlab.relation.footprint import nbytes, total

Shape = tuple[int, ...]

#: Operators that compute nothing and rename memory: no bytes either.
_RENAMES = frozenset({
    "Identity", "Dropout", "Reshape", "Flatten", "Squeeze", "Unsqueeze", "Constant", "Shape", "Size",
})  # fmt: skip
#: Operators that move numbers and compute none.
_MOVES = frozenset({
    "Transpose", "Slice", "Split", "Concat", "Expand", "Cast", "CastLike", "BitCast", "DepthToSpace", "SpaceToDepth",
    "Tile", "Pad", "ConstantOfShape", "Range", "EyeLike", "OneHot", "Trilu", "ReverseSequence", "Compress", "NonZero",
    "CenterCropPad", "Gather", "GatherElements", "GatherND", "Scatter", "ScatterElements", "ScatterND", "Where",
    "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike", "Bernoulli", "Multinomial", "Unique",
    "TensorScatter", "SequenceConstruct", "SequenceAt", "SequenceEmpty", "SequenceInsert", "SequenceLength",
    "SplitToSequence", "ConcatFromSequence", "Optional", "OptionalGetElement", "OptionalHasElement", "IsNaN", "IsInf",
})  # fmt: skip
#: Of these, those that read no more than they write.
_LOOKUPS = frozenset({"Gather", "GatherElements", "GatherND", "Slice", "Compress"})
#: Domains whose operators have the names and the meaning that the tables below have.
_DOMAINS = frozenset({"", "ai.onnx", "com.microsoft", DOMAIN})
#: Operators that own other nodes, which are counted by themselves.
_OWNERS = frozenset({"If", "Loop", "Scan", "SequenceMap"})
#: Arithmetic steps per element of the output.
_POINTWISE: Mapping[str, int] = {
    **dict.fromkeys((
        "Abs", "Acos", "Acosh", "Add", "And", "Asin", "Asinh", "Atan", "Atanh", "BitShift", "BitwiseAnd", "BitwiseNot",
        "BitwiseOr", "BitwiseXor", "Ceil", "Cos", "Cosh", "Div", "Equal", "Erf", "Exp", "Floor", "Greater",
        "GreaterOrEqual", "Less", "LessOrEqual", "Log", "Mod", "Mul", "Neg", "Not", "Or", "Pow", "Reciprocal", "Relu",
        "Round", "Sign", "Sin", "Sinh", "Sqrt", "Sub", "Tan", "Tanh", "Xor", "CumSum", "CumProd",
    ), 1),
    **dict.fromkeys(("Clip", "LeakyRelu", "PRelu", "ThresholdedRelu", "Shrink", "BatchNormalization"), 2),
    **dict.fromkeys(("QuantizeLinear", "DequantizeLinear", "QLinearAdd", "QLinearMul"), 2),
    # Some look for the largest magnitudes first, and one dequantizes as well.
    **dict.fromkeys(sorted(TRT_OPS), 2), "TRT_FP4DynamicQuantize": 4, "TRT_MXFP8DynamicQuantize": 4, "TRT_FP4QDQ": 6,
    **dict.fromkeys(("HardSigmoid", "Elu", "Softsign", "Softplus", "Celu"), 3),
    "Sigmoid": 3, "DynamicQuantizeLinear": 4, "LpNormalization": 3, "RMSNormalization": 4,
    "SimplifiedLayerNormalization": 4, "Swish": 4, "HardSwish": 4, "Selu": 4, "Mish": 5, "Gelu": 5, "FastGelu": 5,
    "BiasGelu": 6, "QuickGelu": 5, "Softmax": 5, "LogSoftmax": 6, "Hardmax": 2, "MeanVarianceNormalization": 5,
    "RotaryEmbedding": 3, "LayerNormalization": 7, "InstanceNormalization": 7, "GroupNormalization": 7,
    "SkipLayerNormalization": 8, "SkipSimplifiedLayerNormalization": 5, "LogSoftmaxCrossEntropy": 6,
}  # fmt: skip
#: Operators of several inputs that are taken in one after the other.
_FOLDS = frozenset({"Sum", "Max", "Min", "Mean"})
#: Steps per element of the input.
_REDUCES: Mapping[str, int] = {
    **dict.fromkeys((
        "ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd", "ArgMax", "ArgMin", "TopK",
        "GlobalAveragePool", "GlobalMaxPool",
    ), 1),
    **dict.fromkeys(("ReduceL1", "ReduceL2", "ReduceSumSquare", "ReduceLogSum", "ReduceLogSumExp", "GlobalLpPool"), 2),
}  # fmt: skip
_WINDOWS = frozenset({"MaxPool", "AveragePool", "LpPool"})
#: Per unit and step of a recurrence: gates that are computed, and arithmetic beside the products and biases. With 3 for
#: a sigmoid and 1 for a tanh: RNN, a tanh. GRU, two sigmoids, a tanh, the product with the reset gate, and the mix
#: ``(1 - z) * n + z * h``. LSTM, three sigmoids, two tanh, ``f * c + i * g`` and the product with the output gate.
_RECURRENT: Mapping[str, tuple[int, int]] = {"RNN": (1, 1), "GRU": (3, 12), "LSTM": (4, 15)}
#: Inputs that are no learned numbers: scales, zero points, observed statistics, bounds.
_NO_PARAMETERS: Mapping[str, frozenset[int]] = {
    **dict.fromkeys(("QuantizeLinear", "DequantizeLinear", *sorted(TRT_OPS)), frozenset({1, 2})),
    "BatchNormalization": frozenset({3, 4}),
    "Clip": frozenset({1, 2}), "Pad": frozenset({1, 2, 3}), "Resize": frozenset({1, 2, 3}),
    "QLinearConv": frozenset({1, 2, 4, 5, 6, 7}), "QLinearMatMul": frozenset({1, 2, 4, 5, 6, 7}),
}  # fmt: skip
#: Inputs whose whole numbers of 32 bits are learned: biases, in units of the product of two scales.
_BIASES = frozenset({("QLinearConv", 8), ("DequantizeLinear", 0)})
_NUMBERS = frozenset({
    "fp64", "fp32", "fp16", "bf16", "fp8", "fp4", "float8e5m2", "float8e4m3fnuz", "float8e5m2fnuz", "int8", "uint8",
    "int4", "uint4",
})  # fmt: skip


@dataclasses.dataclass(frozen=True)
class NodeWork:
    """What one node computes and moves, in the words of this module's docstring. ``estimated`` all of it, from shapes.

    ``flops`` and ``macs`` are None where they are not known, ``read`` and ``written`` are bytes or None; ``note`` then
    says why. ``parameters`` counts those that this node reads, although others may share them; ``lookup`` has
    the count of numbers in a constant table and of those that are taken out of it.
    """

    macs: int | None
    flops: int | None
    parameters: int = 0
    read: int | None = None
    written: int | None = None
    note: str = ""
    lookup: tuple[int, int] | None = None


def works(
    model: Model, *, batch: int | None = None, shapes: Mapping[str, Shape] | None = None
) -> Mapping[str, NodeWork]:
    """The work of every node, by place (``Model.places``). A node of a loop's body is counted for one turn.

    ``batch`` is the first dimension of every input instead of the model's own, ``shapes`` are those of inputs by name.
    A dynamic batch without a size is 1. Raises ``ModelError`` where a dimension has no size, or the batch is fixed.
    """
    input_shapes = {k: tuple(v) for k, v in (shapes or {}).items() if k in model.inputs}
    sizes = model.sizes(shapes=_resolve_input_shapes(model, batch, input_shapes))
    return _count_nodes(model, sizes, sizes.learned)


@functools.lru_cache(maxsize=16)
def count_parameters(model: Model) -> int:
    """How many parameters a model has, one that several nodes read counted once."""
    counts: dict[int, int] = {}
    for scope in model.scopes:
        for node, place in zip(scope.nodes, scope.places, strict=True):
            counts |= {id(v): n for v, n in _list_parameters(node, place.node)}
    return sum(counts.values())


def _resolve_input_shapes(model: Model, batch: int | None, shapes: Mapping[str, Shape]) -> dict[str, Shape]:
    """The shapes of inputs that are not the model's own; raises ``ModelError`` where one has no size or another."""
    input_shapes = dict(shapes)
    for name in model.inputs:
        declared_shape = input_shapes.get(name) or model.values[name].shape or ()
        if batch is not None and declared_shape:
            if batch < 1:
                raise ModelError(f'Cannot count at batch "{batch}": a batch is at least 1. Choose one.')
            fixed_batch = (model.values[name].shape or (None,))[0]
            if isinstance(fixed_batch, int) and fixed_batch != batch:
                raise ModelError(
                    f'Cannot count model "{model.name}" at batch {batch}: its input "{name}" is fixed at '
                    f"{shape_text(declared_shape)}. Export it with a dynamic first dimension, or choose batch "
                    f"{fixed_batch}."
                )
            first = dataclasses.replace(model, shapes={**model.shapes, **input_shapes}).input_shape(name)
            input_shapes[name] = (batch, *first[1:])
    sized_model = dataclasses.replace(model, shapes={**model.shapes, **input_shapes})
    for name in sized_model.inputs:
        sized_model.input_shape(name)  # A size without a name is the user's to give.
    return input_shapes


@functools.lru_cache(maxsize=16)
def _count_nodes(model: Model, sizes: Sizes, learned: int) -> Mapping[str, NodeWork]:  # noqa: ARG001 - a part of the key
    return {
        place.id: _count_node(node, place.node, sizes, scope.space, model)
        for scope in model.scopes
        for node, place in zip(scope.nodes, scope.places, strict=True)
    }


def _count_node(node: ir.Node, plain: Node, sizes: Sizes, space: int, model: Model) -> NodeWork:
    """What one node does, from the shapes of what it reads and writes."""
    ins = [v if v is not None and v.name else None for v in node.inputs]
    outs = [v for v in node.outputs if v.name]
    count = sum(n for _, n in _list_parameters(node, plain))
    if plain.op in _RENAMES and not plain.domain:
        return NodeWork(0, 0, count, 0, 0)
    is_owner = plain.op in _OWNERS or (node.domain, node.op_type, node.overload) in model.ir.functions
    if is_owner:
        note = "What is inside is counted by itself, that of a loop for one turn."
        return NodeWork(0, 0, count, 0, 0, note)
    read_shapes = [None if v is None else sizes.of(v, space) for v in ins]
    write_shapes = [sizes.of(v, space) for v in outs]
    input_bytes = [
        nbytes(sizes.dtype(v, space), s) for v, s in zip(ins, read_shapes, strict=True) if v is not None
    ]
    output_bytes = [nbytes(sizes.dtype(v, space), s) for v, s in zip(outs, write_shapes, strict=True)]
    written = total(output_bytes)
    read = total(input_bytes)
    lookup = None
    if plain.op in _LOOKUPS and not plain.domain:
        read = total([written, *input_bytes[1:]])
        is_table = ins[0] is not None and ins[0].const_value is not None
        if is_table and read_shapes[0] is not None and write_shapes[0] is not None:
            lookup = math.prod(read_shapes[0]), math.prod(write_shapes[0])
    if any(s is None for v, s in zip(ins, read_shapes, strict=True) if v is not None) or None in write_shapes:
        if plain.op in _MOVES:
            return NodeWork(0, 0, count, read, written)
        note = "Not counted: a shape that it needs is not known."
        return NodeWork(None, None, count, read, written, note)
    try:
        macs, flops = _count_operations(
            plain, [s or () for s in read_shapes], [s or () for s in write_shapes]
        )
    except (IndexError, ValueError, ZeroDivisionError):
        # The checker of ONNX asks for less than an operator needs.
        note = "Not counted: these shapes do not fit the operator."
        return NodeWork(None, None, count, read, written, note)
    note = "" if flops is not None else f'Not counted: what "{plain.op}" computes is not known to rtlab.'
    return NodeWork(macs, flops, count, read, written, note, lookup)


def _count_operations(
    node: Node, ins: Sequence[Shape], outs: Sequence[Shape]
) -> tuple[int | None, int | None]:
    """Multiply-accumulates and operations; None for an operator that is not known."""
    size = math.prod(outs[0]) if outs else 0
    if node.domain not in _DOMAINS:
        return None, None
    if node.op in _MOVES:
        return 0, 0
    if node.op in _PRODUCTS and (node.op != "Attention" or node.domain != "com.microsoft"):
        return _PRODUCTS[node.op](node, ins, outs)
    if node.op in _POINTWISE:
        return 0, size * _POINTWISE[node.op]
    if node.op in _FOLDS:
        return 0, size * max(0, len(ins) - 1) + (size if node.op == "Mean" else 0)
    if node.op in _REDUCES:
        return 0, math.prod(ins[0]) * _REDUCES[node.op]
    if node.op in _WINDOWS:
        window = node.attributes.get("kernel_shape")
        return 0, size * math.prod(window if isinstance(window, list) else ())
    if node.op == "LRN":
        return 0, size * (int(_number(node, "size", 1)) + 5)
    if node.op in {"Resize", "Upsample"}:
        return 0, size * _taps(node, ins[0], outs[0])
    return None, None


def _convolution(weight: int, bias: int) -> Callable[..., tuple[int, int]]:
    def count(node: Node, ins: Sequence[Shape], outs: Sequence[Shape]) -> tuple[int, int]:  # noqa: ARG001
        # Weights are (out, in / groups, kernel...).
        size = math.prod(outs[0])
        macs = size * math.prod(ins[weight][1:])
        return macs, 2 * macs + (size if len(ins) > bias and ins[bias] else 0)

    return count


def _conv_transpose(node: Node, ins: Sequence[Shape], outs: Sequence[Shape]) -> tuple[int, int]:  # noqa: ARG001
    # Weights are (in, out / groups, kernel...): each input element is added into a window of the output.
    macs = math.prod(ins[0]) * math.prod(ins[1][1:])
    return macs, 2 * macs + (math.prod(outs[0]) if len(ins) > 2 and ins[2] else 0)


def _gemm(node: Node, ins: Sequence[Shape], outs: Sequence[Shape]) -> tuple[int, int]:
    size = math.prod(outs[0])
    macs = size * ins[0][0 if _number(node, "transA", 0) else 1]
    return macs, 2 * macs + (size if len(ins) > 2 and ins[2] else 0)


def _matmul(node: Node, ins: Sequence[Shape], outs: Sequence[Shape]) -> tuple[int, int]:  # noqa: ARG001
    macs = math.prod(outs[0]) * ins[0][-1]
    return macs, 2 * macs


def _einsum(node: Node, ins: Sequence[Shape], outs: Sequence[Shape]) -> tuple[int | None, int | None]:
    """All terms at once: ``n - 1`` products for each combination of ``n`` factors' indices; of one, the sum."""
    terms, arrow, result = str(node.attributes.get("equation", "")).replace(" ", "").partition("->")
    spans: dict[str, int] = {}
    for term, shape in zip(terms.split(","), ins, strict=True):
        letters = term.replace("...", "")
        dots = len(shape) - len(letters)
        start = term.index("...") if "..." in term else 0
        names = [*letters[:start], *(f".{dots - i}" for i in range(dots)), *letters[start:]]
        for name, size in zip(names, shape, strict=True):
            spans[name] = max(size, spans.get(name, 1))
    every, factors = math.prod(spans.values()), len(terms.split(","))
    is_summed = any(n not in result for n in spans if n[0] != ".") if arrow else every > math.prod(outs[0])
    if factors == 1:
        return 0, every if is_summed else 0
    steps = every * (factors - 1)
    return (steps, 2 * steps) if is_summed else (0, steps)


def _attention(node: Node, ins: Sequence[Shape], outs: Sequence[Shape]) -> tuple[int, int]:  # noqa: ARG001
    """Of ONNX 23: queries, keys and values of four dimensions, or of three with the heads in the last one."""
    queries, keys, values = ins[:3]
    if len(queries) == 4:
        batch, heads, rows, depth = queries
        columns, width = keys[2], values[3]
    else:
        heads, kv_heads = int(_number(node, "q_num_heads", 1)), int(_number(node, "kv_num_heads", 1))
        batch, rows, depth = queries[0], queries[1], queries[2] // heads
        columns, width = keys[1], values[2] // kv_heads
    if len(ins) > 4 and ins[4]:
        columns += ins[4][2]
    pairs = batch * heads * rows * columns
    macs = pairs * (depth + width)
    # Softmax and the scale of each product; a mask adds one.
    return macs, 2 * macs + pairs * (7 if len(ins) > 3 and ins[3] else 6)


def _recurrent(node: Node, ins: Sequence[Shape], outs: Sequence[Shape]) -> tuple[int, int]:  # noqa: ARG001
    gates, arithmetic = _RECURRENT[node.op]
    steps = ins[0][0] * ins[0][1]
    directions, _, width = ins[1]
    hidden = ins[2][2]
    units = steps * directions * hidden
    macs = units * gates * (width + hidden)
    biases = 2 * gates if len(ins) > 3 and ins[3] else 0
    return macs, 2 * macs + units * (arithmetic + biases)


_PRODUCTS: Mapping[str, Callable[[Node, Sequence[Shape], Sequence[Shape]], tuple[int | None, int | None]]] = {
    "Conv": _convolution(1, 2), "FusedConv": _convolution(1, 2), "ConvInteger": _convolution(1, 99),
    "QLinearConv": _convolution(3, 8), "ConvTranspose": _conv_transpose, "Gemm": _gemm, "FusedGemm": _gemm,
    "MatMul": _matmul, "MatMulInteger": _matmul, "QLinearMatMul": _matmul, "Einsum": _einsum,
    "Attention": _attention, "LSTM": _recurrent, "GRU": _recurrent, "RNN": _recurrent,
}  # fmt: skip


def _taps(node: Node, before: Shape, after: Shape) -> int:
    """Operations per element of a resized tensor: a tap of each axis that is resized, multiplied and added."""
    mode = str(node.attributes.get("mode", "nearest"))
    taps = {"linear": 2, "cubic": 4}.get(mode, 0)
    axes = sum(a != b for a, b in zip(before, after, strict=True))
    return 2 * taps**axes if taps and axes else 0


def _number(node: Node, key: str, default: float) -> float:
    attribute = node.attributes.get(key, default)
    return attribute if isinstance(attribute, (int, float)) else default


def _list_parameters(node: ir.Node, plain: Node) -> list[tuple[ir.Value, int]]:
    """The constants among a node's inputs that hold learned numbers, and how many."""
    skipped_positions = _NO_PARAMETERS.get(plain.op, frozenset())
    constants = []
    for position, value in enumerate(node.inputs):
        if value is None or position in skipped_positions or value.const_value is None:
            continue
        value_info = describe(value, "constant")
        is_bias = value_info.dtype == "int32" and (plain.op, position) in _BIASES
        if value_info.shape and (is_bias or value_info.dtype in _NUMBERS):
            constants.append((value, math.prod(d for d in value_info.shape if isinstance(d, int))))
    return constants
