"""What the task's metric says of a variant, how sure that is, and what became of it since another variant."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np

from rtlab.core.bootstrap import FEWEST, INCLUDES_ZERO, TOO_FEW, Interval, PairedDifference, compare_paired
from rtlab.core.facts import Score, VariantResult
from rtlab.core.memo import memoized
from rtlab.core.phrases import pluralize
from rtlab.core.schema import FieldMeta
from rtlab.core.variant import Precision
from rtlab.errors import VariantError

if TYPE_CHECKING:
    from rtlab.analyses.study_state import StudyState
    from rtlab.core.task import Task


#: Why nothing can be repaired by trying.
TASKLESS = (
    "The study has no task, so that no score decides: give Study(model, task=rtlab.Task(data)), and "
    "labels where there are some"
)


@memoized
def compare_scores(facts: VariantResult, baseline: VariantResult) -> PairedDifference | None:
    """The score of a variant less that of a baseline, on the same samples; None where one of them has none.

    The interval is that of the difference, which is narrower than those of both: what all variants find hard does not
    count in it.
    """
    one, other = baseline.score, facts.score
    if facts is baseline or one is None or other is None or (one.name, one.unit) != (other.name, other.unit):
        return None
    return compare_paired(one.tally, other.tally) if one.tally and other.tally else None


def compute_score_delta(facts: VariantResult, baseline: VariantResult | None) -> float | None:
    """The score of a variant less that of a baseline, in the unit of both, on the same samples; None without them."""
    one, other = facts.score, baseline.score if baseline is not None and baseline is not facts else None
    if one is None or other is None or baseline is None or (one.name, one.unit) != (other.name, other.unit):
        return None
    if (comparison := compare_scores(facts, baseline)) is not None and comparison.samples:
        return comparison.difference
    # Nothing says which samples were hits: both must be of all of them.
    return one.value - other.value if one.samples == other.samples else None


def find_reference(study: StudyState, facts: VariantResult) -> VariantResult | None:
    """What a score is compared with when nobody chose: the first other variant in fp32 that has one.

    Of a model with its own Q/DQ pairs that is rather one without.
    """
    scored = [(n, f) for n, f in study.results.items() if f is not facts and f.score is not None]
    others = [f for n, f in scored if study.variants[n].precision is Precision.FP32]
    released = (f for f in others if any(r.kind == "release" for r in f.variant.rewrites))
    return next(released, next(iter(others), None))


def format_score(score: Score) -> str:
    """A score, where it was counted on a part of the outputs, and its interval: "72.19 %, 69.2 to 75.0"."""
    interval, where = score.interval, score.tally.where if score.tally is not None else ""
    value = f"{format_score_value(score)} in {where}" if where else format_score_value(score)
    return ", ".join(filter(None, (value, format_interval(interval) if interval else "")))


def compute_score_difference(
    facts: VariantResult, baseline: VariantResult | None, title: str = ""
) -> str | None:
    """The difference to a baseline of that title in words, with its interval; None where nothing is compared."""
    comparison = compare_scores(facts, baseline) if baseline is not None else None
    if comparison is None or baseline is None or facts.score is None:
        return None
    return format_difference(comparison, facts.score, title or baseline.name, tested=False)


def describe_score(facts: VariantResult, baseline: VariantResult | None = None, title: str = "") -> str:
    """All of it in a line: the score, its interval, its samples, and the difference to the baseline of that title."""
    score = facts.score
    if score is None:
        return ""
    score_text = f"{format_score(score)}, {score.samples} samples"
    comparison = compare_scores(facts, baseline) if baseline is not None else None
    if comparison is None or baseline is None:
        return score_text
    return f"{score_text}; {format_difference(comparison, score, title or baseline.name)}"


def format_score_value(score: Score) -> str:
    """A score with its unit, such as "72.19 %"; one digit more than its interval has."""
    interval = score.interval
    if score.unit == "%":
        text = f"{score.value:.2f}"
    else:
        text = f"{score.value:.4g}" if interval is None else f"{score.value:.{_digits(interval) + 1}f}"
    return f"{_minus(text)} {score.unit}".strip()


def format_interval(interval: Interval) -> str:
    """Both ends with as many digits as the width is worth, such as "69.2 to 75.0"."""
    digits = _digits(interval)
    return _minus(f"{interval.low:.{digits}f} to {interval.high:.{digits}f}")


def format_difference(comparison: PairedDifference, score: Score, title: str, *, tested: bool = True) -> str:
    """A difference, its interval and its test: "26.9 points below fp32, 24.0 to 29.8, McNemar p < 1e-9"."""
    unit = "points" if score.unit == "%" else score.unit
    difference, ends = comparison.difference, comparison.interval
    digits = _digits(ends) if ends is not None else 2
    size = " ".join(filter(None, (f"{abs(difference):.{digits}f}", unit)))
    way = "below" if difference < 0 else "above"
    text = f"{size} {way} {title}" if difference else f"equal to {title}"
    test = f", McNemar {format_p_value(comparison.p)}" if comparison.p is not None and tested else ""
    if ends is None:
        return text
    if comparison.sure:
        absolute_interval = Interval(-ends.high, -ends.low, ends.method) if difference < 0 else ends
        return f"{text}, {format_interval(absolute_interval)}{test}"
    few = f"{pluralize(comparison.samples, 'sample is', 'samples are')} {TOO_FEW}"
    between = f"{_minus(f'{ends.low:+.{digits}f}')} to {_minus(f'{ends.high:+.{digits}f}')}"
    return f"{text}, {between}{test}: {few if comparison.samples < FEWEST else INCLUDES_ZERO}"


def format_p_value(p: float) -> str:
    """A p value, such as "p = 0.03" or "p < 1e-9"."""
    return "p < 1e-9" if p < 1e-9 else f"p = {p:.2g}"


def _digits(interval: Interval) -> int:
    """Digits after the point that show two of the width."""
    width = interval.high - interval.low
    # What the last bits of a number differ by is no width.
    if not (width > 1e-9 * max(abs(interval.low), abs(interval.high)) and math.isfinite(width)):
        return 2
    return max(0, min(8, 1 - math.floor(math.log10(width))))


def _minus(text: str) -> str:
    return text.replace("-", "−")


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
