"""Rules of operators that move elements, copy them, or take some."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from rtlab.adjoint.pools import added
from rtlab.adjoint.site import Rule, Rules, Site
from rtlab.adjoint.tape import Unruled

_Found = list["ir.Value | None"]
#: First opset in which Resize reads sizes, and in which Split does.
_RESIZES_TO_SIZES, _SPLITS_BY_INPUT = 11, 13


def _reshaped(s: Site) -> ir.Value:
    return s.tape.like(s.g, s.raw(0))


def _transpose(s: Site) -> ir.Value:
    order = [int(i) for i in s.held("perm", range(s.rank)[::-1])]
    return s.tape.transposed(s.g, [int(i) for i in np.argsort(order)])


def _concat(s: Site) -> _Found:
    axis = int(s.held("axis", 0)) % s.rank
    sizes = s.tape.joined(*(s.tape.size(s.raw(i), axis) for i in range(len(s.wanted))))
    if s.tape.opset < _SPLITS_BY_INPUT:
        raise Unruled("before opset 13, sizes of a split are no input")
    parts = s.tape.ops("Split", s.g, sizes, count=len(s.wanted), axis=axis)
    return [p if w else None for p, w in zip(parts, s.wanted, strict=True)]


def _split(s: Site) -> ir.Value:
    parts = [s.tape.zeros(v) if g is None else g for g, v in zip(s.given, s.node.outputs, strict=True)]
    return s.op("Concat", *parts, axis=int(s.held("axis", 0)))


def _expand(s: Site) -> ir.Value:
    return s.narrowed(s.g, 0)


def _numbered(s: Site, *, filled: bool = False) -> ir.Value:
    """What the operator makes of the numbers of the first input's elements: from 1 on where it fills in zeros."""
    count = s.op("Size", s.x)
    begin, end = (
        (s.c(np.int64(1)), s.op("Add", count, s.c(np.int64(1)))) if filled else (s.c(np.int64(0)), count)
    )
    numbers = s.op("Reshape", s.op("Range", begin, end, s.c(np.int64(1))), s.op("Shape", s.x))
    names = {n: a.value for n, a in s.node.attributes.items()}
    rest = list(s.node.inputs[1:])
    if s.node.op_type == "Pad" and len(rest) > 1:
        rest[1] = None if rest[1] is None else s.c(np.int64(0))
    return s.op(s.node.op_type, numbers, *rest, **names)


def _copied(s: Site) -> ir.Value:
    """Whatever it takes, and however often: numbers in place of elements say where each came from."""
    return added(s, s.g, _numbered(s))


def _slice(s: Site) -> _Found:
    """Zeros around what was taken."""
    rest: _Found = [None] * (len(s.node.inputs) - 1)
    told = [s.number(i) if s.has(i) else np.zeros(0, np.int64) for i in range(1, 5)]
    begins, ends, axes, steps = told
    sizes = s.sizes()
    if begins is None or ends is None or axes is None or steps is None or not s.has(1) or any(steps != 1):
        return [_copied(s), *rest]
    before, after = [0] * len(sizes), [0] * len(sizes)
    for begin, end, axis in zip(begins, ends, axes if len(axes) else range(len(begins)), strict=True):
        size = sizes[int(axis)]
        if size is None:
            return [_copied(s), *rest]
        start, stop, _ = slice(int(begin), int(end)).indices(size)
        before[int(axis)], after[int(axis)] = start, size - max(start, stop)
    return [s.op("Pad", s.g, s.c(before + after)), *rest]


def _gather(s: Site) -> _Found:
    """One index along an axis, as of a class token: zeros around it; several as they come."""
    index, axis = s.number(1), int(s.held("axis", 0)) % s.rank
    size = s.sizes()[axis]
    if index is None or index.size != 1 or index.ndim > 1 or size is None:
        return [_copied(s), None]
    at = int(index.reshape(())[()]) % size
    gradient = s.tape.unsqueezed(s.g, [axis]) if index.ndim == 0 else s.g
    pads = [0] * (2 * s.rank)
    pads[axis], pads[axis + s.rank] = at, size - 1 - at
    return [s.op("Pad", gradient, s.c(pads)), None]


