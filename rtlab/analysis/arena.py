"""Addresses for tensors in one piece of memory, so that those that may be needed at the same time lie apart.

This is dynamic storage allocation, which is NP-hard (Garey and Johnson, problem SR2); OmniMalloc's heuristics solve it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

from rtlab.analysis.lifetimes import Life

#: Comparisons that the exact bound may take where several streams run: a few hundred tensors, a tenth of a second.
_WORK = 400_000
#: A search for a better placement: of how many tensors at most, and in how many moves. A quarter of a second.
_SEARCHED, _MOVES = 1_000, 1_000


@dataclasses.dataclass(frozen=True)
class Arena:
    """``offsets`` in bytes, one for each tensor; ``size`` is where the highest ends.

    No placement is smaller than ``bound``: the largest sum of tensors any two of which may be alive at a time. Where
    several streams have too many tensors to search all such sets, it is the largest sum in the order of issue.
    """

    offsets: tuple[int, ...]
    size: int
    bound: int


def place(lives: Sequence[Life], sizes: Sequence[int], *, align: int = 256) -> Arena:
    """Give every tensor an offset, a multiple of ``align``; the same for the same input.

    Args:
        lives: Tensors, of one call of ``lifetimes``.
        sizes: Bytes of each, 0 and more.
        align: A power of two, in bytes.
    """
    import omnimalloc

    blocks = [-(-size // align) for size in sizes]
    asked = [
        omnimalloc.Allocation(id=i, size=blocks[i], start=life.start, end=life.end)
        for i, life in enumerate(lives)
        if blocks[i]
    ]
    offsets = [0] * len(blocks)
    if not asked:
        return Arena(tuple(offsets), 0, 0)
    bound = _bound(asked, lives, blocks)
    best = min(_placements(asked, bound), key=_size)
    for found in best:
        offsets[int(found.id)] = (found.offset or 0) * align
    return Arena(tuple(offsets), _size(best) * align, bound * align)


def _placements(asked: Sequence[Any], bound: int) -> Iterator[Sequence[Any]]:
    """By heuristics first; where they leave gaps, by search."""
    import omnimalloc
    from omnimalloc.allocators import HillClimbAllocator

    yield (first := omnimalloc.allocate(asked, allocator="omni"))
    if _size(first) > bound and len(asked) <= _SEARCHED:
        # Counted, not timed, and from a fixed seed: the same on every machine.
        yield omnimalloc.allocate(asked, allocator=HillClimbAllocator(max_iterations=_MOVES, timeout=None))


def _size(placed: Sequence[Any]) -> int:
    return max(int(found.height or 0) for found in placed)


def _bound(asked: Sequence[Any], lives: Sequence[Life], blocks: Sequence[int]) -> int:
    """The largest sum of tensors that need memory of their own."""
    from omnimalloc.analysis import antichain_pressure

    try:
        return int(antichain_pressure(asked, work_budget=_WORK))
    except RuntimeError:
        return largest(lives, blocks)


def largest(lives: Sequence[Life], sizes: Sequence[int]) -> int:
    """The largest sum of what is alive at one step, in the order of issue."""
    change = [0] * (max((life.last for life in lives), default=-1) + 2)
    for life, size in zip(lives, sizes, strict=True):
        change[life.first] += size
        change[life.last + 1] -= size
    most = now = 0
    for step in change:
        now += step
        most = max(most, now)
    return most
