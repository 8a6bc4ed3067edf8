"""Expressing INT8 in the graph: quantize and dequantize pairs, and weights stored as INT8."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from rtlab.errors import CalibrationError, ModelError
from rtlab.quantize.calibrators import Scale
from rtlab.quantize.edit import Edit
from rtlab.quantize.placement import Edge, constants, plan

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rtlab.core.model import Model

#: First opset in which a dequantization has one scale per channel.
_MIN_OPSET = 13


def share(model: Model, scales: Mapping[str, Scale]) -> Mapping[str, Scale]:
    """Give values that a Concat or a maximum joins the largest of their scales, as a compiler would ask for."""
    shared = dict(scales)
    for group in plan(model).groups:
        widest = max(
            (scales[v] for v in group if v in scales and not scales[v].note), key=_amax, default=None
        )
        if widest is not None:
            shared.update((v, Scale(widest.amax, scales[v].note)) for v in group if v in scales)
    return shared


def int8(model: Model, scales: Mapping[str, Scale]) -> Model:
    """The model with INT8 weights and with a quantize and dequantize pair on each activation of the plan.

    Activations are symmetric per tensor with zero point 0. Weights are stored as INT8 in [-127, 127] with one
    scale per output channel and no zero point; biases stay FP32.

    Args:
        model: Any loaded model; opsets below 13 are converted to 13.
        scales: A scale for each of ``quantizable(model)``. Values that share one get the largest.

    Raises:
        CalibrationError: a scale is missing.
        ModelError: a weight holds NaN or infinity.
        VariantError: the opset cannot be raised.
    """
    decided = plan(model)
    missing = [v for v in decided.activations if v not in scales]
    if missing:
        raise CalibrationError(
            f'Cannot quantize value "{missing[0]}": it has no scale, and {len(missing) - 1} more have none. '
            "Collect ranges of every value in rtlab.quantize.quantizable(model)."
        )
    if not decided.activations:
        return model
    shared = share(model, scales)
    known = constants(model)
    edit = Edit(model, opset=_MIN_OPSET, why='in "int8"')
    zero = edit.constant("zero_point", np.zeros((), np.int8))
    for value, edges in decided.activations.items():
        first = edges[0]
        _connect(edit, edges, _pair(edit, edit.tensors[value], first, shared[value], zero))
    for (value, axis), edges in decided.weights.items():
        weight = np.asarray(known[value].numpy(), dtype=np.float32)
        _connect(edit, edges, _weight(edit, value, weight, axis, edges[0]))
    return edit.finish()


def quantize_weight(weight: NDArray[np.float32], axis: int) -> tuple[NDArray[np.int8], NDArray[np.float32]]:
    """Quantize symmetrically per channel: ``q = clip(round_half_even(w / s), -127, 127)`` with ``s = amax / 127``.

    Returns:
        INT8 values of the weight's shape, and FP32 scales of shape ``(channels,)``. A channel of zeros gets
        the scale 1/127.
    """
    others = tuple(i for i in range(weight.ndim) if i != axis)
    amax = np.abs(weight).max(axis=others)
    scale = np.where(amax > 0, amax, np.float32(1)) / np.float32(127)
    # The quotient of a subnormal amax would be no scale at all.
    scale = np.maximum(scale, np.finfo(np.float32).tiny).astype(np.float32)
    spread = scale.reshape([-1 if i == axis else 1 for i in range(weight.ndim)])
    return np.clip(np.rint(weight / spread), -127, 127).astype(np.int8), scale


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


def _weight(edit: Edit, value: str, weight: NDArray[np.float32], axis: int, first: Edge) -> Any:
    node, _ = first
    if not np.isfinite(weight).all():
        raise ModelError(
            f'Cannot quantize weight "{value}" of node "{node}": it holds NaN or infinity. '
            "Repair the weight and export the model again."
        )
    values, scale = quantize_weight(weight, axis)
    name = f"{node}/weight"
    inputs = [edit.constant(f"{name}/int8", values), edit.constant(f"{name}/scale", scale)]
    return edit.insert(
        "DequantizeLinear", f"{name}/DequantizeLinear", inputs, origin=node, before=node, attrs={"axis": axis}
    )


def _connect(edit: Edit, edges: tuple[Edge, ...], tensor: Any) -> None:
    for node, position in edges:
        edit.nodes[node].inputs[position] = tensor


def _amax(scale: Scale) -> float:
    return scale.amax
