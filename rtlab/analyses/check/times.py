"""What an inference takes beside an earlier check: compared only where both are from the same place."""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence

import numpy as np

from rtlab.analyses import roofline, timing
from rtlab.analyses.check.record import CheckRecord, RecordedTime
from rtlab.analyses.check.row import CheckLimits, CheckRow, CheckVerdict
from rtlab.analyses.difference.compare import Difference
from rtlab.core.engine import NOWHERE
from rtlab.core.facts import VariantResult
from rtlab.core.stage import Stage
from rtlab.documents.numbers import format_number

#: How many rounds are timed: the fewest whose second and last but one are at least a 95 % interval of their median.
ROUNDS = 9


def record_time(facts: VariantResult, rounds: Sequence[float] = ()) -> RecordedTime | None:
    """What an inference takes: estimated for the GPU that the engine is for, or else measured; None where untold.

    ``rounds`` are medians in milliseconds of inferences that were timed one round after the other, each in a session
    of its own: what they vary by is what a time varies by from one check to the next.
    """
    estimate = roofline.estimate_timing(facts)
    if estimate is not None and estimate.estimated is not None:
        layers = dict(estimate.milliseconds(facts.engine))
        return RecordedTime(
            estimate.estimated, None, None, "", "estimated", "roofline of rtlab", estimate.peaks.name, layers
        )
    times = timing.compute_timing(facts)
    if times is None:
        return None
    layer_times = timing.get_milliseconds(facts)
    sum_note = "" if times.total is not None else ", sum of the layers"
    make_record = functools.partial(
        RecordedTime,
        origin="measured",
        source=f"{times.source}{sum_note}",
        place=times.device or facts.engine.place,
        layers=dict(layer_times),
    )
    if rounds:
        low, high = _compute_median_interval(rounds)
        return make_record(float(np.median(rounds)), low, high, f"median of {len(rounds)} rounds")
    if times.inferences > 1:
        low, high = (float(p) for p in np.percentile(times.samples, [25, 75]))
        return make_record(times.shown, low, high, f"quartiles of {times.inferences} inferences")
    return make_record(times.shown, None, None, "")


def _compute_median_interval(rounds: Sequence[float]) -> tuple[float, float]:
    """Between what the median of all rounds lies, by the sign test: of nine, 96 % from the second to the eighth.

    So one round that other work has slowed down does not count. Of fewer, all do.
    """
    sorted_rounds = sorted(rounds)
    inner = sorted_rounds[1:-1] if len(sorted_rounds) >= ROUNDS else sorted_rounds
    return inner[0], inner[-1]


def format_time(time: RecordedTime) -> str:
    """A time and between what it varied."""
    if time.low is None or time.high is None:
        return format_number(time.milliseconds, "ms")
    return (
        f"{format_number(time.milliseconds, 'ms')} "
        f"({format_number(time.low, 'ms')} to {format_number(time.high, 'ms')})"
    )


def describe_source(time: RecordedTime) -> str:
    """Where a time is from, in words."""
    place = "" if time.place in time.source else time.place
    return ", ".join(filter(None, (time.origin, time.source, place, time.varied)))


def check_latency(
    facts: VariantResult,
    current: CheckRecord,
    previous: CheckRecord | None,
    difference: Difference | None,
    limits: CheckLimits,
) -> CheckRow:
    """The time beside that of an earlier check, and which groups of nodes it went to."""
    most, time = limits.max_latency_regression, current.time
    limit = "" if most is None else f"at most {most:g} % slower"
    if time is None:
        standing = facts.stages.get(Stage.TIMED)
        reason = (standing.text if standing is not None else "") or "nothing timed or estimated it"
        return CheckRow(
            "latency", limit, "no time", "not checked", None, "", reason,
            "Give a target that rtlab estimates, or files with times." if limit else "",
        )  # fmt: skip
    time_text, detail = (
        format_number(time.milliseconds, "ms"),
        f"{format_time(time)}; {describe_source(time)}",
    )
    if previous is None:
        if not limit:
            return CheckRow("latency", "", time_text, "told", time.origin, detail)
        return CheckRow(
            "latency", limit, time_text, "not checked", time.origin, detail,
            "there is no earlier check to compare with",
            "Give --against with a file that rtlab check --save wrote.",
        )  # fmt: skip
    before = previous.time
    reason, remedy = _explain_incomparable(current, previous)
    if before is None or reason:
        return CheckRow(
            "latency", limit, time_text, "not checked", time.origin, detail, reason, remedy if limit else ""
        )
    # What is exactly at the limit is within it, whatever the last bit says.
    change = round(100.0 * (time.milliseconds / before.milliseconds - 1), 9)
    words = (
        f"{round(change, 2) + 0.0:+.3g} %, {format_number(before.milliseconds, 'ms')} → {time_text}".replace(
            "-", "−"
        )
    )
    slower = change > 0 and (time.low is None or before.high is None or time.low > before.high)
    verdict: CheckVerdict = "told"
    if most is not None:
        verdict = "broken" if change > most and slower else "holds"
        if change > most and not slower:
            reason = "slower than the limit allows, but within what the times vary by: it is not called a regression"
        elif change > most and time.low is None and time.origin == "measured":
            reason = "nothing shows what the times vary by: the verdict is that of their values"
    return CheckRow(
        "latency", limit, words, verdict, time.origin,
        f"{format_time(before)} then, {format_time(time)} now; {describe_source(time)}", reason,
        "rtlab compare shows where the time went." if verdict == "broken" else "",
        _list_slower_groups(difference) if slower and difference is not None else (), change, most, "%",
    )  # fmt: skip


def _explain_incomparable(current: CheckRecord, previous: CheckRecord) -> tuple[str, str]:
    """Why two times cannot be compared, and what to do; both empty where they can."""
    one, two = previous.time, current.time
    if one is None or two is None:
        return "the earlier check has no time", "Save a new one where it has."
    advice = "Save a new one on this machine, such as from the last release in the same job; estimates for a --target "
    advice += "are the same on every machine."
    if one.origin != two.origin:
        return (
            f"it was {one.origin} then, and is {two.origin} now",
            f"Check with the same --target and --backend. {advice}",
        )
    if NOWHERE in {one.place, two.place}:
        reason = "the files do not say on which processor it was measured"
        return reason, "Give the build log or the metadata beside them, then and now."
    if one.place != two.place:
        verb = "measured on" if two.origin == "measured" else "estimated for"
        return f"it was {verb} {one.place} then, and {two.place} now", advice
    if _strip_release(one.source) != _strip_release(two.source):
        return f"it was of {one.source} then, and is of {two.source} now", advice
    if not one.milliseconds > 0:
        return "the earlier time is 0", advice
    batches = [[t.shape for t in r.engine.inputs] for r in (previous, current)]
    if batches[0] != batches[1]:
        return "the inputs had other sizes then", "Check the same sizes, --shape, or save a new one."
    return "", ""


def _strip_release(text: str) -> str:
    """A source without the release: an upgrade is what a check is to notice."""
    return re.sub(r"\s*\d+(\.\d+)+\S*", "", text)


def _list_slower_groups(difference: Difference) -> tuple[str, ...]:
    """The groups of nodes that cost most more, where the layers explain the difference."""
    if difference.unexplained:
        return ()
    return tuple(
        f"{g.title}: {format_number(g.delta, 'ms', signed=True)}, {g.cause}"
        for g in difference.largest(3)
        if (g.delta or 0.0) > 0
    )
