"""Operators that compute on integers, written as what they compute between quantize and dequantize pairs.

ONNX Runtime's ``quantize_static`` writes them in its format QOperator (``QLinearConv``, ``QGemm``, ...), and
``quantize_dynamic`` writes ``DynamicQuantizeLinear`` with ``MatMulInteger`` or ``ConvInteger``. What each computes is
told by ONNX's and ONNX Runtime's operator documentation. No TensorRT has them: it takes quantize and dequantize pairs
around operators on floats, and fuses the two itself.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import onnx_ir as ir

from rtlab.core.finding import Finding
from rtlab.core.node import ONNX_DOMAINS
from rtlab.core.phrases import many
from rtlab.quantize import passes
from rtlab.quantize.encoding import MIN_OPSET
from rtlab.quantize.qdq import PASSES, constant
from rtlab.quantize.requantize import Hand

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rtlab.quantize.edit import Edit

_RUNTIME = frozenset({"com.microsoft"})


@dataclasses.dataclass(frozen=True)
class _Form:
    """How an operator on integers is laid out.

    ``op`` is what it computes on floats. ``reads`` are the positions of its factors, each followed by its scale and its
    zero point; ``writes`` is the position of the result's scale. ``bias`` is that of a sum in INT32, whose scale is the
    product of both factors'. ``less`` are attributes that the operator on floats does not have.
    """

    op: str
    domains: frozenset[str]
    reads: tuple[int, ...]
    writes: int
    bias: int | None = None
    less: frozenset[str] = frozenset()


_LAST = frozenset({"channels_last"})
_FORMS = {
    "QLinearConv": _Form("Conv", ONNX_DOMAINS, (0, 3), 6, 8),
    "QLinearMatMul": _Form("MatMul", ONNX_DOMAINS | _RUNTIME, (0, 3), 6),
    "QGemm": _Form("Gemm", _RUNTIME, (0, 3), 7, 6),
    "QLinearAdd": _Form("Add", _RUNTIME, (0, 3), 6),
    "QLinearMul": _Form("Mul", _RUNTIME, (0, 3), 6),
    "QLinearSigmoid": _Form("Sigmoid", _RUNTIME, (0,), 3),
    "QLinearLeakyRelu": _Form("LeakyRelu", _RUNTIME, (0,), 3),
    "QLinearSoftmax": _Form("Softmax", _RUNTIME, (0,), 3, less=frozenset({"opset"})),
    "QLinearAveragePool": _Form("AveragePool", _RUNTIME, (0,), 3, less=_LAST),
    "QLinearGlobalAveragePool": _Form("GlobalAveragePool", _RUNTIME, (0,), 3, less=_LAST),
    # Its factors come last, as many as there are.
    "QLinearConcat": _Form("Concat", _RUNTIME, (), 0),
}
_DYNAMIC = {"MatMulInteger": "MatMul", "ConvInteger": "Conv"}
STATIC_ID, DYNAMIC_ID, LATE_ID = "integer-operators", "dynamic-integers", "late-dequantization"


def present(graph: ir.Graph) -> bool:
    """Whether a main graph has operators on integers."""
    return any(_form(n) or n.op_type in _DYNAMIC for n in graph)


def check(graph: ir.Graph, opset: int) -> list[Finding]:
    """What such operators mean for TensorRT: one finding for those with scales of their own, one for the others."""
    static = [n for n in graph if _form(n)]
    dynamic = [n for n in graph if n.domain in ONNX_DOMAINS and n.op_type in _DYNAMIC]
    found = []
    if static:
        stuck = [n for n in static if not _known(n, opset)]
        found.append(
            Finding(
                STATIC_ID,
                STATIC_ID,
                f"Operators on integers stand at {_listed(static)}.",
                tuple(n.name or "" for n in static),
                "TensorRT has no such operators and does not build.",
                "Write each as what it computes on floats, between quantize and dequantize pairs."
                if not stuck
                else f'"{stuck[0].name}" cannot be rewritten here: quantize with QuantFormat.QDQ at opset 13 or later.',
                "ONNX Runtime's format QOperator is for its own kernels; TensorRT takes its format QDQ.",
                not stuck,
            )
        )
    if dynamic:
        stuck = [n for n in dynamic if _product(n, opset) is None]
        found.append(
            Finding(
                DYNAMIC_ID,
                DYNAMIC_ID,
                f"Activations are quantized anew at every inference for {_listed(dynamic)}.",
                tuple(n.name or "" for n in dynamic),
                "TensorRT has no such operators and does not build: its scales are constants.",
                "Keep the INT8 weights and multiply by activations in FP32; calibrated, they become INT8 too."
                if not stuck
                else f'"{stuck[0].name}" cannot be rewritten here: quantize statically, with QuantFormat.QDQ.',
                "ONNX Runtime's quantize_dynamic computes a scale from each tensor that comes.",
                not stuck,
            )
        )
    if late := _late(graph):
        more = f" and {len(late) - 1} more take" if len(late) > 1 else " takes"
        found.append(
            Finding(
                LATE_ID,
                LATE_ID,
                f'"{late[0][1].name}"{more} parts of stored integers, which are dequantized behind it.',
                tuple(n.name or "" for nodes in late for n in nodes),
                "TensorRT refuses a constant of INT8 that no DequantizeLinear reads, and does not build.",
                "Dequantize what is stored, and take parts of that.",
                "TensorRT reads stored integers in a DequantizeLinear alone.",
                fixable=True,
                exact=True,
            )
        )
    return found


@dataclasses.dataclass(frozen=True)
class Unfold:
    """Operators on integers as what they compute on floats, between pairs; ``findings`` are ids of ``check``.

    Each node that is new names the one that it stands for, and what computes has its id.
    """

    findings: Sequence[str]
    notes: tuple[str, ...] = ()
    name = "operators on integers as pairs"
    needs = ()
    promises = (passes.INTERFACE, passes.ORIGINS, passes.ORDER, passes.TYPES)

    @property
    def changes(self) -> str:
        """What becomes of the numbers."""
        return (
            ""
            if set(self.findings) <= {LATE_ID}
            else "sums are of floats, and what was scaled at run time is not"
        )

    def __call__(self, edit: Edit) -> None:
        """Do it."""
        hand, opset = Hand(edit), edit.model.opset
        graph = edit.graph
        if STATIC_ID in self.findings and all(_known(n, opset) for n in graph if _form(n)):
            for node in list(graph):
                if (form := _form(node)) is not None:
                    _unfold(hand, node, form)
                elif node.domain in ONNX_DOMAINS and node.op_type in PASSES:
                    _wrap(hand, node)
        if DYNAMIC_ID in self.findings:
            for node in list(graph):
                if node.op_type in _DYNAMIC and (product := _product(node, opset)) is not None:
                    _fold(hand, node, product)
        if LATE_ID in self.findings:
            for dq, maker in _late(graph):
                read = [maker.inputs[0], *dq.inputs[1:]]
                floats = hand.make("DequantizeLinear", f"{maker.name}/DequantizeLinear", read, maker)
                maker.replace_input_with(0, floats)
                maker.outputs[0].type = dq.outputs[0].type or ir.TensorType(ir.DataType.FLOAT)
                hand.take_over(dq, maker.outputs[0])
        edit.settle()


def _late(graph: ir.Graph) -> list[tuple[ir.Node, ir.Node]]:
    """Each DequantizeLinear of a part of stored integers, with the node that takes the part."""
    found = []
    for dq in graph:
        value = dq.inputs[0] if dq.op_type == "DequantizeLinear" else None
        maker = None if value is None else value.producer()
        if (
            maker is None
            or maker.op_type not in PASSES - {"Concat", "Split"}
            or maker.domain not in ONNX_DOMAINS
        ):
            continue
        scale = constant(_at(dq, 1))
        single = scale is not None and scale.size == 1 and "block_size" not in dq.attributes
        if single and constant(maker.inputs[0]) is not None and _only_reader(maker.outputs[0], dq.op_type):
            found.append((dq, maker))
    return found


def _form(node: ir.Node) -> _Form | None:
    form = _FORMS.get(node.op_type)
    if form is None or node.domain not in form.domains:
        return None
    if node.op_type == "QLinearConcat":
        return dataclasses.replace(form, reads=tuple(range(2, len(node.inputs), 3)))
    return form


def _known(node: ir.Node, opset: int) -> bool:
    """Whether an operator can be rewritten: its bias is a constant, and its scales fit the opset."""
    form = _form(node)
    if form is None or any(a.value for k, a in node.attributes.items() if k in _LAST):
        return False
    scales = [constant(node.inputs[at + 1]) for at in form.reads]
    if any(s is not None and s.size > 1 for s in scales) and opset < MIN_OPSET:
        return False
    held = _at(node, form.bias)
    return held is None or (constant(held) is not None and all(s is not None for s in scales))


def _unfold(hand: Hand, node: ir.Node, form: _Form) -> None:
    name, out = node.name or "", node.outputs[0]
    inputs: list[ir.Value | None] = []
    for place, at in enumerate(form.reads):
        inputs.append(_floats(hand, node, at, f"{name}/input{place or ''}", _axis(node, form, place)))
    if (held := _at(node, form.bias)) is not None:
        inputs.append(hand.constant(f"{name}/bias", _bias(node, form, held)))
    attributes = [a for k, a in node.attributes.items() if k not in form.less]
    if form.op == "Gemm" and _at(node, form.bias) is None:
        attributes = [a for a in attributes if a.name != "beta"]
    made = hand.make(form.op, name, inputs, node, attributes=attributes, like=out)
    made.type = ir.TensorType(ir.DataType.FLOAT)
    scale, zero = _at(node, form.writes), _at(node, form.writes + 1)
    # Without a scale, the result of a QGemm is a float already.
    if scale is not None:
        made = hand.make("QuantizeLinear", f"{name}/QuantizeLinear", [made, scale, zero], node, like=out)
    hand.take_over(node, made)


def _wrap(hand: Hand, node: ir.Node) -> None:
    """Let an operator that only moves integers move floats: the same numbers, with a pair before it and one behind."""
    count = len(node.inputs) if node.op_type == "Concat" else 1
    makers = [None if v is None else v.producer() for v in node.inputs[:count]]
    if not all(m is not None and m.op_type == "QuantizeLinear" for m in makers) or makers[0] is None:
        return
    name, parameters = node.name or "", list(makers[0].inputs[1:])
    for i, maker in enumerate(makers):
        if maker is not None:
            read = [node.inputs[i], *maker.inputs[1:]]
            made = hand.make("DequantizeLinear", f"{name}/input{i or ''}/DequantizeLinear", read, node)
            node.replace_input_with(i, made)
    for out in list(node.outputs):
        kind = out.type
        out.type = ir.TensorType(ir.DataType.FLOAT)
        hand.behind(node, out, "QuantizeLinear", parameters, kind)


def _floats(hand: Hand, node: ir.Node, at: int, name: str, axis: int | None) -> ir.Value:
    """What a quantized factor stands for."""
    read = [node.inputs[at], node.inputs[at + 1], _at(node, at + 2)]
    attributes = [] if axis is None else [ir.AttrInt64("axis", axis)]
    return hand.make("DequantizeLinear", f"{name}/DequantizeLinear", read, node, attributes=attributes)


def _axis(node: ir.Node, form: _Form, place: int) -> int | None:
    """The axis that the scales of a factor belong to; None for one scale."""
    scale = constant(node.inputs[form.reads[place] + 1])
    if scale is None or scale.size < 2:
        return None
    if form.op == "Conv":
        return 0
    if form.op == "Gemm":
        flipped = node.attributes.get("transB")
        return 0 if flipped is not None and flipped.as_int() else 1
    weight = constant(node.inputs[form.reads[place]])
    return (weight.ndim if weight is not None else 2) - 1


def _bias(node: ir.Node, form: _Form, held: ir.Value) -> NDArray[np.float32]:
    """The floats of a bias: its steps are as large as the product of both factors' scales."""
    steps, scale = constant(held), np.float32(1)
    for at in form.reads:
        scale = scale * np.asarray(constant(node.inputs[at + 1]), np.float32).reshape(-1)
    if form.op == "Gemm" and (alpha := node.attributes.get("alpha")) is not None:
        scale = scale * np.float32(alpha.as_float())
    numbers: NDArray[np.float32] = (np.asarray(steps, np.float32) * scale).astype(np.float32)
    return numbers


