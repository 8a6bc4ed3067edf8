"""Why a variant loses accuracy: a row for each cause, and what to do about the one that is chosen."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

from rtlab.core.phrases import many, quoted
from rtlab.core.schema import Meaning
from rtlab.core.variant import Precision
from rtlab.documents.answer import NounTable
from rtlab.documents.panel import button, choices, link
from rtlab.errors import RunError
from rtlab.quantize.own import quantized
from rtlab.questions.diagnosis import AccuracyDiagnosis
from rtlab.questions.diagnosis.causes import CALIBRATED
from rtlab.questions.diagnosis.cures import cure
from rtlab.questions.scene import Question, Scene
from rtlab.questions.score import difference, reference
from rtlab.questions.score.words import TASKLESS
from rtlab.questions.titles import titles
from rtlab.questions.variants.variations import VARIATIONS

if TYPE_CHECKING:
    from rtlab.core.facts import Facts
    from rtlab.core.finding import Finding
    from rtlab.documents.contract import Panel, Work

_LEAD = "Choose a cause: it is told in full here, and a button builds the variant that is rid of it."
_ALL = "all"
_PAIRS = VARIATIONS["pairs"]


@dataclasses.dataclass(frozen=True)
class Reason:
    """One cause, in the words of the panel."""

    node: Annotated[str, Meaning("Where", links="nodes")]
    why: Annotated[str, Meaning("Why")]
    evidence: Annotated[str, Meaning("What shows it")]
    fix: Annotated[str, Meaning("What helps")]
    samples: Annotated[str | None, Meaning("Samples", omit=True)] = None
    channels: Annotated[str | None, Meaning("Channels", omit=True)] = None
    cost: Annotated[str | None, Meaning("What it costs", omit=True)] = None


def found(scene: Scene) -> AccuracyDiagnosis:
    """Why the variant loses accuracy.

    Raises:
        RunError: nobody looked into it yet.
    """
    known = scene.study.diagnoses.get(scene.result.name)
    if known is None:
        raise RunError(
            f'Cannot tell why "{scene.result.name}" loses accuracy: nobody looked into it yet. '
            f"Run study.diagnose({scene.result.name!r})."
        )
    return known


def diagnosed(scene: Scene) -> Panel:
    """The causes, or what is in the way of looking for them."""
    facts = scene.result
    known = scene.study.diagnoses.get(facts.name)
    reason = _unable(facts)
    ask = button("diagnose", "Look again" if known else "Find out why", reason)
    bare = (
        [button("rebuild", f"Build it {_PAIRS[:1].lower()}{_PAIRS[1:]}", what="pairs")] if _own(scene) else []
    )
    if known is None:
        problem = f"{reason}." if reason else ""
        return DIAGNOSIS.panel(
            scene, work=[ask, *bare], problem=problem, notes=[] if problem else [_before(scene)]
        )
    labels = {_ALL: f"all ({len(known.findings)})"} | {f.id: f.title for f in known.findings}
    chosen = scene.settings.get("cause", _ALL)
    chosen = chosen if chosen in labels else _ALL
    table = NounTable(Reason, [_reason(scene, f) for f in known.findings])
    lead = next((f"{f.title} {f.evidence} {f.fix}" for f in known.findings if f.id == chosen), _LEAD)
    if not known.findings:
        lead = "About the places that cost most nothing is unusual: so few bits alone are what they lose by."
    return DIAGNOSIS.panel(
        scene,
        known,
        lead=lead,
        facts=[],
        settings=[
            choices(
                "cause",
                "Cause",
                "The cause that is told in full, and that the buttons repair.",
                labels,
                chosen,
            )
        ]
        if known.findings
        else [],
        work=[*_works(scene, known, chosen), ask, *bare],
        columns=table.columns() if known.findings else [],
        rows=[{**row, "key": f.id} for row, f in zip(table.rows(), known.findings, strict=True)],
        links={f.id: link(p for n in f.nodes for p in scene.model.where(n)) for f in known.findings},
        notes=list(_notes(scene, known)),
    )


def _before(scene: Scene) -> str:
    """What there is to explain, before anybody looked into it."""
    facts = scene.result
    baseline = scene.baseline or reference(scene.study, facts)
    called = titles(scene.study)
    told = difference(facts, baseline, called.get(baseline.name, "")) if baseline is not None else None
    lost = f"Its score is {told}. " if told else ""
    return f"{lost}Nobody looked for causes yet."


def _own(scene: Scene) -> bool:
    """Whether the model itself is quantized, and nobody built it without that."""
    built = (f.variant for f in scene.study.facts.values())
    return bool(quantized(scene.result.source)) and not any(
        r.kind == "release" for v in built if v.precision is Precision.FP32 for r in v.rewrites
    )


def _notes(scene: Scene, known: AccuracyDiagnosis) -> Iterator[str]:
    """What the causes rest on, and which places have none."""
    yield f"{many(len(known.guilty), 'place')} watched on {known.samples} samples: {known.source}."
    if quantized(scene.result.source):
        yield "The model itself is quantized: what its Q/DQ pairs cost is told against the model without them."
    if known.unexplained and known.findings:
        names = quoted([scene.model.by_id[n].title for n in known.unexplained])
        yield f"About {names} nothing is unusual: so few bits alone are what they lose by."


def _unable(facts: Facts) -> str:
    if facts.recorded:
        return "Its engine was read from files of another machine, whose values are not known"
    if not facts.source.nodes:
        return "No ONNX model was given"
    return (
        ""
        if facts.prepared.precisions or quantized(facts.source)
        else "Nothing of it computes in less than FP32"
    )


def _works(scene: Scene, known: AccuracyDiagnosis, chosen: str) -> list[Work]:
    """A button for what may be done about each cause, or about the one that is chosen; each change once."""
    facts = scene.result
    made: dict[str, Work] = {}
    own = quantized(facts.source)
    for finding in known.findings:
        if chosen not in {_ALL, finding.id}:
            continue
        change = cure(finding, facts.name, facts.variant, own)
        if change is not None:
            made.setdefault(change.label, button("treat", change.label, cause=finding.id))
    task = scene.study.task is not None
    every = [button("repair", "Repair all", "" if task else TASKLESS)] if known.findings else []
    shown = [_only(scene, f) for f in known.findings if f.id == chosen and f.samples]
    # Where the model computes the value: a weight is compared with nothing.
    apart = [
        button("channels", "Show its channels", value=f.value)
        for f in known.findings
        if f.id == chosen and f.channels and f.value in scene.model.producers
    ]
    return [*list(made.values())[:_BUTTONS], *every, *shown, *apart]


def _only(scene: Scene, finding: Finding) -> Work:
    """Shows the samples of a cause alone in every panel, where they are among those that variants run on."""
    task, count = scene.study.task, len(finding.samples)
    theirs = task is None or task.data is scene.study.given or finding.rule not in CALIBRATED
    why = "" if theirs else "They are samples of the calibration, which the task does not have"
    label = f"Show only {'this sample' if count == 1 else f'these {count} samples'}"
    return button("only", label, why, samples=",".join(map(str, finding.samples)))


#: Buttons for which there is room.
_BUTTONS = 3


def _reason(scene: Scene, finding: Finding) -> Reason:
    node = scene.model.by_id[finding.nodes[0]]
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


DIAGNOSIS = Question(
    "diagnosis",
    tab="accuracy",
    label="Why",
    title="Where did the accuracy go?",
    lead=_LEAD,
    told="The causes that accuracy was lost to, with their evidence and a repair.",
    noun=found,
    drawn=diagnosed,
)
