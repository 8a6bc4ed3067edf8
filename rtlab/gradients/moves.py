"""Rules of operators that move elements, copy them, or take some."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from rtlab.gradients.pools import scatter_add
from rtlab.gradients.tape import NotDifferentiable
from rtlab.gradients.vjp_context import Rule, Rules, VjpContext

_InputGradients = list["ir.Value | None"]
#: First opset in which Resize reads sizes, and in which Split does.
_RESIZES_TO_SIZES, _SPLITS_BY_INPUT = 11, 13


def _transpose(s: VjpContext) -> ir.Value:
    order = [int(i) for i in s.get_attribute("perm", range(s.rank)[::-1])]
    return s.tape.transpose(s.g, [int(i) for i in np.argsort(order)])


def _concat(s: VjpContext) -> _InputGradients:
    axis = int(s.get_attribute("axis", 0)) % s.rank
    sizes = s.tape.concat(*(s.tape.size(s.raw(i), axis) for i in range(len(s.needs_input_gradient))))
    if s.tape.opset < _SPLITS_BY_INPUT:
        raise NotDifferentiable("before opset 13, sizes of a split are no input")
    parts = s.tape.ops("Split", s.g, sizes, count=len(s.needs_input_gradient), axis=axis)
    return [p if w else None for p, w in zip(parts, s.needs_input_gradient, strict=True)]


def _split(s: VjpContext) -> ir.Value:
    parts = [
        s.tape.zeros_like(v) if g is None else g
        for g, v in zip(s.output_gradients, s.node.outputs, strict=True)
    ]
    return s.op("Concat", *parts, axis=int(s.get_attribute("axis", 0)))


def _apply_to_indices(s: VjpContext, *, one_based: bool = False) -> ir.Value:
    """What the operator makes of the numbers of the first input's elements: from 1 on where it fills in zeros."""
    count = s.op("Size", s.x)
    begin, end = (
        (s.c(np.int64(1)), s.op("Add", count, s.c(np.int64(1)))) if one_based else (s.c(np.int64(0)), count)
    )
    numbers = s.op("Reshape", s.op("Range", begin, end, s.c(np.int64(1))), s.op("Shape", s.x))
    names = {n: a.value for n, a in s.node.attributes.items()}
    rest = list(s.node.inputs[1:])
    if s.node.op_type == "Pad" and len(rest) > 1:
        rest[1] = None if rest[1] is None else s.c(np.int64(0))
    return s.op(s.node.op_type, numbers, *rest, **names)


def _scatter_to_sources(s: VjpContext) -> ir.Value:
    """Whatever it takes, and however often: numbers in place of elements say where each came from."""
    return scatter_add(s, s.g, _apply_to_indices(s))


def _slice(s: VjpContext) -> ir.Value:
    """Zeros around what was taken."""
    bounds = [s.constant_value(i) if s.has(i) else np.zeros(0, np.int64) for i in range(1, 5)]
    begins, ends, axes, steps = bounds
    sizes = s.sizes()
    if begins is None or ends is None or axes is None or steps is None or not s.has(1) or any(steps != 1):
        return _scatter_to_sources(s)
    before, after = [0] * len(sizes), [0] * len(sizes)
    for begin, end, axis in zip(begins, ends, axes if len(axes) else range(len(begins)), strict=True):
        size = sizes[int(axis)]
        if size is None:
            return _scatter_to_sources(s)
        start, stop, _ = slice(int(begin), int(end)).indices(size)
        before[int(axis)], after[int(axis)] = start, size - max(start, stop)
    return s.op("Pad", s.g, s.c(before + after))


def _gather(s: VjpContext) -> ir.Value:
    """One index along an axis, as of a class token: zeros around it; several as they come."""
    index, axis = s.constant_value(1), int(s.get_attribute("axis", 0)) % s.rank
    size = s.sizes()[axis]
    if index is None or index.size != 1 or index.ndim > 1 or size is None:
        return _scatter_to_sources(s)
    at = int(index.reshape(())[()]) % size
    gradient = s.tape.unsqueeze(s.g, [axis]) if index.ndim == 0 else s.g
    pads = [0] * (2 * s.rank)
    pads[axis], pads[axis + s.rank] = at, size - 1 - at
    return s.op("Pad", gradient, s.c(pads))


