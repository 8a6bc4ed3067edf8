"""Layers that only change a type or a memory layout."""

from __future__ import annotations

from rtlab.analyses import timing
from rtlab.analyses.reformats import reasons
from rtlab.analyses.reformats.reasons import Reformat
from rtlab.core.engine import Engine
from rtlab.core.facts import VariantResult
from rtlab.core.memo import memoized
from rtlab.relation.dataflow import Dataflow


def list_reformats(facts: VariantResult) -> tuple[Reformat, ...]:
    """Layers that only change a type or a memory layout: why they are there, and how to be rid of them."""
    return reasons.find_reformats(facts.engine, timing.get_engine_timing(facts), flow(facts.engine))


@memoized
def flow(engine: Engine) -> Dataflow:
    """What the layers of an engine read and write of each other."""
    return Dataflow(engine)
