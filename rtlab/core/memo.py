"""Answers that are kept with what they were asked of, so that nothing is computed twice."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar, cast

F = TypeVar("F", bound=Callable[..., Any])

_ANSWERS = "_answers"


def memoized(question: F) -> F:
    """A pure function of nouns, whose answer stays with the first of them for as long as that lives.

    Nouns are told apart by identity, since comparing two engines takes longer than most questions. Where two threads
    ask at once both compute, and one answer is kept.
    """

    @functools.wraps(question)
    def ask(noun: Memoizable, *others: object) -> object:
        answers = noun.__dict__.setdefault(_ANSWERS, {})
        key = (question, *map(id, others))
        if key not in answers:
            # The others are kept too, so that no identity is used twice.
            answers.setdefault(key, (question(noun, *others), others))
        return answers[key][0]

    return cast("F", ask)


class Memoizable:
    """What can be asked; its answers are not pickled with it."""

    def __getstate__(self) -> dict[str, object]:
        return {k: v for k, v in self.__dict__.items() if k != _ANSWERS}
