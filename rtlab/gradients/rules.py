"""Rules of operators other than convolutions and pools: one for each, from gradients of outputs to those of inputs."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence

import numpy as np
import onnx_ir as ir

from rtlab.gradients.conv import CONVOLUTION_RULES, scatter_add
from rtlab.gradients.tape import REAL, InputGradients, NotDifferentiable, Rule, Rules, VjpContext

#: What whole numbers of a type may be.
_INTEGER_RANGES = {
    ir.DataType.INT8: (-128, 127), ir.DataType.UINT8: (0, 255), ir.DataType.INT4: (-8, 7), ir.DataType.UINT4: (0, 15),
    ir.DataType.INT16: (-32768, 32767), ir.DataType.UINT16: (0, 65535),
}  # fmt: skip
#: Where a type with a few bits becomes infinite, or is clipped.
_LARGEST = {
    ir.DataType.FLOAT16: 65520.0, ir.DataType.FLOAT8E4M3FN: 464.0, ir.DataType.FLOAT8E5M2: 61440.0,
    ir.DataType.FLOAT4E2M1: 6.5,
}  # fmt: skip


def _above(s: VjpContext, value: ir.Value, bound: float) -> ir.Value:
    return s.tape.cast_mask(s.op("Greater", value, s.c(bound)))


def _below(s: VjpContext, value: ir.Value, bound: float) -> ir.Value:
    return s.tape.cast_mask(s.op("Less", value, s.c(bound)))


def _subtract_from(s: VjpContext, number: float, value: ir.Value) -> ir.Value:
    """A number minus a value."""
    return s.op("Sub", s.c(number), value)


def _piecewise_slope(s: VjpContext, low: ir.Value) -> ir.Value:
    """One above zero, another slope below."""
    return s.op("Where", s.op("Greater", s.x, s.c(0.0)), s.c(1.0), low)


def _prelu(s: VjpContext) -> InputGradients:
    gradients: InputGradients = [s.mul(s.g, _piecewise_slope(s, s.at(1))), None]
    if s.needs_gradient(1):
        gradients[1] = s.unbroadcast(s.mul(s.g, s.op("Min", s.x, s.c(0.0))), 1)
    return gradients


def _hard_sigmoid(s: VjpContext) -> ir.Value:
    inside = s.mul(_above(s, s.y, 0.0), _below(s, s.y, 1.0))
    return s.mul(inside, float(s.get_attribute("alpha", 0.2)))


def _hard_swish(s: VjpContext) -> ir.Value:
    inside = s.op("Where", s.op("Less", s.x, s.c(3.0)), s.add(s.mul(s.x, 1 / 3), 0.5), s.c(1.0))
    return s.mul(inside, _above(s, s.x, -3.0))


def _swish(s: VjpContext) -> ir.Value:
    x, alpha = s.x, float(s.get_attribute("alpha", 1.0))
    gate = s.op("Sigmoid", s.mul(x, alpha) if alpha != 1 else x)
    return s.mul(gate, s.add(s.mul(s.mul(x, alpha), _subtract_from(s, 1.0, gate)), 1.0))


def _mish(s: VjpContext) -> ir.Value:
    inner = s.op("Tanh", s.op("Softplus", s.x))
    rising = s.mul(_subtract_from(s, 1.0, s.mul(inner, inner)), s.op("Sigmoid", s.x))
    return s.add(inner, s.mul(s.x, rising))


def _gelu(s: VjpContext) -> ir.Value:
    x = s.x
    square = s.mul(x, x)
    if s.get_attribute("approximate", "none") == "tanh":
        root = math.sqrt(2 / math.pi)
        inner = s.op("Tanh", s.mul(s.mul(x, s.add(s.mul(square, 0.044715), 1.0)), root))
        rising = s.mul(x, s.add(s.mul(square, 3 * 0.044715 * root), root))
        curved = s.mul(_subtract_from(s, 1.0, s.mul(inner, inner)), rising)
        return s.mul(s.add(s.add(inner, curved), 1.0), 0.5)
    half = s.add(s.mul(s.op("Erf", s.mul(x, math.sqrt(0.5))), 0.5), 0.5)
    bell = s.op("Exp", s.mul(square, -0.5))
    return s.add(half, s.mul(s.mul(x, bell), 1 / math.sqrt(2 * math.pi)))


def _clip(s: VjpContext) -> InputGradients:
    """Between the bounds; bounds that are computed get the gradient of what they cut off."""
    bounds = [i for i in (1, 2) if s.has(i)]
    inside, outside = {1: "Greater", 2: "Less"}, {1: "Less", 2: "Greater"}
    masks = [s.tape.cast_mask(s.op(inside[i], s.x, s.at(i))) for i in bounds]
    gradients: InputGradients = [s.mul(s.g, functools.reduce(s.mul, masks)) if masks else s.g, None, None]
    for i in bounds:
        if s.needs_gradient(i):
            cut = s.mul(s.g, s.tape.cast_mask(s.op(outside[i], s.x, s.at(i))))
            gradients[i] = s.tape.reduce_sum(cut, list(range(s.rank)), keep=False)
    return gradients


def _cast(s: VjpContext) -> ir.Value | None:
    """As it is where the type holds it: the slope of rounding is taken to be that of the values rounded."""
    to = ir.DataType(int(s.get_attribute("to", int(REAL))))
    if to in _LARGEST and s.raw(0).dtype != to:
        return s.mul(s.g, _below(s, s.op("Abs", s.x), _LARGEST[to]))
    return s.g if to.is_floating_point() else None


def _quantize(s: VjpContext) -> ir.Value:
    """As it is where it is rounded, and zero where it is clipped."""
    kind, scale, point = s.node.outputs[0].dtype, s.constant_value(1), s.constant_value(2)
    has_range = kind in _INTEGER_RANGES or kind in _LARGEST
    if scale is None or kind is None or not has_range or s.get_attribute("block_size", 0):
        return s.g
    if kind in _INTEGER_RANGES:
        zero = np.zeros(()) if point is None else np.asarray(point, np.float64)
        limits = [_INTEGER_RANGES[kind][0] - 0.5 - zero, _INTEGER_RANGES[kind][1] + 0.5 - zero]
    else:
        limits = [np.asarray(-_LARGEST[kind]), np.asarray(_LARGEST[kind])]
    bounds = []
    for limit in limits:
        bound = limit * np.asarray(scale, np.float64)
        shape = [] if bound.size == 1 else [1] * s.rank
        if shape:
            shape[int(s.get_attribute("axis", 1))] = -1
        bounds.append(s.c(bound.reshape(shape)))
    above, below = s.op("Greater", s.x, bounds[0]), s.op("Less", s.x, bounds[1])
    return s.mul(s.g, s.tape.cast_mask(s.op("And", above, below)))


def _add(s: VjpContext) -> InputGradients:
    return [s.unbroadcast(s.g, i) if w else None for i, w in enumerate(s.needs_input_gradient)]


def _mean(s: VjpContext) -> InputGradients:
    share = s.mul(s.g, 1.0 / len(s.node.inputs))
    return [s.unbroadcast(share, i) if w else None for i, w in enumerate(s.needs_input_gradient)]


def _sub(s: VjpContext) -> InputGradients:
    one, other = _add(s)
    return [one, None if other is None else s.op("Neg", other)]


def _mul(s: VjpContext) -> InputGradients:
    return [
        s.unbroadcast(s.mul(s.g, s.at(1 - i)), i) if w else None for i, w in enumerate(s.needs_input_gradient)
    ]


def _div(s: VjpContext) -> InputGradients:
    over = s.op("Div", s.g, s.at(1))
    one = s.unbroadcast(over, 0) if s.needs_gradient(0) else None
    return [one, s.unbroadcast(s.op("Neg", s.mul(over, s.y)), 1) if s.needs_gradient(1) else None]


def _pow(s: VjpContext) -> InputGradients:
    x, power = s.x, s.constant_value(1)
    gradients: InputGradients = [None, None]
    if s.needs_gradient(0):
        if power is not None and power.size == 1:
            number = float(power.reshape(())[()])
            less = {1.0: s.c(1.0), 2.0: x}.get(number) or s.op("Pow", x, s.c(number - 1))
            slope = s.mul(less, number)
        else:
            slope = s.mul(s.op("Pow", x, s.add(s.at(1), -1.0)), s.at(1))
        gradients[0] = s.unbroadcast(s.mul(s.g, slope), 0)
    if s.needs_gradient(1):
        gradients[1] = s.unbroadcast(s.mul(s.g, s.mul(s.y, s.op("Log", x))), 1)
    return gradients


def _where(s: VjpContext) -> InputGradients:
    condition, zero = s.raw(0), s.c(0.0)
    pairs = ((s.g, zero), (zero, s.g))
    gradients = (s.unbroadcast(s.op("Where", condition, *pair), i) for i, pair in enumerate(pairs, 1))
    return [None, *gradients]


def _max_or_min(s: VjpContext) -> InputGradients:
    """Of Max and Min: to the first that equals what is written."""
    gradients: InputGradients = []
    remaining: ir.Value | None = None
    for i, w in enumerate(s.needs_input_gradient):
        mine = s.op("Equal", s.at(i), s.y)
        if remaining is not None:
            mine = s.op("And", mine, remaining)
        remaining = s.op("Not", mine) if remaining is None else s.op("And", remaining, s.op("Not", mine))
        gradients.append(s.unbroadcast(s.mul(s.g, s.tape.cast_mask(mine)), i) if w else None)
    return gradients


_SLOPES: dict[str, Callable[[VjpContext], ir.Value]] = {
    # Its output is zero or positive: the sign is the slope.
    "Relu": lambda s: s.op("Sign", s.y),
    "LeakyRelu": lambda s: _piecewise_slope(s, s.c(float(s.get_attribute("alpha", 0.01)))),
    "Elu": lambda s: _piecewise_slope(s, s.add(s.y, float(s.get_attribute("alpha", 1.0)))),
    "HardSigmoid": _hard_sigmoid, "HardSwish": _hard_swish, "Swish": _swish, "Mish": _mish, "Gelu": _gelu,
    "Sigmoid": lambda s: s.mul(s.y, _subtract_from(s, 1.0, s.y)),
    "Tanh": lambda s: _subtract_from(s, 1.0, s.mul(s.y, s.y)),
    "Erf": lambda s: s.mul(s.op("Exp", s.op("Neg", s.mul(s.x, s.x))), 2 / math.sqrt(math.pi)),
    "Softplus": lambda s: s.op("Sigmoid", s.x),
    "Exp": lambda s: s.y,
    "Sqrt": lambda s: s.op("Div", s.c(0.5), s.y),
    "Abs": lambda s: s.op("Sign", s.x),
    "Reciprocal": lambda s: s.op("Neg", s.mul(s.y, s.y)),
    "Sin": lambda s: s.op("Cos", s.x),
    "Cos": lambda s: s.op("Neg", s.op("Sin", s.x)),
}  # fmt: skip


def _transpose_matrices(s: VjpContext, value: ir.Value, rank: int) -> ir.Value:
    """A matrix, or each of several, transposed."""
    return s.tape.transpose(value, [*range(rank - 2), rank - 1, rank - 2])


def _matmul(s: VjpContext) -> InputGradients:
    """``g b^T`` and ``a^T g``; a vector is a matrix of one row, or of one column."""
    tape, a, b, g = s.tape, s.at(0), s.at(1), s.g
    ranks = [len(s.sizes(0)), len(s.sizes(1))]
    if ranks[0] == 1:
        a = tape.unsqueeze(a, [0])
        g = tape.unsqueeze(g, [-1] if ranks[1] == 1 else [-2])
    if ranks[1] == 1:
        b = tape.unsqueeze(b, [1])
        g = tape.unsqueeze(g, [-1])
    matrix_ranks = [max(r, 2) for r in ranks]
    gradients: InputGradients = [None, None]
    if s.needs_gradient(0):
        product = s.op("MatMul", g, _transpose_matrices(s, b, matrix_ranks[1]))
        gradients[0] = _sum_batch_axes(s, product, 0, ranks)
    if s.needs_gradient(1):
        if matrix_ranks[1] == 2 and matrix_ranks[0] > 2:
            # One product of all rows in place of one for each matrix, and their sum.
            product = s.op("Gemm", _flatten_rows(s, a), _flatten_rows(s, g), transA=1)
            gradients[1] = tape.reshape_like(product, s.raw(1))
        else:
            product = s.op("MatMul", _transpose_matrices(s, a, matrix_ranks[0]), g)
            gradients[1] = _sum_batch_axes(s, product, 1, ranks)
    return gradients


def _flatten_rows(s: VjpContext, value: ir.Value) -> ir.Value:
    """All rows of several matrices in one."""
    return s.op("Reshape", value, s.tape.concat(s.c([-1]), s.tape.spatial_sizes(value, 1)))


def _sum_batch_axes(s: VjpContext, gradient: ir.Value, i: int, ranks: Sequence[int]) -> ir.Value:
    """Summed over the dimensions in which one factor was broadcast to the matrices of the other."""
    if ranks[i] == 1:
        if ranks[1 - i] > 2:
            gradient = s.tape.reduce_sum(gradient, list(range(ranks[1 - i] - 2)), keep=False)
        return s.tape.reshape_like(gradient, s.raw(i))
    if ranks[1 - i] == 1:
        return gradient
    return s.tape.unbroadcast(gradient, s.raw(i), s.node.outputs[0], trailing_axes=2)


def _gemm(s: VjpContext) -> InputGradients:
    """The same with factors and transposed operands."""
    a, b, g = s.at(0), s.at(1), s.g
    alpha, beta = (float(s.get_attribute(n, 1.0)) for n in ("alpha", "beta"))
    trans_a, trans_b = (int(s.get_attribute(n, 0)) for n in ("transA", "transB"))
    gradients: InputGradients = [None] * len(s.node.inputs)
    if s.needs_gradient(0):
        pair = (b, g) if trans_a else (g, b)
        turns = (trans_b, 1) if trans_a else (0, 1 - trans_b)
        gradients[0] = s.op("Gemm", *pair, alpha=alpha, transA=turns[0], transB=turns[1])
    if s.needs_gradient(1):
        pair = (g, a) if trans_b else (a, g)
        turns = (1, trans_a) if trans_b else (1 - trans_a, 0)
        gradients[1] = s.op("Gemm", *pair, alpha=alpha, transA=turns[0], transB=turns[1])
    if s.needs_gradient(2):
        gradients[2] = s.unbroadcast(g if beta == 1 else s.mul(g, beta), 2)
    return gradients


def _einsum(s: VjpContext) -> InputGradients:
    """Of each operand, the sum over the gradient and all the others; what only it had is repeated."""
    text = str(s.get_attribute("equation", "")).replace(" ", "")
    lhs, arrow, rhs = text.partition("->")
    terms = lhs.split(",")
    if not arrow:
        rhs = "".join(sorted(c for c in set(lhs) - {","} if lhs.count(c) == 1))
    if "." in text or any(len(set(t)) < len(t) for t in (*terms, rhs)):
        raise NotDifferentiable("its equation has dots, or a diagonal")
    sizes = [dict(zip(t, s.sizes(i), strict=True)) for i, t in enumerate(terms)]
    gradients: InputGradients = []
    for i, term in enumerate(terms):
        if not s.needs_gradient(i):
            gradients.append(None)
            continue
        for letter in term:
            letter_sizes = {one[letter] for one in sizes if letter in one}
            if 1 in letter_sizes and len(letter_sizes) > 1:
                raise NotDifferentiable(f'its dimension "{letter}" is repeated')
        others = [k for k in range(len(terms)) if k != i]
        present_letters = "".join(c for c in term if c in rhs or any(c in terms[k] for k in others))
        equation = ",".join([rhs, *(terms[k] for k in others)]) + "->" + present_letters
        gradient = s.op("Einsum", s.g, *(s.at(k) for k in others), equation=equation)
        missing_axes = [k for k, c in enumerate(term) if c not in present_letters]
        if missing_axes:
            gradient = s.tape.expand_like(s.tape.unsqueeze(gradient, missing_axes), s.raw(i))
        gradients.append(gradient)
    return gradients


def _read_axes(s: VjpContext) -> list[int]:
    """The axes that a node reduces."""
    axes = s.get_attribute("axes", None)
    if axes is None and s.has(1):
        axes = s.constant_value(1)
        if axes is None:
            raise NotDifferentiable("its axes are no constant")
    if axes is not None and len(axes):
        return sorted({int(a) % s.rank for a in axes})
    return [] if int(s.get_attribute("noop_with_empty_axes", 0)) else list(range(s.rank))


def _restore_reduced_axes(s: VjpContext, value: ir.Value, axes: Sequence[int]) -> ir.Value:
    """What was reduced, or its gradient, with the axes as ones."""
    return value if int(s.get_attribute("keepdims", 1)) or not axes else s.tape.unsqueeze(value, axes)


def _make_reduction_rule(slope: Callable[[VjpContext, ir.Value, ir.Value, list[int]], ir.Value]) -> Rule:
    """The rule of a reduction, from its gradient and what it wrote with the axes as ones."""

    def rule(s: VjpContext) -> ir.Value:
        axes = _read_axes(s)
        g, y = (_restore_reduced_axes(s, v, axes) for v in (s.g, s.y))
        return s.tape.expand_like(slope(s, g, y, axes), s.raw(0))

    return rule


def _reduce_mean(s: VjpContext, g: ir.Value, _: ir.Value, axes: list[int]) -> ir.Value:
    return s.op("Div", g, s.tape.count(s.raw(0), axes)) if axes else g


def _reduce_max_or_min(s: VjpContext, g: ir.Value, y: ir.Value, axes: list[int]) -> ir.Value:
    """Shared between equals."""
    mine = s.tape.cast_mask(s.op("Equal", s.x, y))
    several = s.tape.reduce_sum(mine, axes, keep=True) if axes else mine
    return s.mul(mine, s.op("Div", g, several))


def _top_k(s: VjpContext) -> ir.Value:
    """Each of the largest, where it was."""
    axis, indices = int(s.get_attribute("axis", -1)) % s.rank, s.node.outputs[1]
    return s.op("ScatterElements", s.tape.zeros_like(s.x), indices, s.g, axis=axis)


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


#: The rule of each operator.
RULES: Rules = {
    **CONVOLUTION_RULES,
    # The gradient times the slope.
    **{kind: functools.partial(lambda slope, s: s.mul(s.g, slope(s)), slope) for kind, slope in _SLOPES.items()},
    "Log": lambda s: s.op("Div", s.g, s.x), "Neg": lambda s: s.op("Neg", s.g), "PRelu": _prelu, "Clip": _clip,
    "Cast": _cast, "QuantizeLinear": _quantize,
    # What passes numbers on, and steps, which have no slope.
    **dict.fromkeys(("Identity", "Dropout", "DequantizeLinear", "CastLike"), lambda s: s.g),
    **dict.fromkeys(("Floor", "Ceil", "Sign", "Hardmax"), lambda _: None),
    "Add": _add, "Sum": _add, "Mean": _mean, "Sub": _sub, "Mul": _mul, "Div": _div, "Pow": _pow, "Where": _where,
    "Max": _max_or_min, "Min": _max_or_min,
    "MatMul": _matmul, "Gemm": _gemm, "Einsum": _einsum,
    "ReduceSum": _make_reduction_rule(lambda _, g, __, ___: g),
    "ReduceMean": _make_reduction_rule(_reduce_mean),
    "ReduceMax": _make_reduction_rule(_reduce_max_or_min),
    "ReduceMin": _make_reduction_rule(_reduce_max_or_min),
    "ReduceL1": _make_reduction_rule(lambda s, g, _, __: s.mul(g, s.op("Sign", s.x))),
    "ReduceL2": _make_reduction_rule(lambda s, g, y, _: s.mul(s.op("Div", g, s.op("Max", y, s.c(1e-30))), s.x)),
    "ReduceSumSquare": _make_reduction_rule(lambda s, g, _, __: s.mul(s.mul(g, s.x), 2.0)),
    "ReduceLogSum": _make_reduction_rule(lambda s, g, y, _: s.op("Div", g, s.op("Exp", y))),
    "ReduceLogSumExp": _make_reduction_rule(lambda s, g, y, _: s.mul(g, s.op("Exp", s.op("Sub", s.x, y)))),
    "TopK": _top_k,
    "BatchNormalization": _batch_norm, "LayerNormalization": _make_layer_norm_rule(centre=True),
    "RMSNormalization": _make_layer_norm_rule(centre=False),
    "SimplifiedLayerNormalization": _make_layer_norm_rule(centre=False),
    "InstanceNormalization": _instance_norm, "GroupNormalization": _group_norm,
    "LRN": _local_response_norm, "Softmax": _softmax, "LogSoftmax": _log_softmax,
    **dict.fromkeys(("Reshape", "Flatten", "Squeeze", "Unsqueeze"), lambda s: s.tape.reshape_like(s.g, s.raw(0))),
    **dict.fromkeys(("Slice", "Gather", "GatherElements", "GatherND", "Tile"), _scatter_to_sources),
    "Transpose": _transpose, "Concat": _concat, "Split": _split, "Pad": _pad, "Resize": _resize,
    "Expand": lambda s: s.unbroadcast(s.g, 0), "DepthToSpace": _depth_to_space,
    "SpaceToDepth": lambda s: s.op("DepthToSpace", s.g, blocksize=int(s.get_attribute("blocksize", 1)), mode="DCR"),
    "ScatterElements": _make_scatter_rule(slices=False), "ScatterND": _make_scatter_rule(slices=True),
}  # fmt: skip
