"""MessageMatch: what a text says of a build or a run, in the words of the program that printed it."""

from __future__ import annotations

import dataclasses

#: Who says what no line gives a program for.
UNNAMED_PROGRAM = "A program"


@dataclasses.dataclass(frozen=True)
class MessageMatch:
    """One failure, fallback, warning or measurement, however often it is printed.

    ``id`` is its rule. ``title``, ``cost``, ``remedy`` and ``evidence`` are those of a ``Finding``; the remedy has its
    source and the releases that it holds for. ``names`` are layers, nodes and tensors as they are printed. ``failed``
    says that no engine came of it, ``line`` is the first that says so, from 1, or 0 where lines do not count.
    ``product`` is the program that it is of, empty for the compiler of the engine.
    """

    id: str
    title: str
    cost: str
    remedy: str
    evidence: str
    names: tuple[str, ...] = ()
    failed: bool = False
    line: int = 0
    product: str = ""
