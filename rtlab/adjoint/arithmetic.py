"""Rules of sums, products and choices between values that are repeated to one shape."""

from __future__ import annotations

import onnx_ir as ir

from rtlab.adjoint.site import Rules, Site

_Found = list["ir.Value | None"]


def _add(s: Site) -> _Found:
    return [s.narrowed(s.g, i) if w else None for i, w in enumerate(s.wanted)]


def _mean(s: Site) -> _Found:
    share = s.mul(s.g, 1.0 / len(s.node.inputs))
    return [s.narrowed(share, i) if w else None for i, w in enumerate(s.wanted)]


def _sub(s: Site) -> _Found:
    one, other = _add(s)
    return [one, None if other is None else s.op("Neg", other)]


def _mul(s: Site) -> _Found:
    return [s.narrowed(s.mul(s.g, s.at(1 - i)), i) if w else None for i, w in enumerate(s.wanted)]


def _div(s: Site) -> _Found:
    over = s.op("Div", s.g, s.at(1))
    one = s.narrowed(over, 0) if s.asks(0) else None
    return [one, s.narrowed(s.op("Neg", s.mul(over, s.y)), 1) if s.asks(1) else None]


def _pow(s: Site) -> _Found:
    x, power, found = s.x, s.number(1), list[ir.Value | None]([None, None])
    if s.asks(0):
        if power is not None and power.size == 1:
            number = float(power.reshape(())[()])
            less = {1.0: s.c(1.0), 2.0: x}.get(number) or s.op("Pow", x, s.c(number - 1))
            slope = s.mul(less, number)
        else:
            slope = s.mul(s.op("Pow", x, s.add(s.at(1), -1.0)), s.at(1))
        found[0] = s.narrowed(s.mul(s.g, slope), 0)
    if s.asks(1):
        found[1] = s.narrowed(s.mul(s.g, s.mul(s.y, s.op("Log", x))), 1)
    return found


def _where(s: Site) -> _Found:
    told, zero = s.raw(0), s.c(0.0)
    pairs = ((s.g, zero), (zero, s.g))
    return [
        None,
        *(
            s.narrowed(s.op("Where", told, *pair), i) if s.asks(i) else None
            for i, pair in enumerate(pairs, 1)
        ),
    ]


def _largest(s: Site) -> _Found:
    """Of Max and Min: to the first that equals what is written."""
    found: _Found = []
    left: ir.Value | None = None
    for i, w in enumerate(s.wanted):
        mine = s.op("Equal", s.at(i), s.y)
        if left is not None:
            mine = s.op("And", mine, left)
        left = s.op("Not", mine) if left is None else s.op("And", left, s.op("Not", mine))
        found.append(s.narrowed(s.mul(s.g, s.tape.where(mine)), i) if w else None)
    return found


RULES: Rules = {
    "Add": _add, "Sum": _add, "Mean": _mean, "Sub": _sub, "Mul": _mul, "Div": _div, "Pow": _pow, "Where": _where,
    "Max": _largest, "Min": _largest,
}  # fmt: skip