@dataclasses.dataclass(frozen=True)
class _Product:
    """A product on integers with all that makes floats of it: what enters, the weight's scale, and the last node."""

    enters: ir.Value
    scale: ir.Value
    last: ir.Node


def _product(node: ir.Node, opset: int) -> _Product | None:
    """The nodes around a product as ``quantize_dynamic`` writes them: Cast, and Mul with the product of both scales."""
    first, weight = node.inputs[0], node.inputs[1]
    maker = None if first is None else first.producer()
    if maker is None or maker.op_type != "DynamicQuantizeLinear" or constant(weight) is None:
        return None
    cast = _only_reader(node.outputs[0], "Cast")
    last = None if cast is None else _only_reader(cast.outputs[0], "Mul")
    if cast is None or last is None:
        return None
    other = next((v for v in last.inputs if v is not cast.outputs[0]), None)
    scales = None if other is None else other.producer()
    if scales is None or scales.op_type != "Mul" or maker.outputs[1] not in scales.inputs:
        return None
    scale = next((v for v in scales.inputs if v is not maker.outputs[1]), None)
    known = constant(scale)
    if scale is None or known is None or (known.size > 1 and opset < MIN_OPSET) or maker.inputs[0] is None:
        return None
    return _Product(maker.inputs[0], scale, last)


