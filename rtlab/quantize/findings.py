"""Faults of a model's own quantize and dequantize pairs, their cost, and their repair.

Such pairs come from training in PyTorch or TensorFlow, from ModelOpt or from ONNX Runtime's ``quantize_static``. What a
cost says of TensorRT-RTX was seen in builds with version 1.7.1, which tests/backends/test_findings.py repeats.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from typing import TYPE_CHECKING

import numpy as np
import onnx_ir as ir

from rtlab.core.external_data import copy_graph
from rtlab.core.finding import Finding
from rtlab.core.model import Model, of
from rtlab.core.node import ONNX_DOMAINS
from rtlab.core.phrases import pluralize, quote_names
from rtlab.errors import VariantError
from rtlab.quantize import passes
from rtlab.quantize.edit import Edit
from rtlab.quantize.passes import Pass
from rtlab.quantize.placement import plan
from rtlab.quantize.qdq import PASSES, QuantizedGraph, get_constant
from rtlab.quantize.qdq_rules import MIN_OPSET, Diagnosis, QdqRules
from rtlab.quantize.requantize import QdqEditor

if TYPE_CHECKING:
    from numpy.typing import NDArray

# Operators that compute on integers, which are written as what they compute between pairs: ONNX Runtime's
# ``quantize_static`` writes them in its format QOperator (``QLinearConv``, ``QGemm``, ...), ``quantize_dynamic``
# ``DynamicQuantizeLinear`` with ``MatMulInteger`` or ``ConvInteger``. TensorRT has none of them: it fuses quantize and
# dequantize pairs around operators on floats.
_RUNTIME = frozenset({"com.microsoft"})


@dataclasses.dataclass(frozen=True)
class _Form:
    """How an operator on integers is laid out.

    ``op`` is the operator on floats. ``reads`` are the positions of its factors, each followed by its scale and its
    zero point; ``writes`` is the position of the result's scale, and ``bias`` of an INT32 bias, whose scale is the
    product of both factors'. ``dropped_attributes`` are attributes that the operator on floats does not have.
    """

    op: str
    domains: frozenset[str]
    reads: tuple[int, ...]
    writes: int
    bias: int | None = None
    dropped_attributes: frozenset[str] = frozenset()


_LAST = frozenset({"channels_last"})
_FORMS = {
    "QLinearConv": _Form("Conv", ONNX_DOMAINS, (0, 3), 6, 8),
    "QLinearMatMul": _Form("MatMul", ONNX_DOMAINS | _RUNTIME, (0, 3), 6),
    "QGemm": _Form("Gemm", _RUNTIME, (0, 3), 7, 6),
    "QLinearAdd": _Form("Add", _RUNTIME, (0, 3), 6),
    "QLinearMul": _Form("Mul", _RUNTIME, (0, 3), 6),
    "QLinearSigmoid": _Form("Sigmoid", _RUNTIME, (0,), 3),
    "QLinearLeakyRelu": _Form("LeakyRelu", _RUNTIME, (0,), 3),
    "QLinearSoftmax": _Form("Softmax", _RUNTIME, (0,), 3, dropped_attributes=frozenset({"opset"})),
    "QLinearAveragePool": _Form("AveragePool", _RUNTIME, (0,), 3, dropped_attributes=_LAST),
    "QLinearGlobalAveragePool": _Form("GlobalAveragePool", _RUNTIME, (0,), 3, dropped_attributes=_LAST),
    # Its factors come last, as many as there are.
    "QLinearConcat": _Form("Concat", _RUNTIME, (), 0),
}
_DYNAMIC = {"MatMulInteger": "MatMul", "ConvInteger": "Conv"}
STATIC_ID, DYNAMIC_ID, DELAYED_DQ_ID = "integer-operators", "dynamic-integers", "late-dequantization"


def has_integer_operators(graph: ir.Graph) -> bool:
    """Whether a main graph has operators on integers."""
    return any(_get_form(n) or n.op_type in _DYNAMIC for n in graph)


def check_integers(graph: ir.Graph, opset: int) -> list[Finding]:
    """Findings on integer operators: one for constant scales, one for dynamic ones, one for late pairs."""
    static = [n for n in graph if _get_form(n)]
    dynamic = [n for n in graph if n.domain in ONNX_DOMAINS and n.op_type in _DYNAMIC]
    findings = []
    if static:
        unsupported = [n for n in static if not _is_rewritable(n, opset)]
        findings.append(
            Finding(
                STATIC_ID,
                STATIC_ID,
                f"Operators on integers stand at {_format_nodes(static)}.",
                tuple(n.name or "" for n in static),
                "TensorRT has no such operators and does not build.",
                "Write each as what it computes on floats, between quantize and dequantize pairs."
                if not unsupported
                else (
                    f'"{unsupported[0].name}" cannot be rewritten here: '
                    "quantize with QuantFormat.QDQ at opset 13 or later."
                ),
                "ONNX Runtime's format QOperator is for its own kernels; TensorRT takes its format QDQ.",
                not unsupported,
            )
        )
    if dynamic:
        unsupported = [n for n in dynamic if _match_dynamic_product(n, opset) is None]
        findings.append(
            Finding(
                DYNAMIC_ID,
                DYNAMIC_ID,
                f"Activations are quantized anew at every inference for {_format_nodes(dynamic)}.",
                tuple(n.name or "" for n in dynamic),
                "TensorRT has no such operators and does not build: its scales are constants.",
                "Keep the INT8 weights and multiply by activations in FP32; calibrated, they become INT8 too."
                if not unsupported
                else f'"{unsupported[0].name}" cannot be rewritten here: quantize statically, with QuantFormat.QDQ.',
                "ONNX Runtime's quantize_dynamic computes a scale from each tensor that comes.",
                not unsupported,
            )
        )
    if delayed_pairs := _find_delayed_dequantizations(graph):
        more = f" and {len(delayed_pairs) - 1} more take" if len(delayed_pairs) > 1 else " takes"
        findings.append(
            Finding(
                DELAYED_DQ_ID,
                DELAYED_DQ_ID,
                f'"{delayed_pairs[0][1].name}"{more} parts of stored integers, which are dequantized behind it.',
                tuple(n.name or "" for nodes in delayed_pairs for n in nodes),
                "TensorRT refuses a constant of INT8 that no DequantizeLinear reads, and does not build.",
                "Dequantize what is stored, and take parts of that.",
                "TensorRT reads stored integers in a DequantizeLinear alone.",
                fixable=True,
                exact=True,
            )
        )
    return findings


def _unfold_all(edit: Edit, findings: Sequence[str]) -> None:
    editor, opset = QdqEditor(edit), edit.model.opset
    graph = edit.graph
    if STATIC_ID in findings and all(_is_rewritable(n, opset) for n in graph if _get_form(n)):
        for node in list(graph):
            if (form := _get_form(node)) is not None:
                _unfold(editor, node, form)
            elif node.domain in ONNX_DOMAINS and node.op_type in PASSES:
                _wrap(editor, node)
    if DYNAMIC_ID in findings:
        for node in list(graph):
            if node.op_type in _DYNAMIC and (product := _match_dynamic_product(node, opset)) is not None:
                _fold(editor, node, product)
    if DELAYED_DQ_ID in findings:
        for dq, maker in _find_delayed_dequantizations(graph):
            floats = _dequantize(editor, maker.name or "", [maker.inputs[0], *dq.inputs[1:]], maker)
            maker.replace_input_with(0, floats)
            maker.outputs[0].type = dq.outputs[0].type or ir.TensorType(ir.DataType.FLOAT)
            editor.take_over(dq, maker.outputs[0])
    edit.sort_and_reindex()


def unfold(findings: Sequence[str]) -> passes.Pass:
    """Operators on integers as operators on floats between pairs; ``findings`` are ids of ``check_integers``."""
    exact = (passes.NUMBERS,) if set(findings) <= {DELAYED_DQ_ID} else ()
    promises = (passes.INTERFACE, passes.ORIGINS, passes.ORDER, passes.TYPES, *exact)
    return passes.Pass("operators on integers as pairs", lambda edit: _unfold_all(edit, findings), promises)


def _find_delayed_dequantizations(graph: ir.Graph) -> list[tuple[ir.Node, ir.Node]]:
    """Each DequantizeLinear of a part of stored integers, with the node that takes the part."""
    delayed_pairs = []
    for dq in graph:
        value = dq.inputs[0] if dq.op_type == "DequantizeLinear" else None
        maker = None if value is None else value.producer()
        if (
            maker is None
            or maker.op_type not in PASSES - {"Concat", "Split"}
            or "block_size" in dq.attributes
        ):
            continue
        scale = get_constant(_get_input(dq, 1))
        if scale is None or scale.size != 1 or _find_only_reader(maker.outputs[0], dq.op_type) is None:
            continue
        if get_constant(maker.inputs[0]) is not None:
            delayed_pairs.append((dq, maker))
    return delayed_pairs


def _get_form(node: ir.Node) -> _Form | None:
    form = _FORMS.get(node.op_type)
    if form is None or node.domain not in form.domains:
        return None
    if node.op_type == "QLinearConcat":
        return dataclasses.replace(form, reads=tuple(range(2, len(node.inputs), 3)))
    return form


def _is_rewritable(node: ir.Node, opset: int) -> bool:
    """Whether an operator can be rewritten: its bias is a constant, and the opset has its scales."""
    form = _get_form(node)
    if form is None or any(a.value for k, a in node.attributes.items() if k in _LAST):
        return False
    scales = [get_constant(node.inputs[at + 1]) for at in form.reads]
    if any(s is not None and s.size > 1 for s in scales) and opset < MIN_OPSET:
        return False
    bias = _get_input(node, form.bias)
    return bias is None or (get_constant(bias) is not None and all(s is not None for s in scales))


def _unfold(editor: QdqEditor, node: ir.Node, form: _Form) -> None:
    name, out = node.name or "", node.outputs[0]
    inputs: list[ir.Value | None] = []
    for place, at in enumerate(form.reads):
        axis, reads = (
            _get_scale_axis(node, form, place),
            [*node.inputs[at : at + 2], _get_input(node, at + 2)],
        )
        inputs.append(_dequantize(editor, f"{name}/input{place or ''}", reads, node, axis))
    if (bias := _get_input(node, form.bias)) is not None:
        inputs.append(editor.add_constant(f"{name}/bias", _dequantize_bias(node, form, bias)))
    attributes = [a for k, a in node.attributes.items() if k not in form.dropped_attributes]
    if form.op == "Gemm" and bias is None:
        attributes = [a for a in attributes if a.name != "beta"]
    output = editor.insert_node(form.op, name, inputs, node, attributes=attributes, like=out)
    output.type = ir.TensorType(ir.DataType.FLOAT)
    scale, zero = _get_input(node, form.writes), _get_input(node, form.writes + 1)
    # Without a scale, the result of a QGemm is a float already.
    if scale is not None:
        reads = [output, scale, zero]
        output = editor.insert_node("QuantizeLinear", f"{name}/QuantizeLinear", reads, node, like=out)
    editor.take_over(node, output)


def _wrap(editor: QdqEditor, node: ir.Node) -> None:
    """Let an operator that only moves integers move floats, with a pair before it and one behind."""
    count = len(node.inputs) if node.op_type == "Concat" else 1
    makers = [None if v is None else v.producer() for v in node.inputs[:count]]
    if not all(m is not None and m.op_type == "QuantizeLinear" for m in makers) or makers[0] is None:
        return
    name, parameters = node.name or "", list(makers[0].inputs[1:])
    for i, maker in enumerate(makers):
        if maker is not None:
            floats = _dequantize(editor, f"{name}/input{i or ''}", [node.inputs[i], *maker.inputs[1:]], node)
            node.replace_input_with(i, floats)
    for out in list(node.outputs):
        kind = out.type
        out.type = ir.TensorType(ir.DataType.FLOAT)
        editor.insert_after(node, out, "QuantizeLinear", parameters, kind)


def _dequantize(
    editor: QdqEditor, name: str, reads: Sequence[ir.Value | None], before: ir.Node, axis: int | None = None
) -> ir.Value:
    """What a new DequantizeLinear before a node writes."""
    attributes = [] if axis is None else [ir.AttrInt64("axis", axis)]
    return editor.insert_node(
        "DequantizeLinear", f"{name}/DequantizeLinear", reads, before, attributes=attributes
    )


def _get_scale_axis(node: ir.Node, form: _Form, place: int) -> int | None:
    """The axis that the scales of a factor belong to; None for one scale."""
    scale = get_constant(node.inputs[form.reads[place] + 1])
    if scale is None or scale.size < 2:
        return None
    if form.op == "Conv":
        return 0
    if form.op == "Gemm":
        flipped = node.attributes.get("transB")
        return 0 if flipped is not None and flipped.as_int() else 1
    weight = get_constant(node.inputs[form.reads[place]])
    return (weight.ndim if weight is not None else 2) - 1


def _dequantize_bias(node: ir.Node, form: _Form, bias: ir.Value) -> NDArray[np.float32]:
    """The floats of a bias, whose scale is the product of both factors'."""
    scale = np.ones(1, np.float32)
    for at in form.reads:
        scale = scale * np.asarray(get_constant(node.inputs[at + 1]), np.float32).reshape(-1)
    if form.op == "Gemm" and (alpha := node.attributes.get("alpha")) is not None:
        scale = scale * np.float32(alpha.as_float())
    return np.asarray(np.asarray(get_constant(bias), np.float32) * scale, np.float32)


