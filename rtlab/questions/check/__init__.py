"""Whether a variant keeps what is asked of it: its score beside fp32, and all else beside an earlier check."""

from __future__ import annotations

import dataclasses
import datetime
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

from rtlab.core.schema import UNSENT, Meaning
from rtlab.documents.numbers import storage
from rtlab.errors import RtlabError
from rtlab.questions import accuracy, fusion, memory
from rtlab.questions.check import layers, numbers, scores, times
from rtlab.questions.check.record import (
    CheckRecord,
    RecordedEngine,
    RecordedMemory,
    RecordedScore,
)
from rtlab.questions.check.row import NOT_WORSE, CheckLimits, CheckName, CheckRow

if TYPE_CHECKING:
    from rtlab.core.facts import Facts, Score
    from rtlab.core.finding import Finding

#: What is compared with an earlier check layer by layer.
_LAYERED: tuple[CheckName, ...] = ("fusion", "precision", "findings")
_BASELINE = "Give --against with a file that rtlab check --save wrote."


@dataclasses.dataclass(frozen=True)
class CheckResult:
    """What was looked at, what was found, and whether the limits hold.

    ``notes`` say what else differs from the earlier check; ``record`` is what a later one is held against.
    """

    model: Annotated[str, Meaning("Model")]
    variant: Annotated[str, Meaning("Variant")]
    rows: tuple[CheckRow, ...]
    notes: tuple[str, ...]
    record: Annotated[CheckRecord, UNSENT] = dataclasses.field(repr=False)

    @property
    def broken(self) -> Annotated[tuple[CheckName, ...], Meaning()]:
        """What is over its limit."""
        return tuple(r.check for r in self.rows if r.verdict == "broken")

    @property
    def unchecked(self) -> Annotated[tuple[CheckName, ...], Meaning()]:
        """What has a limit and could not be checked."""
        return tuple(r.check for r in self.rows if r.verdict == "not checked" and r.limit)

    @property
    def ok(self) -> Annotated[bool, Meaning()]:
        """Whether every limit was checked and holds."""
        return not self.broken and not self.unchecked


def recorded(
    facts: Facts, findings: Sequence[Finding], rounds: Sequence[float], versions: dict[str, str]
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
        RecordedEngine.of(facts.engine, fusion.mapping(facts)),
        _score(facts.score),
        times.of(facts, rounds),
        _memory(facts),
        {f.id: f.title for f in findings},
        versions,
        datetime.datetime.now(datetime.timezone.utc).replace(microsecond=0),
    )


def judged(
    facts: Facts, fp32: Facts | None, now: CheckRecord, then: CheckRecord | None, limits: CheckLimits
) -> CheckResult:
    """The verdict on a variant.

    Args:
        facts: The variant.
        fp32: The same model in fp32, ``facts`` itself where it is that; None where it is not known.
        now: What was found of the variant.
        then: What an earlier check found; None where there is none.
        limits: What has to hold.

    Raises:
        VariantError: the earlier check is of another model.
    """
    rows = [numbers.check_numbers(facts, fp32), scores.accuracy(facts, fp32, limits)]
    if then is None:
        rows.append(times.latency(facts, now, None, None, limits))
        rows += [_missing(c, "there is no earlier check to compare with", _BASELINE) for c in limits.fail_on]
        rows.append(_memory_row(now, None))
        return CheckResult(now.model, facts.name, tuple(rows), tuple(_random(facts)), now)
    unlike = layers.unlike(then, now)
    found = None if unlike else layers.difference(then, now, facts.source)
    rows.append(scores.since(then.score, facts.score))
    rows.append(times.latency(facts, now, then, found, limits))
    if found is None:
        remedy = "Save a new one of the same compiler and target."
        rows += [_missing(c, unlike, remedy, limited=c in limits.fail_on) for c in _LAYERED]
    else:
        rows.append(layers.fusion(then, now, found, limits.fail_on))
        rows.append(layers.precision(then, now, found, limits.fail_on))
        rows.append(layers.findings(then, now, limits.fail_on))
    rows.append(_memory_row(now, then))
    return CheckResult(now.model, facts.name, tuple(rows), (*_random(facts), *_notes(then, now)), now)


def _missing(check: CheckName, reason: str, remedy: str, *, limited: bool = True) -> CheckRow:
    limit = NOT_WORSE[check] if limited else ""
    return CheckRow(check, limit, "", "not checked", None, "", reason, remedy if limited else "")


def _score(score: Score | None) -> RecordedScore | None:
    """A score as a file holds it, which has no infinite numbers."""
    if score is None or not math.isfinite(score.value):
        return None
    ends = score.interval
    if ends is not None and not (math.isfinite(ends.low) and math.isfinite(ends.high)):
        ends = None
    return RecordedScore(
        score.name, score.value, score.unit, score.higher, score.samples, ends, score.source
    )  # fmt: skip


def _memory(facts: Facts) -> RecordedMemory | None:
    """What the activations take, as the compiler reports it, or else by a plan of their lifetimes."""
    try:
        plan = memory.of(facts)
    except RtlabError:
        return None
    return (
        RecordedMemory(plan.reported, "reported") if plan.reported else RecordedMemory(plan.peak, "estimated")
    )


def _memory_row(now: CheckRecord, then: CheckRecord | None) -> CheckRow:
    one, two = then.memory if then is not None else None, now.memory
    if two is None:
        return CheckRow(
            "memory", "", "", "not checked", None, "", "sizes of the engine's tensors are not told"
        )
    told = f"{storage(two.nbytes)} of activations"
    if then is None:
        return CheckRow("memory", "", told, "told", two.origin)
    if one is None or one.origin != two.origin:
        was = "not told" if one is None else one.origin
        reason = f"it was {was} then, and is {two.origin} now"
        return CheckRow("memory", "", told, "not checked", two.origin, reason=reason)
    change = two.nbytes - one.nbytes
    words = f"{told}, as then" if not change else f"{told}, {storage(change, signed=True)} since"
    return CheckRow("memory", "", words, "told", two.origin, value=float(change), unit="B")


def _random(facts: Facts) -> list[str]:
    words = accuracy.random_input(facts)
    return [f"{words.capitalize()} rest on random input: give samples with --data."] if words else []


def _notes(then: CheckRecord, now: CheckRecord) -> list[str]:
    """What else differs, which may be why."""
    notes = [f"The earlier check is of {then.made:%Y-%m-%d}."]
    if then.digest != now.digest:
        notes.append("The model's file has changed since: its nodes, weights or sizes are others.")
    if (then.variant, then.options) != (now.variant, now.options):
        one, two = (" ".join(filter(None, (r.variant, r.options))) for r in (then, now))
        notes.append(f"The variant was {one} then, and is {two} now.")
    for name in dict.fromkeys((*then.versions, *now.versions)):
        before, after = (r.versions.get(name, "not used") for r in (then, now))
        if before != after:
            notes.append(f"{name} was {before} then, and is {after} now.")
    return notes
