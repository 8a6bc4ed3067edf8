"""Whether a variant keeps its limits: its score beside fp32, and all else beside an earlier check."""

from __future__ import annotations

import dataclasses
import datetime
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np

from rtlab.analyses import accuracy, fusion, roofline, timing
from rtlab.analyses.accuracy import compute_accuracy
from rtlab.analyses.check.record import (
    NOT_WORSE,
    CheckLimits,
    CheckName,
    CheckRecord,
    CheckRow,
    CheckVerdict,
    RecordedEngine,
    RecordedMemory,
    RecordedScore,
    RecordedTime,
)
from rtlab.analyses.difference import Difference, Group, compute_difference
from rtlab.analyses.memory.plan import plan_engine_memory
from rtlab.analyses.score import (
    compare_scores,
    format_difference,
    format_interval,
    format_score,
    format_score_value,
)
from rtlab.core.bootstrap import FEWEST, Interval, PairedDifference
from rtlab.core.engine import NARROWEST_FIRST, NOWHERE, Layer
from rtlab.core.facts import Score, VariantResult
from rtlab.core.model import Model, make_empty_model
from rtlab.core.phrases import pluralize
from rtlab.core.schema import UNSENT, FieldMeta, Origin
from rtlab.core.slices import Slice, SliceSums
from rtlab.core.stage import Stage
from rtlab.documents.numbers import format_bytes, format_number
from rtlab.errors import RtlabError, VariantError
from rtlab.relation.roles import SERVING

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rtlab.core.finding import Finding


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


#: What to do about each.
_REMEDIES: Mapping[CheckName, str] = {
    "fusion": "rtlab why MODEL A B says why two nodes are not one layer.",
    "precision": "rtlab inspect MODEL lists the layers with their types.",
    "findings": "Each finding's remedy is in rtlab inspect MODEL --ask findings.",
}


def compare_engines(previous: CheckRecord, current: CheckRecord, model: Model) -> Difference:
    """Both engines by groups of nodes; by their layers alone, where the nodes were named anew since.

    Raises:
        VariantError: they are of different models.
    """
    sides = previous.to_side("then"), current.to_side("now")
    difference = compute_difference(*sides, model)
    if difference.overlap.is_enough or previous.digest == current.digest != "":
        return difference
    bare = compute_difference(*sides, make_empty_model())
    if bare.overlap.is_enough and bare.overlap.share is not None:
        return bare
    why = (
        f"of the layers that multiply, only {difference.overlap} run the same nodes as some of the other engine, and "
        f"by kernels and shapes {bare.overlap} have one like them"
    )
    raise VariantError(
        f'Cannot check "{current.model}" against a check of "{previous.model}": {why}, so that they are of different '
        "models. Save a new one of this model, with rtlab check --save."
    )


def explain_incomparable(previous: CheckRecord, current: CheckRecord) -> str:
    """Why layers of both say nothing beside each other; empty where they do."""
    one, two = previous.engine, current.engine
    if one.compiler != two.compiler:
        return f"it was compiled by {one.compiler} then, and by {two.compiler} now"
    # Where the files of an engine name its GPU, its target may be a guess.
    if one.target != two.target and not one.device == two.device != "":
        return f"it was compiled for {one.target} then, and for {two.target} now"
    if not (one.layers and two.layers):
        return f"the {'earlier' if not one.layers else 'present'} engine lists no layers"
    return ""


def check_fusion(
    previous: CheckRecord, current: CheckRecord, difference: Difference, fail_on: Sequence[str]
) -> CheckRow:
    """What was one layer, or fewer of them, and is more layers now; those that only convert are counted, not named."""
    split = [
        f"{_format_group(group)}: {pluralize(len(before), 'layer')} became {len(after)}"
        for group, before, after in _iter_compute_layers(previous, current, difference)
        if 0 < len(before) < len(after)
    ]
    counts = f"{previous.engine.count} → {pluralize(current.engine.count, current.engine.step)}"
    what = f", {pluralize(len(split), 'group')} of nodes split" if split else ", none split"
    return _build_row("fusion", f"{counts}{what}", split, fail_on, current.engine.origin)


def check_precision(
    previous: CheckRecord, current: CheckRecord, difference: Difference, fail_on: Sequence[str]
) -> CheckRow:
    """What computes in a wider type than before."""
    wider = [
        f"{_format_group(group)}: {one} became {two}"
        for group, before, after in _iter_compute_layers(previous, current, difference)
        for one, two in [(_find_narrowest(before), _find_narrowest(after))]
        if one and two and NARROWEST_FIRST.index(one) < NARROWEST_FIRST.index(two)
    ]
    what = f"{pluralize(len(wider), 'group')} of nodes" if wider else "none"
    what += " wider than before"
    return _build_row("precision", what, wider, fail_on, current.engine.origin)


