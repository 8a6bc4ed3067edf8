"""What the layers of an engine are: kinds, precisions, and what changes between them."""

from __future__ import annotations

from rtlab.core.facts import VariantResult
from rtlab.questions import timing
from rtlab.questions.engine import breakdown
from rtlab.questions.engine.breakdown import Slice, Transition


def kinds(facts: VariantResult) -> tuple[Slice, ...]:
    """Layers and time by the compiler's kind of layer, the slowest first."""
    return breakdown.by_kind(facts.engine, timing.get_engine_timing(facts))


def precisions(facts: VariantResult) -> tuple[Slice, ...]:
    """Layers and time by the narrowest type that a layer touches, the slowest first."""
    return breakdown.by_precision(facts.engine, timing.get_engine_timing(facts))


def transitions(facts: VariantResult) -> tuple[Transition, ...]:
    """How many layers read one precision and write another, with their time."""
    return breakdown.transitions(facts.engine, timing.get_engine_timing(facts))