@dataclasses.dataclass(frozen=True)
class _Product:
    """A dynamically quantized product: its activation, its weight's scale, and the last of its nodes."""

    activation: ir.Value
    scale: ir.Value
    last: ir.Node


def _match_dynamic_product(node: ir.Node, opset: int) -> _Product | None:
    """The nodes around a product as ``quantize_dynamic`` writes them: Cast, and Mul with the product of both scales."""
    first, weight = node.inputs[0], node.inputs[1]
    maker = None if first is None else first.producer()
    if maker is None or maker.op_type != "DynamicQuantizeLinear" or get_constant(weight) is None:
        return None
    cast = _find_only_reader(node.outputs[0], "Cast")
    last = None if cast is None else _find_only_reader(cast.outputs[0], "Mul")
    if cast is None or last is None:
        return None
    other = next((v for v in last.inputs if v is not cast.outputs[0]), None)
    scales = None if other is None else other.producer()
    if scales is None or scales.op_type != "Mul" or maker.outputs[1] not in scales.inputs:
        return None
    scale = next((v for v in scales.inputs if v is not maker.outputs[1]), None)
    array = get_constant(scale)
    if scale is None or array is None or maker.inputs[0] is None or (array.size > 1 and opset < MIN_OPSET):
        return None
    return _Product(maker.inputs[0], scale, last)


