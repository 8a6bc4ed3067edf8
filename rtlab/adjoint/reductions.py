"""Rules of sums, means and others over axes."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import onnx_ir as ir

from rtlab.adjoint.site import Rule, Rules, Site
from rtlab.adjoint.tape import Unruled


def _axes(s: Site) -> list[int]:
    """The axes that a node reduces."""
    given = s.held("axes", None)
    if given is None and s.has(1):
        given = s.number(1)
        if given is None:
            raise Unruled("its axes are no constant")
    if given is not None and len(given):
        return sorted({int(a) % s.rank for a in given})
    return [] if int(s.held("noop_with_empty_axes", 0)) else list(range(s.rank))


def _kept(s: Site, value: ir.Value, axes: Sequence[int]) -> ir.Value:
    """What was reduced, or its gradient, with the axes as ones."""
    return value if int(s.held("keepdims", 1)) or not axes else s.tape.unsqueezed(value, axes)


def _over(slope: Callable[[Site, ir.Value, ir.Value, list[int]], ir.Value]) -> Rule:
    """The rule of a reduction, from its gradient and what it wrote with the axes as ones."""

    def rule(s: Site) -> ir.Value:
        axes = _axes(s)
        return s.tape.spread(slope(s, _kept(s, s.g, axes), _kept(s, s.y, axes), axes), s.raw(0))

    return rule


def _mean(s: Site, g: ir.Value, _: ir.Value, axes: list[int]) -> ir.Value:
    return s.op("Div", g, s.tape.count(s.raw(0), axes)) if axes else g


def _most(s: Site, g: ir.Value, y: ir.Value, axes: list[int]) -> ir.Value:
    """Shared between equals."""
    mine = s.tape.where(s.op("Equal", s.x, y))
    several = s.tape.summed(mine, axes, keep=True) if axes else mine
    return s.mul(mine, s.op("Div", g, several))


def _product(s: Site, g: ir.Value, _: ir.Value, axes: list[int]) -> ir.Value:
    """The product of the others: of those before and of those behind, so that a zero is none to divide by."""
    if len(axes) != 1:
        raise Unruled("it multiplies along several axes")
    size = s.sizes()[axes[0]]
    if size is None or size > 64:
        raise Unruled("it multiplies many, or how many is not known")
    parts = s.tape.ops("Split", s.x, s.c([1] * size), count=size, axis=axes[0]) if size > 1 else [s.x]
    one = s.op("Expand", s.c(1.0), s.op("Shape", parts[0]))
    before, behind = [one], [one]
    for k in range(size - 1):
        before.append(s.mul(before[-1], parts[k]))
        behind.append(s.mul(behind[-1], parts[size - 1 - k]))
    others = [s.mul(a, b) for a, b in zip(before, behind[::-1], strict=True)]
    return s.mul(g, s.op("Concat", *others, axis=axes[0]))


def _cumulated(s: Site) -> list[ir.Value | None]:
    """The same from the other end."""
    other = 1 - int(s.held("reverse", 0))
    return [s.op("CumSum", s.g, s.raw(1), exclusive=int(s.held("exclusive", 0)), reverse=other), None]


def _first(s: Site) -> list[ir.Value | None]:
    """Each of the largest, where it was."""
    axis, where = int(s.held("axis", -1)) % s.rank, s.node.outputs[1]
    if s.given[0] is None:
        return [None] * len(s.node.inputs)
    put = s.op("ScatterElements", s.tape.zeros(s.x), where, s.g, axis=axis)
    return [put, *[None] * (len(s.node.inputs) - 1)]


RULES: Rules = {
    "ReduceSum": _over(lambda _, g, __, ___: g),
    "ReduceMean": _over(_mean),
    "ReduceMax": _over(_most),
    "ReduceMin": _over(_most),
    "ReduceProd": _over(_product),
    "ReduceL1": _over(lambda s, g, _, __: s.mul(g, s.op("Sign", s.x))),
    "ReduceL2": _over(lambda s, g, y, _: s.mul(s.op("Div", g, s.op("Max", y, s.c(1e-30))), s.x)),
    "ReduceSumSquare": _over(lambda s, g, _, __: s.mul(s.mul(g, s.x), 2.0)),
    "ReduceLogSum": _over(lambda s, g, y, _: s.op("Div", g, s.op("Exp", y))),
    "ReduceLogSumExp": _over(lambda s, g, y, _: s.mul(g, s.op("Exp", s.op("Sub", s.x, y)))),
    "CumSum": _cumulated, "TopK": _first,
}  # fmt: skip
