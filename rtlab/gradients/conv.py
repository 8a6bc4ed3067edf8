"""Rules of convolutions and pools."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import onnx_ir as ir

from rtlab.gradients.tape import InputGradients, NotDifferentiable, Rules, VjpContext


@dataclasses.dataclass(frozen=True)
class Window:
    """How a kernel moves, each a number for each dimension; ``pads_begin`` and ``pads_end`` are the padding."""

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


def _transpose_conv(s: VjpContext, gradient: ir.Value, weight: ir.Value, w: Window, group: int) -> ir.Value:
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
    # What its last step leaves, or where it reaches beyond the input, is known at run time only.
    full_gradient = s.op("ConvTranspose", gradient, weight, pads=[*w.pads_begin, *[0] * rank], **names)
    end_padding = s.op("Sub", *(s.tape.spatial_sizes(v, rank) for v in (s.x, full_gradient)))
    return s.op("Pad", full_gradient, s.tape.concat(s.c([0] * (4 + rank)), end_padding))


def _flip_kernel(s: VjpContext, group: int, rank: int) -> ir.Value:
    """A kernel turned around, with inputs and outputs exchanged."""
    outs, ins = s.sizes(1)[:2]
    if outs is None or ins is None:
        raise NotDifferentiable("how many channels it has is not known")
    split_shape, merged_shape = (
        [group, outs // group, ins, *_kernel_shape(s)],
        [group * ins, outs // group, *_kernel_shape(s)],
    )
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
    if max(w.strides, default=1) > 1 or min(transposed_pads, default=0) < 0:
        return _transpose_conv(s, s.g, s.at(1), w, group)
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
        value = s.op("Reshape", value, s.tape.concat(s.c([0, group, -1]), s.tape.spatial_sizes(value, rank)))
        order = [2, 1, 0] if is_grouped else [1, 2, 0]
        value = s.tape.transpose(value, [*order, *(3 + i for i in sides)])
        heads = s.op("Slice", s.op("Shape", value), s.c([0]), s.c([3]), s.c([0]))
        parts = s.tape.ops("Split", heads, s.c([1, 1, 1]), count=3, axis=0)
        front = (
            (parts[0], s.op("Mul", parts[1], parts[2]))
            if is_grouped
            else (s.op("Mul", parts[0], parts[1]), parts[2])
        )
        return s.op("Reshape", value, s.tape.concat(*front, s.tape.spatial_sizes(value, rank)))

    weight_gradient = s.op(
        "Conv", swap_batch_and_channels(image, is_grouped=True), swap_batch_and_channels(kernel, is_grouped=False),
        group=group, dilations=list(w.strides), strides=list(w.dilations), pads=w.pads,
    )  # fmt: skip
    weight_gradient = s.tape.transpose(weight_gradient, [1, 0, *(2 + i for i in sides)])
    # What the last step leaves makes the kernel longer than it is.
    axes = [2 + i for i in sides]
    return s.op("Slice", weight_gradient, s.c([0] * rank), s.c(list(w.kernel)), s.c(axes))


def _conv(s: VjpContext) -> InputGradients:
    group, w = int(s.get_attribute("group", 1)), read_window(s, _kernel_shape(s))
    gradients: InputGradients = [None] * len(s.node.inputs)
    if s.needs_gradient(0):
        gradients[0] = _compute_input_gradient(s, w, group)
    if s.needs_gradient(1):
        gradients[1] = _compute_weight_gradient(s, w, group, s.x, s.g)
    if s.needs_gradient(2):
        gradients[2] = s.sum_per_channel(s.g)
    return gradients


def _conv_transpose(s: VjpContext) -> InputGradients:
    """By the convolution that it is the transpose of."""
    if s.get_attribute("auto_pad", "NOTSET") not in {"NOTSET", "VALID"} or s.get_attribute(
        "output_shape", None
    ):
        raise NotDifferentiable("its padding follows from its sizes")
    w, group = read_window(s, _kernel_shape(s)), int(s.get_attribute("group", 1))
    rank, output_padding = len(w.kernel), list(s.get_attribute("output_padding", [0] * len(w.kernel)))
    gradients: InputGradients = [None] * len(s.node.inputs)
    if s.needs_gradient(0):
        # Padding may be negative where the output is larger than what is written into it.
        pads_end = [p - m for p, m in zip(w.pads_end, output_padding, strict=True)]
        padded_gradient = s.g
        if min(pads_end) < 0:
            padded_gradient = s.op("Pad", s.g, s.c([0] * (4 + rank) + [min(0, p) for p in pads_end]))
        gradients[0] = s.op(
            "Conv", padded_gradient, s.at(1), group=group, kernel_shape=list(w.kernel), strides=list(w.strides),
            dilations=list(w.dilations), pads=[max(0, p) for p in (*w.pads_begin, *pads_end)],
        )  # fmt: skip
    if s.needs_gradient(1):
        if group != 1 or any(output_padding):
            raise NotDifferentiable("its weight is no constant")
        gradients[1] = _compute_weight_gradient(s, w, 1, s.g, s.x)
    if s.needs_gradient(2):
        gradients[2] = s.sum_per_channel(s.g)
    return gradients


def _average_pool(s: VjpContext) -> ir.Value:
    """Each window's gradient spread over it."""
    w = read_window(s, tuple(int(k) for k in s.get_attribute("kernel_shape", [])))
    has_padding = any(w.pads) or bool(int(s.get_attribute("ceil_mode", 0)))
    share = s.op("Div", s.g, _count_window_elements(s, w) if has_padding else s.c(float(np.prod(w.kernel))))
    # Each channel by itself, as a sample of one channel.
    sizes = s.tape.spatial_sizes(share, len(w.kernel))
    per_channel_share = s.op("Reshape", share, s.tape.concat(s.c([-1, 1]), sizes))
    ones = s.c(np.ones((1, 1, *w.kernel), np.float32))
    return s.tape.reshape_like(_transpose_conv(s, per_channel_share, ones, w, 1), s.raw(0))


