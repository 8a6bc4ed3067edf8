"""Rules of normalizations and of softmax."""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir

from rtlab.adjoint.site import Rule, Rules, Site
from rtlab.adjoint.tape import Unruled

_Found = list["ir.Value | None"]
#: First opset whose softmax has one axis, and whose GroupNormalization scales channels.
_ONE_AXIS, _BY_CHANNEL = 13, 21


def _in_channels(s: Site, value: ir.Value, rank: int) -> ir.Value:
    """A vector over channels, along the second of several dimensions."""
    return s.op("Reshape", value, s.c([1, -1, *[1] * (rank - 2)]))


def _by_channel(s: Site, value: ir.Value) -> ir.Value:
    """Summed over all dimensions but the channels."""
    return s.tape.summed(value, [0, *range(2, s.rank)], keep=False)


def _batch(s: Site) -> _Found:
    """Each channel times a factor."""
    if s.held("training_mode", 0) or any(s.wanted[3:]):
        raise Unruled("its statistics are no constants")
    deviation = s.op("Sqrt", s.add(s.at(4), float(s.held("epsilon", 1e-5))))
    factor = _in_channels(s, s.op("Div", s.at(1), deviation), s.rank)
    found: _Found = [s.mul(s.g, factor), *[None] * (len(s.node.inputs) - 1)]
    if s.asks(1):
        centred = s.op("Sub", s.x, _in_channels(s, s.at(3), s.rank))
        found[1] = s.op("Div", _by_channel(s, s.mul(s.g, centred)), deviation)
    if s.asks(2):
        found[2] = _by_channel(s, s.g)
    return found


def _deviation(s: Site, centred: ir.Value, axes: Sequence[int], epsilon: float) -> ir.Value:
    return s.op("Sqrt", s.add(s.tape.mean(s.mul(centred, centred), axes), epsilon))


def _normal(
    s: Site, x: ir.Value, axes: Sequence[int], epsilon: float, *, centre: bool = True
) -> tuple[ir.Value, ir.Value]:
    """What a normalization makes before it scales, and what it divides by."""
    centred = s.op("Sub", x, s.tape.mean(x, axes)) if centre else x
    deviation = _deviation(s, centred, axes, epsilon)
    return s.op("Div", centred, deviation), deviation


def _through(
    s: Site,
    gradient: ir.Value,
    normal: tuple[ir.Value, ir.Value],
    axes: Sequence[int],
    *,
    centre: bool = True,
) -> ir.Value:
    """What is left of a gradient without its mean and without its part along what is normalized."""
    shape, deviation = normal
    along = s.mul(shape, s.tape.mean(s.mul(gradient, shape), axes))
    level = s.op("Sub", gradient, s.tape.mean(gradient, axes)) if centre else gradient
    return s.op("Div", s.op("Sub", level, along), deviation)


def _layered(*, centre: bool) -> Rule:
    def rule(s: Site) -> _Found:
        axes = list(range(int(s.held("axis", -1)) % s.rank, s.rank))
        normal = _normal(s, s.x, axes, float(s.held("epsilon", 1e-5)), centre=centre)
        scaled = s.mul(s.g, s.at(1))
        found: _Found = [_through(s, scaled, normal, axes, centre=centre)]
        found += [None] * (len(s.node.inputs) - 1)
        if s.asks(1):
            found[1] = s.narrowed(s.mul(s.g, normal[0]), 1)
        if s.asks(2):
            found[2] = s.narrowed(s.g, 2)
        return found

    return rule


def _instance(s: Site) -> _Found:
    axes = list(range(2, s.rank))
    normal = _normal(s, s.x, axes, float(s.held("epsilon", 1e-5)))
    found: _Found = [_through(s, s.mul(s.g, _in_channels(s, s.at(1), s.rank)), normal, axes), None, None]
    if s.asks(1):
        found[1] = _by_channel(s, s.mul(s.g, normal[0]))
    if s.asks(2):
        found[2] = _by_channel(s, s.g)
    return found


