"""Expressing INT8 and FP8 in the graph: quantize and dequantize pairs, and weights stored in the type."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx_ir as ir

from rtlab.core.precision import NumberFormat, compute_amax
from rtlab.core.scale import Scale
from rtlab.core.variant import Granularity, Precision
from rtlab.errors import CalibrationError, ModelError
from rtlab.quantize import passes
from rtlab.quantize.blocks import iter_blocks
from rtlab.quantize.placement import Edge, QuantizationPlan

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rtlab.quantize.edit import Edit


#: Rounds the weight that some nodes read, given its scales; None where nothing better than the nearest is known.
Rebuild = Callable[
    [Sequence[str], "NDArray[np.float32]", "NDArray[np.float32]", Precision], "NDArray[np.float64] | None"
]
_LARGEST = float(np.finfo(np.float32).max)
#: Precisions of activations and weights.
QUANTIZED = tuple(p for p in Precision if p.stored.scaled == "activations")


def share_scales(plan: QuantizationPlan, scales: Mapping[str, Scale]) -> Mapping[str, Scale]:
    """Give values that a Concat or a maximum joins the largest of their scales, as a compiler would ask for."""
    shared_scales = dict(scales)
    for group in plan.groups:
        widest = max(
            (scales[v] for v in group if v in scales and not scales[v].note),
            key=lambda s: s.amax,
            default=None,
        )
        if widest is not None:
            shared_scales.update((v, _widen_scale(widest, scales[v])) for v in group if v in scales)
    return shared_scales


def _widen_scale(widest: Scale, scale: Scale) -> Scale:
    """The widest of several scales in place of a value's own, which clips no less."""
    if scale is widest:
        return scale
    choice = widest.choice and dataclasses.replace(widest.choice, why="the largest of those that are joined")
    return dataclasses.replace(widest, note=scale.note, choice=choice, doubt="")


def insert_pairs(
    plan: QuantizationPlan,
    scales: Mapping[str, Scale],
    precision: Precision = Precision.INT8,
    weights: Granularity = "channel",
    check: Callable[[], object] = lambda: None,
    *,
    rebuild: Rebuild | None = None,
) -> passes.Pass:
    """A quantize and dequantize pair on each activation of a plan, and its weights stored quantized.

    Activations are symmetric per tensor with zero point 0 and a scalar scale. Weights are symmetric with one
    scale per output channel or per tensor, and have no zero point; biases stay FP32. Applied, it raises
    CalibrationError where a scale is missing, zero or not finite, and ModelError where a weight holds NaN or infinity.

    Args:
        plan: What to quantize, by ``rtlab.quantize.placement.plan``.
        scales: A threshold for each activation of the plan. Values that share a scale get the largest.
        precision: INT8 or FP8.
        weights: Granularity of the weights' scales.
        check: Called before each weight; it may raise.
        rebuild: What rounds a weight, by the nodes that read it, with its scales in its shape; None, or what gives
            None, is to nearest.
    """
    stored = precision.stored

    def edit_graph(edit: Edit) -> None:
        shared_scales = share_scales(plan, _validate_scales(plan, scales))
        tensors = edit.model.known
        zero = edit.add_constant("zero_point", np.zeros((), stored.dtype))
        for value, edges in plan.activations.items():
            scale = dataclasses.replace(shared_scales[value], largest=stored.largest)
            _connect(edit, edges, _insert_pair(edit, edit.values[value], edges[0], scale, zero))
        for (value, axis), edges in plan.weights.items():
            check()
            weight = np.asarray(tensors[value].numpy(), dtype=np.float32)
            along = axis if weights == "channel" else None
            _connect(edit, edges, store_weight(edit, weight, along, value, edges))

    def store_weight(
        edit: Edit, weight: NDArray[np.float32], axis: int | None, value: str, edges: tuple[Edge, ...]
    ) -> ir.Value:
        node = edges[0][0]
        with np.errstate(invalid="ignore"):
            values, scale = quantize_weight(weight, axis, precision)
        # Whatever is not finite is the largest magnitude, so no weight is read once more to find it.
        if not np.isfinite(scale).all():
            raise _make_nonfinite_error(value, node)
        if rebuild is not None:
            spread = np.broadcast_to(_align_scale(scale, axis, weight.ndim), weight.shape)
            rebuilt_weight = rebuild([n for n, _ in edges], weight, spread, precision)
            values = values if rebuilt_weight is None else rebuilt_weight.astype(values.dtype)
        name = f"{node}/weight"
        return edit.insert(
            "DequantizeLinear",
            f"{name}/DequantizeLinear",
            [edit.add_constant(f"{name}/{precision}", values), edit.add_constant(f"{name}/scale", scale)],
            origin=node,
            kind=ir.DataType.FLOAT,
            before=node,
            attrs={} if axis is None else {"axis": axis},
        )

    title = precision.upper()
    needs = (passes.require_opset(stored.opset),)
    return passes.Pass(f"{title} pairs", edit_graph, passes.INSERTION_PROMISES, needs, f"rounded to {title}")