def _fold(editor: QdqEditor, node: ir.Node, product: _Product) -> None:
    name, weight = node.name or "", get_constant(node.inputs[1])
    scale = np.asarray(get_constant(product.scale), np.float32)
    axis = None
    if scale.size > 1 and weight is not None:
        axis = 0 if node.op_type == "ConvInteger" else weight.ndim - 1
    shape = (scale.size,) if scale.size > 1 else ()
    size = editor.add_constant(f"{name}/weight/scale", scale.reshape(shape))
    zero = _get_input(node, 3)
    if (shift := get_constant(zero)) is not None:
        zero = editor.add_constant(f"{name}/weight/zero_point", shift.reshape(shape))
    floats = _dequantize(editor, f"{name}/weight", [node.inputs[1], size, zero], node, axis)
    reads, attributes, out = (
        [product.activation, floats],
        list(node.attributes.values()),
        product.last.outputs[0],
    )
    output = editor.insert_node(_DYNAMIC[node.op_type], name, reads, node, attributes=attributes, like=out)
    editor.take_over(product.last, output)


def _find_only_reader(value: ir.Value, op: str) -> ir.Node | None:
    readers = [use.node for use in value.uses()]
    is_only = len(readers) == 1 and readers[0].op_type == op and not value.is_graph_output()
    return readers[0] if is_only else None


