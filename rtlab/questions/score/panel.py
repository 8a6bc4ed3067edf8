"""The task's score with its uncertainty, and the samples that flipped."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np

from rtlab import questions
from rtlab.core.answers import kept
from rtlab.core.facts import Facts, Score
from rtlab.core.metrics import sequence, spelled
from rtlab.core.phrases import many
from rtlab.core.schema import Meaning
from rtlab.core.stage import Stage
from rtlab.core.uncertainty import FEWEST, Interval, Paired
from rtlab.errors import RunError
from rtlab.questions.scene import Question, Scene
from rtlab.questions.score.words import difference_words, p_words
from rtlab.questions.titles import titles

if TYPE_CHECKING:
    from rtlab.core.task import Task

#: Samples whose value changed that are listed, where they neither hit nor miss.
_CHANGED = 100
#: Letters of an answer in a row.
_WIDEST = 48


@dataclasses.dataclass(frozen=True)
class FlippedSample:
    """A sample that one of two variants has right and the other one wrong; or, of other metrics, whose value changed.

    ``before`` and ``after`` are the answers of the baseline and of the variant: the class with the largest output, the
    sequence, or else the value of the metric. The margins are those of that class over the next one, in the unit of the
    output; ``change`` is how much the metric's value rose, None of hits and misses.
    """

    sample: Annotated[int, Meaning("Sample", note="Counted from 0, as in the task's data.")]
    flip: Annotated[str, Meaning("Now")]
    label: Annotated[str | None, Meaning("Label", omit=True)]
    before: Annotated[str, Meaning("{of.baseline}")]
    before_margin: Annotated[float | None, Meaning("Margin", origin="measured", omit=True)]
    after: Annotated[str, Meaning("{of.variant}")]
    after_margin: Annotated[float | None, Meaning("Margin", origin="measured", omit=True)]
    change: Annotated[float | None, Meaning("Change", "{of.unit}", "measured", omit=True)]


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
        flipped=flipped(facts, baseline, task) if baseline is not None and found is not None else (),
        notes=tuple(_notes(score, baseline, found)),
    )


def _missing(facts: Facts, task: Task | None) -> str:
    """Why there is no score."""
    doing = f'Cannot tell the score of "{facts.name}": '
    if task is None:
        return f"{doing}the study has no task. Give Study(model, task=rtlab.Task(data, labels))."
    if facts.recorded:
        return f"{doing}it was read from files, which tell none. Add a variant of the same precision to score one here."
    standing = next((s.text for s in facts.stages.values() if s.stage is Stage.SCORED), "")
    why = f"{standing}." if standing else f'it was not scored. Run study.measure("{facts.name}").'
    return f"{doing}{why}"


def _flips(found: Paired | None) -> str | None:
    if found is None or found.p is None:
        return None
    return f"{found.lost} lost, {found.won} won; McNemar's exact test {p_words(found.p)}"


def _verdict(found: Paired | None, score: Score) -> Literal["worse", "better", "cannot tell", ""]:
    if found is None:
        return ""
    if not found.sure:
        return "cannot tell"
    return "better" if (found.difference > 0) == score.higher else "worse"


def _notes(score: Score, baseline: Facts | None, found: Paired | None) -> Iterator[str]:
    """What a reader must know of these numbers."""
    tally, before = score.tally, baseline.score if baseline is not None and found is not None else None
    if score.samples < FEWEST:
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
    if score.interval is None and tally is not None:
        why = tally.why or ("one sample has no spread" if score.samples == 1 else "the metric gives none")
        yield f"There is no interval: {why}."
    if tally is not None and tally.amounts is None:
        yield (
            "The metric tells one number for all samples, so that nobody knows which of them changed. Give "
            "rtlab.Metric(name, each=...) with a value for each sample."
        )
    if found is not None and found.samples < score.samples and found.p is not None:
        yield f"The difference is that of the first {found.samples} samples, on which both were scored."


@kept
def flipped(facts: Facts, baseline: Facts, task: Task) -> tuple[FlippedSample, ...]:
    """The samples that a baseline has right and a variant wrong, then the other way round, each by their number.

    Where a metric has values and no hits: those whose value became worse, the most first, then those that became
    better; at most a hundred. Empty where it tells one number for all samples.
    """
    one, other, metric = baseline.score, facts.score, task.counted
    if one is None or other is None or one.tally is None or other.tally is None or metric is None:
        return ()
    before, after = one.tally.values(), other.tally.values()
    if before is None or after is None:
        return ()
    count = min(len(before), len(after))
    with np.errstate(invalid="ignore"):
        change = after[:count] - before[:count]
    harm = -change if other.higher else change
    hits = one.tally.hits and other.tally.hits
    found: list[int] = np.flatnonzero(np.nan_to_num(change) != 0).tolist()
    order = sorted(found, key=lambda i: (harm[i] < 0, 0.0 if hits else -harm[i], i))
    rows = [_first(s) for s in (one, other)]
    return tuple(
        FlippedSample(
            sample=i,
            flip=("lost" if harm[i] > 0 else "won") if hits else "worse" if harm[i] > 0 else "better",
            label=_label(task, i),
            **_told("before", metric.says, rows[0][i], before[i], task),
            **_told("after", metric.says, rows[1][i], after[i], task),
            change=None if hits else float(change[i]),
        )
        for i in (order if hits else order[:_CHANGED])
    )


def _first(score: Score) -> Sequence[Any]:
    """The first output of each sample."""
    found = next(iter(score.held.joined().values()))
    return [row for part in found for row in part] if isinstance(found, list) else found


def _told(key: str, says: str, row: Any, value: float, task: Task) -> dict[str, Any]:
    """An answer and its margin."""
    margin: float | None = None
    if says == "class":
        flat = np.asarray(row, np.float64).ravel()
        if np.isnan(flat).any():
            answer = "NaN"
        else:
            answer = _class(int(flat.argmax()), task.vocabulary)
            if flat.size > 1:
                second, first = np.partition(flat, -2)[-2:]
                margin = float(first - second)
    elif says == "sequence":
        answer = _cut(spelled(sequence(np.asarray(row)), task.vocabulary))
    else:
        answer = f"{value:.4g}".replace("-", "−")
    return {key: answer, f"{key}_margin": margin}


def _label(task: Task, index: int) -> str | None:
    """A label in words; None where it is a picture or the like."""
    label, says = task.labels[index], task.counted.says if task.counted is not None else ""
    if says == "class":
        return _class(int(label), task.vocabulary)
    if task.labels.dtype.kind in "US":
        return _cut(str(label))
    if says == "sequence":
        return _cut(spelled(sequence(label), task.vocabulary))
    return f"{label}" if task.labels.ndim == 1 else None


def _class(number: int, vocabulary: Sequence[str]) -> str:
    return vocabulary[number] if number < len(vocabulary) else str(number)


def _cut(text: str) -> str:
    return text if len(text) <= _WIDEST else f"{text[: _WIDEST - 1]}…"


SCORE = Question(
    "score",
    tab="accuracy",
    label="Task",
    title="Score on the task",
    lead="How far the score may lie from that of all such samples, and which samples are right in one variant alone.",
    noun=scored,
)
