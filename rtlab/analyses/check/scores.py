"""Whether outputs are numbers, how far a score is behind fp32 on the same samples, and how far from an earlier one."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from rtlab.analyses import accuracy
from rtlab.analyses.accuracy import compute_accuracy
from rtlab.analyses.check.record import CheckLimits, CheckRow, CheckVerdict, RecordedScore
from rtlab.analyses.score import (
    compare_scores,
    format_difference,
    format_interval,
    format_score,
    format_score_value,
)
from rtlab.core.bootstrap import FEWEST, Interval, PairedDifference
from rtlab.core.facts import Score, VariantResult
from rtlab.core.phrases import pluralize
from rtlab.core.slices import Slice, SliceSums
from rtlab.core.stage import Stage

if TYPE_CHECKING:
    from numpy.typing import NDArray

_LIMIT = "outputs are numbers"


def check_numbers(facts: VariantResult, fp32: VariantResult | None) -> CheckRow:
    """NaN, infinities and parts that became 0 in outputs, NaN of fp32 itself, and its score of 0 %.

    Two models that answer nothing are equal, and a drop from nothing is none.
    """
    faults = find_faults(facts, fp32)
    errors = accuracy.compute_accuracy(facts)
    samples = facts.score.samples if facts.score is not None else errors.samples if errors is not None else 0
    on = f"on {pluralize(samples, 'sample')}"
    if faults:
        remedy = " ".join(dict.fromkeys(faults.values()))
        first, *others = faults
        return CheckRow(
            "numbers", _LIMIT, first, "broken", "measured", "; ".join([*others, on]),
            remedy=remedy, value=float(len(faults)), bound=0.0,
        )  # fmt: skip
    if not _count_faults(facts, fp32):
        return CheckRow("numbers", "", "", "not checked", None, reason="no outputs were compared with fp32")
    return CheckRow("numbers", _LIMIT, "all of them", "holds", "measured", on, value=0.0, bound=0.0)


def find_faults(facts: VariantResult, fp32: VariantResult | None) -> dict[str, str]:
    """What is wrong with the outputs of a variant, each fault in words with its remedy; empty where nothing is.

    Args:
        facts: The variant.
        fp32: The same model in fp32, ``facts`` itself where it is that; None where it is not known.
    """
    faults = {}
    for name, (elements, undefined, overflow_count) in _count_faults(facts, fp32).items():
        if undefined:
            faults[f'{undefined} of {elements} elements of "{name}" are NaN in fp32 itself'] = (
                "Look at the model and at the data, study.accuracy.diagnose names the first node: no precision can "
                "keep what fp32 has not."
            )
        if overflow_count:
            faults[
                f'{overflow_count} of {elements} elements of "{name}" are NaN or infinite, and finite in fp32'
            ] = "study.accuracy.diagnose names the first node, and rtlab repair MODEL keeps it in fp32."
    for part in _find_slices(facts, fp32):
        if part.zero:
            faults[f"{part.fault}, and not in fp32"] = (
                "One scale for numbers of two kinds: rtlab repair MODEL looks for another."
            )
    score = None if fp32 is None else fp32.score
    if score is not None and score.unit == "%" and score.higher and score.value == 0:
        faults[f"fp32 itself scores 0 % on {pluralize(score.samples, 'sample')}"] = (
            "Check labels, preprocessing and data: beside such an fp32 nothing can get worse."
        )
    return faults


def _pair_outputs(
    facts: VariantResult, fp32: VariantResult | None
) -> dict[str, list[tuple[NDArray[Any], NDArray[Any]]]]:
    """By output, its batches in fp32 and in the variant, where both were scored.

    A model in fp32 with pairs of its own is told by its errors, to the model without them, and not by itself.
    """
    if facts.score is None or fp32 is None or fp32.score is None or (fp32 is facts and facts.errors):
        return {}
    reference, variant = fp32.score.predictions.parts(), facts.score.predictions.parts()
    pairs = {n: [*zip(p, variant[n], strict=False)] for n, p in reference.items() if n in variant}
    return {n: batches for n, batches in pairs.items() if batches}


def _count_faults(facts: VariantResult, fp32: VariantResult | None) -> dict[str, tuple[int, int, int]]:
    """By output: its elements, those that are NaN in fp32, and those that are finite in fp32 alone."""
    if pairs := _pair_outputs(facts, fp32):
        counts = {n: np.sum([_count_batch(*p) for p in some], axis=0) for n, some in pairs.items()}
        return {n: (int(c[0]), int(c[1]), int(c[2])) for n, c in counts.items()}
    errors, outputs = accuracy.compute_accuracy(facts), {*facts.source.outputs}
    values = [v for v in errors.values if v.value in outputs] if errors else []
    return {v.value: (v.elements, v.undefined, v.overflowed) for v in values}


def _find_slices(facts: VariantResult, fp32: VariantResult | None) -> list[Slice]:
    """The part of each output that lost most, where one fares worse than the whole."""
    if pairs := _pair_outputs(facts, fp32):
        sums = {n: SliceSums(n) for n in pairs}
        for name, batches in pairs.items():
            for reference, variant in batches:
                sums[name].add(reference, variant, len(reference) if reference.ndim else 1)
    else:
        sums = {} if facts.errors is None else {**facts.errors.slices}
    return [part for one in sums.values() if (part := one.worst()) is not None]


def _count_batch(reference: NDArray[Any], variant: NDArray[Any]) -> tuple[int, int, int]:
    overflow_count = 0
    if reference.shape == variant.shape:
        overflow_count = int(np.count_nonzero(np.isfinite(reference) & ~np.isfinite(variant)))
    return reference.size, int(np.count_nonzero(np.isnan(reference))), overflow_count


_DATA = "Give samples with --data D.npz, and --labels L.npy where there are labels; without, fp32's own answers count."
_REPAIR = "study.accuracy.diagnose says why, and rtlab repair MODEL what gives it back."
_MORE = "Give more samples, so that the interval is narrower, or a larger limit."


def check_accuracy(facts: VariantResult, fp32: VariantResult | None, limits: CheckLimits) -> CheckRow:
    """The score beside that of fp32; ``fp32`` is None where there is none, and ``facts`` itself for fp32."""
    score, most, unit = facts.score, limits.max_drop, _get_unit(facts.score)
    limit_unit = "point" if most == 1 and unit == "points" else unit
    limit = "" if most is None else f"at most {most:g} {limit_unit} worse than fp32".replace("  ", " ")
    limit += ", surely" if limits.sure else ""
    if score is None or fp32 is None or fp32.score is None:
        text = "no score" if score is None else _format_score(score)
        reason = _explain_missing_score(facts, fp32)
        return CheckRow(
            "accuracy", limit, text, "not checked", reason=reason, remedy=_DATA if limit else ""
        )  # fmt: skip
    if fp32 is facts:
        return CheckRow(
            "accuracy", limit, "this is fp32 itself", "holds" if limit else "told", "measured", _format_score(score),
            value=0.0, bound=most, unit=unit,
        )  # fmt: skip
    paired = compare_scores(facts, fp32)
    drop, ends = _compute_drop(score, fp32.score, paired)
    text, doubt = _format_drop(drop, unit), ""
    if paired is not None and math.isfinite(drop):
        # Whether there is any difference is another question than whether it is within the limit.
        text, _, doubt = format_difference(paired, score, "fp32", tested=False).partition(": ")
    verdict, reason = _judge_drop(drop, ends, 0 if paired is None else paired.samples, limits, unit)
    remedies = []
    if verdict == "broken":
        remedies += [_MORE] if reason else []
        remedies += [] if most is not None and round(drop, 9) <= most else [_REPAIR]
    details = [_format_score(score), f"fp32 {format_score_value(fp32.score)}"]
    errors = compute_accuracy(facts)
    details.append(errors.headline if errors is not None else "")
    details.append(doubt if not reason else "")
    scored_stages = [f.stages.get(Stage.SCORED) for f in (facts, fp32)]
    details += [s.text for s in scored_stages if s is not None and s.is_incomplete]
    return CheckRow(
        "accuracy", limit, text, verdict, "measured", "; ".join(filter(None, details)), reason, " ".join(remedies),
        value=drop, bound=most, unit=unit,
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
    # Two that are infinite are equal.
    if score.value == fp32.value:
        drop = 0.0
    else:
        drop = sign * (score.value - fp32.value if paired is None else paired.difference)
    ends = None if paired is None else paired.interval
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
    """The score beside that of an earlier check; it has no limit."""
    if score is None or previous is None:
        missing = "this check" if score is None else "the earlier check"
        return CheckRow("score", "", "", "not checked", reason=f"{missing} has no score")
    reason = ""
    if (previous.name, previous.unit) != (score.name, score.unit):
        reason = f"it was {previous.name} then, and is {score.name} now"
    elif previous.samples != score.samples:
        reason = f"it was counted on {pluralize(previous.samples, 'sample')} then, and on {score.samples} now"
    if reason:
        return CheckRow("score", "", _format_score(score), "not checked", "measured", reason=reason)
    change, unit = score.value - previous.value, _get_unit(score)
    words = "as then" if change == 0 else f"{change:+.3g} {unit} since".replace("-", "−").replace("  ", " ")
    one, other = previous.interval, score.interval
    if change and one is not None and other is not None and one.low <= other.high and other.low <= one.high:
        reason = "the intervals of both overlap"
    previous_score = Score(previous.name, previous.value, previous.unit, previous.samples, previous.source)
    before = format_score_value(previous_score) + (f", {format_interval(one)}" if one is not None else "")
    return CheckRow(
        "score", "", words, "told", "measured", f"{before} then; {_format_score(score)} now", reason, value=change,
        unit=unit,
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
