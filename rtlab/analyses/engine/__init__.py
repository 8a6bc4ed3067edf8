"""What the layers of an engine are: kinds, precisions, and what changes between them."""

from __future__ import annotations

from rtlab.analyses import timing
from rtlab.analyses.engine import breakdown
from rtlab.analyses.engine.breakdown import Slice, Transition
from rtlab.core.facts import VariantResult


def group_by_kind(facts: VariantResult) -> tuple[Slice, ...]:
    """Layers and time by the compiler's kind of layer, the slowest first."""
    return breakdown.by_kind(facts.engine, timing.get_engine_timing(facts))


def group_by_precision(facts: VariantResult) -> tuple[Slice, ...]:
    """Layers and time by the narrowest type that a layer touches, the slowest first."""
    return breakdown.by_precision(facts.engine, timing.get_engine_timing(facts))


def list_transitions(facts: VariantResult) -> tuple[Transition, ...]:
    """How many layers read one precision and write another, with their time."""
    return breakdown.find_transitions(facts.engine, timing.get_engine_timing(facts))