def _pad(s: VjpContext) -> _InputGradients:
    pads_attribute = s.get_attribute("pads", None)
    pads = s.constant_value(1) if pads_attribute is None else np.asarray(pads_attribute)
    if s.needs_gradient(2):
        raise NotDifferentiable("what it pads with is no constant")
    if s.get_attribute("mode", "constant") != "constant" or pads is None or s.has(3):
        if pads_attribute is not None:
            raise NotDifferentiable("its form is an old one")
        return [_scatter_to_sources_from_one(s, _apply_to_indices(s, one_based=True))]
    return [s.op("Pad", s.g, s.c([-int(p) for p in pads]))]


def _scatter_to_sources_from_one(s: VjpContext, numbers: ir.Value) -> ir.Value:
    """Gradients added where numbers from 1 on say; what was filled in, which has the number 0, counts nowhere."""
    flat = s.c([-1])
    index, updates = (s.op("Reshape", v, flat) for v in (numbers, s.g))
    long = s.op("Add", s.op("Reshape", s.op("Size", s.x), s.c([1])), s.c([1]))
    scattered_gradient = s.op(
        "ScatterElements", s.op("Expand", s.c(0.0), long), index, updates, axis=0, reduction="add"
    )
    return s.tape.reshape_like(s.op("Slice", scattered_gradient, s.c([1]), s.c([2**62]), s.c([0])), s.raw(0))


def _trilu(s: VjpContext) -> _InputGradients:
    rest = [s.node.inputs[1]] if s.has(1) else []
    return [s.op("Trilu", s.g, *rest, upper=int(s.get_attribute("upper", 1)))]


def _tile(s: VjpContext) -> ir.Value:
    """The sum of the copies."""
    repeats = s.constant_value(1)
    if repeats is None:
        return _scatter_to_sources(s)
    sizes = [s.tape.size(s.raw(0), i) for i in range(s.rank)]
    parts = [v for n, size in zip(repeats, sizes, strict=True) for v in (s.c([int(n)]), size)]
    split = s.op("Reshape", s.g, s.tape.concat(*parts))
    return s.tape.reduce_sum(split, list(range(0, 2 * s.rank, 2)), keep=False)