def _count_window_elements(s: VjpContext, w: Window) -> ir.Value:
    """How many elements each window holds; the sum over each window of ones."""
    rank, includes_pad = len(w.kernel), int(s.get_attribute("count_include_pad", 0))
    sides = s.tape.spatial_sizes(s.x, rank)
    ones = s.op("Expand", s.c(1.0), s.tape.concat(s.c([1, 1]), sides))
    pads = s.c([0, 0, *w.pads_begin, 0, 0, *w.pads_end])
    ones = s.op("Pad", ones, pads, *([s.c(1.0)] if includes_pad else []))
    reaches_beyond = int(s.get_attribute("ceil_mode", 0))
    if reaches_beyond:
        # A last window may reach beyond what is padded; nothing is there.
        ones = s.op("Pad", ones, s.c([0] * (4 + rank) + list(w.strides)))
    element_counts = s.op(
        "Conv", ones, s.c(np.ones((1, 1, *w.kernel), np.float32)), kernel_shape=list(w.kernel),
        strides=list(w.strides), dilations=list(w.dilations),
    )  # fmt: skip
    if not reaches_beyond:
        return element_counts
    output_sizes = s.tape.spatial_sizes(s.node.outputs[0], rank)
    return s.op("Slice", element_counts, s.c([0] * rank), output_sizes, s.c(list(range(2, 2 + rank))))


def _max_pool(s: VjpContext) -> ir.Value:
    """Each window's gradient where its largest element is, by the second output of the pool."""
    names = {n: a.value for n, a in s.node.attributes.items() if n != "storage_order"}
    _, indices = s.tape.ops("MaxPool", s.x, count=2, **names)
    return scatter_add(s, s.g, indices)


def scatter_add(s: VjpContext, gradient: ir.Value, indices: ir.Value) -> ir.Value:
    """Gradients added at elements of the first input, by their numbers in it."""
    flat = s.c([-1])
    index, updates = (s.op("Reshape", v, flat) for v in (indices, gradient))
    zeros = s.op("Expand", s.c(0.0), s.op("Reshape", s.op("Size", s.x), s.c([1])))
    scattered = s.op("ScatterElements", zeros, index, updates, axis=0, reduction="add")
    return s.tape.reshape_like(scattered, s.raw(0))


def _global_average(s: VjpContext) -> ir.Value:
    share = s.op("Div", s.g, s.tape.count(s.raw(0), list(range(2, s.rank))))
    return s.tape.expand_like(share, s.raw(0))


def _global_max(s: VjpContext) -> ir.Value:
    """Shared between equals."""
    mine = s.tape.cast_mask(s.op("Equal", s.x, s.y))
    several = s.tape.reduce_sum(mine, list(range(2, s.rank)), keep=True)
    return s.mul(mine, s.op("Div", s.g, several))


CONVOLUTION_RULES: Rules = {
    "Conv": _conv, "ConvTranspose": _conv_transpose,
    "AveragePool": _average_pool, "MaxPool": _max_pool, "GlobalAveragePool": _global_average,
    "GlobalMaxPool": _global_max,
}  # fmt: skip
