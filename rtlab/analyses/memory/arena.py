"""Addresses for tensors in one piece of memory, so that those that may be needed at the same time lie apart.

This is dynamic storage allocation, which is NP-hard (Garey and Johnson, problem SR2). Tensors are placed one after the
other, each in the smallest gap that holds it: the largest first ("greedy by size", Pisarchyk and Lee,
arXiv:2001.03288), or in another order. Where OmniMalloc is installed its heuristics are tried as well.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from rtlab.analyses.memory.lifetimes import Life
from rtlab.core.optional import PACKAGES, require

if TYPE_CHECKING:
    from numpy.typing import NDArray

#: Comparisons that the exact bound may take where several streams run: a few hundred tensors, a tenth of a second.
_WORK = 400_000
#: More than one placement: of how many tensors at most; and moves of a search. A quarter of a second.
_SEARCHED, _MOVES = 1_000, 1_000


@dataclasses.dataclass(frozen=True)
class Arena:
    """``offsets`` in bytes, one for each tensor; ``size`` is where the highest ends.

    No placement is smaller than ``bound``: the largest sum of tensors any two of which may be alive at a time. Where
    several streams have too many tensors to search all such sets, or OmniMalloc is not installed, it is the largest
    sum in the order of issue.
    """

    offsets: tuple[int, ...]
    size: int
    bound: int


def place_tensors(lives: Sequence[Life], sizes: Sequence[int], *, align: int = 256) -> Arena:
    """Give every tensor an offset, a multiple of ``align``; the same for the same input.

    Args:
        lives: Tensors, of one call of ``lifetimes``.
        sizes: Bytes of each, 0 and more.
        align: A power of two, in bytes.
    """
    blocks = [-(-size // align) for size in sizes]
    nonempty_indices = [i for i, size in enumerate(blocks) if size]
    offsets = [0] * len(blocks)
    if not nonempty_indices:
        return Arena(tuple(offsets), 0, 0)
    nonempty_lives, weights = [lives[i] for i in nonempty_indices], [blocks[i] for i in nonempty_indices]
    bound, block_offsets = _plan_offsets(nonempty_lives, weights)
    for i, offset in zip(nonempty_indices, block_offsets, strict=True):
        offsets[i] = int(offset) * align
    return Arena(tuple(offsets), _size(block_offsets, weights) * align, bound * align)


def _plan_offsets(lives: Sequence[Life], sizes: Sequence[int]) -> tuple[int, Sequence[int]]:
    """The bound, and offsets of tensors that all have a size."""
    if PACKAGES["omnimalloc"].missing:
        bound = compute_peak_size(lives, sizes)
        placements = _greedy(lives, sizes)
    else:
        bound, placements = _omnimalloc(lives, sizes)
    best: Sequence[int] = ()
    for placement in placements:
        if not best or _size(placement, sizes) < _size(best, sizes):
            best = placement
        if _size(best, sizes) <= bound:
            break
    return bound, best


def _size(offsets: Sequence[int], sizes: Sequence[int]) -> int:
    return max(int(offset) + size for offset, size in zip(offsets, sizes, strict=True))


def _greedy(lives: Sequence[Life], sizes: Sequence[int]) -> Iterator[Sequence[int]]:
    """Placements in several orders, of which another one may leave fewer gaps."""
    span = [life.last - life.first + 1 for life in lives]
    orders: tuple[Callable[[int], tuple[int, ...]], ...] = (
        lambda i: (-sizes[i], lives[i].first),
        lambda i: (lives[i].first, -sizes[i]),
        lambda i: (-span[i], -sizes[i], lives[i].first),
        lambda i: (-sizes[i] * span[i], lives[i].first),
    )
    start = np.array([life.start for life in lives])
    end = np.array([life.end for life in lives])
    weights = np.array(sizes)
    # An order takes seconds of tens of thousands of tensors.
    for order in orders if len(lives) <= _SEARCHED else orders[:1]:
        yield _fit_offsets(sorted(range(len(lives)), key=order), start, end, weights)


def _fit_offsets(
    order: Sequence[int], start: NDArray[np.int64], end: NDArray[np.int64], sizes: NDArray[np.int64]
) -> list[int]:
    """Offsets, each tensor in the smallest gap between those that are placed and may be alive with it.

    Args:
        order: Positions of all tensors.
        start: Clocks by tensor, shape ``(tensors, streams)``; ``end`` likewise.
        end: See ``start``.
        sizes: In blocks, shape ``(tensors,)``.
    """
    offsets = np.zeros(len(order), np.int64)
    done = np.array([], np.int64)
    for i in order:
        disjoint = (end[done] <= start[i]).all(axis=1) | (end[i] <= start[done]).all(axis=1)
        near = done[~disjoint]
        near = near[np.argsort(offsets[near], kind="stable")]
        # Where the gap before each of them begins, and the one behind the last.
        tops = np.concatenate(([0], np.maximum.accumulate(offsets[near] + sizes[near])))
        gaps = offsets[near] - tops[:-1]
        wide = np.where(gaps >= sizes[i], gaps, np.iinfo(np.int64).max)
        best = int(wide.argmin()) if len(wide) else 0
        offsets[i] = tops[best] if len(wide) and gaps[best] >= sizes[i] else tops[-1]
        done = np.append(done, i)
    return [int(offset) for offset in offsets]


def _omnimalloc(lives: Sequence[Life], sizes: Sequence[int]) -> tuple[int, Iterator[Sequence[int]]]:
    """The exact bound where streams are few enough, and placements by its heuristics, then by search."""
    omnimalloc = require("omnimalloc", why="plan memory with OmniMalloc")
    from omnimalloc import allocators, analysis

    allocations = [
        omnimalloc.Allocation(id=i, size=size, start=life.start, end=life.end)
        for i, (life, size) in enumerate(zip(lives, sizes, strict=True))
    ]

    def placements() -> Iterator[Sequence[int]]:
        yield _collect_offsets(omnimalloc.allocate(allocations, allocator="omni"))
        yield from itertools.islice(_greedy(lives, sizes), 1)
        if len(allocations) <= _SEARCHED:
            # Counted, not timed, and from a fixed seed: the same on every machine.
            search = allocators.HillClimbAllocator(max_iterations=_MOVES, timeout=None)
            yield _collect_offsets(omnimalloc.allocate(allocations, allocator=search))

    try:
        bound = int(analysis.antichain_pressure(allocations, work_budget=_WORK))
    except RuntimeError:
        bound = compute_peak_size(lives, sizes)
    return bound, placements()


def _collect_offsets(allocations: Sequence[Any]) -> list[int]:
    offsets = [0] * len(allocations)
    for allocation in allocations:
        offsets[int(allocation.id)] = int(allocation.offset or 0)
    return offsets


def compute_peak_size(lives: Sequence[Life], sizes: Sequence[int]) -> int:
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
