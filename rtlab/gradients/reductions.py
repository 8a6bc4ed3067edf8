"""Rules of sums, means and others over axes."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import onnx_ir as ir

from rtlab.gradients.tape import NotDifferentiable
from rtlab.gradients.vjp_context import Rule, Rules, VjpContext


def _read_axes(s: VjpContext) -> list[int]:
    """The axes that a node reduces."""
    axes = s.get_attribute("axes", None)
    if axes is None and s.has(1):
        axes = s.constant_value(1)
        if axes is None:
            raise NotDifferentiable("its axes are no constant")
    if axes is not None and len(axes):
        return sorted({int(a) % s.rank for a in axes})
    return [] if int(s.get_attribute("noop_with_empty_axes", 0)) else list(range(s.rank))


def _restore_reduced_axes(s: VjpContext, value: ir.Value, axes: Sequence[int]) -> ir.Value:
    """What was reduced, or its gradient, with the axes as ones."""
    return value if int(s.get_attribute("keepdims", 1)) or not axes else s.tape.unsqueeze(value, axes)


def _make_reduction_rule(slope: Callable[[VjpContext, ir.Value, ir.Value, list[int]], ir.Value]) -> Rule:
    """The rule of a reduction, from its gradient and what it wrote with the axes as ones."""

    def rule(s: VjpContext) -> ir.Value:
        axes = _read_axes(s)
        return s.tape.expand_like(
            slope(s, _restore_reduced_axes(s, s.g, axes), _restore_reduced_axes(s, s.y, axes), axes), s.raw(0)
        )

    return rule


def _mean(s: VjpContext, g: ir.Value, _: ir.Value, axes: list[int]) -> ir.Value:
    return s.op("Div", g, s.tape.count(s.raw(0), axes)) if axes else g


def _max_or_min(s: VjpContext, g: ir.Value, y: ir.Value, axes: list[int]) -> ir.Value:
    """Shared between equals."""
    mine = s.tape.cast_mask(s.op("Equal", s.x, y))
    several = s.tape.reduce_sum(mine, axes, keep=True) if axes else mine
    return s.mul(mine, s.op("Div", g, several))


def _product(s: VjpContext, g: ir.Value, _: ir.Value, axes: list[int]) -> ir.Value:
    """The product of the others: of those before and of those behind, so that a zero is none to divide by."""
    if len(axes) != 1:
        raise NotDifferentiable("it multiplies along several axes")
    size = s.sizes()[axes[0]]
    if size is None or size > 64:
        raise NotDifferentiable("it multiplies many, or how many is not known")
    parts = s.tape.ops("Split", s.x, s.c([1] * size), count=size, axis=axes[0]) if size > 1 else [s.x]
    one = s.op("Expand", s.c(1.0), s.op("Shape", parts[0]))
    prefix_products, suffix_products = [one], [one]
    for k in range(size - 1):
        prefix_products.append(s.mul(prefix_products[-1], parts[k]))
        suffix_products.append(s.mul(suffix_products[-1], parts[size - 1 - k]))
    others = [s.mul(a, b) for a, b in zip(prefix_products, suffix_products[::-1], strict=True)]
    return s.mul(g, s.op("Concat", *others, axis=axes[0]))


def _cumsum(s: VjpContext) -> list[ir.Value | None]:
    """The same from the other end."""
    other = 1 - int(s.get_attribute("reverse", 0))
    return [s.op("CumSum", s.g, s.raw(1), exclusive=int(s.get_attribute("exclusive", 0)), reverse=other)]


def _top_k(s: VjpContext) -> list[ir.Value | None]:
    """Each of the largest, where it was."""
    axis, indices = int(s.get_attribute("axis", -1)) % s.rank, s.node.outputs[1]
    if s.output_gradients[0] is None:
        return []
    scattered_gradient = s.op("ScatterElements", s.tape.zeros_like(s.x), indices, s.g, axis=axis)
    return [scattered_gradient]


RULES: Rules = {
    "ReduceSum": _make_reduction_rule(lambda _, g, __, ___: g),
    "ReduceMean": _make_reduction_rule(_mean),
    "ReduceMax": _make_reduction_rule(_max_or_min),
    "ReduceMin": _make_reduction_rule(_max_or_min),
    "ReduceProd": _make_reduction_rule(_product),
    "ReduceL1": _make_reduction_rule(lambda s, g, _, __: s.mul(g, s.op("Sign", s.x))),
    "ReduceL2": _make_reduction_rule(lambda s, g, y, _: s.mul(s.op("Div", g, s.op("Max", y, s.c(1e-30))), s.x)),
    "ReduceSumSquare": _make_reduction_rule(lambda s, g, _, __: s.mul(s.mul(g, s.x), 2.0)),
    "ReduceLogSum": _make_reduction_rule(lambda s, g, y, _: s.op("Div", g, s.op("Exp", y))),
    "ReduceLogSumExp": _make_reduction_rule(lambda s, g, y, _: s.mul(g, s.op("Exp", s.op("Sub", s.x, y)))),
    "CumSum": _cumsum, "TopK": _top_k,
}  # fmt: skip
