"""Whether a variant keeps what is asked of it: its score beside fp32, and all else beside an earlier check."""

from __future__ import annotations

import dataclasses
import datetime
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

from rtlab.analyses import accuracy, fusion
from rtlab.analyses.check import layers, numbers, scores, times
from rtlab.analyses.check.record import (
    CheckRecord,
    RecordedEngine,
    RecordedMemory,
    RecordedScore,
)
from rtlab.analyses.check.row import NOT_WORSE, CheckLimits, CheckName, CheckRow
from rtlab.analyses.memory.plan import plan_engine_memory
from rtlab.core.schema import UNSENT, FieldMeta
from rtlab.documents.numbers import format_bytes
from rtlab.errors import RtlabError

if TYPE_CHECKING:
    from rtlab.core.facts import Score, VariantResult
    from rtlab.core.finding import Finding

#: What is compared with an earlier check layer by layer.
_LAYERED: tuple[CheckName, ...] = ("fusion", "precision", "findings")
_BASELINE = "Give --against with a file that rtlab check --save wrote."


@dataclasses.dataclass(frozen=True)
class CheckResult:
    """What was looked at, what was found, and whether the limits hold.

    ``notes`` say what else differs from the earlier check; ``record`` is what a later one is held against.
    """

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
    """What is known of a variant, as a later check is held against it.

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
        times.record_time(facts, rounds),
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
    rows = [numbers.check_numbers(facts, fp32), scores.check_accuracy(facts, fp32, limits)]
    if previous is None:
        rows.append(times.check_latency(facts, current, None, None, limits))
        rows += [
            _build_unchecked_row(c, "there is no earlier check to compare with", _BASELINE)
            for c in limits.fail_on
        ]
        rows.append(_check_memory(current, None))
        return CheckResult(current.model, facts.name, tuple(rows), tuple(_list_random_inputs(facts)), current)
    reason = layers.explain_incomparable(previous, current)
    difference = None if reason else layers.compare_engines(previous, current, facts.source)
    rows.append(scores.check_score(previous.score, facts.score))
    rows.append(times.check_latency(facts, current, previous, difference, limits))
    if difference is None:
        remedy = "Save a new one of the same compiler and target."
        rows += [_build_unchecked_row(c, reason, remedy, limited=c in limits.fail_on) for c in _LAYERED]
    else:
        rows.append(layers.check_fusion(previous, current, difference, limits.fail_on))
        rows.append(layers.check_precision(previous, current, difference, limits.fail_on))
        rows.append(layers.check_findings(previous, current, limits.fail_on))
    rows.append(_check_memory(current, previous))
    return CheckResult(
        current.model,
        facts.name,
        tuple(rows),
        (*_list_random_inputs(facts), *_list_changes(previous, current)),
        current,
    )


def _build_unchecked_row(check: CheckName, reason: str, remedy: str, *, limited: bool = True) -> CheckRow:
    limit = NOT_WORSE[check] if limited else ""
    return CheckRow(check, limit, "", "not checked", None, "", reason, remedy if limited else "")


def _record_score(score: Score | None) -> RecordedScore | None:
    """A score as a file holds it, which has no infinite numbers."""
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


def _check_memory(current: CheckRecord, previous: CheckRecord | None) -> CheckRow:
    one, two = previous.memory if previous is not None else None, current.memory
    if two is None:
        return CheckRow(
            "memory", "", "", "not checked", None, "", "sizes of the engine's tensors are not reported"
        )
    size_text = f"{format_bytes(two.nbytes)} of activations"
    if previous is None:
        return CheckRow("memory", "", size_text, "told", two.origin)
    if one is None or one.origin != two.origin:
        previous_origin = "not reported" if one is None else one.origin
        reason = f"it was {previous_origin} then, and is {two.origin} now"
        return CheckRow("memory", "", size_text, "not checked", two.origin, reason=reason)
    change = two.nbytes - one.nbytes
    words = (
        f"{size_text}, as then" if not change else f"{size_text}, {format_bytes(change, signed=True)} since"
    )
    return CheckRow("memory", "", words, "told", two.origin, value=float(change), unit="B")


def _list_random_inputs(facts: VariantResult) -> list[str]:
    words = accuracy.describe_random_inputs(facts)
    return [f"{words.capitalize()} rest on random input: give samples with --data."] if words else []


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
