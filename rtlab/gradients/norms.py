"""Rules of normalizations and of softmax."""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir

from rtlab.gradients.tape import NotDifferentiable
from rtlab.gradients.vjp_context import InputGradients, Rule, Rules, VjpContext

#: First opset whose GroupNormalization scales channels.
_BY_CHANNEL = 21


def _reshape_per_channel(s: VjpContext, value: ir.Value, rank: int) -> ir.Value:
    """A vector over channels, along the second of several dimensions."""
    return s.op("Reshape", value, s.c([1, -1, *[1] * (rank - 2)]))


def _batch_norm(s: VjpContext) -> InputGradients:
    """Each channel times a factor."""
    if s.get_attribute("training_mode", 0) or any(s.needs_input_gradient[3:]):
        raise NotDifferentiable("its statistics are no constants")
    deviation = s.op("Sqrt", s.add(s.at(4), float(s.get_attribute("epsilon", 1e-5))))
    factor = _reshape_per_channel(s, s.op("Div", s.at(1), deviation), s.rank)
    gradients: InputGradients = [s.mul(s.g, factor), *[None] * (len(s.node.inputs) - 1)]
    if s.needs_gradient(1):
        centered_input = s.op("Sub", s.x, _reshape_per_channel(s, s.at(3), s.rank))
        gradients[1] = s.op("Div", s.sum_per_channel(s.mul(s.g, centered_input)), deviation)
    if s.needs_gradient(2):
        gradients[2] = s.sum_per_channel(s.g)
    return gradients


def _normalize(
    s: VjpContext, x: ir.Value, axes: Sequence[int], epsilon: float, *, centre: bool = True
) -> tuple[ir.Value, ir.Value]:
    """What a normalization makes before it scales, and what it divides by."""
    centered_input = s.op("Sub", x, s.tape.mean(x, axes)) if centre else x
    deviation = s.op("Sqrt", s.add(s.tape.mean(s.mul(centered_input, centered_input), axes), epsilon))
    return s.op("Div", centered_input, deviation), deviation


def _backward_normalize(
    s: VjpContext, gradient: ir.Value, normal: tuple[ir.Value, ir.Value], axes: Sequence[int], *, centre: bool = True
) -> ir.Value:  # fmt: skip
    """A gradient without its mean and without its part along the normalized value."""
    shape, deviation = normal
    along = s.mul(shape, s.tape.mean(s.mul(gradient, shape), axes))
    level = s.op("Sub", gradient, s.tape.mean(gradient, axes)) if centre else gradient
    return s.op("Div", s.op("Sub", level, along), deviation)


def _make_layer_norm_rule(*, centre: bool) -> Rule:
    def rule(s: VjpContext) -> InputGradients:
        axes = list(range(int(s.get_attribute("axis", -1)) % s.rank, s.rank))
        normal = _normalize(s, s.x, axes, float(s.get_attribute("epsilon", 1e-5)), centre=centre)
        scaled_gradient = s.mul(s.g, s.at(1))
        gradients: InputGradients = [_backward_normalize(s, scaled_gradient, normal, axes, centre=centre)]
        gradients += [None] * (len(s.node.inputs) - 1)
        if s.needs_gradient(1):
            gradients[1] = s.unbroadcast(s.mul(s.g, normal[0]), 1)
        if s.needs_gradient(2):
            gradients[2] = s.unbroadcast(s.g, 2)
        return gradients

    return rule


def _instance_norm(s: VjpContext) -> InputGradients:
    axes = list(range(2, s.rank))
    normal = _normalize(s, s.x, axes, float(s.get_attribute("epsilon", 1e-5)))
    scaled_gradient = s.mul(s.g, _reshape_per_channel(s, s.at(1), s.rank))
    gradients: InputGradients = [_backward_normalize(s, scaled_gradient, normal, axes), None, None]
    if s.needs_gradient(1):
        gradients[1] = s.sum_per_channel(s.mul(s.g, normal[0]))
    if s.needs_gradient(2):
        gradients[2] = s.sum_per_channel(s.g)
    return gradients


