"""What became of each recurrent node."""

from __future__ import annotations

from rtlab.core.facts import VariantResult
from rtlab.questions import fusion
from rtlab.questions.recurrence import fused_cells
from rtlab.questions.recurrence.fused_cells import FusedRecurrence


def of(facts: VariantResult) -> tuple[FusedRecurrence, ...]:
    """What became of each recurrent node: gates merged, input products hoisted, steps unrolled; inferred."""
    return fused_cells.analyze_recurrences(
        facts.source, facts.prepared.model, facts.engine, fusion.mapping(facts)
    )
