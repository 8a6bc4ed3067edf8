"""Rules of sums, products and choices between values that are repeated to one shape."""

from __future__ import annotations

import onnx_ir as ir

from rtlab.gradients.vjp_context import Rules, VjpContext

_InputGradients = list["ir.Value | None"]


def _add(s: VjpContext) -> _InputGradients:
    return [s.unbroadcast(s.g, i) if w else None for i, w in enumerate(s.needs_input_gradient)]


def _mean(s: VjpContext) -> _InputGradients:
    share = s.mul(s.g, 1.0 / len(s.node.inputs))
    return [s.unbroadcast(share, i) if w else None for i, w in enumerate(s.needs_input_gradient)]


def _sub(s: VjpContext) -> _InputGradients:
    one, other = _add(s)
    return [one, None if other is None else s.op("Neg", other)]


def _mul(s: VjpContext) -> _InputGradients:
    return [
        s.unbroadcast(s.mul(s.g, s.at(1 - i)), i) if w else None for i, w in enumerate(s.needs_input_gradient)
    ]


def _div(s: VjpContext) -> _InputGradients:
    over = s.op("Div", s.g, s.at(1))
    one = s.unbroadcast(over, 0) if s.needs_gradient(0) else None
    return [one, s.unbroadcast(s.op("Neg", s.mul(over, s.y)), 1) if s.needs_gradient(1) else None]


def _pow(s: VjpContext) -> _InputGradients:
    x, power, gradients = s.x, s.constant_value(1), list[ir.Value | None]([None, None])
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


def _where(s: VjpContext) -> _InputGradients:
    condition, zero = s.raw(0), s.c(0.0)
    pairs = ((s.g, zero), (zero, s.g))
    return [
        None,
        *(
            s.unbroadcast(s.op("Where", condition, *pair), i) if s.needs_gradient(i) else None
            for i, pair in enumerate(pairs, 1)
        ),
    ]


def _max_or_min(s: VjpContext) -> _InputGradients:
    """Of Max and Min: to the first that equals what is written."""
    gradients: _InputGradients = []
    remaining: ir.Value | None = None
    for i, w in enumerate(s.needs_input_gradient):
        mine = s.op("Equal", s.at(i), s.y)
        if remaining is not None:
            mine = s.op("And", mine, remaining)
        remaining = s.op("Not", mine) if remaining is None else s.op("And", remaining, s.op("Not", mine))
        gradients.append(s.unbroadcast(s.mul(s.g, s.tape.cast_mask(mine)), i) if w else None)
    return gradients


RULES: Rules = {
    "Add": _add, "Sum": _add, "Mean": _mean, "Sub": _sub, "Mul": _mul, "Div": _div, "Pow": _pow, "Where": _where,
    "Max": _max_or_min, "Min": _max_or_min,
}  # fmt: skip
