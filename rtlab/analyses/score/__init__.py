"""What the task's metric says of a variant, how sure that is, and what became of it since another variant."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from rtlab.core.bootstrap import FEWEST, INCLUDES_ZERO, TOO_FEW, Interval, PairedDifference, compare_paired
from rtlab.core.facts import Score, VariantResult
from rtlab.core.memo import memoized
from rtlab.core.phrases import pluralize
from rtlab.core.variant import Precision

if TYPE_CHECKING:
    from rtlab.analyses.study_state import StudyState

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
