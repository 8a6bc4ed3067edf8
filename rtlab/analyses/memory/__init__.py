"""Where the activations of an engine could lie: an estimate from their lifetimes."""

from __future__ import annotations

from rtlab.analyses.memory import plan
from rtlab.analyses.memory.plan import MemoryPlan
from rtlab.core.facts import VariantResult


def plan_memory(facts: VariantResult, *, batch: int | None = None, one_stream: bool = False) -> MemoryPlan:
    """Where the activations of the engine could lie in one piece of memory: an estimate from their lifetimes.

    Args:
        facts: The variant.
        batch: Samples in an inference, where they are not the engine's own.
        one_stream: As if all layers ran one after the other.

    Raises:
        VariantError: the engine has no tensors, or a size is not known.
    """
    return plan.plan_engine_memory(facts.engine, facts.prepared.model, batch=batch, one_stream=one_stream)