def _get_input(node: ir.Node, position: int | None) -> ir.Value | None:
    return None if position is None or position >= len(node.inputs) else node.inputs[position]


def _format_nodes(nodes: Sequence[ir.Node]) -> str:
    """Such as "3 nodes (QLinearConv, QGemm)"."""
    kinds = Counter(n.op_type for n in nodes)
    return f"{pluralize(len(nodes), 'node')} ({', '.join(kinds)})"


def check(model: Model, *, calibrated: bool = False) -> tuple[Finding, ...]:
    """The findings about the pairs of a model's main graph, those that keep it from building first.

    With ``calibrated``, ``apply`` can calibrate, so that a missing pair can be put in.
    """
    if not _has_quantization(model.ir.graph):
        return ()
    scale_of = _placeholder_scale if calibrated else None
    diagnoses = _iter_diagnoses(model.ir.graph, model.opset, _plan_quantized_inputs(model), scale_of)
    findings = (*check_integers(model.ir.graph, model.opset), *(f.finding for f in diagnoses))
    return tuple(dataclasses.replace(f, fix=model.declined.get(f.id, f.fix)) for f in findings)


def missing(model: Model) -> tuple[str, ...]:
    """Values that lack a pair and whose scale no other pair gives: those that ``apply`` calibrates."""
    if not _has_quantization(model.ir.graph):
        return ()
    planned = _plan_quantized_inputs(model)
    diagnoses = _iter_diagnoses(model.ir.graph, model.opset, planned, _placeholder_scale)
    return tuple(dict.fromkeys(d.value_to_calibrate for d in diagnoses if d.value_to_calibrate))


