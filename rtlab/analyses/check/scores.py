"""How far a score is behind fp32 on the same samples, and how far from that of an earlier check."""

from __future__ import annotations

import math

from rtlab.analyses.accuracy import compute_accuracy
from rtlab.analyses.check.record import RecordedScore
from rtlab.analyses.check.row import CheckLimits, CheckRow, CheckVerdict
from rtlab.analyses.score import (
    compare_scores,
    format_difference,
    format_interval,
    format_p_value,
    format_score,
    format_score_value,
)
from rtlab.core.bootstrap import FEWEST, Interval, PairedDifference
from rtlab.core.facts import Score, VariantResult
from rtlab.core.phrases import pluralize
from rtlab.core.stage import Stage

_DATA = "Give samples with --data D.npz, and --labels L.npy where there are labels; without, fp32's own answers count."
_MORE = "Give more samples, so that the interval is narrower, or a larger limit."


def check_accuracy(facts: VariantResult, fp32: VariantResult | None, limits: CheckLimits) -> CheckRow:
    """The score beside that of fp32; ``fp32`` is None where there is none, and ``facts`` itself for fp32."""
    unit, most = _get_unit(facts.score), limits.max_drop
    limit_unit = "point" if most == 1 and unit == "points" else unit
    limit = (
        "" if most is None else " ".join(filter(None, (f"at most {most:g}", limit_unit, "worse than fp32")))
    )
    if limits.sure:
        limit += ", surely"
    score = facts.score
    if score is None or fp32 is None or fp32.score is None:
        score_text = "no score" if score is None else _format_score(score)
        reason = _explain_missing_score(facts, fp32)
        return CheckRow(
            "accuracy", limit, score_text, "not checked", reason=reason, remedy=_DATA if limit else ""
        )
    if fp32 is facts:
        return CheckRow(
            "accuracy", limit, "this is fp32 itself", "holds" if limit else "told", "measured", _format_score(score),
            value=0.0, bound=limits.max_drop, unit=unit,
        )  # fmt: skip
    paired = compare_scores(facts, fp32)
    drop, ends = _compute_drop(score, fp32.score, paired)
    words, doubt = _format_drop(drop, unit), ""
    if paired is not None and math.isfinite(drop):
        # Whether there is any difference is another question than whether it is within the limit.
        words, _, doubt = format_difference(paired, score, "fp32", tested=False).partition(": ")
    verdict, reason = _judge_drop(drop, ends, 0 if paired is None else paired.samples, limits, unit)
    remedy = ""
    if verdict == "broken":
        is_below_limit = limits.max_drop is not None and round(drop, 9) <= limits.max_drop
        repair = (
            ""
            if is_below_limit
            else "study.accuracy.diagnose says why, and rtlab repair MODEL what gives it back."
        )
        remedy = " ".join(filter(None, (_MORE if reason else "", repair)))
    detail = [_format_score(score), f"fp32 {format_score_value(fp32.score)}"]
    errors = compute_accuracy(facts)
    detail += [errors.headline] if errors is not None and errors.headline else []
    detail += [f"McNemar {format_p_value(paired.p)}"] if paired is not None and paired.p is not None else []
    detail += [doubt] if doubt and not reason else []
    detail += [
        s.text for f in (facts, fp32) if (s := f.stages.get(Stage.SCORED)) is not None and s.is_incomplete
    ]
    return CheckRow(
        "accuracy", limit, words, verdict, "measured", "; ".join(detail), reason, remedy,
        value=drop, bound=limits.max_drop, unit=unit,
    )  # fmt: skip


