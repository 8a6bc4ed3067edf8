"""Rules of products of matrices."""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir

from rtlab.adjoint.site import Rules, Site
from rtlab.adjoint.tape import Unruled

_Found = list["ir.Value | None"]


def _turned(s: Site, value: ir.Value, rank: int) -> ir.Value:
    """A matrix, or each of several, transposed."""
    return s.tape.transposed(value, [*range(rank - 2), rank - 1, rank - 2])


def _matmul(s: Site) -> _Found:
    """``g b^T`` and ``a^T g``; a vector is a matrix of one row, or of one column."""
    tape, a, b, g = s.tape, s.at(0), s.at(1), s.g
    ranks = [len(s.sizes(0)), len(s.sizes(1))]
    if ranks[0] == 1:
        a = tape.unsqueezed(a, [0])
        g = tape.unsqueezed(g, [-1] if ranks[1] == 1 else [-2])
    if ranks[1] == 1:
        b = tape.unsqueezed(b, [1])
        g = tape.unsqueezed(g, [-1])
    wide = [max(r, 2) for r in ranks]
    found: _Found = [None, None]
    if s.asks(0):
        found[0] = _summed(s, s.op("MatMul", g, _turned(s, b, wide[1])), 0, ranks)
    if s.asks(1):
        if wide[1] == 2 and wide[0] > 2:
            # One product of all rows in place of one for each matrix, and their sum.
            found[1] = tape.like(s.op("Gemm", _rows(s, a), _rows(s, g), transA=1), s.raw(1))
        else:
            found[1] = _summed(s, s.op("MatMul", _turned(s, a, wide[0]), g), 1, ranks)
    return found


def _rows(s: Site, value: ir.Value) -> ir.Value:
    """All rows of several matrices in one."""
    last = s.op("Slice", s.op("Shape", value), s.c([-1]), s.c([2**31]), s.c([0]))
    return s.op("Reshape", value, s.tape.joined(s.c([-1]), last))


def _summed(s: Site, gradient: ir.Value, i: int, ranks: Sequence[int]) -> ir.Value:
    """Summed over the dimensions in which one factor was repeated for each matrix of the other."""
    if ranks[i] == 1:
        several = max(ranks[1 - i] - 2, 0)
        whole = s.tape.summed(gradient, list(range(several)), keep=False) if several else gradient
        return s.tape.like(whole, s.raw(i))
    if ranks[1 - i] == 1:
        return gradient
    return s.tape.narrowed(gradient, s.raw(i), s.node.outputs[0], behind=2)


def _gemm(s: Site) -> _Found:
    """The same with factors and transposed operands."""
    a, b, g = s.at(0), s.at(1), s.g
    alpha, beta = (float(s.held(n, 1.0)) for n in ("alpha", "beta"))
    over, under = (int(s.held(n, 0)) for n in ("transA", "transB"))
    found: _Found = [None] * len(s.node.inputs)
    if s.asks(0):
        pair = (b, g) if over else (g, b)
        turns = (under, 1) if over else (0, 1 - under)
        found[0] = s.op("Gemm", *pair, alpha=alpha, transA=turns[0], transB=turns[1])
    if s.asks(1):
        pair = (g, a) if under else (a, g)
        turns = (1, over) if under else (1 - over, 0)
        found[1] = s.op("Gemm", *pair, alpha=alpha, transA=turns[0], transB=turns[1])
    if s.asks(2):
        found[2] = s.narrowed(g if beta == 1 else s.mul(g, beta), 2)
    return found


def _einsum(s: Site) -> _Found:
    """Of each operand, the sum over the gradient and all the others; what only it had is repeated."""
    text = str(s.held("equation", "")).replace(" ", "")
    left, arrow, right = text.partition("->")
    terms = left.split(",")
    if not arrow:
        right = "".join(sorted(c for c in set(left) - {","} if left.count(c) == 1))
    if "." in text or any(len(set(t)) < len(t) for t in (*terms, right)):
        raise Unruled("its equation has dots, or a diagonal")
    sizes = [dict(zip(t, s.sizes(i), strict=True)) for i, t in enumerate(terms)]
    found: _Found = []
    for i, term in enumerate(terms):
        if not s.asks(i):
            found.append(None)
            continue
        for letter in term:
            known = {one[letter] for one in sizes if letter in one}
            if 1 in known and len(known) > 1:
                raise Unruled(f'its dimension "{letter}" is repeated')
        others = [k for k in range(len(terms)) if k != i]
        there = "".join(c for c in term if c in right or any(c in terms[k] for k in others))
        equation = ",".join([right, *(terms[k] for k in others)]) + "->" + there
        gradient = s.op("Einsum", s.g, *(s.at(k) for k in others), equation=equation)
        lacking = [k for k, c in enumerate(term) if c not in there]
        if lacking:
            gradient = s.tape.spread(s.tape.unsqueezed(gradient, lacking), s.raw(i))
        found.append(gradient)
    return found


RULES: Rules = {"MatMul": _matmul, "Gemm": _gemm, "Einsum": _einsum}