def _align_scale(scale: NDArray[np.float32], axis: int | None, rank: int) -> NDArray[np.float32]:
    """Scales of channels in a shape that fits the weight's."""
    return scale if axis is None else scale.reshape([-1 if i == axis else 1 for i in range(rank)])


def quantize_weight(
    weight: NDArray[np.float32], axis: int | None, precision: Precision = Precision.INT8
) -> tuple[NDArray[Any], NDArray[np.float32]]:
    """Quantize symmetrically: ``q = round(w / s)`` with ``s = amax / largest``, to nearest, ties to even.

    Args:
        weight: Finite numbers.
        axis: The channels' axis, or None for one scale for all.
        precision: INT8, whose largest number is 127, or FP8 E4M3, whose largest is 448.

    Returns:
        The quantized numbers in the weight's shape, and FP32 scales of shape ``(channels,)`` or ``()``. A channel
        of zeros gets the scale ``1 / largest``.
    """
    kind = precision.stored
    quantized_weight = np.empty(weight.shape, kind.dtype)
    if axis == 0:
        scale = np.empty(len(weight), np.float32)
        for rows in iter_blocks(weight.shape):
            scale[rows] = _compute_scale(_compute_amax(weight[rows], 0), kind)
            quantized_weight[rows] = _quantize_to_steps(weight[rows], 0, scale[rows], kind)
        return quantized_weight, scale
    parts = list(iter_blocks(weight.shape))
    amax = functools.reduce(np.maximum, (_compute_amax(weight[part], axis) for part in parts))
    scale = _compute_scale(amax, kind)
    for part in parts:
        quantized_weight[part] = _quantize_to_steps(weight[part], axis, scale, kind)
    return quantized_weight, scale


def _compute_amax(weight: NDArray[np.float32], axis: int | None) -> NDArray[np.float32]:
    """The largest magnitude, per channel where an axis is given."""
    return compute_amax(weight, None if axis is None else tuple(i for i in range(weight.ndim) if i != axis))


def _compute_scale(amax: NDArray[np.float32], kind: NumberFormat) -> NDArray[np.float32]:
    scale = np.where(amax == 0, np.float32(1), amax) / np.float32(kind.largest)
    # The quotient of a subnormal amax would be no scale at all.
    positive: NDArray[np.float32] = np.maximum(scale, np.finfo(np.float32).tiny).astype(np.float32)
    return positive


def _quantize_to_steps(
    weight: NDArray[np.float32], axis: int | None, scale: NDArray[np.float32], kind: NumberFormat
) -> NDArray[Any]:
    return kind.quantize(weight / _align_scale(scale, axis, weight.ndim))


def require_finite(weight: NDArray[np.float32], value: str, node: str) -> NDArray[np.float32]:
    """The weight itself.

    Raises:
        ModelError: it holds NaN or infinity.
    """
    if not all(np.isfinite(weight[part]).all() for part in iter_blocks(weight.shape)):
        raise _make_nonfinite_error(value, node)
    return weight


def _make_nonfinite_error(value: str, node: str) -> ModelError:
    return ModelError(
        f'Cannot quantize weight "{value}" of node "{node}": it holds NaN or infinity. '
        "Repair the weight and export the model again."
    )


def _validate_scales(plan: QuantizationPlan, scales: Mapping[str, Scale]) -> Mapping[str, Scale]:
    missing_values = [v for v in plan.activations if v not in scales]
    if missing_values:
        raise CalibrationError(
            f'Cannot quantize value "{missing_values[0]}": it has no scale, and {len(missing_values) - 1} more have '
            "none. Collect ranges of every value in rtlab.quantize.quantizable(model)."
        )
    for value in plan.activations:
        amax = scales[value].amax
        if not 0 < amax <= _LARGEST:
            raise CalibrationError(
                f'Cannot quantize value "{value}": its threshold is {amax}, and a scale is a positive float32. '
                "Give another scale, or leave this value out to keep its readers unquantized."
            )
    return scales


def _insert_pair(edit: Edit, value: ir.Value, first: Edge, scale: Scale, zero: ir.Value) -> ir.Value:
    node, position = first
    name = f"{node}/input" if position == 0 else f"{node}/input{position}"
    size = edit.add_constant(f"{name}/scale", np.array(scale.scale, np.float32))
    quantized_value = edit.insert(
        "QuantizeLinear",
        f"{name}/QuantizeLinear",
        [value, size, zero],
        origin=node,
        kind=zero.dtype,
        before=node,
    )
    return edit.insert(
        "DequantizeLinear",
        f"{name}/DequantizeLinear",
        [quantized_value, size, zero],
        origin=node,
        like=value,
        before=node,
    )


def _connect(edit: Edit, edges: tuple[Edge, ...], value: ir.Value) -> None:
    for node, position in edges:
        edit.set_input(node, position, value)
