"""The samples that a baseline has right and a variant wrong, and the other way round, each with what was said of it."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np

from rtlab.core.facts import Score, VariantResult
from rtlab.core.memo import memoized
from rtlab.core.schema import FieldMeta
from rtlab.errors import VariantError

if TYPE_CHECKING:
    from rtlab.core.task import Task

#: Samples whose value changed that are listed, where they neither hit nor miss.
_CHANGED = 100
#: Letters of an answer in a row.
_WIDEST = 48
#: Numbers of a sample that are listed one by one.
_FEW = 6


@dataclasses.dataclass(frozen=True)
class FlippedSample:
    """A sample that one of two variants has right and the other one wrong; or, of other metrics, whose value changed.

    ``before`` and ``after`` are the answers of the baseline and of the variant: the class with the largest output, or
    else the value of the metric. ``input`` is the sample in
    words where it is no picture; ``change`` is how much the metric's value rose, None of hits and misses.
    """

    sample: Annotated[int, FieldMeta("Sample", note="Counted from 0, as in the task's data.")]
    input: Annotated[str | None, FieldMeta("Input", omit=True)]
    label: Annotated[str | None, FieldMeta("Label", omit=True)]
    before: Annotated[str, FieldMeta("{of.baseline}")]
    after: Annotated[str, FieldMeta("{of.variant}")]
    flip: Annotated[str, FieldMeta("Now")]
    change: Annotated[float | None, FieldMeta("Change", "{of.unit}", "measured", omit=True)]


@memoized
def find_flipped_samples(
    facts: VariantResult, baseline: VariantResult, task: Task
) -> tuple[FlippedSample, ...]:
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
    changed_samples: list[int] = np.flatnonzero(np.nan_to_num(change) != 0).tolist()
    order = sorted(changed_samples, key=lambda i: (harm[i] < 0, 0.0 if hits else -harm[i], i))
    rows = [_first(s) for s in (one, other)]
    says = metric.says or ("hit" if hits else "")
    return tuple(
        FlippedSample(
            sample=i,
            flip=("lost" if harm[i] > 0 else "won") if hits else "worse" if harm[i] > 0 else "better",
            input=_input(task, i),
            label=_label(task, i),
            before=_format_answer(says, rows[0][i], before[i], task),
            after=_format_answer(says, rows[1][i], after[i], task),
            change=None if hits else float(change[i]),
        )
        for i in (order if hits else order[:_CHANGED])
    )


def _first(score: Score) -> Sequence[Any]:
    """The first output of each sample."""
    outputs = next(iter(score.predictions.concatenate().values()))
    return [row for part in outputs for row in part] if isinstance(outputs, list) else outputs


def _format_answer(says: str, row: Any, value: float, task: Task) -> str:
    if says == "class":
        flat = np.asarray(row, np.float64).ravel()
        return "NaN" if np.isnan(flat).any() else _class(int(flat.argmax()), task.vocabulary)
    if says == "hit":
        return "right" if value else "wrong"
    return f"{value:.4g}".replace("-", "−")


def _label(task: Task, index: int) -> str | None:
    """A label in words; None where it is a picture or the like."""
    label, says = task.labels[index], task.counted.says if task.counted is not None else ""
    if says == "class":
        return _class(int(label), task.vocabulary)
    if task.labels.dtype.kind in "US":
        return _cut(str(label))
    return f"{label}" if task.labels.ndim == 1 else None


def _class(number: int, vocabulary: Sequence[str]) -> str:
    return vocabulary[number] if number < len(vocabulary) else str(number)


def _cut(text: str) -> str:
    return text if len(text) <= _WIDEST else f"{text[: _WIDEST - 1]}…"


def _input(task: Task, index: int) -> str | None:
    """What the sample is, in words; None of pictures and the like, which are drawn."""
    array = next(iter(task.data.arrays.values()), None)
    if array is None or index >= len(array):
        return None
    row = np.asarray(array[index]).squeeze()
    if row.ndim > 1:
        return None
    row = row.reshape(-1)
    if row.dtype.kind in "iu":
        return _cut(" ".join(map(str, row)))
    if row.size < _FEW:
        return ", ".join(f"{x:.3g}" for x in row).replace("-", "−")
    return f"{row.size} numbers, {row.min():.3g} to {row.max():.3g}".replace("-", "−")


def parse_sample_numbers(text: str) -> tuple[int, ...]:
    """Numbers as people write them: "3, 17-20" or "3 17 18".

    Raises:
        VariantError: a word is no number and no range of them.
    """
    numbers: list[int] = []
    for word in filter(None, re.split(r"[,;\s]+", text)):
        ends = re.fullmatch(r"(\d{1,9})(?:[-–](\d{1,9}))?", word)
        if ends is None:
            raise VariantError(f'Cannot choose samples: "{word}" is no number. Write such as 3, 17-20.')
        first, last = int(ends[1]), int(ends[2] or ends[1])
        if not 0 <= last - first < 1_000_000:
            raise VariantError(
                f'Cannot choose samples: "{word}" is no range. Write the smaller number first.'
            )
        numbers += range(first, last + 1)
    return tuple(dict.fromkeys(numbers))
