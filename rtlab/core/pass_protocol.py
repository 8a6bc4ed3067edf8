"""A change of a graph as a value: its name, what it needs, what it promises, and how it is told."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Generic, TypeVar

#: What needs and promises are judged by.
G = TypeVar("G")
#: What is edited.
E = TypeVar("E")


@dataclasses.dataclass(frozen=True)
class Need(Generic[G]):
    """What a graph must be before a pass; ``check`` says what it lacks, or nothing."""

    name: str
    check: Callable[[G], str]


@dataclasses.dataclass(frozen=True)
class Promise(Generic[G]):
    """What holds of a graph after a pass, beside the one before; ``check`` says where it does not, or nothing."""

    name: str
    check: Callable[[G, G], str]


@dataclasses.dataclass(frozen=True, eq=False)
class Pass(Generic[G, E]):
    """One change of a graph, which a function made that decided it.

    Attributes:
        name: What it does, in a few words.
        edit: Does it.
        promises: What holds afterwards.
        needs: What the graph must be before.
        changes: What becomes of the numbers, in a few words; empty where they stay what they are.
        notes: Sentences on what one would not expect, and on what is left.
    """

    name: str
    edit: Callable[[E], None]
    promises: tuple[Promise[G], ...]
    needs: tuple[Need[G], ...] = ()
    changes: str = ""
    notes: tuple[str, ...] = ()
