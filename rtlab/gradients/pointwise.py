"""Rules of functions of one value, element by element."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable

import numpy as np
import onnx_ir as ir

from rtlab.gradients.tape import REAL
from rtlab.gradients.vjp_context import Rules, VjpContext

#: What whole numbers of a type may be.
_INTEGER_RANGES = {
    ir.DataType.INT8: (-128, 127), ir.DataType.UINT8: (0, 255), ir.DataType.INT4: (-8, 7), ir.DataType.UINT4: (0, 15),
    ir.DataType.INT16: (-32768, 32767), ir.DataType.UINT16: (0, 65535),
}  # fmt: skip
#: Where a type with a few bits becomes infinite, or is clipped.
_LARGEST = {
    ir.DataType.FLOAT16: 65520.0, ir.DataType.FLOAT8E4M3FN: 464.0, ir.DataType.FLOAT8E5M2: 61440.0,
    ir.DataType.FLOAT4E2M1: 6.5,
}  # fmt: skip


def _above(s: VjpContext, value: ir.Value, bound: float) -> ir.Value:
    return s.tape.cast_mask(s.op("Greater", value, s.c(bound)))


def _below(s: VjpContext, value: ir.Value, bound: float) -> ir.Value:
    return s.tape.cast_mask(s.op("Less", value, s.c(bound)))


def _subtract_from(s: VjpContext, number: float, value: ir.Value) -> ir.Value:
    """A number minus a value."""
    return s.op("Sub", s.c(number), value)


def _piecewise_slope(s: VjpContext, low: ir.Value, high: float = 1.0) -> ir.Value:
    """One slope above zero, another below."""
    return s.op("Where", s.op("Greater", s.x, s.c(0.0)), s.c(high), low)


def _prelu(s: VjpContext) -> list[ir.Value | None]:
    gradients: list[ir.Value | None] = [s.mul(s.g, _piecewise_slope(s, s.at(1))), None]
    if s.needs_gradient(1):
        gradients[1] = s.unbroadcast(s.mul(s.g, s.op("Min", s.x, s.c(0.0))), 1)
    return gradients


def _selu(s: VjpContext) -> ir.Value:
    alpha, gamma = (
        float(s.get_attribute("alpha", 1.67326319217681884765625)),
        float(s.get_attribute("gamma", 1.05070102214813232421875)),
    )
    return _piecewise_slope(s, s.add(s.y, alpha * gamma), gamma)


def _celu(s: VjpContext) -> ir.Value:
    alpha = float(s.get_attribute("alpha", 1.0))
    return _piecewise_slope(s, s.add(s.mul(s.y, 1 / alpha), 1.0))


def _hard_sigmoid(s: VjpContext) -> ir.Value:
    inside = s.mul(_above(s, s.y, 0.0), _below(s, s.y, 1.0))
    return s.mul(inside, float(s.get_attribute("alpha", 0.2)))


def _hard_swish(s: VjpContext) -> ir.Value:
    inside = s.op("Where", s.op("Less", s.x, s.c(3.0)), s.add(s.mul(s.x, 1 / 3), 0.5), s.c(1.0))
    return s.mul(inside, _above(s, s.x, -3.0))


def _swish(s: VjpContext) -> ir.Value:
    x, alpha = s.x, float(s.get_attribute("alpha", 1.0))
    gate = s.op("Sigmoid", s.mul(x, alpha) if alpha != 1 else x)
    return s.mul(gate, s.add(s.mul(s.mul(x, alpha), _subtract_from(s, 1.0, gate)), 1.0))


def _mish(s: VjpContext) -> ir.Value:
    inner = s.op("Tanh", s.op("Softplus", s.x))
    rising = s.mul(_subtract_from(s, 1.0, s.mul(inner, inner)), s.op("Sigmoid", s.x))
    return s.add(inner, s.mul(s.x, rising))


def _gelu(s: VjpContext) -> ir.Value:
    x = s.x
    square = s.mul(x, x)
    if s.get_attribute("approximate", "none") == "tanh":
        root = math.sqrt(2 / math.pi)
        inner = s.op("Tanh", s.mul(s.mul(x, s.add(s.mul(square, 0.044715), 1.0)), root))
        rising = s.mul(x, s.add(s.mul(square, 3 * 0.044715 * root), root))
        curved = s.mul(_subtract_from(s, 1.0, s.mul(inner, inner)), rising)
        return s.mul(s.add(s.add(inner, curved), 1.0), 0.5)
    half = s.add(s.mul(s.op("Erf", s.mul(x, math.sqrt(0.5))), 0.5), 0.5)
    bell = s.op("Exp", s.mul(square, -0.5))
    return s.add(half, s.mul(s.mul(x, bell), 1 / math.sqrt(2 * math.pi)))


def _softsign(s: VjpContext) -> ir.Value:
    around = s.add(s.op("Abs", s.x), 1.0)
    return s.op("Reciprocal", s.mul(around, around))


def _reciprocal_sqrt(s: VjpContext, inner: ir.Value) -> ir.Value:
    return s.op("Reciprocal", s.op("Sqrt", inner))


def _square(s: VjpContext) -> ir.Value:
    return s.mul(s.x, s.x)


def _clip_mask(s: VjpContext) -> ir.Value:
    """1 between the bounds, which are attributes or inputs."""
    masks: list[ir.Value] = []
    for i, (name, kind) in enumerate((("min", "Greater"), ("max", "Less")), 1):
        number = s.get_attribute(name, None)
        if s.has(i):
            masks.append(s.tape.cast_mask(s.op(kind, s.x, s.at(i))))
        elif number is not None:
            masks.append(s.tape.cast_mask(s.op(kind, s.x, s.c(float(number)))))
    return functools.reduce(s.mul, masks) if masks else s.c(1.0)


def _clip_rule(s: VjpContext) -> list[ir.Value | None]:
    """Bounds that are computed get the gradient of what they cut off."""
    gradients: list[ir.Value | None] = [s.mul(s.g, _clip_mask(s)), None, None]
    for i, kind in ((1, "Less"), (2, "Greater")):
        if s.needs_gradient(i):
            cut = s.mul(s.g, s.tape.cast_mask(s.op(kind, s.x, s.at(i))))
            gradients[i] = s.tape.reduce_sum(cut, list(range(s.rank)), keep=False)
    return gradients[: len(s.node.inputs)]


def _cast(s: VjpContext) -> ir.Value | None:
    """As it is where the type holds it: the slope of rounding is taken to be that of the values rounded."""
    to = ir.DataType(int(s.get_attribute("to", int(REAL))))
    if to in _LARGEST and s.raw(0).dtype != to:
        return s.mul(s.g, _below(s, s.op("Abs", s.x), _LARGEST[to]))
    return s.g if to.is_floating_point() else None


def _quantize(s: VjpContext) -> ir.Value:
    """As it is where it is rounded, and nothing where it is clipped."""
    kind, scale, point = s.node.outputs[0].dtype, s.constant_value(1), s.constant_value(2)
    if (
        scale is None
        or (kind not in _INTEGER_RANGES and kind not in _LARGEST)
        or s.get_attribute("block_size", 0)
    ):
        return s.g
    if kind in _INTEGER_RANGES:
        zero = np.zeros(()) if point is None else np.asarray(point, np.float64)
        low, high = (
            bound + edge - zero for bound, edge in zip(_INTEGER_RANGES[kind], (-0.5, 0.5), strict=True)
        )
    else:
        low, high = np.asarray(-_LARGEST[kind]), np.asarray(_LARGEST[kind])
    numbers = np.asarray(scale, np.float64)
    bounds = []
    for bound in (low * numbers, high * numbers):
        one = bound.reshape(())[()] if bound.size == 1 else bound
        if np.ndim(one):
            axis = int(s.get_attribute("axis", 1)) % s.rank
            one = one.reshape([-1 if i == axis else 1 for i in range(s.rank)])
        bounds.append(s.c(np.asarray(one, np.float32)))
    above, below = s.op("Greater", s.x, bounds[0]), s.op("Less", s.x, bounds[1])
    return s.mul(s.g, s.tape.cast_mask(s.op("And", above, below)))


_SLOPES: dict[str, Callable[[VjpContext], ir.Value]] = {
    # Its output is zero or positive: the sign is the slope.
    "Relu": lambda s: s.op("Sign", s.y),
    "LeakyRelu": lambda s: _piecewise_slope(s, s.c(float(s.get_attribute("alpha", 0.01)))),
    "Elu": lambda s: _piecewise_slope(s, s.add(s.y, float(s.get_attribute("alpha", 1.0)))),
    "Selu": _selu, "Celu": _celu, "HardSigmoid": _hard_sigmoid, "HardSwish": _hard_swish, "Swish": _swish,
    "Mish": _mish, "Gelu": _gelu, "Softsign": _softsign,
    "ThresholdedRelu": lambda s: _above(s, s.x, float(s.get_attribute("alpha", 1.0))),
    "Sigmoid": lambda s: s.mul(s.y, _subtract_from(s, 1.0, s.y)),
    "Tanh": lambda s: _subtract_from(s, 1.0, s.mul(s.y, s.y)),
    "Erf": lambda s: s.mul(s.op("Exp", s.op("Neg", s.mul(s.x, s.x))), 2 / math.sqrt(math.pi)),
    "Softplus": lambda s: s.op("Sigmoid", s.x),
    "Exp": lambda s: s.y,
    "Sqrt": lambda s: s.op("Div", s.c(0.5), s.y),
    "Abs": lambda s: s.op("Sign", s.x),
    "Reciprocal": lambda s: s.op("Neg", s.mul(s.y, s.y)),
    "Sin": lambda s: s.op("Cos", s.x),
    "Cos": lambda s: s.op("Neg", s.op("Sin", s.x)),
    "Tan": lambda s: s.add(s.mul(s.y, s.y), 1.0),
    "Sinh": lambda s: s.op("Cosh", s.x),
    "Cosh": lambda s: s.op("Sinh", s.x),
    "Asin": lambda s: _reciprocal_sqrt(s, _subtract_from(s, 1.0, _square(s))),
    "Acos": lambda s: s.op("Neg", _reciprocal_sqrt(s, _subtract_from(s, 1.0, _square(s)))),
    "Atan": lambda s: s.op("Reciprocal", s.add(_square(s), 1.0)),
    "Asinh": lambda s: _reciprocal_sqrt(s, s.add(_square(s), 1.0)),
    "Acosh": lambda s: _reciprocal_sqrt(s, s.add(_square(s), -1.0)),
    "Atanh": lambda s: s.op("Reciprocal", _subtract_from(s, 1.0, _square(s))),
}  # fmt: skip

RULES: Rules = {
    # The gradient times the slope.
    **{kind: functools.partial(lambda slope, s: s.mul(s.g, slope(s)), slope) for kind, slope in _SLOPES.items()},
    "Log": lambda s: s.op("Div", s.g, s.x), "Neg": lambda s: s.op("Neg", s.g), "PRelu": _prelu, "Clip": _clip_rule,
    "Cast": _cast, "QuantizeLinear": _quantize,
    # What is handed on as it is, and steps, which have no slope.
    **dict.fromkeys(("Identity", "Dropout", "DequantizeLinear", "CastLike"), lambda s: s.g),
    **dict.fromkeys(("Floor", "Ceil", "Sign", "Hardmax"), lambda _: None),
}  # fmt: skip
