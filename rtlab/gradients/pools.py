"""Rules of pools."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from rtlab.gradients.conv import Window, read_window, transpose_conv
from rtlab.gradients.tape import NotDifferentiable
from rtlab.gradients.vjp_context import Rules, VjpContext

#: First opset whose ScatterElements adds.
_ADDS = 16


def _read_pool_window(s: VjpContext) -> Window:
    return read_window(s, tuple(int(k) for k in s.get_attribute("kernel_shape", [])))


def _average_pool(s: VjpContext) -> ir.Value:
    """Each window's gradient spread over it."""
    w = _read_pool_window(s)
    has_padding = any(w.pads) or bool(int(s.get_attribute("ceil_mode", 0)))
    if not has_padding and w.has_unit_strides and all(d == 1 for d in w.dilations):
        # The mean of the windows that hold an element, of which those at the edge are fewer.
        return s.op(
            "AveragePool", s.g, kernel_shape=list(w.kernel), strides=[1] * len(w.kernel), pads=[*w.extents, *w.extents],
            count_include_pad=1,
        )  # fmt: skip
    if not has_padding and w.kernel == w.strides and all(d == 1 for d in w.dilations):
        return _upsample(s, s.mul(s.g, 1.0 / float(np.prod(w.kernel))), w)
    share = s.op("Div", s.g, _count_window_elements(s, w) if has_padding else s.c(float(np.prod(w.kernel))))
    # Each channel by itself, as a sample of one channel.
    per_channel_share = s.op(
        "Reshape", share, s.tape.concat(s.c([-1, 1]), _spatial_sizes(s, share, len(w.kernel)))
    )
    return s.tape.reshape_like(
        transpose_conv(s, per_channel_share, s.c(np.ones((1, 1, *w.kernel), np.float32)), w, 1), s.raw(0)
    )


def _spatial_sizes(s: VjpContext, value: ir.Value, rank: int) -> ir.Value:
    """Its sizes but those of samples and channels."""
    return s.op("Slice", s.op("Shape", value), s.c([2]), s.c([2 + rank]), s.c([0]))


def _upsample(s: VjpContext, share: ir.Value, w: Window) -> ir.Value:
    """Each element as often as a window that overlaps no other is large; zeros where no window reaches."""
    rank = len(w.kernel)
    pairs = s.tape.unsqueeze(share, [3 + 2 * i for i in range(rank)])
    expanded_share = s.op("Expand", pairs, s.c([1, 1, *(n for k in w.kernel for n in (1, k))]))
    sides = _spatial_sizes(s, share, rank)
    upsampled_gradient = s.op(
        "Reshape", expanded_share, s.tape.concat(s.c([0, 0]), s.op("Mul", sides, s.c(list(w.kernel))))
    )
    if all(a is not None and a % k == 0 for a, k in zip(s.sizes()[2:], w.kernel, strict=True)):
        return upsampled_gradient
    inner = [_spatial_sizes(s, v, rank) for v in (s.x, upsampled_gradient)]
    return s.op("Pad", upsampled_gradient, s.tape.concat(s.c([0] * (4 + rank)), s.op("Sub", *inner)))


def _count_window_elements(s: VjpContext, w: Window) -> ir.Value:
    """How many elements each window holds; the sum over each window of ones."""
    rank, includes_pad = len(w.kernel), int(s.get_attribute("count_include_pad", 0))
    sides = _spatial_sizes(s, s.x, rank)
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
    output_sizes = _spatial_sizes(s, s.node.outputs[0], rank)
    return s.op("Slice", element_counts, s.c([0] * rank), output_sizes, s.c(list(range(2, 2 + rank))))


def _max_pool(s: VjpContext) -> ir.Value:
    """Each window's gradient where its largest element is: the pool says where when it is asked once more."""
    if s.tape.opset < _ADDS:
        raise NotDifferentiable(f"before opset {_ADDS}, nothing adds at places")
    if int(s.get_attribute("storage_order", 0)):
        raise NotDifferentiable("it counts places by columns")
    names = {n: a.value for n, a in s.node.attributes.items() if n != "storage_order"}
    _, indices = s.tape.ops("MaxPool", s.x, count=2, **names)
    return scatter_add(s, s.g, indices)


def scatter_add(s: VjpContext, gradient: ir.Value, indices: ir.Value) -> ir.Value:
    """Gradients added at places of the first input, each told by the number of the element."""
    flat = s.c([-1])
    index, updates = (s.op("Reshape", v, flat) for v in (indices, gradient))
    zeros = s.op("Expand", s.c(0.0), s.op("Reshape", s.op("Size", s.x), s.c([1])))
    return s.tape.reshape_like(
        s.op("ScatterElements", zeros, index, updates, axis=0, reduction="add"), s.raw(0)
    )


def _global_average(s: VjpContext) -> ir.Value:
    share = s.op("Div", s.g, s.tape.count(s.raw(0), list(range(2, s.rank))))
    return s.tape.expand_like(share, s.raw(0))


def _global_max(s: VjpContext) -> ir.Value:
    """Shared between equals."""
    mine = s.tape.cast_mask(s.op("Equal", s.x, s.y))
    several = s.tape.reduce_sum(mine, list(range(2, s.rank)), keep=True)
    return s.mul(mine, s.op("Div", s.g, several))


RULES: Rules = {
    "AveragePool": _average_pool, "MaxPool": _max_pool, "GlobalAveragePool": _global_average,
    "GlobalMaxPool": _global_max,
}  # fmt: skip
