"""Rules of normalizations and of softmax."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from rtlab.adjoint.pointwise import first, held, read
from rtlab.adjoint.tape import Tape, Unruled

_Found = list["ir.Value | None"]


def _batch(tape: Tape, node: ir.Node, given: Sequence[ir.Value | None], wanted: Sequence[bool]) -> _Found:
    """Each channel times a constant."""
    scale, variance = tape.number(read(node, 1)), tape.number(read(node, 4))
    if scale is None or variance is None or any(wanted[1:]) or held(node, "training_mode", 0):
        raise Unruled("its statistics are no constants")
    factor = scale.astype(np.float64) / np.sqrt(
        variance.astype(np.float64) + float(held(node, "epsilon", 1e-5))
    )
    shape = [1, -1, *[1] * (len(tape.sizes(read(node))) - 2)]
    return [
        tape.op("Mul", first(given), tape.constant(factor.reshape(shape))),
        *[None] * (len(node.inputs) - 1),
    ]


def _normalized(
    tape: Tape, node: ir.Node, gradient: ir.Value, axes: Sequence[int], epsilon: float
) -> ir.Value:
    """Through ``(x - mean) / sqrt(var + epsilon)`` over axes: what is left of the gradient without two of its means."""
    x = read(node)
    centred = tape.op("Sub", x, tape.mean(x, axes))
    spread = tape.op(
        "Sqrt", tape.op("Add", tape.mean(tape.op("Mul", centred, centred), axes), tape.constant(epsilon))
    )
    shape = tape.op("Div", centred, spread)
    along = tape.op("Mul", shape, tape.mean(tape.op("Mul", gradient, shape), axes))
    level = tape.op("Sub", gradient, tape.mean(gradient, axes))
    return tape.op("Div", tape.op("Sub", level, along), spread)


def _layer(tape: Tape, node: ir.Node, given: Sequence[ir.Value | None], wanted: Sequence[bool]) -> _Found:
    if any(wanted[1:]):
        raise Unruled("its scale is no constant")
    rank = len(tape.sizes(read(node)))
    axes = list(range(int(held(node, "axis", -1)) % rank, rank))
    scaled = tape.op("Mul", first(given), read(node, 1))
    found = _normalized(tape, node, scaled, axes, float(held(node, "epsilon", 1e-5)))
    return [found, *[None] * (len(node.inputs) - 1)]


def _instance(tape: Tape, node: ir.Node, given: Sequence[ir.Value | None], wanted: Sequence[bool]) -> _Found:
    scale = tape.number(read(node, 1))
    if scale is None or any(wanted[1:]):
        raise Unruled("its scale is no constant")
    rank = len(tape.sizes(read(node)))
    scaled = tape.op("Mul", first(given), tape.constant(scale.reshape([1, -1, *[1] * (rank - 2)])))
    found = _normalized(tape, node, scaled, list(range(2, rank)), float(held(node, "epsilon", 1e-5)))
    return [found, None, None]


def _axis(tape: Tape, node: ir.Node) -> int:
    """The one axis of a softmax; before opset 13 all from an axis on are one."""
    rank, old = len(tape.sizes(read(node))), tape.opset < 13
    axis = int(held(node, "axis", 1 if old else -1)) % rank
    if old and axis != rank - 1:
        raise Unruled("it goes over several dimensions at once")
    return axis


def _softmax(tape: Tape, node: ir.Node, given: Sequence[ir.Value | None], _: Sequence[bool]) -> _Found:
    axis, y = _axis(tape, node), node.outputs[0]
    inner = tape.summed(tape.op("Mul", first(given), y), [axis], keep=True)
    return [tape.op("Mul", tape.op("Sub", first(given), inner), y)]


def _log_softmax(tape: Tape, node: ir.Node, given: Sequence[ir.Value | None], _: Sequence[bool]) -> _Found:
    axis = _axis(tape, node)
    whole = tape.summed(first(given), [axis], keep=True)
    return [tape.op("Sub", first(given), tape.op("Mul", tape.op("Exp", node.outputs[0]), whole))]


RULES = {
    "BatchNormalization": _batch, "LayerNormalization": _layer, "InstanceNormalization": _instance,
    "Softmax": _softmax, "LogSoftmax": _log_softmax,
}  # fmt: skip