def _fold(hand: Hand, node: ir.Node, product: _Product) -> None:
    name, weight = node.name or "", constant(node.inputs[1])
    scale = np.asarray(constant(product.scale), np.float32)
    axis = None
    if scale.size > 1 and weight is not None:
        axis = 0 if node.op_type == "ConvInteger" else weight.ndim - 1
    size = hand.constant(f"{name}/weight/scale", scale.reshape(-1) if scale.size > 1 else scale.reshape(()))
    zero = _at(node, 3)
    shift = constant(zero)
    if shift is not None:
        zero = hand.constant(f"{name}/weight/zero_point", shift.reshape(size.const_value.shape.numpy()))  # type: ignore[union-attr]
    attributes = [] if axis is None else [ir.AttrInt64("axis", axis)]
    read = [node.inputs[1], size, zero]
    floats = hand.make(
        "DequantizeLinear", f"{name}/weight/DequantizeLinear", read, node, attributes=attributes
    )
    out = product.last.outputs[0]
    kept = list(node.attributes.values())
    made = hand.make(_DYNAMIC[node.op_type], name, [product.enters, floats], node, attributes=kept, like=out)
    hand.take_over(product.last, made)


def _only_reader(value: ir.Value, op: str) -> ir.Node | None:
    readers = [use.node for use in value.uses()]
    return (
        readers[0] if len(readers) == 1 and readers[0].op_type == op and not value.is_graph_output() else None
    )


def _at(node: ir.Node, position: int | None) -> ir.Value | None:
    return None if position is None or position >= len(node.inputs) else node.inputs[position]


def _listed(nodes: Sequence[ir.Node]) -> str:
    """Such as "3 nodes (QLinearConv, QGemm)"."""
    kinds = Counter(n.op_type for n in nodes)
    return f"{many(len(nodes), 'node')} ({', '.join(kinds)})"