def _group(s: Site) -> _Found:
    """As instances of one channel, after the channels of a group are put behind each other."""
    if any(s.wanted[1:]):
        raise Unruled("its scale is no constant")
    groups, scale = int(s.held("num_groups", 1)), s.at(1)
    if s.tape.opset < _BY_CHANNEL:
        # One number for a group.
        split = s.op("Reshape", s.g, s.c([0, groups, -1]))
        scaled = s.mul(split, s.op("Reshape", scale, s.c([1, -1, 1])))
    else:
        scaled = s.op("Reshape", s.mul(s.g, _in_channels(s, scale, s.rank)), s.c([0, groups, -1]))
    normal = _normal(s, s.op("Reshape", s.x, s.c([0, groups, -1])), [2], float(s.held("epsilon", 1e-5)))
    return [s.tape.like(_through(s, scaled, normal, [2]), s.raw(0)), None, None]


def _mean_variance(s: Site) -> ir.Value:
    axes = [int(a) % s.rank for a in s.held("axes", [0, 2, 3])]
    return _through(s, s.g, _normal(s, s.x, axes, 1e-9), axes)


def _norm_of(s: Site) -> ir.Value:
    """Divided by the sum of amounts, or by its root's like, along an axis."""
    axis, power = int(s.held("axis", -1)) % s.rank, int(s.held("p", 2))
    if power == 2:
        length = s.op("Sqrt", s.tape.summed(s.mul(s.x, s.x), [axis], keep=True))
        rising = s.y
    else:
        length = s.tape.summed(s.op("Abs", s.x), [axis], keep=True)
        rising = s.op("Sign", s.x)
    along = s.tape.summed(s.mul(s.g, s.y), [axis], keep=True)
    return s.op("Div", s.op("Sub", s.g, s.mul(rising, along)), length)


def _response(s: Site) -> ir.Value:
    """Each channel's share, and what it adds to the sum of squares of its neighbours."""
    size, alpha = int(s.held("size", 1)), float(s.held("alpha", 1e-4))
    beta, bias = float(s.held("beta", 0.75)), float(s.held("bias", 1.0))
    # The neighbours of one channel: so many before, so many behind; of those that it is a neighbour of, reversed.
    near = [(size - 1) // 2, size // 2]
    around = s.add(s.mul(_neighbours(s, s.mul(s.x, s.x), *near), alpha / size), bias)
    factor = s.op("Pow", around, s.c(-beta))
    shared = s.op("Div", s.mul(s.g, s.y), around)
    back = s.mul(_neighbours(s, shared, *near[::-1]), 2 * alpha * beta / size)
    return s.op("Sub", s.mul(s.g, factor), s.mul(s.x, back))


def _neighbours(s: Site, value: ir.Value, before: int, behind: int) -> ir.Value:
    """The sum over each channel's neighbours: a pool along the channels."""
    flat = s.op("Reshape", value, s.tape.joined(s.c([0, 1]), s.tape.size(s.raw(0), 1), s.c([-1])))
    size = before + behind + 1
    mean = s.op(
        "AveragePool", flat, kernel_shape=[size, 1], strides=[1, 1], pads=[before, 0, behind, 0], count_include_pad=1
    )  # fmt: skip
    return s.tape.like(s.mul(mean, float(size)), s.raw(0))


def _rows(s: Site) -> tuple[ir.Value, ir.Value, int]:
    """The gradient, what is written, and the axis of a softmax; before opset 13 all from an axis on are one."""
    old = s.tape.opset < _ONE_AXIS
    axis = int(s.held("axis", 1 if old else -1)) % s.rank
    if not old or axis == s.rank - 1:
        return s.g, s.y, axis
    flat = [s.op("Flatten", v, axis=axis) for v in (s.g, s.y)]
    return flat[0], flat[1], 1


def _softmax(s: Site) -> ir.Value:
    g, y, axis = _rows(s)
    inner = s.tape.summed(s.mul(g, y), [axis], keep=True)
    found = s.mul(s.op("Sub", g, inner), y)
    return found if g is s.g else s.tape.like(found, s.raw(0))


def _log_softmax(s: Site) -> ir.Value:
    g, y, axis = _rows(s)
    found = s.op("Sub", g, s.mul(s.op("Exp", y), s.tape.summed(g, [axis], keep=True)))
    return found if g is s.g else s.tape.like(found, s.raw(0))


RULES: Rules = {
    "BatchNormalization": _batch, "LayerNormalization": _layered(centre=True),
    "RMSNormalization": _layered(centre=False), "SimplifiedLayerNormalization": _layered(centre=False),
    "InstanceNormalization": _instance, "GroupNormalization": _group,
    "MeanVarianceNormalization": _mean_variance, "LpNormalization": _norm_of, "LRN": _response,
    "Softmax": _softmax, "LogSoftmax": _log_softmax,
}  # fmt: skip
