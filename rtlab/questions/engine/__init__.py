"""What the layers of an engine are: kinds, precisions, and what changes between them."""

from __future__ import annotations

from rtlab.core.facts import Facts
from rtlab.questions import timing
from rtlab.questions.engine import breakdown
from rtlab.questions.engine.breakdown import Slice, Transition


def kinds(facts: Facts) -> tuple[Slice, ...]:
    """Layers and time by the compiler's kind of layer, the slowest first."""
    return breakdown.by_kind(facts.engine, timing.own(facts))


def precisions(facts: Facts) -> tuple[Slice, ...]:
    """Layers and time by the narrowest type that a layer touches, the slowest first."""
    return breakdown.by_precision(facts.engine, timing.own(facts))


def transitions(facts: Facts) -> tuple[Transition, ...]:
    """How many layers read one precision and write another, with their time."""
    return breakdown.transitions(facts.engine, timing.own(facts))
