"""What a quantized network computes, from ONNX's text by NumPy alone: no ONNX Runtime, and nothing of rtlab.

Products of two dequantized tensors are sums of products of their codes, exact, times their scales, as on a GPU. Every
operator rounds its result to the type of its output, and computes in FP32 (sums in FP64) before.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import ml_dtypes
import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import helper, numpy_helper

Array = NDArray[Any]
_SMALL = {"float16", "bfloat16"}


def evaluate(
    proto: onnx.ModelProto, feeds: Mapping[str, Array], others: Mapping[str, Array] | None = None
) -> dict[str, Array]:
    """Every value of a main graph by name; raises ``KeyError`` for an operator that has no line in ``_RULES``.

    With values of ``others`` every node reads those instead of what was computed here: each is judged by itself, and a
    difference in one is none in the nodes behind it.
    """
    values = {t.name: numpy_helper.to_array(t) for t in proto.graph.initializer} | dict(feeds)
    results: dict[str, Array] = {}
    codes: dict[str, _Codes] = {}
    for node in proto.graph.node:
        attributes = {a.name: helper.get_attribute_value(a) for a in node.attribute}
        inputs = [values[n] if n else None for n in node.input]
        pair = [codes.get(n) for n in node.input[:2]]
        if node.op_type in {"MatMul", "Gemm"} and None not in pair:
            product = _multiply_codes(*pair, **attributes)
            result = _round(product if len(inputs) < 3 else product + inputs[2], inputs[0].dtype)
        else:
            result = _compute(node.op_type, inputs, attributes)
        if node.op_type == "DequantizeLinear":
            codes[node.output[0]] = _Codes(inputs[0], inputs[1], attributes.get("axis", 1))
        name = node.output[0]
        results[name] = values[name] = result
        if others and name in others:
            values[name] = as_type(others[name], result.dtype)
    return results


def as_type(x: Array, kind: np.dtype[Any]) -> Array:
    """Numbers in a type, or bytes that stand for it."""
    return x.view(kind) if x.dtype == np.uint8 and kind.itemsize == 1 else x.astype(kind)


class _Codes:
    """Integers, or numbers of eight bits, with the scale of all or one for each place on an axis."""

    def __init__(self, codes: Array, scale: Array, axis: int) -> None:
        self.codes, self.scale, self.axis = codes.astype(np.float64), scale.astype(np.float32), axis


def _multiply_codes(a: _Codes, b: _Codes, transB: int = 0, **_: object) -> Array:  # noqa: N803 - ONNX's name
    """Sums of products of codes, exact in FP64 (below 2^53), by the scale of ``a`` and those of the columns."""
    right = b.codes.T if transB else b.codes
    columns = b.codes.ndim - 1 - transB
    assert not a.scale.ndim
    assert not b.scale.ndim or b.axis % b.codes.ndim == columns
    return (a.codes @ right) * (a.scale.astype(np.float64) * b.scale.astype(np.float64))


def _compute(op: str, inputs: list[Array | None], attributes: Mapping[str, Any]) -> Array:
    wide = [x.astype(np.float32) if x is not None and x.dtype.name in _SMALL else x for x in inputs]
    result = np.asarray(_RULES[op](*wide, **attributes))
    floating = [x.dtype for x in inputs if x is not None and x.dtype.name in {*_SMALL, "float32"}]
    if op in _TYPED or not floating or result.dtype == bool:
        return result
    return _round(result, floating[0])


def _round(x: Array, kind: np.dtype[Any]) -> Array:
    with np.errstate(over="ignore"):
        return x.astype(np.float32).astype(kind)


def _quantize(x: Array, scale: Array, zero: Array, axis: int = 1, **_: object) -> Array:
    ratio = x / _spread(scale, x.ndim, axis)
    if zero.dtype == ml_dtypes.float8_e4m3fn:
        assert not zero.astype(np.float32).any()
        return np.clip(ratio, -448, 448).astype(zero.dtype)
    limits = np.iinfo(zero.dtype)
    return np.clip(np.rint(ratio) + zero, limits.min, limits.max).astype(zero.dtype)


def _dequantize(codes: Array, scale: Array, zero: Array | None = None, axis: int = 1, **_: object) -> Array:
    assert zero is None or not zero.astype(np.float32).any()
    return codes.astype(np.float32) * _spread(scale, codes.ndim, axis)


def _spread(scale: Array, rank: int, axis: int) -> Array:
    return scale.reshape([-1 if i == axis % rank else 1 for i in range(rank)]) if scale.ndim else scale


def _cast(x: Array, to: int, **_: object) -> Array:
    with np.errstate(over="ignore"):
        return x.astype(helper.tensor_dtype_to_np_dtype(to))


def _normalize(
    x: Array, gain: Array, offset: Array, axis: int = -1, epsilon: float = 1e-5, **_: object
) -> Array:
    axes = tuple(range(axis % x.ndim, x.ndim))
    wide = x.astype(np.float64)
    centred = wide - wide.mean(axes, keepdims=True)
    return centred / np.sqrt((centred**2).mean(axes, keepdims=True) + epsilon) * gain + offset


def _softmax(x: Array, axis: int = -1) -> Array:
    raised = np.exp(x.astype(np.float64) - x.max(axis, keepdims=True))
    return raised / raised.sum(axis, keepdims=True)


def _slice(x: Array, starts: Array, ends: Array, axes: Array, steps: Array | None = None) -> Array:
    cut = [slice(None)] * x.ndim
    for i, (axis, start, end) in enumerate(zip(axes, starts, ends, strict=True)):
        cut[axis] = slice(start, end, 1 if steps is None else steps[i])
    return x[tuple(cut)]


def _reshape(x: Array, shape: Array, allowzero: int = 0) -> Array:
    return x.reshape([x.shape[i] if n == 0 and not allowzero else n for i, n in enumerate(shape)])


def _constant(value: onnx.TensorProto) -> Array:
    return numpy_helper.to_array(value)


def _average(x: Array, axes: Any = None, keepdims: int = 1, **_: object) -> Array:
    return x.mean(tuple(int(a) for a in axes), keepdims=bool(keepdims), dtype=np.float64)


def _product(a: Array, b: Array) -> Array:
    return a.astype(np.float64) @ b.astype(np.float64)


def _gemm(a: Array, b: Array, c: Array | float = 0, transB: int = 0, **_: object) -> Array:  # noqa: N803
    return _product(a, b.T if transB else b) + c


def _sigmoid(x: Array) -> Array:
    return 1 / (1 + np.exp(-x.astype(np.float64)))


_RULES: Mapping[str, Callable[..., Any]] = {
    "Add": np.add, "And": np.logical_and, "Cast": _cast, "Concat": lambda *xs, axis: np.concatenate(xs, axis),
    "Constant": _constant, "Cos": np.cos, "CumSum": lambda x, axis: x.cumsum(int(axis)),
    "DequantizeLinear": _dequantize, "Div": np.divide, "Erf": np.vectorize(math.erf, otypes=[np.float64]),
    "Expand": lambda x, shape: np.broadcast_to(x, np.broadcast_shapes(x.shape, tuple(shape))),
    "Gather": lambda x, i, axis=0: x.take(i, axis), "Gemm": _gemm, "LayerNormalization": _normalize,
    "LessOrEqual": np.less_equal, "MatMul": _product, "Mul": np.multiply, "Neg": np.negative, "Pow": np.power,
    "QuantizeLinear": _quantize, "ReduceMean": _average, "Reshape": _reshape, "Sigmoid": _sigmoid, "Sin": np.sin,
    "Slice": _slice, "Softmax": _softmax, "Sqrt": np.sqrt, "Sub": np.subtract,
    "Transpose": lambda x, perm: x.transpose(perm), "Unsqueeze": lambda x, axes: np.expand_dims(x, tuple(axes)),
    "Where": np.where,
}  # fmt: skip
#: Those whose rule gives the type of the result itself.
_TYPED = frozenset({"Cast", "QuantizeLinear"})
