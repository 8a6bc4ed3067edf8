"""What became of each recurrent node."""

from __future__ import annotations

from rtlab.core.facts import Facts
from rtlab.questions import fusion
from rtlab.questions.recurrence import fused
from rtlab.questions.recurrence.fused import Fused


def of(facts: Facts) -> tuple[Fused, ...]:
    """What became of each recurrent node: gates merged, input products hoisted, steps unrolled; inferred."""
    return fused.fused(facts.source, facts.prepared.model, facts.engine, fusion.mapping(facts))