def _group_norm(s: VjpContext) -> InputGradients:
    """As instances of one channel, after the channels of a group are put behind each other."""
    if any(s.needs_input_gradient[1:]):
        raise NotDifferentiable("its scale is no constant")
    groups, scale = int(s.get_attribute("num_groups", 1)), s.at(1)
    if s.tape.opset < _BY_CHANNEL:
        # One number for a group.
        split = s.op("Reshape", s.g, s.c([0, groups, -1]))
        scaled_gradient = s.mul(split, s.op("Reshape", scale, s.c([1, -1, 1])))
    else:
        scaled_gradient = s.mul(s.g, _reshape_per_channel(s, scale, s.rank))
        scaled_gradient = s.op("Reshape", scaled_gradient, s.c([0, groups, -1]))
    grouped = s.op("Reshape", s.x, s.c([0, groups, -1]))
    normal = _normalize(s, grouped, [2], float(s.get_attribute("epsilon", 1e-5)))
    return [s.tape.reshape_like(_backward_normalize(s, scaled_gradient, normal, [2]), s.raw(0))]


def _local_response_norm(s: VjpContext) -> ir.Value:
    """Each channel's share, and what it adds to the sum of squares of its neighbours."""
    size, alpha = int(s.get_attribute("size", 1)), float(s.get_attribute("alpha", 1e-4))
    beta, bias = float(s.get_attribute("beta", 0.75)), float(s.get_attribute("bias", 1.0))
    # The neighbours of one channel: so many before, so many behind; of those that it is a neighbour of, reversed.
    near = [(size - 1) // 2, size // 2]
    denominator = s.add(s.mul(_sum_neighbours(s, s.mul(s.x, s.x), *near), alpha / size), bias)
    factor = s.op("Pow", denominator, s.c(-beta))
    scaled_gradient = s.op("Div", s.mul(s.g, s.y), denominator)
    back = s.mul(_sum_neighbours(s, scaled_gradient, *near[::-1]), 2 * alpha * beta / size)
    return s.op("Sub", s.mul(s.g, factor), s.mul(s.x, back))


def _sum_neighbours(s: VjpContext, value: ir.Value, before: int, after: int) -> ir.Value:
    """The sum over each channel's neighbours: a pool along the channels."""
    flat = s.op("Reshape", value, s.tape.concat(s.c([0, 1]), s.tape.size(s.raw(0), 1), s.c([-1])))
    size = before + after + 1
    mean = s.op(
        "AveragePool", flat, kernel_shape=[size, 1], strides=[1, 1], pads=[before, 0, after, 0], count_include_pad=1
    )  # fmt: skip
    return s.tape.reshape_like(s.mul(mean, float(size)), s.raw(0))


def _softmax(s: VjpContext) -> ir.Value:
    inner = s.tape.reduce_sum(s.mul(s.g, s.y), [int(s.get_attribute("axis", -1)) % s.rank], keep=True)
    return s.mul(s.op("Sub", s.g, inner), s.y)


def _log_softmax(s: VjpContext) -> ir.Value:
    total = s.tape.reduce_sum(s.g, [int(s.get_attribute("axis", -1)) % s.rank], keep=True)
    return s.op("Sub", s.g, s.mul(s.op("Exp", s.y), total))


RULES: Rules = {
    "BatchNormalization": _batch_norm, "LayerNormalization": _make_layer_norm_rule(centre=True),
    "RMSNormalization": _make_layer_norm_rule(centre=False),
    "SimplifiedLayerNormalization": _make_layer_norm_rule(centre=False),
    "InstanceNormalization": _instance_norm, "GroupNormalization": _group_norm,
    "LRN": _local_response_norm, "Softmax": _softmax, "LogSoftmax": _log_softmax,
}  # fmt: skip
