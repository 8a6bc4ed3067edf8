"""Rules of products of matrices, and of sums, means and other reductions over axes."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import onnx_ir as ir

from rtlab.gradients.tape import NotDifferentiable
from rtlab.gradients.vjp_context import InputGradients, Rule, Rules, VjpContext


def _transpose_matrices(s: VjpContext, value: ir.Value, rank: int) -> ir.Value:
    """A matrix, or each of several, transposed."""
    return s.tape.transpose(value, [*range(rank - 2), rank - 1, rank - 2])


def _matmul(s: VjpContext) -> InputGradients:
    """``g b^T`` and ``a^T g``; a vector is a matrix of one row, or of one column."""
    tape, a, b, g = s.tape, s.at(0), s.at(1), s.g
    ranks = [len(s.sizes(0)), len(s.sizes(1))]
    if ranks[0] == 1:
        a = tape.unsqueeze(a, [0])
        g = tape.unsqueeze(g, [-1] if ranks[1] == 1 else [-2])
    if ranks[1] == 1:
        b = tape.unsqueeze(b, [1])
        g = tape.unsqueeze(g, [-1])
    matrix_ranks = [max(r, 2) for r in ranks]
    gradients: InputGradients = [None, None]
    if s.needs_gradient(0):
        product = s.op("MatMul", g, _transpose_matrices(s, b, matrix_ranks[1]))
        gradients[0] = _sum_batch_axes(s, product, 0, ranks)
    if s.needs_gradient(1):
        if matrix_ranks[1] == 2 and matrix_ranks[0] > 2:
            # One product of all rows in place of one for each matrix, and their sum.
            product = s.op("Gemm", _flatten_rows(s, a), _flatten_rows(s, g), transA=1)
            gradients[1] = tape.reshape_like(product, s.raw(1))
        else:
            product = s.op("MatMul", _transpose_matrices(s, a, matrix_ranks[0]), g)
            gradients[1] = _sum_batch_axes(s, product, 1, ranks)
    return gradients


def _flatten_rows(s: VjpContext, value: ir.Value) -> ir.Value:
    """All rows of several matrices in one."""
    return s.op("Reshape", value, s.tape.concat(s.c([-1]), s.tape.spatial_sizes(value, 1)))


def _sum_batch_axes(s: VjpContext, gradient: ir.Value, i: int, ranks: Sequence[int]) -> ir.Value:
    """Summed over the dimensions in which one factor was broadcast to the matrices of the other."""
    if ranks[i] == 1:
        if ranks[1 - i] > 2:
            gradient = s.tape.reduce_sum(gradient, list(range(ranks[1 - i] - 2)), keep=False)
        return s.tape.reshape_like(gradient, s.raw(i))
    if ranks[1 - i] == 1:
        return gradient
    return s.tape.unbroadcast(gradient, s.raw(i), s.node.outputs[0], trailing_axes=2)


def _gemm(s: VjpContext) -> InputGradients:
    """The same with factors and transposed operands."""
    a, b, g = s.at(0), s.at(1), s.g
    alpha, beta = (float(s.get_attribute(n, 1.0)) for n in ("alpha", "beta"))
    trans_a, trans_b = (int(s.get_attribute(n, 0)) for n in ("transA", "transB"))
    gradients: InputGradients = [None] * len(s.node.inputs)
    if s.needs_gradient(0):
        pair = (b, g) if trans_a else (g, b)
        turns = (trans_b, 1) if trans_a else (0, 1 - trans_b)
        gradients[0] = s.op("Gemm", *pair, alpha=alpha, transA=turns[0], transB=turns[1])
    if s.needs_gradient(1):
        pair = (g, a) if trans_b else (a, g)
        turns = (1, trans_a) if trans_b else (1 - trans_a, 0)
        gradients[1] = s.op("Gemm", *pair, alpha=alpha, transA=turns[0], transB=turns[1])
    if s.needs_gradient(2):
        gradients[2] = s.unbroadcast(g if beta == 1 else s.mul(g, beta), 2)
    return gradients


def _einsum(s: VjpContext) -> InputGradients:
    """Of each operand, the sum over the gradient and all the others; what only it had is repeated."""
    text = str(s.get_attribute("equation", "")).replace(" ", "")
    lhs, arrow, rhs = text.partition("->")
    terms = lhs.split(",")
    if not arrow:
        rhs = "".join(sorted(c for c in set(lhs) - {","} if lhs.count(c) == 1))
    if "." in text or any(len(set(t)) < len(t) for t in (*terms, rhs)):
        raise NotDifferentiable("its equation has dots, or a diagonal")
    sizes = [dict(zip(t, s.sizes(i), strict=True)) for i, t in enumerate(terms)]
    gradients: InputGradients = []
    for i, term in enumerate(terms):
        if not s.needs_gradient(i):
            gradients.append(None)
            continue
        for letter in term:
            letter_sizes = {one[letter] for one in sizes if letter in one}
            if 1 in letter_sizes and len(letter_sizes) > 1:
                raise NotDifferentiable(f'its dimension "{letter}" is repeated')
        others = [k for k in range(len(terms)) if k != i]
        present_letters = "".join(c for c in term if c in rhs or any(c in terms[k] for k in others))
        equation = ",".join([rhs, *(terms[k] for k in others)]) + "->" + present_letters
        gradient = s.op("Einsum", s.g, *(s.at(k) for k in others), equation=equation)
        missing_axes = [k for k, c in enumerate(term) if c not in present_letters]
        if missing_axes:
            gradient = s.tape.expand_like(s.tape.unsqueeze(gradient, missing_axes), s.raw(i))
        gradients.append(gradient)
    return gradients


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
        g, y = (_restore_reduced_axes(s, v, axes) for v in (s.g, s.y))
        return s.tape.expand_like(slope(s, g, y, axes), s.raw(0))

    return rule


def _mean(s: VjpContext, g: ir.Value, _: ir.Value, axes: list[int]) -> ir.Value:
    return s.op("Div", g, s.tape.count(s.raw(0), axes)) if axes else g


def _max_or_min(s: VjpContext, g: ir.Value, y: ir.Value, axes: list[int]) -> ir.Value:
    """Shared between equals."""
    mine = s.tape.cast_mask(s.op("Equal", s.x, y))
    several = s.tape.reduce_sum(mine, axes, keep=True) if axes else mine
    return s.mul(mine, s.op("Div", g, several))


def _top_k(s: VjpContext) -> ir.Value:
    """Each of the largest, where it was."""
    axis, indices = int(s.get_attribute("axis", -1)) % s.rank, s.node.outputs[1]
    return s.op("ScatterElements", s.tape.zeros_like(s.x), indices, s.g, axis=axis)


RULES: Rules = {
    "MatMul": _matmul, "Gemm": _gemm, "Einsum": _einsum,
    "ReduceSum": _make_reduction_rule(lambda _, g, __, ___: g),
    "ReduceMean": _make_reduction_rule(_mean),
    "ReduceMax": _make_reduction_rule(_max_or_min),
    "ReduceMin": _make_reduction_rule(_max_or_min),
    "ReduceL1": _make_reduction_rule(lambda s, g, _, __: s.mul(g, s.op("Sign", s.x))),
    "ReduceL2": _make_reduction_rule(lambda s, g, y, _: s.mul(s.op("Div", g, s.op("Max", y, s.c(1e-30))), s.x)),
    "ReduceSumSquare": _make_reduction_rule(lambda s, g, _, __: s.mul(s.mul(g, s.x), 2.0)),
    "ReduceLogSum": _make_reduction_rule(lambda s, g, y, _: s.op("Div", g, s.op("Exp", y))),
    "ReduceLogSumExp": _make_reduction_rule(lambda s, g, y, _: s.mul(g, s.op("Exp", s.op("Sub", s.x, y)))),
    "TopK": _top_k,
}  # fmt: skip
