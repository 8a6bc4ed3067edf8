"""Blocks that follow each other several times in a graph or an engine, such as the layers of a transformer."""

from __future__ import annotations

import dataclasses
import heapq
from collections.abc import Hashable, Sequence

import numpy as np
import numpy.typing as npt

#: Boxes that all copies of a block have together, at least.
_LEAST = 12
#: Distances between equal boxes that are tried as the length of a block, the most frequent ones first.
_PERIODS = 64
#: Inputs of a box whose origin is compared.
_INPUTS = 6

_Ints = npt.NDArray[np.int64]


@dataclasses.dataclass(frozen=True, order=True)
class Repeat:
    """``count`` equal blocks of ``period`` boxes each, one behind the other from ``start`` on."""

    start: int
    period: int
    count: int


def find_repeats(
    signs: Sequence[Hashable], reads: Sequence[Sequence[int]], depths: Sequence[int] = ()
) -> list[Repeat]:
    """Runs of equal blocks in a sequence of boxes, in order and without overlap; those that cover most come first.

    Blocks are equal where their boxes have equal signs and read the same places of their own block, of the block
    before, or of what stands outside of the run.

    Args:
        signs: What makes a box the same as another, in order of execution.
        reads: Per box the positions that its inputs come from, -1 where that is no box.
        depths: Per box how deep in the tree of name scopes it parts from the one before it: a block starts where that
            is least.
    """
    numbers: dict[Hashable, int] = {}
    sign = np.array([numbers.setdefault(s, len(numbers)) for s in signs], np.int64)
    wires = np.full((len(sign), _INPUTS), -1, np.int64)
    for at, sources in enumerate(reads):
        wires[at, : len(sources[:_INPUTS])] = sources[:_INPUTS]
    # Entries are (minus the boxes covered, period, first box, end, whether the wires were compared).
    heap = [
        (_cover(start, end, period), period, start, end, False)
        for period in _find_periods(sign)
        for start, end in _find_runs(sign, period)
    ]
    heapq.heapify(heap)
    is_free = np.ones(len(sign), bool)
    repeats: list[Repeat] = []
    while heap:
        _, period, start, end, is_wired = heapq.heappop(heap)
        if not is_wired or not is_free[start:end].all():
            pieces = _split_by_wires(wires, start, end, period) if not is_wired else [(start, end)]
            free = [(a + s, a + e) for a, b in pieces for s, e in _find_stretches(is_free[a:b])]
            for s, e in free:
                if (cover := _cover(s, e, period)) <= -_LEAST and e - s >= 2 * period:
                    heapq.heappush(heap, (cover, period, s, e, True))
            continue
        if depths and (shift := int(np.argmin(depths[start : start + period]))) <= end - start - 2 * period:
            start += shift
        count = (end - start) // period
        repeats.append(Repeat(start, period, count))
        is_free[start : start + count * period] = False
    return sorted(repeats)


def _cover(start: int, end: int, period: int) -> int:
    """Minus the boxes of the whole blocks in a stretch, so that the longest comes first in a heap."""
    return -((end - start) // period * period)


def _find_periods(sign: _Ints) -> list[int]:
    """The most frequent distances between a box and the next equal one; a block of one box is none."""
    order = np.argsort(sign, kind="stable")
    gaps = np.diff(order)[np.diff(sign[order]) == 0]
    periods, counts = np.unique(gaps[gaps > 1], return_counts=True)
    return [int(p) for p in periods[np.argsort(-counts, kind="stable")][:_PERIODS]]


def _find_runs(sign: _Ints, period: int) -> list[tuple[int, int]]:
    """Stretches of two blocks at least in which every sign is that of ``period`` places before, first and end."""
    stretches = _find_stretches(sign[:-period] == sign[period:])
    return [
        (s, e + period)
        for s, e in stretches
        # Boxes of one sign are a chain, and no blocks.
        if e - s >= period and e + period - s >= _LEAST and len(np.unique(sign[s : s + period])) > 1
    ]


def _find_stretches(flags: npt.NDArray[np.bool_]) -> list[tuple[int, int]]:
    """First and end of each stretch of true values."""
    edges = np.flatnonzero(np.diff(np.concatenate([[False], flags, [False]]).astype(np.int8)))
    return [(int(s), int(e)) for s, e in edges.reshape(-1, 2)]


def _split_by_wires(wires: _Ints, start: int, end: int, period: int) -> list[tuple[int, int]]:
    """The parts of a run whose blocks are wired alike, whatever they read of what stands before the run."""
    before, after = wires[start : end - period], wires[start + period : end]
    differs = (after != before) & (after != before + period)
    pieces, first, last = [], start, end - period
    for at in [*(start + np.flatnonzero(differs.any(axis=1))).tolist(), last]:
        if at < last:
            own, other = before[at - start][differs[at - start]], after[at - start][differs[at - start]]
            # What stands before the run is another node for each block; the first reads it in place of a block.
            if (own < first).all() and (at < first + period or (other < first).all()):
                continue
        if at - first >= period:
            pieces.append((first, at + period))
        first = at + 1
    return pieces
