"""Expressing FP16 and BF16 in the graph: a typed model for compilers, and one that rounds at the same places in FP32.

ONNX Runtime's CPU kernels compute an FP16 model in FP32 and remove the casts that it inserted for that, so
such a model neither rounds nor overflows there; BF16 it lacks mostly. Pairs of explicit casts, FP32 to FP16 and
back, survive and round as they should; accumulation inside an operator stays FP32 in both.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import onnx_ir as ir

from rtlab.core.variant import Precision
from rtlab.quantize import passes
from rtlab.quantize.fp16_plan import (
    ANY_TYPE,
    BOUNDED,
    BOUNDS_ARE_INPUTS,
    EXACT,
    HalfConstants,
    HalfPlan,
    find_overflowing_fills,
    get_onnx_type,
    is_fp32,
    is_mask,
    is_masking,
)
from rtlab.quantize.placement import find_captured_values

if TYPE_CHECKING:
    from rtlab.core.model import Model
    from rtlab.core.node import Node
    from rtlab.quantize.edit import Edit


def narrow(plan: HalfPlan, constants: HalfConstants) -> passes.Pass:
    """Values of 16 bits and casts between types; each value has one type, and a cast where it is read in another.

    ``plan`` and ``constants`` were made from the graph that it is applied to, as those of ``round_values``.
    """

    def edit_graph(edit: Edit) -> None:
        _TypedModelWriter(edit, plan, constants).write()

    return passes.Pass("16-bit types", edit_graph, passes.INSERTION_PROMISES)


class _TypedModelWriter:
    """Writes the typed model."""

    def __init__(self, edit: Edit, plan: HalfPlan, constants: HalfConstants) -> None:
        model = edit.model
        self._plan, self._edit, self._constants = plan, edit, constants
        # Outputs, and values that a body reads, stay FP32.
        self._outside = find_captured_values(model) | set(model.outputs)
        #: Values in another type than their own, with whether they mask.
        self._forms: dict[tuple[str, Precision, bool], ir.Value] = {}
        self._model = model

    def write(self) -> None:
        model, plan = self._model, self._plan
        _saturate_fills(self._edit, model, plan, self._constants)
        for node in model.top:
            for i, value in enumerate(node.inputs):
                if is_fp32(model, value) and node.op not in ANY_TYPE:
                    self._narrow_input(node, i, value)
            for i, value in enumerate(node.outputs):
                if value in plan.outputs:
                    self._narrow_output(node, i, value)

    def _narrow_input(self, node: Node, i: int, value: str) -> None:
        edit, name = self._edit, f"{node.id}/input{i or ''}"
        home = self._plan.outputs.get(value, Precision.FP32)
        target = self._plan.inputs.get((node.id, i), Precision.FP32)
        if target is home and value not in self._outside:
            return
        if target is Precision.FP32 and (home is Precision.FP32 or value in self._outside):
            return
        tensor = self._constants.tensors.get(value) if target.is_half else None
        mask = tensor is not None and is_mask(node, tensor, self._constants, target)
        form = (value, target, mask)
        if form not in self._forms and tensor is not None:
            numbers = self._constants.to_half(tensor, target, as_mask=mask)
            self._forms[form] = edit.add_constant(f"{name}/{target}", numbers)
        elif form not in self._forms:
            source = self._forms.get((value, home, False), edit.values[value])
            self._forms[form] = _cast(edit, source, target, name, edit.get_origin(node.id), before=node.id)
        edit.set_input(node.id, i, self._forms[form])

    def _narrow_output(self, node: Node, i: int, value: str) -> None:
        edit, precision = self._edit, self._plan.outputs[value]
        if node.op == "Cast":
            edit.set_attribute(node.id, "to", int(get_onnx_type(precision)))
        if value not in self._outside:
            edit.retype(value, get_onnx_type(precision))
            return
        name = f"{node.id}/output{i or ''}"
        inner, outer = edit.split(value, f"{name}/{precision}")
        edit.retype(inner.name or "", get_onnx_type(precision))
        self._forms[value, precision, False] = inner
        _cast(edit, inner, Precision.FP32, name, edit.get_origin(node.id), after=node.id, output=outer)


def round_values(plan: HalfPlan, constants: HalfConstants) -> passes.Pass:
    """Values of FP32 that are rounded where ``narrow`` holds 16 bits, by a cast there and back."""

    def edit_graph(edit: Edit) -> None:
        model, tensors = edit.model, constants.tensors
        rounded_values: dict[tuple[str, Precision, bool], ir.Value] = {}
        exact = EXACT if model.opset >= BOUNDS_ARE_INPUTS else EXACT - BOUNDED
        _saturate_fills(edit, model, plan, constants)
        for node in model.top:
            for i, value in enumerate(node.inputs):
                precision = plan.inputs.get((node.id, i))
                if precision is None or plan.outputs.get(value) is precision:
                    continue
                name = f"{node.id}/input{i or ''}"
                mask = value in tensors and is_mask(node, tensors[value], constants, precision)
                form = (value, precision, mask)
                if form not in rounded_values and value in tensors:
                    values = constants.to_half(tensors[value], precision, as_mask=mask).astype(np.float32)
                    rounded_values[form] = edit.add_constant(f"{name}/rounded", values)
                elif form not in rounded_values:
                    source = edit.values[value]
                    rounded_values[form] = _round(edit, source, node.id, name, precision, before=node.id)
                edit.set_input(node.id, i, rounded_values[form])
            for i, value in enumerate(node.outputs):
                if value in plan.outputs and node.op not in exact:
                    name = f"{node.id}/output{i or ''}"
                    inner, outer = edit.split(value, f"{name}/unrounded")
                    _round(edit, inner, node.id, name, plan.outputs[value], after=node.id, output=outer)

    return passes.Pass("rounding to 16 bits", edit_graph, passes.INSERTION_PROMISES)


def _cast(edit: Edit, value: ir.Value, to: Precision, name: str, origin: str, **place: Any) -> ir.Value:
    kind = get_onnx_type(to)
    attrs = {"to": int(kind)}
    return edit.insert("Cast", f"{name}/Cast", [value], origin=origin, kind=kind, attrs=attrs, **place)


def _round(edit: Edit, value: ir.Value, node: str, name: str, precision: Precision, **ends: Any) -> ir.Value:
    output, origin = ends.pop("output", None), edit.get_origin(node)
    half = _cast(edit, value, precision, f"{name}/{precision}", origin, **ends)
    return _cast(edit, half, Precision.FP32, f"{name}/fp32", origin, output=output, **ends)


def _saturate_fills(edit: Edit, model: Model, plan: HalfPlan, constants: HalfConstants) -> None:
    """Numbers of ConstantOfShape that the type of 16 bits does not hold, as it holds them."""
    for value, precision in find_overflowing_fills(model, plan, constants).items():
        maker = model.producers[value]
        tensor = next(n for n in model.ir.graph if n.name == maker.id).attributes["value"].as_tensor()
        as_mask = all(map(is_masking, model.consumers[value]))
        numbers = constants.to_half(tensor, precision, as_mask=as_mask).astype(np.float32)
        edit.set_attribute(maker.id, "value", ir.Tensor(numbers, name=f"{maker.id}/value"))
