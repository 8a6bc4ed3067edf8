"""Rules of convolutions."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import onnx_ir as ir

from rtlab.adjoint.site import Rules, Site
from rtlab.adjoint.tape import Unruled

_Found = list["ir.Value | None"]


@dataclasses.dataclass(frozen=True)
class Window:
    """How a kernel moves.

    Attributes:
        kernel: Its size in each dimension.
        steps: How far it moves.
        holes: The distance between two of its elements.
        before: What is padded in front.
        after: What is padded behind.
    """

    kernel: tuple[int, ...]
    steps: tuple[int, ...]
    holes: tuple[int, ...]
    before: tuple[int, ...]
    after: tuple[int, ...]

    @property
    def spans(self) -> list[int]:
        """How far its last element is from its first."""
        return [d * (k - 1) for d, k in zip(self.holes, self.kernel, strict=True)]

    @property
    def pads(self) -> list[int]:
        """What is padded, as ONNX writes it."""
        return [*self.before, *self.after]

    @property
    def dense(self) -> bool:
        """Whether it leaves out no step."""
        return all(s == 1 for s in self.steps)


def window(s: Site, kernel: tuple[int, ...]) -> Window:
    """That of a convolution or of a pool."""
    rank, auto = len(kernel), s.held("auto_pad", "NOTSET") or "NOTSET"
    steps, holes = (tuple(int(v) for v in s.held(n, [1] * rank)) for n in ("strides", "dilations"))
    if auto in {"NOTSET", "VALID"}:
        pads = list(s.held("pads", [0] * 2 * rank)) if auto == "NOTSET" else [0] * 2 * rank
        return Window(kernel, steps, holes, tuple(pads[:rank]), tuple(pads[rank:]))
    before, after = [], []
    for size, k, t, d in zip(s.sizes()[2:], kernel, steps, holes, strict=True):
        if t == 1:
            total = d * (k - 1)
        elif size is None:
            raise Unruled("a size that it pads for is not known")
        else:
            total = max(0, (math.ceil(size / t) - 1) * t + d * (k - 1) + 1 - size)
        less, more = total // 2, total - total // 2
        before.append(less if auto == "SAME_UPPER" else more)
        after.append(more if auto == "SAME_UPPER" else less)
    return Window(kernel, steps, holes, tuple(before), tuple(after))


def _kernel(s: Site) -> tuple[int, ...]:
    sizes = s.sizes(1)[2:]
    if None in sizes:
        raise Unruled("the size of its kernel is not known")
    return tuple(k for k in sizes if k is not None)


def scattered(s: Site, gradient: ir.Value, weight: ir.Value, w: Window, group: int) -> ir.Value:
    """The transpose of a convolution with steps, in the shape of the first input."""
    rank = len(w.kernel)
    names = {
        "group": group, "dilations": list(w.holes), "strides": list(w.steps), "kernel_shape": list(w.kernel)
    }  # fmt: skip
    sizes, written = s.sizes()[2:], s.tape.sizes(s.node.outputs[0])[2:]
    known = [
        None if a is None or b is None else a - ((b - 1) * t - p - q + e + 1)
        for a, b, t, p, q, e in zip(sizes, written, w.steps, w.before, w.after, w.spans, strict=True)
    ]
    # With ceil_mode ONNX and those that run it do not agree on how many windows there are.
    left = [n for n in known if n is not None and n >= 0 and not s.held("ceil_mode", 0)]
    if len(left) == rank and all(n < max(t, d) for n, t, d in zip(left, w.steps, w.holes, strict=True)):
        return s.op("ConvTranspose", gradient, weight, pads=w.pads, output_padding=left, **names)
    # What its last step leaves, or where it reaches beyond the input, shows when it runs.
    whole = s.op("ConvTranspose", gradient, weight, pads=[*w.before, *[0] * rank], **names)
    inner = [s.op("Slice", s.op("Shape", v), s.c([2]), s.c([2 + rank]), s.c([0])) for v in (s.x, whole)]
    behind = s.op("Sub", *inner)
    return s.op("Pad", whole, s.tape.joined(s.c([0] * (4 + rank)), behind))


def _flipped(s: Site, group: int, rank: int) -> ir.Value:
    """A kernel turned around, with inputs and outputs exchanged."""
    weight, sizes = s.number(1), s.sizes(1)
    outs, ins = sizes[:2]
    if outs is None or ins is None:
        raise Unruled("how many channels it has is not known")
    split, joined = [group, outs // group, ins, *_kernel(s)], [group * ins, outs // group, *_kernel(s)]
    if weight is not None:
        parts = weight.reshape(split).swapaxes(1, 2)
        return s.c(np.ascontiguousarray(np.flip(parts, axis=tuple(range(3, 3 + rank))).reshape(joined)))
    exchanged = s.tape.transposed(s.op("Reshape", s.at(1), s.c(split)), [0, 2, 1, *range(3, 3 + rank)])
    if any(k > 1 for k in _kernel(s)):
        every = [s.c([n] * rank) for n in (-1, -(2**31), -1)]
        exchanged = s.op("Slice", exchanged, *every[:2], s.c(list(range(3, 3 + rank))), every[2])
    return s.op("Reshape", exchanged, s.c(joined))


def _of_input(s: Site, w: Window, group: int) -> ir.Value:
    """By a convolution with the kernel turned around, where no step is left out; else by one transposed."""
    rank = len(w.kernel)
    turned = [e - p for e, p in zip([*w.spans, *w.spans], w.pads, strict=True)]
    if not w.dense or min(turned, default=0) < 0:
        return scattered(s, s.g, s.at(1), w, group)
    return s.op(
        "Conv", s.g, _flipped(s, group, rank), group=group, dilations=list(w.holes), pads=turned,
        kernel_shape=list(w.kernel), strides=[1] * rank,
    )  # fmt: skip


def _of_weight(s: Site, w: Window, group: int, image: ir.Value, moved: ir.Value) -> ir.Value:
    """A convolution of the image with the gradient as the kernel, whose steps are the kernel's holes."""
    rank = len(w.kernel)
    sides = list(range(rank))

    def exchanged(value: ir.Value, *, grouped: bool) -> ir.Value:
        """Channels in front, samples behind: of the image, each group's samples beside each other."""
        value = s.op("Reshape", value, s.tape.joined(s.c([0, group, -1]), _sides(s, value, rank)))
        order = [2, 1, 0] if grouped else [1, 2, 0]
        value = s.tape.transposed(value, [*order, *(3 + i for i in sides)])
        heads = s.op("Slice", s.op("Shape", value), s.c([0]), s.c([3]), s.c([0]))
        parts = s.tape.ops("Split", heads, s.c([1, 1, 1]), count=3, axis=0)
        front = (
            (parts[0], s.op("Mul", parts[1], parts[2]))
            if grouped
            else (s.op("Mul", parts[0], parts[1]), parts[2])
        )
        return s.op("Reshape", value, s.tape.joined(*front, _sides(s, value, rank)))

    found = s.op(
        "Conv", exchanged(image, grouped=True), exchanged(moved, grouped=False), group=group,
        dilations=list(w.steps), strides=list(w.holes), pads=w.pads,
    )  # fmt: skip
    found = s.tape.transposed(found, [1, 0, *(2 + i for i in sides)])
    # What the last step leaves makes the kernel longer than it is.
    axes = [2 + i for i in sides]
    return s.op("Slice", found, s.c([0] * rank), s.c(list(w.kernel)), s.c(axes))


