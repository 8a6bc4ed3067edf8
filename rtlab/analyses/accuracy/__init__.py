"""Errors of every compared value against the source in fp32."""

from __future__ import annotations

from rtlab.analyses.accuracy import errors as _errors_module
from rtlab.analyses.accuracy.errors import Accuracy
from rtlab.core.facts import Errors, VariantResult
from rtlab.core.memo import memoized
from rtlab.core.model import Model


def compute_accuracy(facts: VariantResult) -> Accuracy | None:
    """Errors of every compared value against the source in fp32; None where none was compared."""
    return None if facts.errors is None else _compute_accuracy(facts.errors, facts.source)


@memoized
def _compute_accuracy(errors: Errors, source: Model) -> Accuracy:
    return _errors_module.compute_accuracy(errors, source)


def describe_random_inputs(facts: VariantResult) -> str:
    """What of a variant rests on random input, in words; empty where nothing does."""
    parts = []
    if facts.errors is not None and facts.errors.synthetic:
        parts.append("errors")
    if facts.random_scales:
        parts.append("scales")
    return " and ".join(parts)
