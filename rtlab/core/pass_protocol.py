"""A change of a graph as a value: its name, what it needs, what it promises, and how it is told."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

#: What needs and promises are judged by.
G = TypeVar("G")
#: What is edited.
E_contra = TypeVar("E_contra", contravariant=True)


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


class Pass(Protocol[G, E_contra]):
    """One change of a graph.

    ``notes`` say in words what it does that one would not expect, and what it leaves; they are known before it runs.
    """

    @property
    def name(self) -> str:
        """What it does, in a few words."""

    @property
    def needs(self) -> tuple[Need[G], ...]:
        """What the graph must be before."""

    @property
    def promises(self) -> tuple[Promise[G], ...]:
        """What holds afterwards."""

    @property
    def changes(self) -> str:
        """What becomes of the numbers, in a few words; empty where they stay what they are."""

    @property
    def notes(self) -> tuple[str, ...]:
        """Sentences for people."""

    def __call__(self, edit: E_contra, /) -> None:
        """Do it."""
