"""Whole inferences against the clock, and why their layers do not sum to them."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from rtlab.core.progress import check
from rtlab.core.protocols import Progress

if TYPE_CHECKING:
    from numpy.typing import NDArray

#: Inferences go on to so many, or until they took so many milliseconds: a histogram needs more than a median does.
_MOST, _BRIEF = 300, 500.0
#: Milliseconds after which timing ends, whatever was asked for, and the fewest inferences by then.
_BOUND, _FEWEST = 10_000.0, 3
#: Turns that each of several takes, so that all of them see the same load of the machine.
_TURNS = 3
#: Part of the latency by which layers may miss it unsaid.
_TOLERANCE = 0.1


def alternate(
    works: Sequence[Callable[[], object]], progress: Progress, runs: int, warmup: int
) -> tuple[NDArray[np.float64], ...]:
    """Milliseconds of ``runs`` runs of each, in turns, after ``warmup`` untimed ones.

    The first goes on where runs are brief, up to 300 within half a second. After ten seconds of its own each ends.

    Raises:
        Cancelled: ``progress`` asked to stop.
    """
    for work in works:
        for _ in range(warmup):
            check(progress, "timing")
            work()
    taken: list[list[float]] = [[] for _ in works]
    turn = -(-runs // _TURNS)
    while any(not _done(mine, runs) for mine in taken):
        for work, mine in zip(works, taken, strict=True):
            for _ in range(turn):
                if _done(mine, runs):
                    break
                mine.append(_timed(work, progress))
                progress.advance()
    first = taken[0]
    while len(first) < _MOST and sum(first) < _BRIEF:
        first.append(_timed(works[0], progress))
    return tuple(np.asarray(mine) for mine in taken)


def _timed(work: Callable[[], object], progress: Progress) -> float:
    check(progress, "timing")
    started = time.perf_counter()
    work()
    return (time.perf_counter() - started) * 1e3


def _done(taken: Sequence[float], runs: int) -> bool:
    return len(taken) >= runs or (len(taken) >= _FEWEST and sum(taken) > _BOUND)


def differences(
    total: NDArray[np.float64], profiled: NDArray[np.float64], samples: Mapping[str, NDArray[np.float64]]
) -> list[str]:
    """Why the layers' medians do not sum to the latency, where they miss it by more than a tenth.

    Args:
        total: Milliseconds of inferences without the profiler, shape ``(inferences,)``.
        profiled: Of those with it, shape ``(runs,)``.
        samples: Of layers, shape ``(runs,)`` each.
    """
    whole = [taken for taken in samples.values() if len(taken) == len(profiled)]
    if not whole:
        return []
    latency, slowed = float(np.median(total)), float(np.median(profiled))
    table = np.stack(whole)
    summed = float(np.median(table, axis=1).sum())
    together = float(np.median(table.sum(axis=0)))
    if abs(summed - latency) <= _TOLERANCE * latency:
        return []
    found = []
    if abs(slowed - latency) > _TOLERANCE * latency:
        found.append(f"An inference took {slowed:.3g} ms with the profiler, {latency:.3g} ms without")
    if slowed - together > _TOLERANCE * slowed:
        found.append(f"Of a profiled inference, {slowed - together:.3g} ms passed between the layers")
    if abs(together - summed) > _TOLERANCE * together:
        found.append(
            f"Times are uneven, as where other work takes the processor: layers of one inference took "
            f"{together:.3g} ms together, their medians {summed:.3g} ms"
        )
    return found
