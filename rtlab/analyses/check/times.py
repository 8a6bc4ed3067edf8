"""What an inference takes beside an earlier check: compared only where both are from the same place."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

from rtlab.analyses import roofline, timing
from rtlab.analyses.check.record import CheckLimits, CheckRecord, CheckRow, CheckVerdict, RecordedTime
from rtlab.analyses.difference import Difference
from rtlab.core.engine import NOWHERE
from rtlab.core.facts import VariantResult
from rtlab.core.stage import Stage
from rtlab.documents.numbers import format_number

#: How many rounds are timed: the fewest whose second and last but one are at least a 95 % interval of their median.
ROUNDS = 9


def record_time(facts: VariantResult, rounds: Sequence[float] = ()) -> RecordedTime | None:
    """What an inference takes: estimated for the GPU of the engine, or else measured; None where neither is known.

    ``rounds`` are medians in milliseconds of inferences that were timed one round after the other, each in a session
    of its own: their spread is that of times from one check to the next.
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
    milliseconds, low, high, varied = times.shown, None, None, ""
    if rounds:
        low, high = _compute_median_interval(rounds)
        milliseconds, varied = float(np.median(rounds)), f"median of {len(rounds)} rounds"
    elif times.inferences > 1:
        low, high = (float(p) for p in np.percentile(times.samples, [25, 75]))
        varied = f"quartiles of {times.inferences} inferences"
    source = times.source if times.total is not None else f"{times.source}, sum of the layers"
    place, layers = times.device or facts.engine.place, dict(timing.get_milliseconds(facts))
    return RecordedTime(milliseconds, low, high, varied, "measured", source, place, layers)


def _compute_median_interval(rounds: Sequence[float]) -> tuple[float, float]:
    """Between what the median of all rounds lies, by the sign test: of nine, 96 % from the second to the eighth.

    So one round that other work has slowed down does not count. Of fewer, all do.
    """
    sorted_rounds = sorted(rounds)
    inner = sorted_rounds[1:-1] if len(sorted_rounds) >= ROUNDS else sorted_rounds
    return inner[0], inner[-1]


def _format_time(time: RecordedTime) -> str:
    """A time and its interval."""
    text = format_number(time.milliseconds, "ms")
    if time.low is None or time.high is None:
        return text
    return f"{text} ({format_number(time.low, 'ms')} to {format_number(time.high, 'ms')})"


def check_latency(
    facts: VariantResult,
    current: CheckRecord,
    previous: CheckRecord | None,
    difference: Difference | None,
    limits: CheckLimits,
) -> CheckRow:
    """The time beside that of an earlier check, and the groups of nodes that take longer."""
    most, time = limits.max_latency_regression, current.time
    limit = "" if most is None else f"at most {most:g} % slower"
    if time is None:
        stage = facts.stages.get(Stage.TIMED)
        reason = (stage.text if stage is not None else "") or "nothing timed or estimated it"
        remedy = "Give a target that rtlab estimates, or files with times." if limit else ""
        return CheckRow("latency", limit, "no time", "not checked", reason=reason, remedy=remedy)
    place = "" if time.place in time.source else time.place
    source = ", ".join(filter(None, (time.origin, time.source, place, time.varied)))
    text, detail = format_number(time.milliseconds, "ms"), f"{_format_time(time)}; {source}"
    if previous is None and not limit:
        return CheckRow("latency", "", text, "told", time.origin, detail)
    before = None if previous is None else previous.time
    reason, remedy = _explain_incomparable(current, previous)
    if before is None or reason:
        remedy = remedy if limit else ""
        return CheckRow("latency", limit, text, "not checked", time.origin, detail, reason, remedy)
    # What is exactly at the limit is within it, whatever the last bit says.
    change = round(100.0 * (time.milliseconds / before.milliseconds - 1), 9)
    percent = f"{round(change, 2) + 0.0:+.3g} %".replace("-", "−")
    slower = change > 0 and (time.low is None or before.high is None or time.low > before.high)
    verdict: CheckVerdict = "told"
    if most is not None:
        verdict = "broken" if change > most and slower else "holds"
        if change > most and not slower:
            reason = "slower than the limit allows, but within what the times vary by: it is not called a regression"
        elif change > most and time.low is None and time.origin == "measured":
            reason = "nothing shows what the times vary by: the verdict is that of their values"
    return CheckRow(
        "latency",
        limit,
        f"{percent}, {format_number(before.milliseconds, 'ms')} → {text}",
        verdict,
        time.origin,
        f"{_format_time(before)} then, {_format_time(time)} now; {source}",
        reason,
        "rtlab compare shows where the time went." if verdict == "broken" else "",
        _list_slower_groups(difference) if slower and difference is not None else (),
        change,
        most,
        "%",
    )


def _explain_incomparable(current: CheckRecord, previous: CheckRecord | None) -> tuple[str, str]:
    """Why two times cannot be compared, and what to do; both empty where they can."""
    if previous is None:
        return (
            "there is no earlier check to compare with",
            "Give --against with a file that rtlab check --save wrote.",
        )
    one, two = previous.time, current.time
    if one is None or two is None:
        return "the earlier check has no time", "Save a new one where it has."
    advice = "Save a new one on this machine, such as from the last release in the same job; estimates for a --target "
    advice += "are the same on every machine."
    reason = ""
    if one.origin != two.origin:
        reason = f"it was {one.origin} then, and is {two.origin} now"
        advice = f"Check with the same --target and --backend. {advice}"
    elif NOWHERE in {one.place, two.place}:
        reason = "the files do not say on which processor it was measured"
        advice = "Give the build log or the metadata beside them, then and now."
    elif one.place != two.place:
        verb = "measured on" if two.origin == "measured" else "estimated for"
        reason = f"it was {verb} {one.place} then, and {two.place} now"
    elif _strip_release(one.source) != _strip_release(two.source):
        reason = f"it was of {one.source} then, and is of {two.source} now"
    elif not one.milliseconds > 0:
        reason = "the earlier time is 0"
    elif [t.shape for t in previous.engine.inputs] != [t.shape for t in current.engine.inputs]:
        reason, advice = (
            "the inputs had other sizes then",
            "Check the same sizes, --shape, or save a new one.",
        )
    return (reason, advice) if reason else ("", "")


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
