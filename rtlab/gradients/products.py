"""Rules of products of matrices."""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir

from rtlab.gradients.tape import NotDifferentiable
from rtlab.gradients.vjp_context import Rules, VjpContext

_InputGradients = list["ir.Value | None"]


def _transpose_matrices(s: VjpContext, value: ir.Value, rank: int) -> ir.Value:
    """A matrix, or each of several, transposed."""
    return s.tape.transpose(value, [*range(rank - 2), rank - 1, rank - 2])


def _matmul(s: VjpContext) -> _InputGradients:
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
    gradients: _InputGradients = [None, None]
    if s.needs_gradient(0):
        gradients[0] = _sum_batch_axes(
            s, s.op("MatMul", g, _transpose_matrices(s, b, matrix_ranks[1])), 0, ranks
        )
    if s.needs_gradient(1):
        if matrix_ranks[1] == 2 and matrix_ranks[0] > 2:
            # One product of all rows in place of one for each matrix, and their sum.
            gradients[1] = tape.reshape_like(
                s.op("Gemm", _flatten_rows(s, a), _flatten_rows(s, g), transA=1), s.raw(1)
            )
        else:
            gradients[1] = _sum_batch_axes(
                s, s.op("MatMul", _transpose_matrices(s, a, matrix_ranks[0]), g), 1, ranks
            )
    return gradients


def _flatten_rows(s: VjpContext, value: ir.Value) -> ir.Value:
    """All rows of several matrices in one."""
    last = s.op("Slice", s.op("Shape", value), s.c([-1]), s.c([2**31]), s.c([0]))
    return s.op("Reshape", value, s.tape.concat(s.c([-1]), last))


def _sum_batch_axes(s: VjpContext, gradient: ir.Value, i: int, ranks: Sequence[int]) -> ir.Value:
    """Summed over the dimensions in which one factor was repeated for each matrix of the other."""
    if ranks[i] == 1:
        several = max(ranks[1 - i] - 2, 0)
        batch_sum = s.tape.reduce_sum(gradient, list(range(several)), keep=False) if several else gradient
        return s.tape.reshape_like(batch_sum, s.raw(i))
    if ranks[1 - i] == 1:
        return gradient
    return s.tape.unbroadcast(gradient, s.raw(i), s.node.outputs[0], trailing_axes=2)


def _gemm(s: VjpContext) -> _InputGradients:
    """The same with factors and transposed operands."""
    a, b, g = s.at(0), s.at(1), s.g
    alpha, beta = (float(s.get_attribute(n, 1.0)) for n in ("alpha", "beta"))
    trans_a, trans_b = (int(s.get_attribute(n, 0)) for n in ("transA", "transB"))
    gradients: _InputGradients = [None] * len(s.node.inputs)
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


def _einsum(s: VjpContext) -> _InputGradients:
    """Of each operand, the sum over the gradient and all the others; what only it had is repeated."""
    text = str(s.get_attribute("equation", "")).replace(" ", "")
    lhs, arrow, rhs = text.partition("->")
    terms = lhs.split(",")
    if not arrow:
        rhs = "".join(sorted(c for c in set(lhs) - {","} if lhs.count(c) == 1))
    if "." in text or any(len(set(t)) < len(t) for t in (*terms, rhs)):
        raise NotDifferentiable("its equation has dots, or a diagonal")
    sizes = [dict(zip(t, s.sizes(i), strict=True)) for i, t in enumerate(terms)]
    gradients: _InputGradients = []
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


RULES: Rules = {"MatMul": _matmul, "Gemm": _gemm, "Einsum": _einsum}
