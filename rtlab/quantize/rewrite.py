"""Expressing INT8 and FP8 in the graph: quantize and dequantize pairs, and weights stored in the type."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np
import onnx_ir as ir

from rtlab.core.precision import NumberFormat, compute_amax
from rtlab.core.scale import Scale
from rtlab.core.variant import Granularity, Precision
from rtlab.errors import CalibrationError, ModelError
from rtlab.quantize import passes
from rtlab.quantize.placement import Edge, QuantizationPlan

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rtlab.quantize.edit import Edit


#: Rounds a weight given the nodes that read it, its scales in its shape and the precision; None for to nearest.
Rebuild = Callable[
    [Sequence[str], "NDArray[np.float32]", "NDArray[np.float32]", Precision], "NDArray[np.float64] | None"
]
_LARGEST = float(np.finfo(np.float32).max)
#: Elements of a weight that are quantized at a time.
_PART = 1 << 18
#: Precisions of activations and weights.
QUANTIZED = tuple(p for p in Precision if p.stored.scaled == "activations")


def share_scales(plan: QuantizationPlan, scales: Mapping[str, Scale]) -> Mapping[str, Scale]:
    """The largest of their scales for values that a Concat or a maximum joins."""
    shared_scales = dict(scales)
    for group in plan.groups:
        members = [v for v in group if v in scales]
        widest = max((scales[v] for v in members if not scales[v].note), key=lambda s: s.amax, default=None)
        if widest is None:
            continue
        for value in members:
            if scales[value] is not widest:
                why = "the largest of those that are joined"
                choice = widest.choice and dataclasses.replace(widest.choice, why=why)
                note = scales[value].note
                shared_scales[value] = dataclasses.replace(widest, note=note, choice=choice, doubt="")
    return shared_scales


def insert_pairs(
    plan: QuantizationPlan,
    scales: Mapping[str, Scale],
    precision: Precision = Precision.INT8,
    weights: Granularity = "channel",
    check: Callable[[], object] = lambda: None,
    *,
    rebuild: Rebuild | None = None,
    halves: Mapping[str, Precision] | None = None,
) -> passes.Pass:
    """A quantize and dequantize pair on each activation of a plan, and its weights stored in INT8 or FP8.

    Activations are symmetric per tensor with zero point 0 and a scalar scale. Weights are symmetric with one
    scale per output channel or per tensor, and have no zero point; biases keep their type. Scales have the type of
    what is quantized. Applied, it raises CalibrationError where a scale is zero or not finite, and ModelError where a
    weight holds NaN or infinity.

    Args:
        plan: What to quantize, by ``rtlab.quantize.placement.plan``.
        scales: A threshold for each activation of the plan. Values that share a scale get the largest.
        precision: INT8 or FP8.
        weights: Granularity of the weights' scales.
        check: Called before each weight; it may raise.
        rebuild: Rounds weights that are not rounded to nearest.
        halves: Nodes that will read 16 bits, so that scales are numbers of that type.
    """
    stored = precision.stored

    def find_scale_type(edit: Edit, value: str, node: str) -> tuple[NumberFormat, ir.DataType]:
        """The numbers that a scale has to be one of, and the type that it is stored in."""
        kind = edit.values[value].dtype or ir.DataType.FLOAT
        if kind == ir.DataType.FLOAT:
            return (halves or {}).get(node, Precision.FP32).stored, kind
        return next(p for p in Precision if p.stored.dtype == kind.numpy()).stored, kind

    def edit_graph(edit: Edit) -> None:
        validate_scales({v: scales[v] for v in plan.activations})
        shared_scales = share_scales(plan, scales)
        tensors = edit.model.known
        zero = edit.add_constant("zero_point", np.zeros((), stored.dtype))
        for value, edges in plan.activations.items():
            amax_scale = dataclasses.replace(shared_scales[value], largest=stored.largest).scale
            numbers, kind = find_scale_type(edit, value, edges[0][0])
            scale = round_scale(np.array(amax_scale, np.float32), numbers).astype(kind.numpy())
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
        numbers, kind = find_scale_type(edit, value, node)
        values, scale = quantize_weight(require_finite(weight, value, node), axis, precision, numbers)
        if rebuild is not None:
            spread = np.broadcast_to(_align_scale(scale, axis, weight.ndim), weight.shape)
            rebuilt_weight = rebuild([n for n, _ in edges], weight, spread, precision)
            values = values if rebuilt_weight is None else rebuilt_weight.astype(values.dtype)
        name = f"{node}/weight"
        scale = scale.astype(kind.numpy())
        inputs = [edit.add_constant(f"{name}/{precision}", values), edit.add_constant(f"{name}/scale", scale)]
        attributes = {} if axis is None else {"axis": axis}
        return edit.insert(
            "DequantizeLinear", f"{name}/DequantizeLinear", inputs,
            origin=node, kind=kind, before=node, attrs=attributes,
        )  # fmt: skip

    return passes.Pass(f"{precision.upper()} pairs", edit_graph, passes.INSERTION_PROMISES, stored.opset)


def _align_scale(scale: NDArray[np.float32], axis: int | None, rank: int) -> NDArray[np.float32]:
    """Scales of channels in a shape that broadcasts over the weight."""
    return scale if axis is None else scale.reshape([-1 if i == axis else 1 for i in range(rank)])


def round_scale(scale: NDArray[np.float32], numbers: NumberFormat) -> NDArray[np.float32]:
    """Scales as a type of 16 bits has them, to nearest; none of them becomes zero or infinite."""
    if numbers.bits != 16:
        return scale
    least = float(ml_dtypes.finfo(numbers.dtype).smallest_subnormal)  # type: ignore[no-untyped-call]
    rounded_scale: NDArray[np.float32] = np.clip(scale, least, numbers.largest).astype(numbers.dtype)
    return rounded_scale.astype(np.float32)


def quantize_weight(
    weight: NDArray[np.float32],
    axis: int | None,
    precision: Precision = Precision.INT8,
    scales: NumberFormat = Precision.FP32.stored,
) -> tuple[NDArray[Any], NDArray[np.float32]]:
    """Quantize symmetrically: ``q = round(w / s)`` with ``s = amax / largest``, to nearest, ties to even.

    Args:
        weight: Finite numbers.
        axis: The channels' axis, or None for one scale for all.
        precision: INT8, whose largest number is 127, or FP8 E4M3, whose largest is 448.
        scales: The type of the scales.

    Returns:
        The quantized numbers in the weight's shape, and FP32 scales of shape ``(channels,)`` or ``()``. A channel
        of zeros gets the scale ``1 / largest``.
    """
    kind = precision.stored
    amax = compute_amax(weight, None if axis is None else tuple(i for i in range(weight.ndim) if i != axis))
    scale = np.where(amax == 0, np.float32(1), amax) / np.float32(kind.largest)
    # The quotient of a subnormal amax would be no scale.
    scale = round_scale(np.maximum(scale, np.finfo(np.float32).tiny).astype(np.float32), scales)
    spread = np.broadcast_to(_align_scale(scale, axis, weight.ndim), weight.shape)
    if not weight.ndim:
        return kind.quantize(weight / spread), scale
    quantized_weight = np.empty(weight.shape, kind.dtype)
    # In parts that stay in the processor's cache, it takes half of the time, and no further copies of the weight.
    rows = max(1, _PART * len(weight) // max(1, weight.size))
    for start in range(0, len(weight), rows):
        part = slice(start, start + rows)
        quantized_weight[part] = kind.quantize(weight[part] / spread[part])
    return quantized_weight, scale


def require_finite(weight: NDArray[np.float32], value: str, node: str) -> NDArray[np.float32]:
    """The weight itself.

    Raises:
        ModelError: it holds NaN or infinity.
    """
    if not np.isfinite(weight).all():
        raise ModelError(
            f'Cannot quantize weight "{value}" of node "{node}": it holds NaN or infinity. '
            "Repair the weight and export the model again."
        )
    return weight


def validate_scales(scales: Mapping[str, Scale]) -> None:
    """Raise ``CalibrationError`` where a threshold is zero or not finite."""
    for value, scale in scales.items():
        amax = scale.amax
        if not 0 < amax <= _LARGEST:
            raise CalibrationError(
                f'Cannot quantize value "{value}": its threshold is {amax}, and a scale is a positive float32. '
                "Give another scale, or leave this value out to keep its readers unquantized."
            )


def _insert_pair(edit: Edit, value: ir.Value, first: Edge, scale: NDArray[Any], zero: ir.Value) -> ir.Value:
    node, position = first
    name = f"{node}/input" if position == 0 else f"{node}/input{position}"
    size = edit.add_constant(f"{name}/scale", scale)
    place: dict[str, Any] = {"origin": node, "before": node}
    q = edit.insert("QuantizeLinear", f"{name}/QuantizeLinear", [value, size, zero], kind=zero.dtype, **place)
    return edit.insert("DequantizeLinear", f"{name}/DequantizeLinear", [q, size, zero], like=value, **place)


def _connect(edit: Edit, edges: tuple[Edge, ...], value: ir.Value) -> None:
    for node, position in edges:
        edit.set_input(node, position, value)
