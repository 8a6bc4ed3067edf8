"""Expressing FP16 in the graph: a typed model for compilers, and a model that rounds at the same places in FP32.

ONNX Runtime's CPU kernels compute an FP16 model in FP32 and remove the casts that it inserted for that, so
such a model neither rounds nor overflows there. Pairs of explicit casts, FP32 to FP16 and back, survive and
round as they should; accumulation inside an operator stays FP32 in both.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import onnx_ir as ir

from rtlab.quantize.edit import Edit
from rtlab.quantize.placement import captured, constants

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rtlab.core.model import Model
    from rtlab.core.node import Node

_FLOAT, _HALF = int(onnx.TensorProto.FLOAT), int(onnx.TensorProto.FLOAT16)
_DEFAULT = {"", "ai.onnx"}
#: First opset in which the bounds of Clip and the filler of Pad are inputs, which are rounded like all inputs.
_BOUNDS_ARE_INPUTS = 11
#: They read a value as it comes, or read nothing.
_ANY_TYPE = {"Shape", "Size", "Constant"}
#: Operators whose INT8 arithmetic a model already carries.
_QUANTIZED = {"QuantizeLinear", "DequantizeLinear", "DynamicQuantizeLinear"}
#: For these an infinite bound or filler means the same as a huge one.
_SATURATING = {"Clip", "Pad", "Where", "Max", "Min"}
#: Their outputs are elements of their inputs, or zero: values that are rounded stay rounded.
_EXACT = {
    "Identity", "Reshape", "Flatten", "Squeeze", "Unsqueeze", "Transpose", "Concat", "Split", "Slice", "Gather",
    "GatherElements", "GatherND", "Expand", "Tile", "DepthToSpace", "SpaceToDepth", "Where", "Pad", "Dropout",
    "Relu", "Clip", "Max", "Min", "MaxPool", "GlobalMaxPool", "ReduceMax", "ReduceMin", "TopK", "Abs", "Neg",
    "Compress", "ReverseSequence",
}  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Halves:
    """Both forms of an FP16 model, and what stays FP32 in them, as sentences for people."""

    typed: Model
    emulation: Model
    notes: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class _Plan:
    """``inputs`` are the node inputs read in FP16, ``outputs`` the values written in FP16."""

    inputs: frozenset[tuple[str, int]]
    outputs: frozenset[str]
    notes: tuple[str, ...]


def fp16(model: Model) -> Halves:
    """The model in FP16, twice.

    ``typed`` holds FP16 weights and activations between FP32 inputs and outputs, as a strongly typed compiler
    takes it. ``emulation`` computes in FP32 and rounds weights, and inputs and outputs of operators, where
    ``typed`` does, so every value of the source is there under its own name, rounded and overflowed as FP16
    would.

    FP32 stay: shape arithmetic, operators without an FP16 form, bodies and functions, quantized operators,
    and operators with a constant beyond 65,504.
    """
    plan = _plan(model)
    return Halves(_Typed(model, plan).finish(), _emulation(model, plan), plan.notes)


def _plan(model: Model) -> _Plan:
    known = constants(model)
    shapes = _shape_arithmetic(model, known)
    ir_nodes = {n.name: n for n in model.ir.graph}
    inputs: set[tuple[str, int]] = set()
    outputs: set[str] = set()
    kept: dict[str, list[str]] = {}
    for node in model.top:
        floats = [v for v in (*node.inputs, *node.outputs) if _is_fp32(model, v)]
        if not floats or node.op in _ANY_TYPE:
            continue
        reason = _reason(node, ir_nodes[node.id], model, known, shapes)
        if reason is not None:
            kept.setdefault(reason, []).append(node.id)
            continue
        reads, writes = _types(node, model)
        inputs |= {(node.id, i) for i in reads}
        outputs |= set(writes)
    notes = tuple(
        f"{len(ids)} {'node stays' if len(ids) == 1 else 'nodes stay'} fp32: {why} "
        f"({', '.join(ids[:3])}{', ...' if len(ids) > 3 else ''})"
        for why, ids in kept.items()
    )
    return _Plan(frozenset(inputs), frozenset(outputs), notes)


def _reason(
    node: Node, inner: ir.Node, model: Model, known: Mapping[str, ir.TensorProtocol], shapes: set[str]
) -> str | None:
    """Why a node must stay FP32, or None."""
    if any(a.type in {ir.AttributeType.GRAPH, ir.AttributeType.GRAPHS} for a in inner.attributes.values()):
        return "control flow"
    if node.domain not in _DEFAULT or _schema(node, model) is None:
        return "a custom operator or function"
    if node.op in _QUANTIZED or any(_written_by(model, v) in _QUANTIZED for v in node.inputs):
        return "quantized already"
    if node.id in shapes:
        return "shape arithmetic"
    if not all(_is_tensor(v) for v in (*inner.inputs, *inner.outputs) if v is not None):
        return "sequences"
    if node.op not in _SATURATING:
        for value in node.inputs:
            if _is_fp32(model, value) and value in known and _overflows(known[value]):
                return "a constant beyond 65,504"
    reads, writes = _types(node, model)
    return None if reads or writes else "no FP16 form in ONNX"


def _types(node: Node, model: Model) -> tuple[list[int], list[str]]:
    """Positions of inputs that become FP16, and outputs that then are, by the operator's type constraints."""
    schema = _schema(node, model)
    if schema is None:
        return [], []
    allowed = {c.type_param_str: set(c.allowed_type_strs) for c in schema.type_constraints}
    reads: list[int] = []
    bound, halves = set[str](), set[str]()
    for i, value in enumerate(node.inputs):
        symbol = schema.inputs[min(i, len(schema.inputs) - 1)].type_str
        bound |= {symbol} if value else set()
        if _is_fp32(model, value) and "tensor(float16)" in allowed.get(symbol, ()):
            reads.append(i)
            halves.add(symbol)
    writes: list[str] = []
    for i, value in enumerate(node.outputs):
        symbol = schema.outputs[min(i, len(schema.outputs) - 1)].type_str
        if node.op != "Cast" and value and symbol not in bound and len(allowed.get(symbol, ())) > 1:
            # No input decides this type but an attribute or a default, which might follow the inputs.
            return [], []
        if _is_fp32(model, value) and (symbol in halves or node.op == "Cast"):
            writes.append(value)
    return reads, writes


