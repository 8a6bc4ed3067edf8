"""Errors of every compared value against the source in fp32."""

from __future__ import annotations

from rtlab.core.answers import kept
from rtlab.core.facts import Errors, Facts
from rtlab.core.model import Model
from rtlab.questions.accuracy import errors as _found
from rtlab.questions.accuracy.errors import Accuracy


def of(facts: Facts) -> Accuracy | None:
    """Errors of every compared value against the source in fp32; None where none was compared."""
    return None if facts.errors is None else _errors(facts.errors, facts.source)


@kept
def _errors(errors: Errors, source: Model) -> Accuracy:
    return _found.accuracy(errors, source)


def random_input(facts: Facts) -> str:
    """What of a variant rests on random input, in words; empty where nothing does."""
    parts = []
    if facts.errors is not None and facts.errors.synthetic:
        parts.append("errors")
    if facts.random_scales:
        parts.append("scales")
    return " and ".join(parts)
