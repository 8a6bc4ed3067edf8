"""What became of each recurrent node."""

from __future__ import annotations

from rtlab.analyses import fusion
from rtlab.analyses.recurrence import fused_cells
from rtlab.analyses.recurrence.fused_cells import FusedRecurrence
from rtlab.core.facts import VariantResult


def find_fused_recurrences(facts: VariantResult) -> tuple[FusedRecurrence, ...]:
    """What became of each recurrent node: gates merged, input products hoisted, steps unrolled; inferred."""
    return fused_cells.analyze_recurrences(
        facts.source, facts.prepared.model, facts.engine, fusion.map_nodes(facts)
    )
