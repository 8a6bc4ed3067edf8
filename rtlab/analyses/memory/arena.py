"""Addresses for tensors in one piece of memory, so that those that may be needed at the same time lie apart.

This is dynamic storage allocation, which is NP-hard (Garey and Johnson, problem SR2). Tensors are placed one after the
other, each in the smallest gap that holds it: the largest first ("greedy by size", Pisarchyk and Lee,
arXiv:2001.03288), or in another order.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from rtlab.analyses.memory.lifetimes import Life

if TYPE_CHECKING:
    from numpy.typing import NDArray

#: Of how many tensors at most several orders are tried: one takes seconds for tens of thousands.
_SEARCHED = 1_000


@dataclasses.dataclass(frozen=True)
class Arena:
    """``offsets`` in bytes, one for each tensor; ``size`` is where the highest ends.

    No placement is smaller than ``bound``, the largest sum of what is alive at one step in the order of issue.
    """

    offsets: tuple[int, ...]
    size: int
    bound: int


def place_tensors(lives: Sequence[Life], sizes: Sequence[int], *, align: int = 256) -> Arena:
    """Give every tensor an offset, a multiple of ``align``; the same for the same input.

    Args:
        lives: Tensors, of one call of ``compute_lifetimes``.
        sizes: Bytes of each, 0 and more.
        align: In bytes.
    """
    blocks = [-(-size // align) for size in sizes]
    span = [life.last - life.first + 1 for life in lives]
    orders: tuple[Callable[[int], tuple[int, ...]], ...] = (
        lambda i: (-blocks[i], lives[i].first),
        lambda i: (lives[i].first, -blocks[i]),
        lambda i: (-span[i], -blocks[i], lives[i].first),
        lambda i: (-blocks[i] * span[i], lives[i].first),
    )
    bound = int(compute_alive_bytes(lives, blocks).max(initial=0))
    best, size = np.zeros(0, np.int64), 0
    for number, order in enumerate(orders if len(lives) <= _SEARCHED else orders[:1]):
        offsets = _fit_offsets(sorted(range(len(lives)), key=order), lives, np.array(blocks, np.int64))
        top = int((offsets + blocks).max(initial=0))
        if not number or top < size:
            best, size = offsets, top
        if size <= bound:
            break
    return Arena(tuple(int(offset) * align for offset in best), size * align, bound * align)


def _fit_offsets(order: Sequence[int], lives: Sequence[Life], sizes: NDArray[np.int64]) -> NDArray[np.int64]:
    """Offsets in blocks, each tensor in the smallest gap between those that are placed and may be alive with it."""
    start, end = np.array([life.start for life in lives]), np.array([life.end for life in lives])
    offsets = np.zeros(len(order), np.int64)
    done = np.array([], np.int64)
    for i in order:
        disjoint = (end[done] <= start[i]).all(axis=1) | (end[i] <= start[done]).all(axis=1)
        near = done[~disjoint]
        near = near[np.argsort(offsets[near], kind="stable")]
        # Where the gap before each of them begins, and the one behind the last.
        tops = np.concatenate(([0], np.maximum.accumulate(offsets[near] + sizes[near])))
        gaps = np.append(offsets[near], np.iinfo(np.int64).max) - tops
        offsets[i] = tops[np.where(gaps >= sizes[i], gaps, np.iinfo(np.int64).max).argmin()]
        done = np.append(done, i)
    return offsets


def compute_alive_bytes(
    lives: Sequence[Life], sizes: Sequence[int], steps: int | None = None
) -> NDArray[np.int64]:
    """The sum of what is alive at each step, in the order of issue; ``steps`` is 1 + the last one by default."""
    last = [life.last for life in lives]
    change = np.zeros(max(last, default=-1) + 2 if steps is None else steps + 1, np.int64)
    np.add.at(change, [life.first for life in lives], sizes)
    np.subtract.at(change, [at + 1 for at in last], sizes)
    return np.cumsum(change)[:-1]
