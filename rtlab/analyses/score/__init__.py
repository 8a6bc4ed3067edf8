"""What the task's metric says of a variant, how sure that is, and what became of it since another variant."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rtlab.analyses.score.words import format_difference, format_interval, format_score_value
from rtlab.core.bootstrap import PairedDifference, compare_paired
from rtlab.core.facts import Score, VariantResult
from rtlab.core.memo import memoized
from rtlab.core.variant import Precision

if TYPE_CHECKING:
    from rtlab.analyses.study_state import StudyState


@memoized
def compare_scores(facts: VariantResult, baseline: VariantResult) -> PairedDifference | None:
    """The score of a variant less that of a baseline, on the same samples; None where one of them has none.

    The interval is that of the difference, which is narrower than those of both: what all variants find hard does not
    count in it.
    """
    one, other = baseline.score, facts.score
    if one is None or other is None or one.tally is None or other.tally is None or facts is baseline:
        return None
    if (one.name, one.unit) != (other.name, other.unit):
        return None
    return compare_paired(one.tally, other.tally)


def find_reference(study: StudyState, facts: VariantResult) -> VariantResult | None:
    """What a score is compared with when nobody chose: the first other variant in fp32 that has one.

    Of a model with its own Q/DQ pairs that is rather one without.
    """
    others = [
        f
        for n, f in study.results.items()
        if f is not facts and f.score is not None and study.variants[n].precision is Precision.FP32
    ]
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