def select(
    model: Model, findings: Iterable[Finding | str] | None, *, calibrated: bool
) -> frozenset[str] | None:
    """The ids of findings, from ``check`` of this model, that are to be repaired; None for all.

    Raises:
        VariantError: a finding is not one of the model's, or rtlab cannot repair it.
    """
    if findings is None:
        return None
    finding_ids = frozenset(f.id if isinstance(f, Finding) else str(f) for f in findings)
    findings_by_id = {f.id: f for f in check(model, calibrated=calibrated)}
    for id_ in sorted(finding_ids):
        if id_ not in findings_by_id:
            some = quote_names(list(findings_by_id)[:3]) or "none"
            raise VariantError(
                f'Cannot repair "{id_}" in model "{model.name}": it has no such finding. Its findings are {some}'
                f"{', ...' if len(findings_by_id) > 3 else ''}; see rtlab.quantize.findings.check(model)."
            )
        if not findings_by_id[id_].fixable:
            raise VariantError(
                f'Cannot repair "{id_}" in model "{model.name}": rtlab cannot know the fix. {findings_by_id[id_].fix}'
            )
    return finding_ids


def apply(
    model: Model, finding_ids: AbstractSet[str] | None, scale_of: Callable[[str], float] | None = None
) -> tuple[Model, tuple[Finding, ...]]:
    """A model with some faults or all repaired, and the repaired findings, in that order.

    Nodes and values that stay keep their names. A repair may show another fault; with ``finding_ids`` None, these are
    repaired too. ``scale_of`` calibrates a value by name; without it a missing pair is put in only where another pair
    gives its scale.
    """
    if not _has_quantization(model.ir.graph) or (finding_ids is not None and not finding_ids):
        return model, ()
    edit, applied_findings = Edit(model, source=True), dict[str, Finding]()
    for graph_pass in iter_repair_passes(edit, finding_ids, scale_of, applied_findings):
        passes.apply(graph_pass, edit)
    return edit.model, tuple(applied_findings.values())


