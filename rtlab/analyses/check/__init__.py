"""Whether a variant keeps its limits: its score beside fp32, and all else beside an earlier check."""

from __future__ import annotations

import dataclasses
import datetime
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

from rtlab.analyses import accuracy, fusion
from rtlab.analyses.check import layers, scores, times
from rtlab.analyses.check.record import (
    NOT_WORSE,
    CheckLimits,
    CheckName,
    CheckRecord,
    CheckRow,
    RecordedEngine,
    RecordedMemory,
    RecordedScore,
)
from rtlab.analyses.memory.plan import plan_engine_memory
from rtlab.core.schema import UNSENT, FieldMeta
from rtlab.documents.numbers import format_bytes
from rtlab.errors import RtlabError

if TYPE_CHECKING:
    from rtlab.core.facts import Score, VariantResult
    from rtlab.core.finding import Finding

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
    reason, remedy = "there is no earlier check to compare with", _BASELINE
    difference = None
    if previous is not None:
        reason = layers.explain_incomparable(previous, current)
        remedy = "Save a new one of the same compiler and target."
        difference = None if reason else layers.compare_engines(previous, current, facts.source)
    rows = [scores.check_numbers(facts, fp32), scores.check_accuracy(facts, fp32, limits)]
    if previous is not None:
        rows.append(scores.check_score(previous.score, facts.score))
    rows.append(times.check_latency(facts, current, previous, difference, limits))
    if previous is not None and difference is not None:
        rows.append(layers.check_fusion(previous, current, difference, limits.fail_on))
        rows.append(layers.check_precision(previous, current, difference, limits.fail_on))
        rows.append(layers.check_findings(previous, current, limits.fail_on))
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