def _pad(s: Site) -> _Found:
    given = s.held("pads", None)
    pads = s.number(1) if given is None else np.asarray(given)
    rest: _Found = [None] * (len(s.node.inputs) - 1)
    if s.asks(2):
        raise Unruled("what it pads with is no constant")
    if s.held("mode", "constant") != "constant" or pads is None or s.has(3):
        if given is not None:
            raise Unruled("its form is an old one")
        return [_past_one(s, _numbered(s, filled=True)), *rest]
    return [s.op("Pad", s.g, s.c([-int(p) for p in pads])), *rest]


def _past_one(s: Site, numbers: ir.Value) -> ir.Value:
    """Gradients added where numbers from 1 on say; what was filled in, which has the number 0, counts nowhere."""
    flat = s.c([-1])
    index, moved = (s.op("Reshape", v, flat) for v in (numbers, s.g))
    long = s.op("Add", s.op("Reshape", s.op("Size", s.x), s.c([1])), s.c([1]))
    put = s.op("ScatterElements", s.op("Expand", s.c(0.0), long), index, moved, axis=0, reduction="add")
    return s.tape.like(s.op("Slice", put, s.c([1]), s.c([2**62]), s.c([0])), s.raw(0))


def _trilu(s: Site) -> _Found:
    rest = [s.node.inputs[1]] if s.has(1) else []
    return [s.op("Trilu", s.g, *rest, upper=int(s.held("upper", 1))), *[None] * (len(s.node.inputs) - 1)]


def _tile(s: Site) -> _Found:
    """The sum of the copies."""
    repeats = s.number(1)
    if repeats is None:
        return [_copied(s), None]
    sizes = [s.tape.size(s.raw(0), i) for i in range(s.rank)]
    parts = [v for n, size in zip(repeats, sizes, strict=True) for v in (s.c([int(n)]), size)]
    split = s.op("Reshape", s.g, s.tape.joined(*parts))
    return [s.tape.summed(split, list(range(0, 2 * s.rank, 2)), keep=False), None]


