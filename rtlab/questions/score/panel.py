"""The task's score with its uncertainty, and the samples that flipped."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Literal

from rtlab import questions
from rtlab.core.facts import Facts, Score
from rtlab.core.phrases import many
from rtlab.core.schema import Meaning
from rtlab.core.stage import Stage
from rtlab.core.uncertainty import FEWEST, Interval, Paired
from rtlab.documents.contract import Panel, Work
from rtlab.documents.panel import button, choices, field
from rtlab.errors import RunError, VariantError
from rtlab.questions.scene import Question, Scene
from rtlab.questions.score.flips import FlippedSample, flipped
from rtlab.questions.score.pictures import numbered, pictures
from rtlab.questions.score.words import difference_words, p_words
from rtlab.questions.titles import titles

if TYPE_CHECKING:
    from rtlab.core.task import Task


@dataclasses.dataclass(frozen=True)
class TaskScore:
    """The task's score of a variant with its 95 % interval, and the paired difference to a baseline.

    ``value`` and both intervals are in ``unit``; ``difference`` is the variant's score less the baseline's, and
    ``verdict`` says whether that is worse or better, or whether the samples cannot tell; empty without a baseline.
    ``lost`` samples are right in the baseline alone, ``won`` in the variant alone, ``p`` is McNemar's; None where the
    metric counts no hits.
    """

    variant: str
    baseline: str
    metric: str
    unit: str
    value: float
    interval: Interval | None
    told: Annotated[str, Meaning("{self.metric}", origin="measured", note="{self.how}")]
    samples: Annotated[int, Meaning("Samples")]
    compared: Annotated[str | None, Meaning("Difference", origin="measured", omit=True, note="{self.by}")]
    flips: Annotated[str | None, Meaning("Flipped", origin="measured", omit=True)]
    verdict: Literal["worse", "better", "cannot tell", ""]
    difference: float | None
    difference_interval: Interval | None
    lost: int | None
    won: int | None
    p: float | None
    how: str
    by: str
    flipped: tuple[FlippedSample, ...]
    notes: tuple[str, ...]


def scored(scene: Scene) -> TaskScore:
    """The score of a variant, beside that of the baseline or of the first other variant in fp32.

    Raises:
        RunError: there is no score.
    """
    facts, task = scene.result, scene.study.task
    score = facts.score
    if score is None or score.tally is None or task is None:
        raise RunError(_missing(facts, task))
    baseline = scene.baseline if scene.baseline is not None else questions.score.reference(scene.study, facts)
    found = questions.score.compared(facts, baseline) if baseline is not None else None
    called = titles(scene.study)
    other = called.get(baseline.name, baseline.name) if baseline is not None and found is not None else ""
    within = score.interval
    return TaskScore(
        variant=called.get(facts.name, facts.name),
        baseline=other,
        metric=score.name,
        unit=score.unit,
        value=score.value,
        interval=within,
        told=questions.score.short(score),
        samples=score.samples,
        compared=difference_words(found, score, other, tested=False) if found else None,
        flips=_flips(found),
        verdict=_verdict(found, score),
        difference=found.difference if found else None,
        difference_interval=found.interval if found else None,
        lost=found.lost if found else None,
        won=found.won if found else None,
        p=found.p if found else None,
        how=f"95 % interval: {within.method}." if within else "",
        by=f"95 % interval: {found.interval.method}." if found and found.interval else "",
        flipped=_shown(scene, flipped(facts, baseline, task))
        if baseline is not None and found is not None
        else (),
        notes=tuple(_notes(task, score, baseline, found)),
    )


def _missing(facts: Facts, task: Task | None) -> str:
    """Why there is no score."""
    doing = f'Cannot tell the score of "{facts.name}": '
    if task is None:
        return (
            f"{doing}the study has no task. Give Study(model, task=rtlab.Task(data, labels)); without labels the "
            "answers of fp32 count."
        )
    if facts.recorded:
        return f"{doing}it was read from files, which tell none. Add a variant of the same precision to score one here."
    standing = next((s.text for s in facts.stages.values() if s.stage is Stage.SCORED), "")
    why = f"{standing}." if standing else f'it was not scored. Run study.measure("{facts.name}").'
    return f"{doing}{why}"


def _flips(found: Paired | None) -> str | None:
    if found is None or found.lost is None:
        return None
    test = f"; McNemar's exact test {p_words(found.p)}" if found.p is not None else ""
    return f"{found.lost} lost, {found.won} won{test}"


def _verdict(found: Paired | None, score: Score) -> Literal["worse", "better", "cannot tell", ""]:
    if found is None or found.interval is None:
        return ""
    if not found.sure:
        return "cannot tell"
    return "better" if (found.difference > 0) == score.higher else "worse"


def _notes(task: Task, score: Score, baseline: Facts | None, found: Paired | None) -> Iterator[str]:
    """What a reader must know of these numbers."""
    if task.reference:
        yield (
            "No labels were given: they are the model's own answers in fp32, so that this says how far the variant "
            "agrees with fp32, and not how often it is right."
        )
    tally, before = score.tally, baseline.score if baseline is not None and found is not None else None
    if score.samples < FEWEST and not (tally is not None and tally.picked):
        yield (
            f"{many(score.samples, 'sample')} are too few to conclude anything about the task: give at least {FEWEST}, "
            "better some hundreds."
        )
    if before is not None and before.tally is not None and baseline is not None and before.tally.broken:
        yield (
            f"The baseline itself is broken: its output has NaN in {before.tally.broken} of {before.samples} samples, "
            "which count as wrong. No variant can be judged by it there."
        )
    if tally is not None and tally.broken:
        yield f"The output has NaN in {tally.broken} of {score.samples} samples, which count as wrong."
    if tally is not None and tally.picked:
        yield (
            f"Only {many(score.samples, 'chosen sample')}: picked for what they show, they tell nothing of others, so "
            "that there are no intervals."
        )
    elif score.interval is None and tally is not None:
        why = tally.why or ("one sample has no spread" if score.samples == 1 else "the metric gives none")
        yield f"There is no interval: {why}."
    if tally is not None and tally.amounts is None:
        yield (
            "The metric tells one number for all samples, so that nobody knows which of them changed. Give "
            "rtlab.Metric(name, each=...) with a value for each sample."
        )
    if found is None:
        yield (
            "Compared with nothing: others are compared with this variant, or none in fp32 has a score of this metric. "
            "Show another variant, or add one in fp32."
        )
    if found is not None and found.samples < score.samples and found.p is not None:
        yield f"The difference is that of the first {found.samples} samples, on which both were scored."


def _shown(scene: Scene, found: tuple[FlippedSample, ...]) -> tuple[FlippedSample, ...]:
    """Those that the panel's setting asks for, under the numbers that they have among all samples."""
    wanted, numbers = scene.settings.get("show", ""), scene.study.chosen
    return tuple(
        dataclasses.replace(f, sample=numbers[f.sample]) if numbers else f
        for f in found
        if wanted in {"", f.flip}
    )


