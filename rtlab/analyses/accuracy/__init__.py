"""Errors of every compared value against the source in fp32."""

from __future__ import annotations

from rtlab.analyses.accuracy.errors import Accuracy, summarize_errors
from rtlab.core.facts import VariantResult


def compute_accuracy(facts: VariantResult) -> Accuracy | None:
    """Errors of every compared value against the source in fp32; None where none was compared."""
    return None if facts.errors is None else summarize_errors(facts.errors, facts.source)


def describe_random_inputs(facts: VariantResult) -> str:
    """What of a variant rests on random input, in words; empty where nothing does."""
    parts = []
    if facts.errors is not None and facts.errors.synthetic:
        parts.append("errors")
    if facts.random_scales:
        parts.append("scales")
    return " and ".join(parts)