def _depth_to_space(s: Site) -> ir.Value:
    size, mode = int(s.held("blocksize", 1)), s.held("mode", "DCR")
    if mode == "DCR":
        return s.op("SpaceToDepth", s.g, blocksize=size)
    batch, high, wide = (s.tape.size(s.raw(0), i) for i in (0, 2, 3))
    fewer = s.sizes()[1]
    if fewer is None:
        raise Unruled("how many channels it has is not known")
    inner = s.c([fewer // size**2])
    split = s.op("Reshape", s.g, s.tape.joined(batch, inner, high, s.c([size]), wide, s.c([size])))
    return s.op(
        "Reshape", s.tape.transposed(split, [0, 1, 3, 5, 2, 4]), s.tape.joined(batch, s.c([-1]), high, wide)
    )


def _space_to_depth(s: Site) -> ir.Value:
    return s.op("DepthToSpace", s.g, blocksize=int(s.held("blocksize", 1)), mode="DCR")


def _scattered(*, slices: bool) -> Rule:
    """Of ScatterElements, of ScatterND: what was overwritten has no gradient; what was put in, that of its place."""

    def rule(s: Site) -> _Found:
        added_ = s.held("reduction", "none")
        if added_ not in {"none", "add"}:
            raise Unruled(f"it takes the {added_} of what falls together")
        kind, names = ("ScatterND", {}) if slices else ("ScatterElements", {"axis": int(s.held("axis", 0))})
        found: _Found = [None, None, None]
        if s.asks(0):
            gone = s.op(kind, s.g, s.raw(1), s.tape.zeros(s.raw(2)), **names)
            found[0] = s.g if added_ == "add" else gone
        if s.asks(2):
            found[2] = s.op("GatherND" if slices else "GatherElements", s.g, s.raw(1), **names)
        return found

    return rule


def _resize(s: Site) -> _Found:
    """It mixes elements along one axis after another, each time with the same weights: those of their transposes."""
    if s.held("coordinate_transformation_mode", "") == "tf_crop_and_resize" or s.held("antialias", 0):
        raise Unruled("it crops, or smooths")
    if s.held("keep_aspect_ratio_policy", "stretch") != "stretch":
        raise Unruled("it keeps the ratio of its sides")
    old = s.node.op_type == "Upsample" or s.tape.opset < _RESIZES_TO_SIZES
    scales = s.number(1 if old else 2) if s.has(1 if old else 2) else np.zeros(0)
    if scales is None:
        raise Unruled("its scales are no constant")
    gradient, written = s.g, s.tape.sizes(s.node.outputs[0])
    for k, axis in enumerate(int(a) % s.rank for a in s.held("axes", range(s.rank))):
        size, wide = s.sizes()[axis], written[axis]
        scale = float(scales[k]) if len(scales) else None
        if scale == 1 or (scale is None and size == wide and (size is not None or axis == 0)):
            continue
        if size is None or wide is None:
            raise Unruled("a size that it changes is not known")
        gradient = _last(s, gradient, axis)
        if _repeats(s, size, wide, old=old):
            pairs = s.op("Reshape", gradient, s.c([*[0] * (s.rank - 1), size, wide // size]))
            gradient = s.tape.summed(pairs, [s.rank], keep=False)
        else:
            mixed = _mixed(s, size, wide, scale, old=old)
            gradient = s.op("MatMul", gradient, s.tape.transposed(mixed, [1, 0]))
        gradient = _last(s, gradient, axis)
    return [gradient, *[None] * (len(s.node.inputs) - 1)]


def _repeats(s: Site, size: int, wide: int, *, old: bool) -> bool:
    """Whether each element is repeated as often, and its copies stand beside each other."""
    if wide % size or s.held("mode", "nearest") != "nearest":
        return False
    places = s.held("coordinate_transformation_mode", "asymmetric" if old else "half_pixel")
    nearest = s.held("nearest_mode", "floor" if old else "round_prefer_floor")
    return (places == "asymmetric" and nearest == "floor") or (
        places == "half_pixel" and nearest in {"round_prefer_floor", "round_prefer_ceil"}
    )


def _last(s: Site, value: ir.Value, axis: int) -> ir.Value:
    """An axis exchanged with the last."""
    order = list(range(s.rank))
    order[axis], order[-1] = order[-1], order[axis]
    return s.tape.transposed(value, order)


def _mixed(s: Site, size: int, wide: int, scale: float | None, *, old: bool) -> ir.Value:
    """What a resize along one axis makes of each element alone, ``(size, wide)``: the operator says it itself."""
    alone = s.c(np.eye(size, dtype=np.float32)[None, None])
    names = {
        n: a.value for n, a in s.node.attributes.items() if n not in {"axes", "keep_aspect_ratio_policy"}
    }
    factors = s.c(np.array([1, 1, 1, wide / size if scale is None else scale], np.float32))
    if old:
        mixed = s.op(s.node.op_type, alone, factors, **names)
    elif scale is not None:
        mixed = s.op("Resize", alone, None, factors, **names)
    else:
        mixed = s.op("Resize", alone, None, None, s.c([1, 1, size, wide]), **names)
    return s.op("Reshape", mixed, s.c([size, wide]))


def _taken(s: Site) -> _Found:
    return [_copied(s), *[None] * (len(s.node.inputs) - 1)]


def _past(s: Site, names: Sequence[str]) -> dict[str, object]:
    return {n: s.node.attributes[n].value for n in names if n in s.node.attributes}


def _reverse_sequence(s: Site) -> _Found:
    """Turned once more."""
    return [s.op("ReverseSequence", s.g, s.raw(1), **_past(s, ("batch_axis", "time_axis"))), None]


RULES: Rules = {
    **dict.fromkeys(("Reshape", "Flatten", "Squeeze", "Unsqueeze"), _reshaped),
    **dict.fromkeys(("GatherElements", "GatherND", "Compress"), _taken),
    "Transpose": _transpose, "Concat": _concat, "Split": _split, "Slice": _slice, "Gather": _gather, "Pad": _pad,
    "Expand": _expand, "Tile": _tile, "Trilu": _trilu, "DepthToSpace": _depth_to_space,
    "SpaceToDepth": _space_to_depth, "ScatterElements": _scattered(slices=False),
    "ScatterND": _scattered(slices=True), "Resize": _resize, "Upsample": _resize,
    "ReverseSequence": _reverse_sequence,
}  # fmt: skip