class _Typed:
    """Writes the typed model: each value has one home, FP16 or FP32, and a cast to the other where it is read."""

    def __init__(self, model: Model, plan: _Plan) -> None:
        self._plan = plan
        self._edit = Edit(model)
        self._known = constants(model)
        # Whoever reads these by name, outside or in a body, reads FP32.
        self._outside = captured(model) | set(model.outputs)
        self._halves: dict[str, Any] = {}
        self._fulls: dict[str, Any] = {}
        for node in model.top:
            for i, value in enumerate(node.inputs):
                if _is_fp32(model, value) and node.op not in _ANY_TYPE:
                    self._read(node, i, value)
            for i, value in enumerate(node.outputs):
                if value in plan.outputs:
                    self._write(node, i, value)

    def finish(self) -> Model:
        return self._edit.finish()

    def _read(self, node: Node, i: int, value: str) -> None:
        edit, name, inputs = self._edit, f"{node.id}/input{i or ''}", self._edit.nodes[node.id].inputs
        home_is_half = value in self._plan.outputs
        if (node.id, i) in self._plan.inputs:
            if value not in self._halves and value in self._known:
                self._halves[value] = edit.constant(f"{name}/fp16", _half(self._known[value]))
            elif value not in self._halves and not home_is_half:
                self._halves[value] = _cast(edit, edit.tensors[value], _HALF, name, node.id, before=node.id)
            if value in self._halves:
                inputs[i] = self._halves[value]
        elif home_is_half and value not in self._outside:
            if value not in self._fulls:
                self._fulls[value] = _cast(edit, edit.tensors[value], _FLOAT, name, node.id, before=node.id)
            inputs[i] = self._fulls[value]

    def _write(self, node: Node, i: int, value: str) -> None:
        edit, target, tensor = self._edit, self._edit.nodes[node.id], self._edit.tensors[value]
        if node.op == "Cast":
            edit.set_attribute(target, "to", _HALF)
        if value not in self._outside:
            tensor.dtype = np.float16
            return
        name = f"{node.id}/output{i or ''}"
        half = edit.variable(f"{name}/fp16")
        half.dtype, half.shape = np.float16, tensor.shape
        target.outputs[i] = self._halves[value] = half
        _cast(edit, half, _FLOAT, name, node.id, after=node.id, output=tensor)


