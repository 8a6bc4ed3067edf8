"""Layers that only change a type or a memory layout."""

from __future__ import annotations

from rtlab.core.engine import Engine
from rtlab.core.facts import VariantResult
from rtlab.core.memo import memoized
from rtlab.questions import timing
from rtlab.questions.reformats import reasons
from rtlab.questions.reformats.reasons import Reformat
from rtlab.relation.dataflow import Dataflow


def of(facts: VariantResult) -> tuple[Reformat, ...]:
    """Layers that only change a type or a memory layout: why they are there, and how to be rid of them."""
    return reasons.reformats(facts.engine, timing.get_engine_timing(facts), flow(facts.engine))


@memoized
def flow(engine: Engine) -> Dataflow:
    """What the layers of an engine read and write of each other."""
    return Dataflow(engine)
