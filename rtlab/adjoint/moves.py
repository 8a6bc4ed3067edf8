"""Rules of operators that move numbers, choose among them, or take their means."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from rtlab.adjoint.pointwise import first, held, read
from rtlab.adjoint.tape import Tape, Unruled

_Found = list["ir.Value | None"]
#: First opset whose ScatterElements adds.
_ADDS = 16
#: First opset in which axes are inputs.
_AXES_ARE_INPUTS = 13


def _reshaped(tape: Tape, node: ir.Node, given: Sequence[ir.Value | None], _: Sequence[bool]) -> _Found:
    return [tape.like(first(given), read(node)), *[None] * (len(node.inputs) - 1)]


def _transpose(tape: Tape, node: ir.Node, given: Sequence[ir.Value | None], _: Sequence[bool]) -> _Found:
    order = list(held(node, "perm", range(len(tape.sizes(read(node))))[::-1]))
    return [tape.op("Transpose", first(given), perm=[int(i) for i in np.argsort(order)])]


def _concat(tape: Tape, node: ir.Node, given: Sequence[ir.Value | None], wanted: Sequence[bool]) -> _Found:
    axis, begin = int(held(node, "axis", 0)), 0
    found: _Found = []
    for i, w in enumerate(wanted):
        size = tape.sizes(read(node, i))[axis]
        if size is None:
            raise Unruled("a size along its axis is not known")
        parts = [tape.constant([n]) for n in (begin, begin + size, axis)]
        found.append(tape.op("Slice", first(given), *parts) if w else None)
        begin += size
    return found


def _split(tape: Tape, node: ir.Node, given: Sequence[ir.Value | None], _: Sequence[bool]) -> _Found:
    whole = []
    for gradient, output in zip(given, node.outputs, strict=True):
        whole.append(gradient if gradient is not None else tape.op("Mul", output, tape.constant(0.0)))
    joined = tape.op("Concat", *whole, axis=int(held(node, "axis", 0)))
    return [joined, *[None] * (len(node.inputs) - 1)]


def _slice(tape: Tape, node: ir.Node, given: Sequence[ir.Value | None], _: Sequence[bool]) -> _Found:
    """Zeros around what was taken."""
    told = [tape.number(v) for v in node.inputs[1:]]
    if len(told) < 2 or told[0] is None or told[1] is None:
        raise Unruled("what it takes is no constant")
    sizes = tape.sizes(read(node))
    axes = told[2] if len(told) > 2 and told[2] is not None else np.arange(len(told[0]))
    if len(told) > 3 and told[3] is not None and any(told[3] != 1):
        raise Unruled("it takes in steps")
    before, after = [0] * len(sizes), [0] * len(sizes)
    for begin, end, axis in zip(told[0], told[1], axes, strict=True):
        size = sizes[axis]
        if size is None:
            raise Unruled("a size that it takes from is not known")
        start, stop, _step = slice(int(begin), int(end)).indices(size)
        before[axis], after[axis] = start, size - stop
    return [tape.op("Pad", first(given), tape.constant(before + after)), *[None] * (len(node.inputs) - 1)]


def _gather(tape: Tape, node: ir.Node, given: Sequence[ir.Value | None], _: Sequence[bool]) -> _Found:
    """One index along an axis, as of a class token: zeros around it."""
    index, axis = tape.number(read(node, 1)), int(held(node, "axis", 0))
    size = tape.sizes(read(node))[axis]
    if index is None or index.size != 1 or size is None:
        raise Unruled("it takes several, or what it takes is no constant")
    at = int(index.reshape(())) % size
    gradient = first(given)
    rank = len(tape.sizes(read(node)))
    axis %= rank
    if index.ndim == 0 and tape.opset >= _AXES_ARE_INPUTS:
        gradient = tape.op("Unsqueeze", gradient, tape.constant([axis]))
    elif index.ndim == 0:
        gradient = tape.op("Unsqueeze", gradient, axes=[axis])
    pads = [0] * (2 * rank)
    pads[axis], pads[axis + rank] = at, size - 1 - at
    return [tape.op("Pad", gradient, tape.constant(pads)), None]


def _pad(tape: Tape, node: ir.Node, given: Sequence[ir.Value | None], wanted: Sequence[bool]) -> _Found:
    pads = tape.number(node.inputs[1]) if len(node.inputs) > 1 else held(node, "pads", None)
    if (
        pads is None
        or held(node, "mode", "constant") != "constant"
        or any(wanted[1:])
        or len(node.inputs) > 3
    ):
        raise Unruled("what it pads is not known, or no constant")
    taken = tape.op("Pad", first(given), tape.constant([-int(p) for p in pads]))
    return [taken, *[None] * (len(node.inputs) - 1)]


def _expand(tape: Tape, node: ir.Node, given: Sequence[ir.Value | None], _: Sequence[bool]) -> _Found:
    return [tape.narrowed(first(given), read(node), node.outputs[0]), None]


def _axes(tape: Tape, node: ir.Node) -> list[int]:
    """The axes that a node reduces."""
    rank = len(tape.sizes(read(node)))
    given = held(node, "axes", None)
    if given is None and len(node.inputs) > 1 and node.inputs[1] is not None:
        given = tape.number(node.inputs[1])
        if given is None:
            raise Unruled("its axes are no constant")
    return sorted({int(a) % rank for a in given}) if given is not None and len(given) else list(range(rank))


def _back(tape: Tape, node: ir.Node, gradient: ir.Value, axes: Sequence[int]) -> ir.Value:
    """A gradient of what was reduced, in the shape of what was."""
    if not int(held(node, "keepdims", 1)):
        if tape.opset >= _AXES_ARE_INPUTS:
            gradient = tape.op("Unsqueeze", gradient, tape.constant(list(axes)))
        else:
            gradient = tape.op("Unsqueeze", gradient, axes=list(axes))
    return tape.spread(gradient, read(node))


def _reduce_sum(tape: Tape, node: ir.Node, given: Sequence[ir.Value | None], _: Sequence[bool]) -> _Found:
    return [_back(tape, node, first(given), _axes(tape, node)), *[None] * (len(node.inputs) - 1)]


def _reduce_mean(
    tape: Tape, node: ir.Node, given: Sequence[ir.Value | None], wanted: Sequence[bool]
) -> _Found:
    axes, sizes = _axes(tape, node), tape.sizes(read(node))
    count = 1
    for axis in axes:
        size = sizes[axis]
        if size is None:
            raise Unruled("over how many it takes the mean is not known")
        count *= size
    scaled = tape.op("Mul", first(given), tape.constant(1.0 / count))
    return _reduce_sum(tape, node, [scaled], wanted)


def _global(tape: Tape, node: ir.Node, given: Sequence[ir.Value | None], _: Sequence[bool]) -> _Found:
    sizes = tape.sizes(read(node))[2:]
    if None in sizes:
        raise Unruled("over how many it takes the mean is not known")
    scaled = tape.op("Mul", first(given), tape.constant(1.0 / np.prod([s or 1 for s in sizes])))
    return [tape.spread(scaled, read(node))]


def _window(tape: Tape, node: ir.Node) -> tuple[list[int], list[int], list[int], list[int]]:
    """The kernel, the steps, the padding of a pool, and what its last window leaves."""
    kernel = list(held(node, "kernel_shape", []))
    rank = len(kernel)
    steps, pads = list(held(node, "strides", [1] * rank)), list(held(node, "pads", [0] * 2 * rank))
    if held(node, "auto_pad", "NOTSET") not in {"NOTSET", ""} or any(
        d != 1 for d in held(node, "dilations", [1])
    ):
        raise Unruled("its windows are of no ruled form")
    left = []
    for i, (size, written) in enumerate(
        zip(tape.sizes(read(node))[2:], tape.sizes(node.outputs[0])[2:], strict=True)
    ):
        if size is None or written is None:
            raise Unruled("a size of its input is not known")
        left.append(size - ((written - 1) * steps[i] - pads[i] - pads[i + rank] + kernel[i]))
    if min(left) < 0:
        raise Unruled("its last window reaches beyond the input")
    return kernel, steps, pads, left


def _average(tape: Tape, node: ir.Node, given: Sequence[ir.Value | None], _: Sequence[bool]) -> _Found:
    """Each window's gradient spread over it."""
    kernel, steps, pads, left = _window(tape, node)
    if any(pads) and not int(held(node, "count_include_pad", 0)):
        raise Unruled("its windows at the edge hold fewer")
    channels = tape.sizes(read(node))[1]
    if channels is None:
        raise Unruled("how many channels it has is not known")
    share = np.full((channels, 1, *kernel), 1.0 / np.prod(kernel), np.float32)
    return [
        tape.op(
            "ConvTranspose", first(given), tape.constant(share),
            group=channels, kernel_shape=kernel, strides=steps, pads=pads, output_padding=left,
        )
    ]  # fmt: skip


