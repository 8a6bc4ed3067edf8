"""Why a variant loses accuracy: a row for each cause, and what to do about the one that is chosen."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

from rtlab.analyses.diagnosis import AccuracyDiagnosis
from rtlab.analyses.diagnosis.causes import CALIBRATED
from rtlab.analyses.diagnosis.remedies import propose_cure
from rtlab.analyses.panel_context import PanelContext, PanelParts
from rtlab.analyses.score import TASKLESS, compute_score_difference, find_reference
from rtlab.analyses.titles import get_variant_titles
from rtlab.analyses.variants.variations import VARIATIONS
from rtlab.core.phrases import pluralize, quote_names
from rtlab.core.schema import FieldMeta
from rtlab.core.variant import Precision
from rtlab.documents.panel import button, link, make_select
from rtlab.documents.results import ResultTable
from rtlab.errors import RunError
from rtlab.quantize.existing_qdq import find_quantized_nodes

if TYPE_CHECKING:
    from rtlab.core.facts import VariantResult
    from rtlab.core.finding import Finding
    from rtlab.documents.contract import Work

_ALL = "all"
_PAIRS = VARIATIONS["pairs"]


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
    ask = button("diagnose", "Look again" if diagnosis else "Find out why", reason)
    bare = (
        [button("rebuild", f"Build it {_PAIRS[:1].lower()}{_PAIRS[1:]}", what="pairs")]
        if _needs_unquantized_build(context)
        else []
    )
    if diagnosis is None:
        problem = f"{reason}." if reason else ""
        return PanelParts(
            work=[ask, *bare], problem=problem, notes=[] if problem else [_describe_loss(context)]
        )
    labels = {_ALL: f"all ({len(diagnosis.findings)})"} | {f.id: f.title for f in diagnosis.findings}
    cause_id = context.settings.get("cause", _ALL)
    cause_id = cause_id if cause_id in labels else _ALL
    table = ResultTable(Reason, [_build_reason(context, f) for f in diagnosis.findings])
    lead = next((f"{f.title} {f.evidence} {f.fix}" for f in diagnosis.findings if f.id == cause_id), "")
    if not diagnosis.findings:
        lead = "About the places that cost most nothing is unusual: so few bits alone are what they lose by."
    return PanelParts(
        result=diagnosis,
        lead=lead,
        facts=[],
        settings=[
            make_select(
                "cause",
                "Cause",
                "The cause that is explained, and that the buttons repair.",
                labels,
                cause_id,
            )
        ]
        if diagnosis.findings
        else [],
        work=[*_build_buttons(context, diagnosis, cause_id), ask, *bare],
        columns=table.columns() if diagnosis.findings else [],
        rows=[{**row, "key": f.id} for row, f in zip(table.rows(), diagnosis.findings, strict=True)],
        links={f.id: link(p for n in f.nodes for p in context.model.where(n)) for f in diagnosis.findings},
        notes=list(_iter_notes(context, diagnosis)),
    )


def _describe_loss(context: PanelContext) -> str:
    """What there is to explain, before anybody looked into it."""
    facts = context.result
    baseline = context.baseline or find_reference(context.study, facts)
    variant_titles = get_variant_titles(context.study)
    score_difference = (
        compute_score_difference(facts, baseline, variant_titles.get(baseline.name, ""))
        if baseline is not None
        else None
    )
    score_sentence = f"Its score is {score_difference}. " if score_difference else ""
    return f"{score_sentence}Not diagnosed yet."


def _needs_unquantized_build(context: PanelContext) -> bool:
    """Whether the model itself is quantized, and nobody built it without that."""
    built_variants = (f.variant for f in context.study.results.values())
    return bool(find_quantized_nodes(context.result.source)) and not any(
        r.kind == "release" for v in built_variants if v.precision is Precision.FP32 for r in v.rewrites
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
    """A button for what may be done about each cause, or about the one that is chosen; each change once."""
    facts = context.result
    cure_buttons: dict[str, Work] = {}
    quantized_nodes = find_quantized_nodes(facts.source)
    for finding in diagnosis.findings:
        if cause_id not in {_ALL, finding.id}:
            continue
        change = propose_cure(finding, facts.name, facts.variant, quantized_nodes)
        if change is not None:
            cure_buttons.setdefault(change.label, button("treat", change.label, cause=finding.id))
    task = context.study.scored_task is not None
    repair_buttons = [button("repair", "Repair all", "" if task else TASKLESS)] if diagnosis.findings else []
    sample_buttons = [
        _build_sample_button(context, f) for f in diagnosis.findings if f.id == cause_id and f.samples
    ]
    # Where the model computes the value: a weight is compared with nothing.
    channel_buttons = [
        button("channels", "Show its channels", value=f.value)
        for f in diagnosis.findings
        if f.id == cause_id and f.channels and f.value in context.model.producers
    ]
    return [*list(cure_buttons.values())[:_BUTTONS], *repair_buttons, *sample_buttons, *channel_buttons]


def _build_sample_button(context: PanelContext, finding: Finding) -> Work:
    """Shows the samples of a cause alone in every panel, where they are among those that variants run on."""
    task, count = context.study.scored_task, len(finding.samples)
    is_task_data = task is None or task.data is context.study.user_data or finding.rule not in CALIBRATED
    why = "" if is_task_data else "They are samples of the calibration, which the task does not have"
    label = f"Show only {'this sample' if count == 1 else f'these {count} samples'}"
    return button("only", label, why, samples=",".join(map(str, finding.samples)))


#: Buttons for which there is room.
_BUTTONS = 3


def _build_reason(context: PanelContext, finding: Finding) -> Reason:
    node = context.model.by_id[finding.nodes[0]]
    why = finding.rule.replace("fp16", "FP16").replace("-", " ")
    return Reason(
        node.title,
        why[:1].upper() + why[1:],
        finding.evidence,
        finding.fix,
        ", ".join(map(str, finding.samples)) or None,
        ", ".join(map(str, finding.channels)) or None,
        finding.cost or None,
    )
