"""Scores, intervals and differences as people read them."""

from __future__ import annotations

import math

from rtlab.core.bootstrap import FEWEST, Interval, PairedDifference
from rtlab.core.facts import Score
from rtlab.core.phrases import pluralize

CANNOT = "the confidence interval includes zero"
#: How a difference ends on so few samples that none is told.
FEW = "too few to conclude anything"
#: Why nothing can be repaired by trying.
TASKLESS = (
    "The study has no task, so that no score decides: give Study(model, task=rtlab.Task(data)), and "
    "labels where there are some"
)


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
    text = (
        f"equal to {title}" if difference == 0 else f"{size} {'below' if difference < 0 else 'above'} {title}"
    )
    test = f", McNemar {format_p_value(comparison.p)}" if comparison.p is not None and tested else ""
    if ends is None:
        return text
    if comparison.sure:
        absolute_interval = Interval(-ends.high, -ends.low, ends.method) if difference < 0 else ends
        return f"{text}, {format_interval(absolute_interval)}{test}"
    few = f"{pluralize(comparison.samples, 'sample is', 'samples are')} {FEW}"
    between = f"{_minus(f'{ends.low:+.{digits}f}')} to {_minus(f'{ends.high:+.{digits}f}')}"
    return f"{text}, {between}{test}: {few if comparison.samples < FEWEST else CANNOT}"


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
