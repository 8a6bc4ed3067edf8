"""What the layers of an engine are, and where its time goes."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Annotated

from rtlab.analyses.engine import group_by_kind, group_by_precision, list_transitions
from rtlab.analyses.engine.breakdown import Slice, Transition
from rtlab.analyses.fusion import map_nodes
from rtlab.analyses.reformats.reasons import Reformat, list_reformats
from rtlab.analyses.timing import get_engine_timing
from rtlab.core.schema import FieldMeta
from rtlab.relation.coverage import Coverage, coverage

if TYPE_CHECKING:
    from rtlab.core.facts import VariantResult
    from rtlab.core.model import Model


@dataclasses.dataclass(frozen=True)
class Summary:
    """What the layers of one engine are, and where its time goes.

    ``processor`` is what the times belong to, ``source`` where they come from, both empty without times. ``total`` is
    the latency of whole inferences in milliseconds, ``summed`` the sum of the layers, ``ratio`` the second by the
    first; None where unknown.
    """

    kinds: Annotated[tuple[Slice, ...], FieldMeta("By kind")]
    precisions: Annotated[tuple[Slice, ...], FieldMeta("By precision")]
    transitions: Annotated[tuple[Transition, ...], FieldMeta("Between precisions")]
    reformats: Annotated[tuple[Reformat, ...], FieldMeta("Layers that only change types or layouts")]
    coverage: Coverage
    processor: Annotated[str, FieldMeta("Timed on")]
    source: Annotated[str, FieldMeta("Source")]
    total: Annotated[float | None, FieldMeta("Latency", "ms", "measured")]
    summed: Annotated[float | None, FieldMeta("Sum of the layers", "ms", "measured")]
    ratio: Annotated[float | None, FieldMeta("Sum by latency", origin="measured")]


def summarize_engine(facts: VariantResult, model: Model | None = None) -> Summary:
    """Kinds, precisions, transitions, reformats, and how far the mapping explains the engine.

    Times are those of this engine. Where another engine ran in its place, they belong to other layers and are left out.

    Args:
        facts: The variant.
        model: The source model that is shown; by default the one that the engine was built from.
    """
    times = get_engine_timing(facts)
    home = facts.prepared.model if model is None else model
    mapping_coverage = coverage(map_nodes(facts), home, facts.engine)
    return Summary(
        kinds=group_by_kind(facts),
        precisions=group_by_precision(facts),
        transitions=list_transitions(facts),
        reformats=list_reformats(facts),
        # Signals and waits compute no node and are no layers to who counts what runs.
        coverage=dataclasses.replace(
            mapping_coverage, all_layers=mapping_coverage.all_layers - facts.engine.sync
        ),
        processor=times.processor if times else "",
        source=times.origin if times else "",
        total=times.total if times else None,
        summed=times.summed if times and times.layers else None,
        ratio=times.ratio if times else None,
    )
