"""Rules of convolutions and of products of matrices."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from rtlab.adjoint.pointwise import first, held, read
from rtlab.adjoint.tape import Tape, Unruled

_Found = list["ir.Value | None"]


def _weight(tape: Tape, node: ir.Node, wanted: Sequence[bool]) -> np.ndarray:
    weight = tape.number(read(node, 1))
    if weight is None or any(wanted[1:]):
        raise Unruled("its weight is no constant")
    return weight


def _pads(
    tape: Tape, node: ir.Node, kernel: Sequence[int], steps: Sequence[int], holes: Sequence[int]
) -> list[int]:
    """What is padded before and after each dimension."""
    auto, rank = held(node, "auto_pad", "NOTSET"), len(kernel)
    if auto in {"NOTSET", ""}:
        return list(held(node, "pads", [0] * 2 * rank))
    if auto == "VALID":
        return [0] * 2 * rank
    before, after = [], []
    for size, k, s, d in zip(tape.sizes(read(node))[2:], kernel, steps, holes, strict=True):
        if size is None:
            raise Unruled("a size that it pads for is not known")
        total = max(0, (math.ceil(size / s) - 1) * s + d * (k - 1) + 1 - size)
        less, more = total // 2, total - total // 2
        before.append(less if auto == "SAME_UPPER" else more)
        after.append(more if auto == "SAME_UPPER" else less)
    return before + after


def conv(tape: Tape, node: ir.Node, given: Sequence[ir.Value | None], wanted: Sequence[bool]) -> _Found:
    """By a convolution with the kernel turned around, where no step is left out; else by one transposed."""
    weight = _weight(tape, node, wanted)
    kernel = weight.shape[2:]
    rank, group = len(kernel), int(held(node, "group", 1))
    steps, holes = (list(held(node, n, [1] * rank)) for n in ("strides", "dilations"))
    pads = _pads(tape, node, kernel, steps, holes)
    spans = [d * (k - 1) for d, k in zip(holes, kernel, strict=True)]
    gradient = first(given)
    rest: _Found = [None] * (len(node.inputs) - 1)
    turned = [span - p for span, p in zip([*spans, *spans], pads, strict=True)]
    if all(s == 1 for s in steps) and min(turned, default=0) >= 0:
        outs, ins = weight.shape[:2]
        parts = weight.reshape(group, outs // group, ins, *kernel).swapaxes(1, 2)
        flipped = np.flip(parts, axis=tuple(range(3, 3 + rank))).reshape(group * ins, outs // group, *kernel)
        return [
            tape.op(
                "Conv", gradient, tape.constant(np.ascontiguousarray(flipped)),
                group=group, dilations=holes, pads=turned, kernel_shape=list(kernel), strides=[1] * rank,
            ),
            *rest,
        ]  # fmt: skip
    left = []
    sizes = zip(tape.sizes(read(node))[2:], tape.sizes(node.outputs[0])[2:], strict=True)
    for i, (before, after) in enumerate(sizes):
        if before is None or after is None:
            raise Unruled("a size of its input is not known")
        left.append(before - ((after - 1) * steps[i] - pads[i] - pads[i + rank] + spans[i] + 1))
    return [
        tape.op(
            "ConvTranspose", gradient, read(node, 1), group=group, dilations=holes, pads=pads,
            kernel_shape=list(kernel), strides=steps, output_padding=left,
        ),
        *rest,
    ]  # fmt: skip


def conv_transpose(
    tape: Tape, node: ir.Node, given: Sequence[ir.Value | None], wanted: Sequence[bool]
) -> _Found:
    """By the convolution that it is the transpose of."""
    weight = _weight(tape, node, wanted)
    if held(node, "auto_pad", "NOTSET") not in {"NOTSET", ""} or held(node, "output_shape", None):
        raise Unruled("its padding follows from the size of its output")
    kernel = weight.shape[2:]
    names = {n: list(v) for n in ("strides", "dilations", "pads") if (v := held(node, n, None)) is not None}
    found = tape.op(
        "Conv",
        first(given),
        read(node, 1),
        group=int(held(node, "group", 1)),
        kernel_shape=list(kernel),
        **names,
    )
    return [found, *[None] * (len(node.inputs) - 1)]


def _turned(tape: Tape, value: ir.Value) -> ir.Value:
    """A matrix, or each of several, transposed."""
    rank = len(tape.sizes(value))
    return tape.op("Transpose", value, perm=[*range(rank - 2), rank - 1, rank - 2])


def matmul(tape: Tape, node: ir.Node, given: Sequence[ir.Value | None], wanted: Sequence[bool]) -> _Found:
    """``g b^T`` and ``a^T g``."""
    a, b, gradient = read(node), read(node, 1), first(given)
    if len(tape.sizes(a)) < 2 or len(tape.sizes(b)) < 2:
        raise Unruled("it multiplies with a vector")
    one = tape.op("MatMul", gradient, _turned(tape, b)) if wanted[0] else None
    other = tape.op("MatMul", _turned(tape, a), gradient) if wanted[1] else None
    return [None if g is None else _summed(tape, g, v, w) for g, v, w in ((one, a, b), (other, b, a))]


def _summed(tape: Tape, gradient: ir.Value, value: ir.Value, other: ir.Value) -> ir.Value:
    """Summed over the dimensions in which one factor was repeated for each matrix of the other."""
    mine, its = tape.sizes(value)[:-2], tape.sizes(other)[:-2]
    lead = max(0, len(its) - len(mine))
    axes = [
        *range(lead),
        *(i + lead for i, d in enumerate(mine) if d == 1 and its and its[i - len(mine)] != 1),
    ]
    if not axes:
        return gradient
    return tape.like(tape.summed(gradient, axes, keep=True), value)


def gemm(tape: Tape, node: ir.Node, given: Sequence[ir.Value | None], wanted: Sequence[bool]) -> _Found:
    """The same with factors and transposed operands."""
    a, b, gradient = read(node), read(node, 1), first(given)
    alpha, beta = (float(held(node, n, 1.0)) for n in ("alpha", "beta"))
    over, under = (int(held(node, n, 0)) for n in ("transA", "transB"))
    found: _Found = [None] * len(node.inputs)
    if wanted[0]:
        pair = (b, gradient) if over else (gradient, b)
        turns = (under, 1) if over else (0, 1 - under)
        found[0] = tape.op("Gemm", *pair, alpha=alpha, transA=turns[0], transB=turns[1])
    if wanted[1]:
        pair = (gradient, a) if under else (a, gradient)
        turns = (1, over) if under else (1 - over, 0)
        found[1] = tape.op("Gemm", *pair, alpha=alpha, transA=turns[0], transB=turns[1])
    if len(found) > 2 and wanted[2]:
        scaled = gradient if beta == 1 else tape.op("Mul", gradient, tape.constant(beta))
        found[2] = tape.narrowed(scaled, read(node, 2), node.outputs[0])
    return found


RULES = {"Conv": conv, "ConvTranspose": conv_transpose, "MatMul": matmul, "Gemm": gemm}