def _iter_compute_layers(
    previous: CheckRecord, current: CheckRecord, difference: Difference
) -> Iterator[tuple[Group, list[Layer], list[Layer]]]:
    """Groups of nodes with the layers that compute them, then and now: not those that convert for a neighbour."""
    compute_layers = []
    for record in (previous, current):
        work = {p.layer for p in record.engine.pairs if p.role not in SERVING}
        # Without the model nobody knows whom a layer serves.
        compute_layers.append({y.id: y for y in record.engine.layers if y.id in work or not work})
    for group in difference.groups:
        if group.basis != "moves":
            one, two = (
                [mine[i] for i in half.layers if i in mine]
                for half, mine in zip((group.first, group.second), compute_layers, strict=True)
            )
            yield group, one, two


def _find_narrowest(layers: Sequence[Layer]) -> str:
    precisions = {y.precision for y in layers}
    return next((p for p in NARROWEST_FIRST if p in precisions), "")


def check_findings(previous: CheckRecord, current: CheckRecord, fail_on: Sequence[str]) -> CheckRow:
    """What is worth changing now and was not there before."""
    new_titles = [title for one, title in current.findings.items() if one not in previous.findings]
    resolved_count = sum(one not in current.findings for one in previous.findings)
    what = f"{pluralize(len(current.findings), 'finding')}, {len(new_titles)} new, {resolved_count} gone"
    return _build_row("findings", what, new_titles, fail_on, current.engine.origin)


def _build_row(
    check: CheckName, summary: str, worse: Sequence[str], fail_on: Sequence[str], origin: Origin
) -> CheckRow:
    """What got worse, with the verdict; broken where it may not."""
    row = CheckRow(check, "", summary, "told", origin, changes=tuple(worse))
    if check not in fail_on:
        return row
    verdict: CheckVerdict = "broken" if worse else "holds"
    remedy, value = _REMEDIES[check] if worse else "", float(len(worse))
    limit = NOT_WORSE[check]
    return dataclasses.replace(row, limit=limit, verdict=verdict, remedy=remedy, value=value, bound=0.0)


def _format_group(group: Group) -> str:
    nodes = group.nodes[:3] or (group.title,)
    more = f" + {len(group.nodes) - 3} more" if len(group.nodes) > 3 else ""
    return " + ".join(nodes) + more


_BASELINE = "Give --against with a file that rtlab check --save wrote."


@dataclasses.dataclass(frozen=True)
class CheckResult:
    """The rows of a check; ``notes`` say what else differs from the earlier one, ``record`` is for a later one."""

    model: Annotated[str, FieldMeta("Model")]
    variant: Annotated[str, FieldMeta("Variant")]
    rows: tuple[CheckRow, ...]
    notes: tuple[str, ...]
    record: Annotated[CheckRecord, UNSENT] = dataclasses.field(repr=False)

    @property
    def broken(self) -> Annotated[tuple[CheckName, ...], FieldMeta()]:
        """What is over its limit."""
        return tuple(r.check for r in self.rows if r.verdict == "broken")

    @property
    def unchecked(self) -> Annotated[tuple[CheckName, ...], FieldMeta()]:
        """What has a limit and could not be checked."""
        return tuple(r.check for r in self.rows if r.verdict == "not checked" and r.limit)

    @property
    def ok(self) -> Annotated[bool, FieldMeta()]:
        """Whether every limit was checked and holds."""
        return not self.broken and not self.unchecked


def build_record(
    facts: VariantResult, findings: Sequence[Finding], rounds: Sequence[float], versions: dict[str, str]
) -> CheckRecord:
    """What is known of a variant, for a later check to compare with.

    Args:
        facts: The variant.
        findings: What is worth changing about it.
        rounds: Medians of inferences that were timed here one round after the other; empty where they were not.
        versions: Releases of rtlab and of what built and ran, by name.
    """
    try:
        digest = facts.source.digest
    except RtlabError:
        # Its weights stayed at home, or it is too large.
        digest = ""
    options = facts.variant.options
    return CheckRecord(
        facts.source.name,
        digest,
        facts.variant.name,
        "" if options is None else str(options),
        RecordedEngine.from_engine(facts.engine, fusion.map_nodes(facts)),
        _record_score(facts.score),
        record_time(facts, rounds),
        _record_memory(facts),
        {f.id: f.title for f in findings},
        versions,
        datetime.datetime.now(datetime.timezone.utc).replace(microsecond=0),
    )