def iter_repair_passes(
    edit: Edit,
    finding_ids: AbstractSet[str] | None = None,
    scale_of: Callable[[str], float] | None = None,
    applied_findings: dict[str, Finding] | None = None,
) -> Iterator[Pass]:
    """The passes of ``apply``, each decided by the graph that those before it leave.

    What they repair is entered in ``applied_findings``, in that order.
    """
    opset, applied = edit.model.opset, {} if applied_findings is None else applied_findings
    initial = {f.id: f for f in check_integers(edit.graph, opset)}
    # Unfolding may show stored integers that are dequantized late.
    while now := [
        f.id
        for f in check_integers(edit.graph, opset)
        if f.fixable and (finding_ids is None or f.id in finding_ids)
    ]:
        applied.update((i, initial[i]) for i in now if i in initial)
        yield unfold(tuple(now))
        yield passes.INFER
    limit, repair_counts = len(edit.model.nodes), Counter[str]()

    def list_open(planned_inputs: AbstractSet[tuple[str, int]]) -> list[Diagnosis]:
        return [
            f
            for f in _iter_diagnoses(edit.graph, opset, planned_inputs, scale_of)
            if f.apply is not None
            and repair_counts[f.finding.id] <= limit
            and (finding_ids is None or f.finding.id in finding_ids)
        ]

    # A repair may change which inputs are to be quantized: they are planned anew.
    while open_ := list_open(planned_inputs := _plan_quantized_inputs(edit.model)):
        while open_:
            # One rule at a time, because later rules depend on earlier ones. A fault may come again, as where the
            # largest scale passes from one Concat to the next, but not more often than there are nodes.
            first_rule = [d for d in open_ if d.finding.rule == open_[0].finding.rule]
            repair_counts.update(d.finding.id for d in first_rule)
            applied.update((d.finding.id, d.finding) for d in first_rule)
            yield _repair(first_rule)
            open_ = list_open(planned_inputs)
        yield passes.INFER


def _repair(diagnoses: Sequence[Diagnosis]) -> Pass:
    """The repairs of one rule; the diagnoses were made of the graph that it is applied to."""

    def edit_graph(edit: Edit) -> None:
        editor = QdqEditor(edit)
        for diagnosis in diagnoses:
            if diagnosis.apply is not None:
                diagnosis.apply(editor)
        edit.sort_and_reindex()

    exact = all(d.finding.exact for d in diagnoses)
    promises = (*passes.REPAIR_PROMISES, passes.NUMBERS) if exact else passes.REPAIR_PROMISES
    return Pass(f'repair of "{diagnoses[0].finding.rule}"', edit_graph, promises)


def _has_quantization(graph: ir.Graph) -> bool:
    return has_integer_operators(graph) or any(
        n.op_type in {"QuantizeLinear", "DequantizeLinear"} for n in graph
    )


def _plan_quantized_inputs(model: Model) -> frozenset[tuple[str, int]]:
    """The inputs that rtlab itself would quantize in this model, were it not quantized yet."""
    work = copy_graph(model.ir)
    graph, reading = work.graph, QuantizedGraph(work.graph)
    for pair in reversed(list(reading.pairs.values())):
        replacement, shape = pair.source, pair.source.shape
        if pair.q is None:
            if pair.source not in reading.constants or shape is None or not shape.is_static():
                continue
            # The plan reads the type and the shape of a weight, not its numbers.
            tensor = ir.tensor(np.zeros(shape.numpy(), np.float32))
            kind = ir.TensorType(ir.DataType.FLOAT)
            replacement = ir.Value(name=f"{pair.out.name}/float", type=kind, shape=shape, const_value=tensor)
            graph.register_initializer(replacement)
        if pair.out.is_graph_output():
            continue
        pair.out.replace_all_uses_with(replacement)
    for node in reversed(list(graph)):
        unread = not any(v.uses() or v.is_graph_output() for v in node.outputs)
        if node.op_type in {"QuantizeLinear", "DequantizeLinear"} and unread:
            graph.remove(node, safe=True)
    quantization_plan = plan(of(work, name=model.name, shapes=model.shapes))
    return frozenset(edge for edges in quantization_plan.activations.values() for edge in edges)


def _placeholder_scale(value: str) -> float:
    """Stands for calibration where nothing is repaired."""
    raise AssertionError(value)


def _iter_diagnoses(
    graph: ir.Graph,
    opset: int,
    planned_inputs: AbstractSet[tuple[str, int]],
    scale_of: Callable[[str], float] | None = None,
) -> Iterator[Diagnosis]:
    """All findings, rule by rule in the order in which they are repaired; the first of those with one id."""
    emitted_ids = set[str]()
    for diagnosis in QdqRules(QuantizedGraph(graph), opset, planned_inputs, scale_of).iter_diagnoses():
        if diagnosis.finding.id not in emitted_ids:
            emitted_ids.add(diagnosis.finding.id)
            yield diagnosis
