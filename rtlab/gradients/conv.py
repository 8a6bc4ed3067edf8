"""Rules of convolutions."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import onnx_ir as ir

from rtlab.gradients.tape import NotDifferentiable
from rtlab.gradients.vjp_context import Rules, VjpContext

_InputGradients = list["ir.Value | None"]


@dataclasses.dataclass(frozen=True)
class Window:
    """How a kernel moves.

    Attributes:
        kernel: Its size in each dimension.
        strides: How far it moves.
        dilations: The distance between two of its elements.
        pads_begin: What is padded in front.
        pads_end: What is padded behind.
    """

    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    pads_begin: tuple[int, ...]
    pads_end: tuple[int, ...]

    @property
    def extents(self) -> list[int]:
        """How far its last element is from its first."""
        return [d * (k - 1) for d, k in zip(self.dilations, self.kernel, strict=True)]

    @property
    def pads(self) -> list[int]:
        """What is padded, as ONNX writes it."""
        return [*self.pads_begin, *self.pads_end]

    @property
    def has_unit_strides(self) -> bool:
        """Whether it leaves out no step."""
        return all(s == 1 for s in self.strides)


def read_window(s: VjpContext, kernel: tuple[int, ...]) -> Window:
    """That of a convolution or of a pool."""
    rank, auto = len(kernel), s.get_attribute("auto_pad", "NOTSET") or "NOTSET"
    strides, dilations = (
        tuple(int(v) for v in s.get_attribute(n, [1] * rank)) for n in ("strides", "dilations")
    )
    if auto in {"NOTSET", "VALID"}:
        pads = list(s.get_attribute("pads", [0] * 2 * rank)) if auto == "NOTSET" else [0] * 2 * rank
        return Window(kernel, strides, dilations, tuple(pads[:rank]), tuple(pads[rank:]))
    pads_begin, pads_end = [], []
    for size, k, t, d in zip(s.sizes()[2:], kernel, strides, dilations, strict=True):
        if t == 1:
            total = d * (k - 1)
        elif size is None:
            raise NotDifferentiable("a size that it pads for is not known")
        else:
            total = max(0, (math.ceil(size / t) - 1) * t + d * (k - 1) + 1 - size)
        less, more = total // 2, total - total // 2
        pads_begin.append(less if auto == "SAME_UPPER" else more)
        pads_end.append(more if auto == "SAME_UPPER" else less)
    return Window(kernel, strides, dilations, tuple(pads_begin), tuple(pads_end))


def _kernel_shape(s: VjpContext) -> tuple[int, ...]:
    sizes = s.sizes(1)[2:]
    if None in sizes:
        raise NotDifferentiable("the size of its kernel is not known")
    return tuple(k for k in sizes if k is not None)


def transpose_conv(s: VjpContext, gradient: ir.Value, weight: ir.Value, w: Window, group: int) -> ir.Value:
    """The transpose of a convolution with steps, in the shape of the first input."""
    rank = len(w.kernel)
    names = {
        "group": group, "dilations": list(w.dilations), "strides": list(w.strides), "kernel_shape": list(w.kernel)
    }  # fmt: skip
    sizes, output_sizes = s.sizes()[2:], s.tape.sizes(s.node.outputs[0])[2:]
    size_differences = [
        None if a is None or b is None else a - ((b - 1) * t - p - q + e + 1)
        for a, b, t, p, q, e in zip(
            sizes, output_sizes, w.strides, w.pads_begin, w.pads_end, w.extents, strict=True
        )
    ]
    # With ceil_mode ONNX and those that run it do not agree on how many windows there are.
    output_padding = [
        n for n in size_differences if n is not None and n >= 0 and not s.get_attribute("ceil_mode", 0)
    ]
    if len(output_padding) == rank and all(
        n < max(t, d) for n, t, d in zip(output_padding, w.strides, w.dilations, strict=True)
    ):
        return s.op("ConvTranspose", gradient, weight, pads=w.pads, output_padding=output_padding, **names)
    # What its last step leaves, or where it reaches beyond the input, shows when it runs.
    full_gradient = s.op("ConvTranspose", gradient, weight, pads=[*w.pads_begin, *[0] * rank], **names)
    inner = [
        s.op("Slice", s.op("Shape", v), s.c([2]), s.c([2 + rank]), s.c([0])) for v in (s.x, full_gradient)
    ]
    end_padding = s.op("Sub", *inner)
    return s.op("Pad", full_gradient, s.tape.concat(s.c([0] * (4 + rank)), end_padding))


def _flip_kernel(s: VjpContext, group: int, rank: int) -> ir.Value:
    """A kernel turned around, with inputs and outputs exchanged."""
    weight, sizes = s.constant_value(1), s.sizes(1)
    outs, ins = sizes[:2]
    if outs is None or ins is None:
        raise NotDifferentiable("how many channels it has is not known")
    split_shape, merged_shape = (
        [group, outs // group, ins, *_kernel_shape(s)],
        [group * ins, outs // group, *_kernel_shape(s)],
    )
    if weight is not None:
        parts = weight.reshape(split_shape).swapaxes(1, 2)
        return s.c(np.ascontiguousarray(np.flip(parts, axis=tuple(range(3, 3 + rank))).reshape(merged_shape)))
    swapped_weight = s.tape.transpose(
        s.op("Reshape", s.at(1), s.c(split_shape)), [0, 2, 1, *range(3, 3 + rank)]
    )
    if any(k > 1 for k in _kernel_shape(s)):
        every = [s.c([n] * rank) for n in (-1, -(2**31), -1)]
        swapped_weight = s.op("Slice", swapped_weight, *every[:2], s.c(list(range(3, 3 + rank))), every[2])
    return s.op("Reshape", swapped_weight, s.c(merged_shape))


def _compute_input_gradient(s: VjpContext, w: Window, group: int) -> ir.Value:
    """By a convolution with the kernel turned around, where no step is left out; else by one transposed."""
    rank = len(w.kernel)
    transposed_pads = [e - p for e, p in zip([*w.extents, *w.extents], w.pads, strict=True)]
    if not w.has_unit_strides or min(transposed_pads, default=0) < 0:
        return transpose_conv(s, s.g, s.at(1), w, group)
    return s.op(
        "Conv", s.g, _flip_kernel(s, group, rank), group=group, dilations=list(w.dilations), pads=transposed_pads,
        kernel_shape=list(w.kernel), strides=[1] * rank,
    )  # fmt: skip


def _compute_weight_gradient(
    s: VjpContext, w: Window, group: int, image: ir.Value, kernel: ir.Value
) -> ir.Value:
    """A convolution of the image with the gradient as the kernel, whose steps are the kernel's holes."""
    rank = len(w.kernel)
    sides = list(range(rank))

    def swap_batch_and_channels(value: ir.Value, *, is_grouped: bool) -> ir.Value:
        """Channels in front, samples behind: of the image, each group's samples beside each other."""
        value = s.op("Reshape", value, s.tape.concat(s.c([0, group, -1]), _spatial_sizes(s, value, rank)))
        order = [2, 1, 0] if is_grouped else [1, 2, 0]
        value = s.tape.transpose(value, [*order, *(3 + i for i in sides)])
        heads = s.op("Slice", s.op("Shape", value), s.c([0]), s.c([3]), s.c([0]))
        parts = s.tape.ops("Split", heads, s.c([1, 1, 1]), count=3, axis=0)
        front = (
            (parts[0], s.op("Mul", parts[1], parts[2]))
            if is_grouped
            else (s.op("Mul", parts[0], parts[1]), parts[2])
        )
        return s.op("Reshape", value, s.tape.concat(*front, _spatial_sizes(s, value, rank)))

    weight_gradient = s.op(
        "Conv", swap_batch_and_channels(image, is_grouped=True), swap_batch_and_channels(kernel, is_grouped=False),
        group=group, dilations=list(w.strides), strides=list(w.dilations), pads=w.pads,
    )  # fmt: skip
    weight_gradient = s.tape.transpose(weight_gradient, [1, 0, *(2 + i for i in sides)])
    # What the last step leaves makes the kernel longer than it is.
    axes = [2 + i for i in sides]
    return s.op("Slice", weight_gradient, s.c([0] * rank), s.c(list(w.kernel)), s.c(axes))


