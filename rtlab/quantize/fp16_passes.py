"""Expressing FP16 and BF16 in the graph, and emulating TF32, a switch of the compiler.

FP16 and BF16 exist as a typed model for compilers, and one that rounds at the same places in FP32.

ONNX Runtime's CPU kernels compute an FP16 model in FP32 and remove the casts that it inserted for that, so
such a model neither rounds nor overflows there; BF16 it lacks mostly. Pairs of explicit casts, FP32 to FP16 and
back, survive and round as they should; accumulation inside an operator stays FP32 in both.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx_ir as ir

from rtlab.core.external_data import derive_constant
from rtlab.core.node import ONNX_DOMAINS
from rtlab.core.variant import Precision
from rtlab.quantize import passes
from rtlab.quantize.fp16_plan import (
    ANY_TYPE,
    BOUNDED,
    BOUNDS_ARE_INPUTS,
    EXACT,
    PAIR_OPS,
    HalfConstants,
    HalfPlan,
    find_overflowing_fills,
    get_onnx_type,
    is_fp32,
    is_mask,
    is_masking,
)
from rtlab.quantize.placement import WEIGHTED, find_captured_values

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rtlab.core.model import Model
    from rtlab.core.node import Node
    from rtlab.quantize.edit import Edit

#: Bits of a float32's mantissa that TF32 lacks.
_DROPPED = 13
#: Beyond, the splitting's product would overflow; such numbers pass as they are.
_GUARD = 2.0**114


def find_tf32_products(model: Model) -> tuple[str, ...]:
    """Ids of the main-graph nodes that TF32 concerns: products of two FP32 values."""
    return tuple(
        n.id
        for n in model.top
        if n.op in WEIGHTED
        and n.domain in ONNX_DOMAINS
        and all(model.values[v].dtype == "fp32" for v in n.inputs[:2])
    )


def truncate(nodes: Collection[str], check: Callable[[], object] = lambda: None) -> passes.Pass:
    """Both factors of some products rounded to TF32; ``check`` is called before each and may raise.

    Constants are rounded to nearest, ties to even. Activations are split in the graph after Veltkamp: with
    ``c = (2^13 + 1) x``, ``c - (c - x)`` is the nearest number of 11 bits (Dekker, Numer. Math. 18, 1971; proved
    by Boldo, IJCAR 2006), ties go either way. Magnitudes from 2^114 on, infinity and NaN pass as they are.
    """

    def edit_graph(edit: Edit) -> None:
        model = edit.model
        rounded_values: dict[str, ir.Value] = {}
        for node in model.top:
            if node.id not in nodes:
                continue
            check()
            for i, value in enumerate(node.inputs[:2]):
                name = f"{node.id}/input{i or ''}/tf32"
                if value not in rounded_values and value in model.known:
                    numbers = derive_constant(model.known[value], round_to_tf32, np.float32)
                    rounded_values[value] = edit.add_constant(name, numbers)
                elif value not in rounded_values:
                    rounded_values[value] = _insert_rounding(edit, edit.values[value], name, node.id)
                edit.set_input(node.id, i, rounded_values[value])

    return passes.Pass("rounding to TF32", edit_graph, passes.INSERTION_PROMISES, 9)


def round_to_tf32(x: NDArray[np.float32]) -> NDArray[np.float32]:
    """Round to ten explicit bits of mantissa, to nearest with ties to even; infinity and NaN stay."""
    bits = np.ascontiguousarray(x, np.float32).view(np.uint32)
    odd = (bits >> _DROPPED) & 1
    rounded_bits = (bits + ((1 << (_DROPPED - 1)) - 1) + odd) & np.uint32(0xFFFFFFFF ^ ((1 << _DROPPED) - 1))
    return np.where(np.isfinite(x), rounded_bits.astype(np.uint32).view(np.float32), x).astype(np.float32)


def _insert_rounding(edit: Edit, value: ir.Value, name: str, node: str) -> ir.Value:
    def add(op: str, *inputs: ir.Value, kind: ir.DataType | None = None) -> ir.Value:
        return edit.insert(
            op, f"{name}/{op}", inputs, origin=edit.get_origin(node), like=value, kind=kind, before=node
        )

    factor = edit.add_constant(f"{name}/factor", np.array(2.0**_DROPPED + 1, np.float32))
    guard = edit.add_constant(f"{name}/guard", np.array(_GUARD, np.float32))
    large = add("Mul", value, factor)
    head = add("Sub", large, add("Sub", large, value))
    return add("Where", add("Less", add("Abs", value), guard, kind=ir.DataType.BOOL), head, value)


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
            is_scale = node.op in PAIR_OPS and "block_size" not in node.attributes
            if is_scale and isinstance(numbers, np.ndarray) and numbers.size == 1:
                # TensorRT-RTX 1.7 refuses weights whose only scale of 16 bits is a vector.
                numbers = numbers.reshape(())
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
                    values = constants.round(tensors[value], precision, as_mask=mask)
                    rounded_values[form] = edit.add_constant(f"{name}/rounded", values)
                elif form not in rounded_values:
                    source = edit.values[value]
                    rounded_values[form] = _round(edit, source, node.id, name, precision, before=node.id)
                edit.set_input(node.id, i, rounded_values[form])
            # Pairs of ours stand in front of kernels that multiply what is stored: nothing rounds it once dequantized.
            is_stored = node.op == "DequantizeLinear" and node.origin != node.id
            for i, value in enumerate(node.outputs):
                if value in plan.outputs and node.op not in exact and not is_stored:
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
        numbers = np.asarray(constants.round(tensor, precision, as_mask=as_mask))
        edit.set_attribute(maker.id, "value", ir.Tensor(numbers, name=f"{maker.id}/value"))