def _sides(s: Site, value: ir.Value, rank: int) -> ir.Value:
    return s.op("Slice", s.op("Shape", value), s.c([-rank]), s.c([2**31]), s.c([0]))


def _of_bias(s: Site) -> ir.Value:
    rank = len(s.sizes())
    return s.tape.summed(s.g, [0, *range(2, rank)], keep=False)


def _conv(s: Site) -> _Found:
    group, w = int(s.held("group", 1)), window(s, _kernel(s))
    found: _Found = [None] * len(s.node.inputs)
    if s.asks(0):
        found[0] = _of_input(s, w, group)
    if s.asks(1):
        found[1] = _of_weight(s, w, group, s.x, s.g)
    if s.asks(2):
        found[2] = _of_bias(s)
    return found


def _conv_transpose(s: Site) -> _Found:
    """By the convolution that it is the transpose of."""
    kernel, group = _kernel(s), int(s.held("group", 1))
    rank = len(kernel)
    steps, holes = (tuple(int(v) for v in s.held(n, [1] * rank)) for n in ("strides", "dilations"))
    more = list(s.held("output_padding", [0] * rank))
    pads = list(s.held("pads", [0] * 2 * rank))
    auto = s.held("auto_pad", "NOTSET") or "NOTSET"
    if auto != "NOTSET" or s.held("output_shape", None):
        pads = _fitted(s, kernel, steps, holes, more, upper=auto == "SAME_UPPER", valid=auto == "VALID")
    found: _Found = [None] * len(s.node.inputs)
    w = Window(kernel, steps, holes, tuple(pads[:rank]), tuple(pads[rank:]))
    if s.asks(0):
        # Padding may be negative where the output is larger than what is written into it.
        fitting = [p - m for p, m in zip(w.after, more, strict=True)]
        whole = s.g
        if min([*w.before, *fitting], default=0) < 0:
            cut = [min(0, p) for p in (*w.before, *fitting)]
            ends = [0, 0, *cut[:rank], 0, 0, *cut[rank:]]
            whole = s.op("Pad", s.g, s.c(ends))
        found[0] = s.op(
            "Conv", whole, s.at(1), group=group, kernel_shape=list(kernel), strides=list(steps), dilations=list(holes),
            pads=[max(0, p) for p in (*w.before, *fitting)],
        )  # fmt: skip
    if s.asks(1):
        if group != 1 or any(more):
            raise Unruled("its weight is no constant")
        found[1] = _of_weight(s, w, 1, s.g, s.x)
    if s.asks(2):
        found[2] = _of_bias(s)
    return found


def _fitted(
    s: Site, kernel: tuple[int, ...], steps: tuple[int, ...], holes: tuple[int, ...], more: list[int], *,
    upper: bool, valid: bool,
) -> list[int]:  # fmt: skip
    """The padding that follows from the sizes of input and output."""
    rank = len(kernel)
    if valid:
        return [0] * 2 * rank
    before, after = [], []
    written = s.held("output_shape", None)
    told = (
        list(written)[-rank:]
        if written
        else [None if n is None else n * t for n, t in zip(s.sizes()[2:], steps, strict=True)]
    )
    for size, out, k, t, d, m in zip(s.sizes()[2:], told, kernel, steps, holes, more, strict=True):
        if size is None or out is None:
            raise Unruled("its padding follows from a size that is not known")
        total = t * (size - 1) + m + d * (k - 1) + 1 - out
        less, other = total // 2, total - total // 2
        before.append(less if upper else other)
        after.append(other if upper else less)
    return before + after


RULES: Rules = {"Conv": _conv, "ConvTranspose": _conv_transpose}