def _spatial_sizes(s: VjpContext, value: ir.Value, rank: int) -> ir.Value:
    return s.op("Slice", s.op("Shape", value), s.c([-rank]), s.c([2**31]), s.c([0]))


def _compute_bias_gradient(s: VjpContext) -> ir.Value:
    rank = len(s.sizes())
    return s.tape.reduce_sum(s.g, [0, *range(2, rank)], keep=False)


def _conv(s: VjpContext) -> _InputGradients:
    group, w = int(s.get_attribute("group", 1)), read_window(s, _kernel_shape(s))
    gradients: _InputGradients = [None] * len(s.node.inputs)
    if s.needs_gradient(0):
        gradients[0] = _compute_input_gradient(s, w, group)
    if s.needs_gradient(1):
        gradients[1] = _compute_weight_gradient(s, w, group, s.x, s.g)
    if s.needs_gradient(2):
        gradients[2] = _compute_bias_gradient(s)
    return gradients


def _conv_transpose(s: VjpContext) -> _InputGradients:
    """By the convolution that it is the transpose of."""
    kernel, group = _kernel_shape(s), int(s.get_attribute("group", 1))
    rank = len(kernel)
    strides, dilations = (
        tuple(int(v) for v in s.get_attribute(n, [1] * rank)) for n in ("strides", "dilations")
    )
    output_padding = list(s.get_attribute("output_padding", [0] * rank))
    pads = list(s.get_attribute("pads", [0] * 2 * rank))
    auto = s.get_attribute("auto_pad", "NOTSET") or "NOTSET"
    if auto != "NOTSET" or s.get_attribute("output_shape", None):
        pads = _compute_pads(
            s, kernel, strides, dilations, output_padding, upper=auto == "SAME_UPPER", valid=auto == "VALID"
        )
    gradients: _InputGradients = [None] * len(s.node.inputs)
    w = Window(kernel, strides, dilations, tuple(pads[:rank]), tuple(pads[rank:]))
    if s.needs_gradient(0):
        # Padding may be negative where the output is larger than what is written into it.
        pads_end = [p - m for p, m in zip(w.pads_end, output_padding, strict=True)]
        padded_gradient = s.g
        if min(*w.pads_begin, *pads_end) < 0:
            crops = [min(0, p) for p in (*w.pads_begin, *pads_end)]
            ends = [0, 0, *crops[:rank], 0, 0, *crops[rank:]]
            padded_gradient = s.op("Pad", s.g, s.c(ends))
        gradients[0] = s.op(
            "Conv", padded_gradient, s.at(1), group=group, kernel_shape=list(kernel), strides=list(strides),
            dilations=list(dilations), pads=[max(0, p) for p in (*w.pads_begin, *pads_end)],
        )  # fmt: skip
    if s.needs_gradient(1):
        if group != 1 or any(output_padding):
            raise NotDifferentiable("its weight is no constant")
        gradients[1] = _compute_weight_gradient(s, w, 1, s.g, s.x)
    if s.needs_gradient(2):
        gradients[2] = _compute_bias_gradient(s)
    return gradients


def _compute_pads(
    s: VjpContext, kernel: tuple[int, ...], strides: tuple[int, ...], dilations: tuple[int, ...],
    output_padding: list[int], *, upper: bool, valid: bool,
) -> list[int]:  # fmt: skip
    """The padding that follows from the sizes of input and output."""
    rank = len(kernel)
    if valid:
        return [0] * 2 * rank
    pads_begin, pads_end = [], []
    output_shape = s.get_attribute("output_shape", None)
    output_sizes = (
        list(output_shape)[-rank:]
        if output_shape
        else [None if n is None else n * t for n, t in zip(s.sizes()[2:], strides, strict=True)]
    )
    for size, out, k, t, d, m in zip(
        s.sizes()[2:], output_sizes, kernel, strides, dilations, output_padding, strict=True
    ):
        if size is None or out is None:
            raise NotDifferentiable("its padding follows from a size that is not known")
        total = t * (size - 1) + m + d * (k - 1) + 1 - out
        less, other = total // 2, total - total // 2
        pads_begin.append(less if upper else other)
        pads_end.append(other if upper else less)
    return pads_begin + pads_end


RULES: Rules = {"Conv": _conv, "ConvTranspose": _conv_transpose}
