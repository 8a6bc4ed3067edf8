"""Why a variant loses accuracy: a row for each cause, and what to do about the one that is chosen."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

from rtlab.analyses.diagnosis import AccuracyDiagnosis
from rtlab.analyses.diagnosis.causes import CALIBRATED, propose_cure
from rtlab.analyses.panel_context import PanelContext, PanelParts
from rtlab.analyses.score import TASKLESS
from rtlab.core.phrases import pluralize, quote_names
from rtlab.core.schema import FieldMeta
from rtlab.documents.panel import button, link, make_select
from rtlab.documents.results import ResultTable
from rtlab.errors import RunError
from rtlab.quantize.existing_qdq import find_quantized_nodes

if TYPE_CHECKING:
    from rtlab.core.facts import VariantResult
    from rtlab.core.finding import Finding
    from rtlab.documents.contract import Work

_ALL = "all"


@dataclasses.dataclass(frozen=True)
class Reason:
    """One cause, in the words of the panel."""

    node: Annotated[str, FieldMeta("Where", links="nodes")]
    why: Annotated[str, FieldMeta("Why")]
    evidence: Annotated[str, FieldMeta("What shows it")]
    fix: Annotated[str, FieldMeta("What helps")]
    samples: Annotated[str | None, FieldMeta("Samples", omit=True)] = None
    channels: Annotated[str | None, FieldMeta("Channels", omit=True)] = None
    cost: Annotated[str | None, FieldMeta("What it costs", omit=True)] = None


def get_diagnosis(context: PanelContext) -> AccuracyDiagnosis:
    """Why the variant loses accuracy.

    Raises:
        RunError: nobody looked into it yet.
    """
    diagnosis = context.study.diagnoses.get(context.result.name)
    if diagnosis is None:
        raise RunError(
            f'Cannot say why "{context.result.name}" loses accuracy: it is not diagnosed yet. '
            f"Run study.accuracy.diagnose({context.result.name!r})."
        )
    return diagnosis


def build_diagnosis_panel(context: PanelContext) -> PanelParts:
    """The causes, or what is in the way of looking for them."""
    facts = context.result
    diagnosis = context.study.diagnoses.get(facts.name)
    reason = _explain_unavailable(facts)
    search = button("diagnose", "Look again" if diagnosis else "Find out why", reason)
    if diagnosis is None:
        problem, notes = (f"{reason}.", []) if reason else ("", ["Not diagnosed yet."])
        return PanelParts(work=[search], problem=problem, notes=notes)
    findings = diagnosis.findings
    labels = {_ALL: f"all ({len(findings)})"} | {f.id: f.title for f in findings}
    cause_id = context.settings.get("cause", _ALL)
    cause_id = cause_id if cause_id in labels else _ALL
    table = ResultTable(Reason, [_build_reason(context, f) for f in findings])
    lead = next((f"{f.title} {f.evidence} {f.fix}" for f in findings if f.id == cause_id), "")
    if not findings:
        lead = "About the places that cost most nothing is unusual: so few bits alone are what they lose by."
    description = "The cause that is explained, and that the buttons repair."
    return PanelParts(
        result=diagnosis,
        lead=lead,
        facts=[],
        settings=[make_select("cause", "Cause", description, labels, cause_id)] if findings else [],
        work=[*_build_buttons(context, diagnosis, cause_id), search],
        columns=table.columns() if findings else [],
        rows=[{**row, "key": f.id} for row, f in zip(table.rows(), findings, strict=True)],
        links={f.id: link(p for n in f.nodes for p in context.model.where(n)) for f in findings},
        notes=list(_iter_notes(context, diagnosis)),
    )


def _build_reason(context: PanelContext, finding: Finding) -> Reason:
    why = finding.rule.replace("fp16", "FP16").replace("-", " ")
    return Reason(
        context.model.by_id[finding.nodes[0]].title,
        why[:1].upper() + why[1:],
        finding.evidence,
        finding.fix,
        ", ".join(map(str, finding.samples)) or None,
        ", ".join(map(str, finding.channels)) or None,
        finding.cost or None,
    )


def _iter_notes(context: PanelContext, diagnosis: AccuracyDiagnosis) -> Iterator[str]:
    """What the causes rest on, and which places have none."""
    yield f"{pluralize(len(diagnosis.guilty), 'place')} watched on {diagnosis.samples} samples: {diagnosis.source}."
    if find_quantized_nodes(context.result.source):
        yield "The model itself is quantized: what its Q/DQ pairs cost is measured against the model without them."
    if diagnosis.unexplained and diagnosis.findings:
        names = quote_names([context.model.by_id[n].title for n in diagnosis.unexplained])
        yield f"About {names} nothing is unusual: so few bits alone are what they lose by."


def _explain_unavailable(facts: VariantResult) -> str:
    if facts.recorded:
        return "Its engine was read from files of another machine, whose values are not known"
    if not facts.source.nodes:
        return "No ONNX model was given"
    return (
        ""
        if facts.prepared.precisions or find_quantized_nodes(facts.source)
        else "Nothing of it computes in less than FP32"
    )


def _build_buttons(context: PanelContext, diagnosis: AccuracyDiagnosis, cause_id: str) -> list[Work]:
    """Up to three changes against the causes or the one that is chosen, each once; and what shows the chosen one."""
    facts, task = context.result, context.study.scored_task
    cure_buttons: dict[str, Work] = {}
    quantized_nodes = find_quantized_nodes(facts.source)
    for finding in diagnosis.findings:
        if cause_id in {_ALL, finding.id}:
            change = propose_cure(finding, facts.name, facts.variant, quantized_nodes)
            if change is not None:
                cure_buttons.setdefault(change.label, button("treat", change.label, cause=finding.id))
    buttons = list(cure_buttons.values())[:3]
    if diagnosis.findings:
        buttons.append(button("repair", "Repair all", "" if task is not None else TASKLESS))
    for finding in (f for f in diagnosis.findings if f.id == cause_id):
        if finding.samples:
            is_task_data = task is None or task.data is context.study.user_data
            is_task_data = is_task_data or finding.rule not in CALIBRATED
            why = "" if is_task_data else "They are samples of the calibration, which the task does not have"
            count = len(finding.samples)
            label = f"Show only {'this sample' if count == 1 else f'these {count} samples'}"
            buttons.append(button("only", label, why, samples=",".join(map(str, finding.samples))))
        # A weight has no errors of channels: it is compared with nothing.
        if finding.channels and finding.value in context.model.producers:
            buttons.append(button("channels", "Show its channels", value=finding.value))
    return buttons