def _depth_to_space(s: VjpContext) -> ir.Value:
    size, mode = int(s.get_attribute("blocksize", 1)), s.get_attribute("mode", "DCR")
    if mode == "DCR":
        return s.op("SpaceToDepth", s.g, blocksize=size)
    batch, high, wide = (s.tape.size(s.raw(0), i) for i in (0, 2, 3))
    fewer = s.sizes()[1]
    if fewer is None:
        raise NotDifferentiable("how many channels it has is not known")
    inner = s.c([fewer // size**2])
    split = s.op("Reshape", s.g, s.tape.concat(batch, inner, high, s.c([size]), wide, s.c([size])))
    return s.op(
        "Reshape", s.tape.transpose(split, [0, 1, 3, 5, 2, 4]), s.tape.concat(batch, s.c([-1]), high, wide)
    )


def _make_scatter_rule(*, slices: bool) -> Rule:
    """Of ScatterElements, of ScatterND: what was overwritten has no gradient; what was put in, that of its place."""

    def rule(s: VjpContext) -> _InputGradients:
        reduction = s.get_attribute("reduction", "none")
        if reduction not in {"none", "add"}:
            raise NotDifferentiable(f"it takes the {reduction} of what falls together")
        kind, names = (
            ("ScatterND", {}) if slices else ("ScatterElements", {"axis": int(s.get_attribute("axis", 0))})
        )
        gradients: _InputGradients = [None, None, None]
        if s.needs_gradient(0):
            masked_gradient = s.op(kind, s.g, s.raw(1), s.tape.zeros_like(s.raw(2)), **names)
            gradients[0] = s.g if reduction == "add" else masked_gradient
        if s.needs_gradient(2):
            gradients[2] = s.op("GatherND" if slices else "GatherElements", s.g, s.raw(1), **names)
        return gradients

    return rule


def _resize(s: VjpContext) -> _InputGradients:
    """It mixes elements along one axis after another, each time with the same weights: those of their transposes."""
    if s.get_attribute("coordinate_transformation_mode", "") == "tf_crop_and_resize" or s.get_attribute(
        "antialias", 0
    ):
        raise NotDifferentiable("it crops, or smooths")
    if s.get_attribute("keep_aspect_ratio_policy", "stretch") != "stretch":
        raise NotDifferentiable("it keeps the ratio of its sides")
    has_scales_only = s.node.op_type == "Upsample" or s.tape.opset < _RESIZES_TO_SIZES
    scales = (
        s.constant_value(1 if has_scales_only else 2) if s.has(1 if has_scales_only else 2) else np.zeros(0)
    )
    if scales is None:
        raise NotDifferentiable("its scales are no constant")
    gradient, output_sizes = s.g, s.tape.sizes(s.node.outputs[0])
    for k, axis in enumerate(int(a) % s.rank for a in s.get_attribute("axes", range(s.rank))):
        size, output_size = s.sizes()[axis], output_sizes[axis]
        scale = float(scales[k]) if len(scales) else None
        if scale == 1 or (scale is None and size == output_size and (size is not None or axis == 0)):
            continue
        if size is None or output_size is None:
            raise NotDifferentiable("a size that it changes is not known")
        gradient = _swap_with_last_axis(s, gradient, axis)
        if _is_integer_upsampling(s, size, output_size, has_scales_only=has_scales_only):
            pairs = s.op("Reshape", gradient, s.c([*[0] * (s.rank - 1), size, output_size // size]))
            gradient = s.tape.reduce_sum(pairs, [s.rank], keep=False)
        else:
            matrix = _compute_resize_matrix(s, size, output_size, scale, has_scales_only=has_scales_only)
            gradient = s.op("MatMul", gradient, s.tape.transpose(matrix, [1, 0]))
        gradient = _swap_with_last_axis(s, gradient, axis)
    return [gradient]


def _is_integer_upsampling(s: VjpContext, size: int, output_size: int, *, has_scales_only: bool) -> bool:
    """Whether each element is repeated as often, and its copies stand beside each other."""
    if output_size % size or s.get_attribute("mode", "nearest") != "nearest":
        return False
    places = s.get_attribute(
        "coordinate_transformation_mode", "asymmetric" if has_scales_only else "half_pixel"
    )
    nearest = s.get_attribute("nearest_mode", "floor" if has_scales_only else "round_prefer_floor")
    return (places == "asymmetric" and nearest == "floor") or (
        places == "half_pixel" and nearest in {"round_prefer_floor", "round_prefer_ceil"}
    )


def _swap_with_last_axis(s: VjpContext, value: ir.Value, axis: int) -> ir.Value:
    """An axis exchanged with the last."""
    order = list(range(s.rank))
    order[axis], order[-1] = order[-1], order[axis]
    return s.tape.transpose(value, order)


def _compute_resize_matrix(
    s: VjpContext, size: int, output_size: int, scale: float | None, *, has_scales_only: bool
) -> ir.Value:
    """What a resize along one axis makes of each element alone, ``(size, wide)``: the operator says it itself."""
    unit_inputs = s.c(np.eye(size, dtype=np.float32)[None, None])
    names = {
        n: a.value for n, a in s.node.attributes.items() if n not in {"axes", "keep_aspect_ratio_policy"}
    }
    factors = s.c(np.array([1, 1, 1, output_size / size if scale is None else scale], np.float32))
    if has_scales_only:
        matrix = s.op(s.node.op_type, unit_inputs, factors, **names)
    elif scale is not None:
        matrix = s.op("Resize", unit_inputs, None, factors, **names)
    else:
        matrix = s.op("Resize", unit_inputs, None, None, s.c([1, 1, size, output_size]), **names)
    return s.op("Reshape", matrix, s.c([size, output_size]))


def _reverse_sequence(s: VjpContext) -> ir.Value:
    """Turned once more."""
    return s.op("ReverseSequence", s.g, s.raw(1), **{n: a.value for n, a in s.node.attributes.items()})


RULES: Rules = {
    **dict.fromkeys(("Reshape", "Flatten", "Squeeze", "Unsqueeze"), lambda s: s.tape.reshape_like(s.g, s.raw(0))),
    **dict.fromkeys(("GatherElements", "GatherND", "Compress"), _scatter_to_sources),
    "Transpose": _transpose, "Concat": _concat, "Split": _split, "Slice": _slice, "Gather": _gather, "Pad": _pad,
    "Expand": lambda s: s.unbroadcast(s.g, 0), "Tile": _tile, "Trilu": _trilu, "DepthToSpace": _depth_to_space,
    "SpaceToDepth": lambda s: s.op("DepthToSpace", s.g, blocksize=int(s.get_attribute("blocksize", 1)), mode="DCR"),
    "ScatterElements": _make_scatter_rule(slices=False),
    "ScatterND": _make_scatter_rule(slices=True), "Resize": _resize, "Upsample": _resize,
    "ReverseSequence": _reverse_sequence,
}  # fmt: skip