def check_variant(
    facts: VariantResult,
    fp32: VariantResult | None,
    current: CheckRecord,
    previous: CheckRecord | None,
    limits: CheckLimits,
) -> CheckResult:
    """The verdict on a variant.

    Args:
        facts: The variant.
        fp32: The same model in fp32, ``facts`` itself where it is that; None where it is not known.
        current: What was found of the variant.
        previous: What an earlier check found; None where there is none.
        limits: What has to hold.

    Raises:
        VariantError: the earlier check is of another model.
    """
    reason, remedy = "there is no earlier check to compare with", _BASELINE
    difference = None
    if previous is not None:
        reason = explain_incomparable(previous, current)
        remedy = "Save a new one of the same compiler and target."
        difference = None if reason else compare_engines(previous, current, facts.source)
    rows = [check_numbers(facts, fp32), check_accuracy(facts, fp32, limits)]
    if previous is not None:
        rows.append(check_score(previous.score, facts.score))
    rows.append(check_latency(facts, current, previous, difference, limits))
    if previous is not None and difference is not None:
        rows.append(check_fusion(previous, current, difference, limits.fail_on))
        rows.append(check_precision(previous, current, difference, limits.fail_on))
        rows.append(check_findings(previous, current, limits.fail_on))
    else:
        for name in limits.fail_on if previous is None else NOT_WORSE:
            limit, advice = (NOT_WORSE[name], remedy) if name in limits.fail_on else ("", "")
            rows.append(CheckRow(name, limit, "", "not checked", reason=reason, remedy=advice))
    rows.append(_check_memory(current.memory, previous.memory if previous is not None else None))
    notes = [] if previous is None else _list_changes(previous, current)
    if words := accuracy.describe_random_inputs(facts):
        notes.insert(0, f"{words.capitalize()} rest on random input: give samples with --data.")
    return CheckResult(current.model, facts.name, tuple(rows), tuple(notes), current)


def _record_score(score: Score | None) -> RecordedScore | None:
    """A score as a file stores it: JSON has no infinite numbers."""
    if score is None or not math.isfinite(score.value):
        return None
    ends = score.interval
    if ends is not None and not (math.isfinite(ends.low) and math.isfinite(ends.high)):
        ends = None
    return RecordedScore(
        score.name, score.value, score.unit, score.higher, score.samples, ends, score.source
    )  # fmt: skip


def _record_memory(facts: VariantResult) -> RecordedMemory | None:
    """What the activations take, as the compiler reports it, or else by a plan of their lifetimes."""
    try:
        plan = plan_engine_memory(facts.engine, facts.prepared.model)
    except RtlabError:
        return None
    return (
        RecordedMemory(plan.reported, "reported") if plan.reported else RecordedMemory(plan.peak, "estimated")
    )


def _check_memory(current: RecordedMemory | None, previous: RecordedMemory | None) -> CheckRow:
    if current is None:
        reason = "sizes of the engine's tensors are not reported"
        return CheckRow("memory", "", "", "not checked", reason=reason)
    text = f"{format_bytes(current.nbytes)} of activations"
    if previous is None or previous.origin != current.origin:
        return CheckRow("memory", "", text, "told", current.origin)
    change = current.nbytes - previous.nbytes
    text += f", {format_bytes(change, signed=True)} since" if change else ", as then"
    return CheckRow("memory", "", text, "told", current.origin, value=float(change), unit="B")


def _list_changes(previous: CheckRecord, current: CheckRecord) -> list[str]:
    """What else differs, which may be why."""
    notes = [f"The earlier check is of {previous.made:%Y-%m-%d}."]
    if previous.digest != current.digest:
        notes.append("The model's file has changed since: its nodes, weights or sizes are others.")
    if (previous.variant, previous.options) != (current.variant, current.options):
        one, two = (" ".join(filter(None, (r.variant, r.options))) for r in (previous, current))
        notes.append(f"The variant was {one} then, and is {two} now.")
    for name in dict.fromkeys((*previous.versions, *current.versions)):
        before, after = (r.versions.get(name, "not used") for r in (previous, current))
        if before != after:
            notes.append(f"{name} was {before} then, and is {after} now.")
    return notes
