"""Rules of pools."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from rtlab.adjoint.convolutions import Window, scattered, window
from rtlab.adjoint.site import Rules, Site
from rtlab.adjoint.tape import Unruled

#: First opset whose ScatterElements adds.
_ADDS = 16


def _window(s: Site) -> Window:
    return window(s, tuple(int(k) for k in s.held("kernel_shape", [])))


def _average(s: Site) -> ir.Value:
    """Each window's gradient spread over it."""
    w = _window(s)
    padded = any(w.pads) or bool(int(s.held("ceil_mode", 0)))
    if not padded and w.dense and all(d == 1 for d in w.holes):
        # The mean of the windows that hold an element, of which those at the edge are fewer.
        return s.op(
            "AveragePool", s.g, kernel_shape=list(w.kernel), strides=[1] * len(w.kernel), pads=[*w.spans, *w.spans],
            count_include_pad=1,
        )  # fmt: skip
    if not padded and w.kernel == w.steps and all(d == 1 for d in w.holes):
        return _repeated(s, s.mul(s.g, 1.0 / float(np.prod(w.kernel))), w)
    share = s.op("Div", s.g, _held(s, w) if padded else s.c(float(np.prod(w.kernel))))
    # Each channel by itself, as a sample of one channel.
    alone = s.op("Reshape", share, s.tape.joined(s.c([-1, 1]), _sides(s, share, len(w.kernel))))
    return s.tape.like(scattered(s, alone, s.c(np.ones((1, 1, *w.kernel), np.float32)), w, 1), s.raw(0))


def _sides(s: Site, value: ir.Value, rank: int) -> ir.Value:
    """Its sizes but those of samples and channels."""
    return s.op("Slice", s.op("Shape", value), s.c([2]), s.c([2 + rank]), s.c([0]))


def _repeated(s: Site, share: ir.Value, w: Window) -> ir.Value:
    """Each element as often as a window that overlaps no other is large; zeros where no window reaches."""
    rank = len(w.kernel)
    pairs = s.tape.unsqueezed(share, [3 + 2 * i for i in range(rank)])
    wide = s.op("Expand", pairs, s.c([1, 1, *(n for k in w.kernel for n in (1, k))]))
    sides = _sides(s, share, rank)
    whole = s.op("Reshape", wide, s.tape.joined(s.c([0, 0]), s.op("Mul", sides, s.c(list(w.kernel)))))
    if all(a is not None and a % k == 0 for a, k in zip(s.sizes()[2:], w.kernel, strict=True)):
        return whole
    inner = [_sides(s, v, rank) for v in (s.x, whole)]
    return s.op("Pad", whole, s.tape.joined(s.c([0] * (4 + rank)), s.op("Sub", *inner)))


def _held(s: Site, w: Window) -> ir.Value:
    """How many elements each window holds; the sum over each window of ones."""
    rank, inside = len(w.kernel), int(s.held("count_include_pad", 0))
    sides = _sides(s, s.x, rank)
    ones = s.op("Expand", s.c(1.0), s.tape.joined(s.c([1, 1]), sides))
    if inside:
        ones = s.op("Pad", ones, s.c([0, 0, *w.before, 0, 0, *w.after]), s.c(1.0))
    else:
        ones = s.op("Pad", ones, s.c([0, 0, *w.before, 0, 0, *w.after]))
    # A last window may reach beyond what is padded; nothing is there.
    ends = list(w.steps) if int(s.held("ceil_mode", 0)) else [0] * rank
    ones = s.op("Pad", ones, s.c([0] * (4 + rank) + ends)) if any(ends) else ones
    found = s.op(
        "Conv", ones, s.c(np.ones((1, 1, *w.kernel), np.float32)), kernel_shape=list(w.kernel),
        strides=list(w.steps), dilations=list(w.holes),
    )  # fmt: skip
    if not any(ends):
        return found
    written = _sides(s, s.node.outputs[0], rank)
    return s.op("Slice", found, s.c([0] * rank), written, s.c(list(range(2, 2 + rank))))


def _max_pool(s: Site) -> ir.Value:
    """Each window's gradient where its largest element is: the pool says where when it is asked once more."""
    if s.tape.opset < _ADDS:
        raise Unruled(f"before opset {_ADDS}, nothing adds at places")
    if int(s.held("storage_order", 0)):
        raise Unruled("it counts places by columns")
    names = {n: a.value for n, a in s.node.attributes.items() if n != "storage_order"}
    _, where = s.tape.ops("MaxPool", s.x, count=2, **names)
    return added(s, s.g, where)


def added(s: Site, gradient: ir.Value, where: ir.Value) -> ir.Value:
    """Gradients added at places of the first input, each told by the number of the element."""
    flat = s.c([-1])
    index, moved = (s.op("Reshape", v, flat) for v in (where, gradient))
    zeros = s.op("Expand", s.c(0.0), s.op("Reshape", s.op("Size", s.x), s.c([1])))
    return s.tape.like(s.op("ScatterElements", zeros, index, moved, axis=0, reduction="add"), s.raw(0))


def _global_average(s: Site) -> ir.Value:
    share = s.op("Div", s.g, s.tape.count(s.raw(0), list(range(2, s.rank))))
    return s.tape.spread(share, s.raw(0))


def _global_max(s: Site) -> ir.Value:
    """Shared between equals."""
    mine = s.tape.where(s.op("Equal", s.x, s.y))
    several = s.tape.summed(mine, list(range(2, s.rank)), keep=True)
    return s.mul(mine, s.op("Div", s.g, several))


RULES: Rules = {
    "AveragePool": _average, "MaxPool": _max_pool, "GlobalAveragePool": _global_average,
    "GlobalMaxPool": _global_max,
}  # fmt: skip
