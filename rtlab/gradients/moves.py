"""Rules of operators that move elements, copy them, or take some."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from rtlab.gradients.conv import scatter_add
from rtlab.gradients.tape import NotDifferentiable
from rtlab.gradients.vjp_context import InputGradients, Rule, Rules, VjpContext


def _transpose(s: VjpContext) -> ir.Value:
    order = [int(i) for i in s.get_attribute("perm", range(s.rank)[::-1])]
    return s.tape.transpose(s.g, [int(i) for i in np.argsort(order)])


def _concat(s: VjpContext) -> InputGradients:
    axis = int(s.get_attribute("axis", 0)) % s.rank
    sizes = s.tape.concat(*(s.tape.size(s.raw(i), axis) for i in range(len(s.needs_input_gradient))))
    parts = s.tape.ops("Split", s.g, sizes, count=len(s.needs_input_gradient), axis=axis)
    return [p if w else None for p, w in zip(parts, s.needs_input_gradient, strict=True)]


def _split(s: VjpContext) -> ir.Value:
    parts = [
        s.tape.zeros_like(v) if g is None else g
        for g, v in zip(s.output_gradients, s.node.outputs, strict=True)
    ]
    return s.op("Concat", *parts, axis=int(s.get_attribute("axis", 0)))


def _scatter_to_sources(s: VjpContext) -> ir.Value:
    """Any selection of elements: the operator applied to the elements' numbers says where each came from."""
    numbers = s.op("Range", s.c(np.int64(0)), s.op("Size", s.x), s.c(np.int64(1)))
    numbers = s.op("Reshape", numbers, s.op("Shape", s.x))
    attributes = {n: a.value for n, a in s.node.attributes.items()}
    return scatter_add(s, s.g, s.op(s.node.op_type, numbers, *s.node.inputs[1:], **attributes))


def _pad(s: VjpContext) -> ir.Value:
    """The padding taken off, or the gradients of what it repeats added up."""
    if s.needs_gradient(2):
        raise NotDifferentiable("what it pads with is no constant")
    if s.get_attribute("mode", "constant") != "constant":
        if s.has(2):
            raise NotDifferentiable("it repeats elements, and names a constant")
        return _scatter_to_sources(s)
    pads = s.constant_value(1)
    negative = s.op("Neg", s.raw(1)) if pads is None else s.c([-int(p) for p in pads])
    return s.op("Pad", s.g, negative, *([None, s.raw(3)] if s.has(3) else []))


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
    """Of ScatterElements or ScatterND: what is overwritten has no gradient; an update has that of its place."""

    def rule(s: VjpContext) -> InputGradients:
        reduction = s.get_attribute("reduction", "none")
        if reduction not in {"none", "add"}:
            raise NotDifferentiable(f"it takes the {reduction} of what falls together")
        kind, names = (
            ("ScatterND", {}) if slices else ("ScatterElements", {"axis": int(s.get_attribute("axis", 0))})
        )
        gradients: InputGradients = [None, None, None]
        if s.needs_gradient(0):
            masked_gradient = s.op(kind, s.g, s.raw(1), s.tape.zeros_like(s.raw(2)), **names)
            gradients[0] = s.g if reduction == "add" else masked_gradient
        if s.needs_gradient(2):
            gradients[2] = s.op("GatherND" if slices else "GatherElements", s.g, s.raw(1), **names)
        return gradients

    return rule


def _resize(s: VjpContext) -> InputGradients:
    """It mixes elements along one axis after another, each by one matrix: by the transposes of these."""
    if s.get_attribute("coordinate_transformation_mode", "") == "tf_crop_and_resize" or s.get_attribute(
        "antialias", 0
    ):
        raise NotDifferentiable("it crops, or smooths")
    if s.get_attribute("keep_aspect_ratio_policy", "stretch") != "stretch":
        raise NotDifferentiable("it keeps the ratio of its sides")
    scales = s.constant_value(2) if s.has(2) else np.zeros(0)
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
        matrix = s.tape.transpose(_compute_resize_matrix(s, size, output_size, scale), [1, 0])
        gradient = s.op("MatMul", _swap_with_last_axis(s, gradient, axis), matrix)
        gradient = _swap_with_last_axis(s, gradient, axis)
    return [gradient]


def _swap_with_last_axis(s: VjpContext, value: ir.Value, axis: int) -> ir.Value:
    """An axis exchanged with the last."""
    order = list(range(s.rank))
    order[axis], order[-1] = order[-1], order[axis]
    return s.tape.transpose(value, order)


def _compute_resize_matrix(s: VjpContext, size: int, output_size: int, scale: float | None) -> ir.Value:
    """The matrix of a resize along one axis, ``(size, output_size)``: the operator applied to unit vectors."""
    unit_inputs = s.c(np.eye(size, dtype=np.float32)[None, None])
    skipped = {"axes", "keep_aspect_ratio_policy"}
    attributes = {n: a.value for n, a in s.node.attributes.items() if n not in skipped}
    if scale is not None:
        factors = s.c(np.array([1, 1, 1, scale], np.float32))
        matrix = s.op("Resize", unit_inputs, None, factors, **attributes)
    else:
        matrix = s.op("Resize", unit_inputs, None, None, s.c([1, 1, size, output_size]), **attributes)
    return s.op("Reshape", matrix, s.c([size, output_size]))


RULES: Rules = {
    **dict.fromkeys(("Reshape", "Flatten", "Squeeze", "Unsqueeze"), lambda s: s.tape.reshape_like(s.g, s.raw(0))),
    **dict.fromkeys(("Slice", "Gather", "GatherElements", "GatherND", "Tile"), _scatter_to_sources),
    "Transpose": _transpose, "Concat": _concat, "Split": _split, "Pad": _pad, "Resize": _resize,
    "Expand": lambda s: s.unbroadcast(s.g, 0), "DepthToSpace": _depth_to_space,
    "SpaceToDepth": lambda s: s.op("DepthToSpace", s.g, blocksize=int(s.get_attribute("blocksize", 1)), mode="DCR"),
    "ScatterElements": _make_scatter_rule(slices=False), "ScatterND": _make_scatter_rule(slices=True),
}  # fmt: skip