def drawn(scene: Scene) -> Panel:
    """The score, pictures of the samples that flipped, and buttons that show them alone in every panel."""
    found, chosen = scored(scene), scene.study.chosen
    settings = []
    if found.baseline and not chosen:
        kinds = ("lost", "won") if found.lost is not None else ("worse", "better")
        listed = {
            "": "all that flipped" if found.lost is not None else "all that changed",
            **{k: k for k in kinds},
        }
        settings = [
            choices("show", "List", "Which samples the table lists.", listed, scene.settings.get("show", ""))
        ]
    if not chosen:
        settings.append(
            field(
                "samples",
                "Samples",
                "Errors and score of these samples alone.",
                scene.settings.get("samples", ""),
                "numbers, such as 3, 17-20",
            )
        )
    return SCORE.panel(
        scene,
        found,
        settings=settings,
        work=[_button(scene, found)],
        figures=pictures(scene, found.flipped, found.baseline, found.variant),
    )


def _button(scene: Scene, found: TaskScore) -> Work:
    """Shows some samples alone in every panel, or all again."""
    if scene.study.chosen:
        return button("only", "All samples again", samples="")
    text, why = scene.settings.get("samples", "").strip(), ""
    try:
        numbers = numbered(text) if text else tuple(f.sample for f in found.flipped)
    except VariantError as error:
        numbers, why = (), str(error)
    why = why or ("" if numbers else "No sample is listed: write numbers of samples")
    title = f"Show only {'this sample' if len(numbers) == 1 else f'these {len(numbers)} samples'}"
    return button(
        "only", title if numbers else "Show only these samples", why, samples=",".join(map(str, numbers))
    )


SCORE = Question(
    "score",
    tab="accuracy",
    label="Task",
    title="Score on the task",
    lead="How far the score may lie from that of all such samples, and which samples are right in one variant alone.",
    told="The score with its interval, and the samples that are right in one variant alone.",
    noun=scored,
    drawn=drawn,
)
