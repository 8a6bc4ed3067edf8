"""Faults of a model's own quantize and dequantize pairs, their cost, and their repair.

Such pairs come from training in PyTorch or TensorFlow, from ModelOpt or from ONNX Runtime's ``quantize_static``. What a
cost says of TensorRT-RTX was seen in builds with version 1.7.1, which tests/backends/test_findings.py repeats.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet

import numpy as np
import onnx_ir as ir

from rtlab.core.finding import Finding
from rtlab.core.model import Model, of
from rtlab.core.phrases import quote_names
from rtlab.errors import VariantError
from rtlab.quantize import integers, passes
from rtlab.quantize.edit import Edit, copy_model
from rtlab.quantize.passes import Pass
from rtlab.quantize.placement import plan
from rtlab.quantize.qdq import QuantizedGraph
from rtlab.quantize.qdq_rules import Diagnosis, QdqRules
from rtlab.quantize.requantize import QdqEditor


def check(model: Model, *, calibrated: bool = False) -> tuple[Finding, ...]:
    """The findings about the pairs of a model's main graph, those that keep it from building first.

    With ``calibrated``, ``apply`` can calibrate, so that a missing pair can be put in.
    """
    if not _has_quantization(model.ir.graph):
        return ()
    scale_of = _placeholder_scale if calibrated else None
    diagnoses = _iter_diagnoses(model.ir.graph, model.opset, _plan_quantized_inputs(model), scale_of)
    findings = (*integers.check(model.ir.graph, model.opset), *(f.finding for f in diagnoses))
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
    initial = {f.id: f for f in integers.check(edit.graph, opset)}
    # Unfolding may show stored integers that are dequantized late.
    while now := [
        f.id
        for f in integers.check(edit.graph, opset)
        if f.fixable and (finding_ids is None or f.id in finding_ids)
    ]:
        applied.update((i, initial[i]) for i in now if i in initial)
        yield integers.unfold(tuple(now))
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
    return integers.has_integer_operators(graph) or any(
        n.op_type in {"QuantizeLinear", "DequantizeLinear"} for n in graph
    )


def _plan_quantized_inputs(model: Model) -> frozenset[tuple[str, int]]:
    """The inputs that rtlab itself would quantize in this model, were it not quantized yet."""
    work = copy_model(model.ir)
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
