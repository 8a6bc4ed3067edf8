"""Expressing INT8 and FP8 in the graph: quantize and dequantize pairs, and weights stored in the type."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np

from rtlab.core.scale import Scale
from rtlab.core.variant import Granularity, Precision
from rtlab.errors import CalibrationError, ModelError
from rtlab.quantize.edit import Edit
from rtlab.quantize.placement import Edge, Plan, plan

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rtlab.core.model import Model


@dataclasses.dataclass(frozen=True)
class _Type:
    """A quantized type: ``largest`` is the magnitude that ``amax`` becomes, ``opset`` the first that has it."""

    numpy: Any
    largest: float
    opset: int


_LARGEST = float(np.finfo(np.float32).max)
#: INT8 has one scale per channel from opset 13 on; E4M3 holds magnitudes up to 448 (OCP 8-bit floating point).
QUANTIZED: Mapping[Precision, _Type] = {
    Precision.INT8: _Type(np.int8, 127.0, 13),
    Precision.FP8: _Type(ml_dtypes.float8_e4m3fn, 448.0, 19),
}


def share(plan: Plan, scales: Mapping[str, Scale]) -> Mapping[str, Scale]:
    """Give values that a Concat or a maximum joins the largest of their scales, as a compiler would ask for."""
    shared = dict(scales)
    for group in plan.groups:
        widest = max(
            (scales[v] for v in group if v in scales and not scales[v].note), key=_amax, default=None
        )
        if widest is not None:
            shared.update((v, _shared(widest, scales[v])) for v in group if v in scales)
    return shared


def _shared(widest: Scale, own: Scale) -> Scale:
    """The widest of several scales in place of a value's own, which clips no less."""
    if own is widest:
        return own
    choice = widest.choice and dataclasses.replace(widest.choice, why="the largest of those that are joined")
    return dataclasses.replace(widest, note=own.note, choice=choice, doubt="")


def int8(model: Model, scales: Mapping[str, Scale]) -> Model:
    """The whole model in INT8, as far as it has an INT8 form: ``quantize`` by the plan of all nodes."""
    return quantize(model, plan(model), scales)


def quantize(
    model: Model,
    plan: Plan,
    scales: Mapping[str, Scale],
    *,
    precision: Precision = Precision.INT8,
    weights: Granularity = "channel",
    later: bool = False,
    check: Callable[[], object] = lambda: None,
) -> Model:
    """The model with a quantize and dequantize pair on each activation of the plan, and its weights stored quantized.

    Activations are symmetric per tensor with zero point 0 and a scalar scale. Weights are symmetric with one
    scale per output channel or per tensor, and have no zero point; biases stay FP32.

    Args:
        model: Any loaded model; lower opsets are converted to what the type needs: 13 for INT8, 19 for FP8.
        plan: What to quantize, by ``rtlab.quantize.placement.plan``.
        scales: A threshold for each activation of the plan. Values that share a scale get the largest.
        precision: INT8 or FP8.
        weights: Granularity of the weights' scales.
        later: As for ``Edit``.
        check: Called before each weight; it may raise.

    Raises:
        CalibrationError: a scale is missing, zero or not finite.
        ModelError: a weight holds NaN or infinity.
        VariantError: the opset cannot be raised.
    """
    if not plan.activations:
        return model
    shared = share(plan, _checked(plan, scales))
    kind = QUANTIZED[precision]
    known = model.known
    edit = Edit(model, opset=kind.opset, why=f'in "{precision}"', later=later)
    zero = edit.constant("zero_point", np.zeros((), kind.numpy))
    for value, edges in plan.activations.items():
        scale = dataclasses.replace(shared[value], largest=kind.largest)
        _connect(edit, edges, _pair(edit, edit.tensors[value], edges[0], scale, zero))
    for (value, axis), edges in plan.weights.items():
        check()
        weight = finite(np.asarray(known[value].numpy(), dtype=np.float32), value, edges[0][0])
        along = axis if weights == "channel" else None
        _connect(edit, edges, _weight(edit, weight, along, edges[0][0], precision))
    return edit.finish()


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
    kind = QUANTIZED[precision]
    others = None if axis is None else tuple(i for i in range(weight.ndim) if i != axis)
    amax = np.abs(weight).max(axis=others)
    scale = np.where(amax > 0, amax, np.float32(1)) / np.float32(kind.largest)
    # The quotient of a subnormal amax would be no scale at all.
    scale = np.maximum(scale, np.finfo(np.float32).tiny).astype(np.float32)
    spread = scale if axis is None else scale.reshape([-1 if i == axis else 1 for i in range(weight.ndim)])
    steps = np.clip(weight / spread, -kind.largest, kind.largest)
    return (np.rint(steps) if kind.numpy is np.int8 else steps).astype(kind.numpy), scale


def finite(weight: NDArray[np.float32], value: str, node: str) -> NDArray[np.float32]:
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


def _checked(plan: Plan, scales: Mapping[str, Scale]) -> Mapping[str, Scale]:
    missing = [v for v in plan.activations if v not in scales]
    if missing:
        raise CalibrationError(
            f'Cannot quantize value "{missing[0]}": it has no scale, and {len(missing) - 1} more have none. '
            "Collect ranges of every value in rtlab.quantize.quantizable(model)."
        )
    for value in plan.activations:
        amax = scales[value].amax
        if not 0 < amax <= _LARGEST:
            raise CalibrationError(
                f'Cannot quantize value "{value}": its threshold is {amax}, and a scale is a positive float32. '
                "Give another scale, or leave this value out to keep its readers unquantized."
            )
    return scales


def _pair(edit: Edit, tensor: Any, first: Edge, scale: Scale, zero: Any) -> Any:
    node, position = first
    name = f"{node}/input" if position == 0 else f"{node}/input{position}"
    size = edit.constant(f"{name}/scale", np.array(scale.scale, np.float32))
    quantized = edit.insert(
        "QuantizeLinear", f"{name}/QuantizeLinear", [tensor, size, zero], origin=node, before=node
    )
    return edit.insert(
        "DequantizeLinear", f"{name}/DequantizeLinear", [quantized, size, zero], origin=node, before=node
    )


def _weight(
    edit: Edit, weight: NDArray[np.float32], axis: int | None, node: str, precision: Precision
) -> Any:
    values, scale = quantize_weight(weight, axis, precision)
    name = f"{node}/weight"
    inputs = [edit.constant(f"{name}/{precision}", values), edit.constant(f"{name}/scale", scale)]
    attrs = {} if axis is None else {"axis": axis}
    return edit.insert(
        "DequantizeLinear", f"{name}/DequantizeLinear", inputs, origin=node, before=node, attrs=attrs
    )


def _connect(edit: Edit, edges: tuple[Edge, ...], tensor: Any) -> None:
    for node, position in edges:
        edit.nodes[node].inputs[position] = tensor


def _amax(scale: Scale) -> float:
    return scale.amax