def _emulation(model: Model, plan: _Plan) -> Model:
    edit = Edit(model)
    known = constants(model)
    rounded: dict[str, Any] = {}
    exact = _EXACT if model.opset >= _BOUNDS_ARE_INPUTS else _EXACT - _SATURATING
    for node in model.top:
        target = edit.nodes[node.id]
        for i, value in enumerate(node.inputs):
            if (node.id, i) not in plan.inputs or value in plan.outputs:
                continue
            name = f"{node.id}/input{i or ''}"
            if value not in rounded and value in known:
                values = _half(known[value]).astype(np.float32)
                rounded[value] = edit.constant(f"{name}/rounded", values)
            elif value not in rounded:
                rounded[value] = _round(edit, edit.tensors[value], name, node.id, before=node.id)
            target.inputs[i] = rounded[value]
        for i, value in enumerate(node.outputs):
            if value in plan.outputs and node.op not in exact:
                name, tensor = f"{node.id}/output{i or ''}", edit.tensors[value]
                inner = edit.variable(f"{name}/unrounded")
                inner.dtype, inner.shape = tensor.dtype, tensor.shape
                target.outputs[i] = inner
                _round(edit, inner, name, node.id, after=node.id, output=tensor)
    return edit.finish()


def _cast(edit: Edit, tensor: Any, to: int, name: str, origin: str, **place: Any) -> Any:
    return edit.insert("Cast", f"{name}/Cast", [tensor], origin=origin, attrs={"to": to}, **place)


def _round(edit: Edit, tensor: Any, name: str, origin: str, *, output: Any = None, **place: Any) -> Any:
    half = _cast(edit, tensor, _HALF, f"{name}/fp16", origin, **place)
    return _cast(edit, half, _FLOAT, f"{name}/fp32", origin, output=output, **place)


def _half(tensor: ir.TensorProtocol) -> NDArray[np.float16]:
    with np.errstate(over="ignore"):
        return np.asarray(tensor.numpy()).astype(np.float16)


def _overflows(tensor: ir.TensorProtocol) -> bool:
    values = np.asarray(tensor.numpy())
    finite = np.abs(values[np.isfinite(values)])
    with np.errstate(over="ignore"):
        return bool(finite.size) and bool(np.isinf(finite.max().astype(np.float16)))


def _schema(node: Node, model: Model) -> Any:
    try:
        return onnx.defs.get_schema(node.op, model.opset, "")
    except onnx.defs.SchemaError:
        return None


def _is_fp32(model: Model, value: str) -> bool:
    return bool(value) and value in model.values and model.values[value].dtype == "fp32"


def _is_tensor(value: ir.Value) -> bool:
    return value.type is None or isinstance(value.type, ir.TensorType)


def _written_by(model: Model, value: str) -> str:
    node = model.producers.get(value)
    return node.op if node is not None else ""


def _shape_arithmetic(model: Model, known: Mapping[str, ir.TensorProtocol]) -> set[str]:
    """Ids of nodes that compute from shapes only, where FP16 would lose whole numbers beyond 2,048."""
    derived, found = set[str](), set[str]()
    for node in model.top:
        inputs = [v for v in node.inputs if v and v not in known]
        if node.op in {"Shape", "Size"} or (inputs and all(v in derived for v in inputs)):
            derived.update(node.outputs)
            found.add(node.id)
    return found