def _judge_drop(
    drop: float, ends: Interval | None, samples: int, limits: CheckLimits, unit: str
) -> tuple[CheckVerdict, str]:
    """The verdict, and what the samples can tell of it."""
    most = limits.max_drop
    if most is None:
        return "told", ""
    # What is exactly at the limit is within it, whatever the last bit says; what is no number is within none.
    verdict: CheckVerdict = "holds" if round(drop, 9) <= most else "broken"
    drop_text = f"the drop is {drop:.4g} {unit}".strip()
    if ends is None:
        if limits.sure and verdict == "holds":
            return (
                "broken",
                f"{drop_text}, and nothing shows its interval, so that it is not sure to be within the limit",
            )
        return verdict, "nothing shows the interval of the drop: the verdict is that of its value"
    if samples < FEWEST:
        doubt = f"{pluralize(samples, 'sample is', 'samples are')} too few to conclude anything"
    elif ends.low <= most < ends.high:
        doubt = f"the interval includes the limit: {drop_text}, its interval {format_interval(ends)}"
    else:
        return verdict, ""
    if limits.sure:
        return "broken", f"{doubt}; it has to be sure"
    return verdict, f"{doubt}; the verdict is that of its value"


def _compute_drop(
    score: Score, fp32: Score, paired: PairedDifference | None
) -> tuple[float, Interval | None]:
    """By how much a score is worse, and the interval of that; more than 0 is worse."""
    sign = -1.0 if score.higher else 1.0
    if paired is None:
        is_equal = score.value == fp32.value
        return (0.0 if is_equal else sign * (score.value - fp32.value)), None
    # Two that are infinite are equal.
    drop = 0.0 if score.value == fp32.value else sign * paired.difference
    ends = paired.interval
    if ends is None or not (math.isfinite(ends.low) and math.isfinite(ends.high)):
        return drop, None
    low, high = sorted((sign * ends.low, sign * ends.high))
    return drop, Interval(low, high, ends.method)


def _explain_missing_score(facts: VariantResult, fp32: VariantResult | None) -> str:
    """Why there is no score to compare."""
    if facts.recorded:
        return "the engine was read from files of another machine, which contain no outputs for samples"
    for one in (facts, fp32):
        standing = one.stages.get(Stage.SCORED) if one is not None and one.score is None else None
        if one is not None and standing is not None and standing.text and standing.why != "nothing to do":
            return f"{one.name}: {standing.text}"
    return "no samples were given to count a score on"


def check_score(previous: RecordedScore | None, score: Score | None) -> CheckRow:
    """The score beside that of an earlier check; nobody sets a limit for it."""
    if score is None or previous is None:
        missing = "this check" if score is None else "the earlier check"
        return CheckRow("score", "", "", "not checked", reason=f"{missing} has no score")
    if (previous.name, previous.unit) != (score.name, score.unit):
        reason = f"it was {previous.name} then, and is {score.name} now"
        return CheckRow("score", "", _format_score(score), "not checked", "measured", reason=reason)
    if previous.samples != score.samples:
        reason = f"it was counted on {pluralize(previous.samples, 'sample')} then, and on {score.samples} now"
        return CheckRow("score", "", _format_score(score), "not checked", "measured", reason=reason)
    change = score.value - previous.value
    unit = _get_unit(score)
    previous_score = Score(previous.name, previous.value, previous.unit, previous.samples, previous.source)
    ends = f", {format_interval(previous.interval)}" if previous.interval is not None else ""
    words = "as then" if change == 0 else f"{change:+.3g} {unit} since".replace("-", "−").replace("  ", " ")
    one, other = previous.interval, score.interval
    reason = ""
    if change and one is not None and other is not None and one.low <= other.high and other.low <= one.high:
        reason = "the intervals of both overlap"
    return CheckRow(
        "score", "", words, "told", "measured",
        f"{format_score_value(previous_score)}{ends} then; {_format_score(score)} now", reason,
        value=change, unit=unit,
    )  # fmt: skip


def _format_score(score: Score) -> str:
    return f"{score.name} {format_score(score)}, {pluralize(score.samples, 'sample')}"


def _format_drop(drop: float, unit: str) -> str:
    if drop == 0:
        return "equal to fp32"
    if math.isnan(drop):
        return "not a number beside fp32"
    return f"{abs(drop):.4g} {unit} {'worse' if not drop < 0 else 'better'} than fp32".replace("  ", " ")


def _get_unit(score: Score | None) -> str:
    return "points" if score is None or score.unit == "%" else score.unit
