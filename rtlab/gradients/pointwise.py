"""Rules of operators that compute element by element."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable

import numpy as np
import onnx_ir as ir

from rtlab.gradients.tape import REAL
from rtlab.gradients.vjp_context import InputGradients, Rules, VjpContext

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


def _piecewise_slope(s: VjpContext, low: ir.Value) -> ir.Value:
    """One above zero, another slope below."""
    return s.op("Where", s.op("Greater", s.x, s.c(0.0)), s.c(1.0), low)


def _prelu(s: VjpContext) -> InputGradients:
    gradients: InputGradients = [s.mul(s.g, _piecewise_slope(s, s.at(1))), None]
    if s.needs_gradient(1):
        gradients[1] = s.unbroadcast(s.mul(s.g, s.op("Min", s.x, s.c(0.0))), 1)
    return gradients


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


def _clip(s: VjpContext) -> InputGradients:
    """Between the bounds; bounds that are computed get the gradient of what they cut off."""
    bounds = [i for i in (1, 2) if s.has(i)]
    inside, outside = {1: "Greater", 2: "Less"}, {1: "Less", 2: "Greater"}
    masks = [s.tape.cast_mask(s.op(inside[i], s.x, s.at(i))) for i in bounds]
    gradients: InputGradients = [s.mul(s.g, functools.reduce(s.mul, masks)) if masks else s.g, None, None]
    for i in bounds:
        if s.needs_gradient(i):
            cut = s.mul(s.g, s.tape.cast_mask(s.op(outside[i], s.x, s.at(i))))
            gradients[i] = s.tape.reduce_sum(cut, list(range(s.rank)), keep=False)
    return gradients


def _cast(s: VjpContext) -> ir.Value | None:
    """As it is where the type holds it: the slope of rounding is taken to be that of the values rounded."""
    to = ir.DataType(int(s.get_attribute("to", int(REAL))))
    if to in _LARGEST and s.raw(0).dtype != to:
        return s.mul(s.g, _below(s, s.op("Abs", s.x), _LARGEST[to]))
    return s.g if to.is_floating_point() else None


def _quantize(s: VjpContext) -> ir.Value:
    """As it is where it is rounded, and zero where it is clipped."""
    kind, scale, point = s.node.outputs[0].dtype, s.constant_value(1), s.constant_value(2)
    has_range = kind in _INTEGER_RANGES or kind in _LARGEST
    if scale is None or kind is None or not has_range or s.get_attribute("block_size", 0):
        return s.g
    if kind in _INTEGER_RANGES:
        zero = np.zeros(()) if point is None else np.asarray(point, np.float64)
        limits = [_INTEGER_RANGES[kind][0] - 0.5 - zero, _INTEGER_RANGES[kind][1] + 0.5 - zero]
    else:
        limits = [np.asarray(-_LARGEST[kind]), np.asarray(_LARGEST[kind])]
    bounds = []
    for limit in limits:
        bound = limit * np.asarray(scale, np.float64)
        shape = [] if bound.size == 1 else [1] * s.rank
        if shape:
            shape[int(s.get_attribute("axis", 1))] = -1
        bounds.append(s.c(bound.reshape(shape)))
    above, below = s.op("Greater", s.x, bounds[0]), s.op("Less", s.x, bounds[1])
    return s.mul(s.g, s.tape.cast_mask(s.op("And", above, below)))


def _add(s: VjpContext) -> InputGradients:
    return [s.unbroadcast(s.g, i) if w else None for i, w in enumerate(s.needs_input_gradient)]


def _mean(s: VjpContext) -> InputGradients:
    share = s.mul(s.g, 1.0 / len(s.node.inputs))
    return [s.unbroadcast(share, i) if w else None for i, w in enumerate(s.needs_input_gradient)]


def _sub(s: VjpContext) -> InputGradients:
    one, other = _add(s)
    return [one, None if other is None else s.op("Neg", other)]


def _mul(s: VjpContext) -> InputGradients:
    return [
        s.unbroadcast(s.mul(s.g, s.at(1 - i)), i) if w else None for i, w in enumerate(s.needs_input_gradient)
    ]


def _div(s: VjpContext) -> InputGradients:
    over = s.op("Div", s.g, s.at(1))
    one = s.unbroadcast(over, 0) if s.needs_gradient(0) else None
    return [one, s.unbroadcast(s.op("Neg", s.mul(over, s.y)), 1) if s.needs_gradient(1) else None]


def _pow(s: VjpContext) -> InputGradients:
    x, power = s.x, s.constant_value(1)
    gradients: InputGradients = [None, None]
    if s.needs_gradient(0):
        if power is not None and power.size == 1:
            number = float(power.reshape(())[()])
            less = {1.0: s.c(1.0), 2.0: x}.get(number) or s.op("Pow", x, s.c(number - 1))
            slope = s.mul(less, number)
        else:
            slope = s.mul(s.op("Pow", x, s.add(s.at(1), -1.0)), s.at(1))
        gradients[0] = s.unbroadcast(s.mul(s.g, slope), 0)
    if s.needs_gradient(1):
        gradients[1] = s.unbroadcast(s.mul(s.g, s.mul(s.y, s.op("Log", x))), 1)
    return gradients


def _where(s: VjpContext) -> InputGradients:
    condition, zero = s.raw(0), s.c(0.0)
    pairs = ((s.g, zero), (zero, s.g))
    gradients = (s.unbroadcast(s.op("Where", condition, *pair), i) for i, pair in enumerate(pairs, 1))
    return [None, *gradients]


def _max_or_min(s: VjpContext) -> InputGradients:
    """Of Max and Min: to the first that equals what is written."""
    gradients: InputGradients = []
    remaining: ir.Value | None = None
    for i, w in enumerate(s.needs_input_gradient):
        mine = s.op("Equal", s.at(i), s.y)
        if remaining is not None:
            mine = s.op("And", mine, remaining)
        remaining = s.op("Not", mine) if remaining is None else s.op("And", remaining, s.op("Not", mine))
        gradients.append(s.unbroadcast(s.mul(s.g, s.tape.cast_mask(mine)), i) if w else None)
    return gradients


_SLOPES: dict[str, Callable[[VjpContext], ir.Value]] = {
    # Its output is zero or positive: the sign is the slope.
    "Relu": lambda s: s.op("Sign", s.y),
    "LeakyRelu": lambda s: _piecewise_slope(s, s.c(float(s.get_attribute("alpha", 0.01)))),
    "Elu": lambda s: _piecewise_slope(s, s.add(s.y, float(s.get_attribute("alpha", 1.0)))),
    "HardSigmoid": _hard_sigmoid, "HardSwish": _hard_swish, "Swish": _swish, "Mish": _mish, "Gelu": _gelu,
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
}  # fmt: skip

RULES: Rules = {
    # The gradient times the slope.
    **{kind: functools.partial(lambda slope, s: s.mul(s.g, slope(s)), slope) for kind, slope in _SLOPES.items()},
    "Log": lambda s: s.op("Div", s.g, s.x), "Neg": lambda s: s.op("Neg", s.g), "PRelu": _prelu, "Clip": _clip,
    "Cast": _cast, "QuantizeLinear": _quantize,
    # What passes numbers on, and steps, which have no slope.
    **dict.fromkeys(("Identity", "Dropout", "DequantizeLinear", "CastLike"), lambda s: s.g),
    **dict.fromkeys(("Floor", "Ceil", "Sign", "Hardmax"), lambda _: None),
    "Add": _add, "Sum": _add, "Mean": _mean, "Sub": _sub, "Mul": _mul, "Div": _div, "Pow": _pow, "Where": _where,
    "Max": _max_or_min, "Min": _max_or_min,
}  # fmt: skip
