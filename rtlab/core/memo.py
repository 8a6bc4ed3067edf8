"""Memoized functions of results."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar, cast

F = TypeVar("F", bound=Callable[..., Any])

_ANSWERS = "_answers"


def memoized(question: F) -> F:
    """Memoize a pure function on its first argument; further arguments are compared by identity.

    Two threads at once both compute, and one result is kept.
    """

    @functools.wraps(question)
    def ask(noun: Memoizable, *others: object) -> object:
        answers = noun.__dict__.setdefault(_ANSWERS, {})
        key = (question, *map(id, others))
        if key not in answers:
            # With a reference to the others, so that no identity is used twice.
            answers.setdefault(key, (question(noun, *others), others))
        return answers[key][0]

    return cast("F", ask)


class Memoizable:
    """A first argument of memoized functions, whose results are not pickled."""

    def __getstate__(self) -> dict[str, object]:
        return {k: v for k, v in self.__dict__.items() if k != _ANSWERS}