def _max_pool(tape: Tape, node: ir.Node, given: Sequence[ir.Value | None], __: Sequence[bool]) -> _Found:
    """Each window's gradient where its largest element is: the pool says where when it is asked once more."""
    _window(tape, node)
    if tape.opset < _ADDS:
        raise Unruled(f"before opset {_ADDS}, nothing adds at places")
    names = {n: a.value for n, a in node.attributes.items() if n not in {"storage_order", "auto_pad"}}
    _, where = tape.ops("MaxPool", read(node), count=2, **names)
    flat = tape.constant([-1])
    zeros = tape.op("Mul", tape.op("Reshape", read(node), flat), tape.constant(0.0))
    parts = (tape.op("Reshape", v, flat) for v in (where, first(given)))
    index, gradient = parts
    index.type = ir.TensorType(ir.DataType.INT64)
    put = tape.op("ScatterElements", zeros, index, gradient, axis=0, reduction="add")
    return [tape.like(put, read(node))]


def _resize(tape: Tape, node: ir.Node, given: Sequence[ir.Value | None], _: Sequence[bool]) -> _Found:
    """Nearest neighbours by whole factors: the sum of the copies."""
    before, after = tape.sizes(read(node)), tape.sizes(node.outputs[0])
    if held(node, "mode", "nearest") != "nearest" or None in before[1:] or None in after[1:]:
        raise Unruled("it interpolates, or a size is not known")
    factors = [a // b for b, a in zip(before[1:], after[1:], strict=True) if a and b]
    if (
        any(a != b * f for b, a, f in zip(before[1:], after[1:], factors, strict=True) if a and b)
        or factors[0] != 1
    ):
        raise Unruled("it does not repeat each element as often")
    area = float(np.prod(factors[1:]))
    mean = tape.op("AveragePool", first(given), kernel_shape=factors[1:], strides=factors[1:])
    return [tape.op("Mul", mean, tape.constant(area)), *[None] * (len(node.inputs) - 1)]


RULES = {
    "Reshape": _reshaped, "Flatten": _reshaped, "Squeeze": _reshaped, "Unsqueeze": _reshaped,
    "Transpose": _transpose, "Concat": _concat, "Split": _split, "Slice": _slice, "Gather": _gather, "Pad": _pad,
    "Expand": _expand, "ReduceSum": _reduce_sum, "ReduceMean": _reduce_mean, "GlobalAveragePool": _global,
    "AveragePool": _average, "MaxPool": _max_pool, "Resize": _resize,
}  # fmt: skip
