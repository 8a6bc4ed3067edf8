"""Whole inferences against the clock."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from rtlab.core.progress import check
from rtlab.core.protocols import Progress

if TYPE_CHECKING:
    from numpy.typing import NDArray

#: Inferences go on to so many, or until they took so many milliseconds: a histogram needs more than a median does.
_MOST, _BRIEF = 300, 500.0
#: Milliseconds after which timing ends, whatever was asked for, and the fewest inferences by then.
_BOUND, _FEWEST = 10_000.0, 3
#: Part of its time that the first may warm up for.
_WARMING = 0.1
#: Turns that each of several takes, so that all of them see the same load of the machine.
_TURNS = 3


class Times(NamedTuple):
    """Of each work that was timed: milliseconds of its runs, shape ``(runs,)``; untimed runs of the first."""

    milliseconds: tuple[NDArray[np.float64], ...]
    warmup: int


def alternate(
    works: Sequence[Callable[[], float]],
    progress: Progress,
    runs: int,
    warmup: int,
    *,
    seconds: float | None = None,
) -> Times:
    """Milliseconds of ``runs`` runs of each work, in turns, as it returns them itself.

    The first has ``warmup`` untimed runs, but for no more than a tenth of its time, and goes on where runs are brief,
    up to 300 within half a second. After ten seconds of its own each ends, but not before its third run; in a budget of
    ``seconds``, after its part of that, but not before its first.

    Raises:
        Cancelled: ``progress`` asked to stop.
    """
    end = math.inf if seconds is None else time.perf_counter() + max(0.0, seconds)
    fewest = _FEWEST if seconds is None else 1
    times: list[list[float]] = [[] for _ in works]
    spent = [0.0] * len(works)

    def compute_bound() -> float:
        return min(_BOUND, 1e3 * max(0.0, end - time.perf_counter()) / len(works))

    def run(number: int) -> float:
        check(progress, "timing")
        start = time.perf_counter()
        milliseconds = works[number]()
        spent[number] += (time.perf_counter() - start) * 1e3
        return milliseconds

    def is_done(number: int) -> bool:
        # In a budget, a run is not begun that would end after it.
        ahead = times[number][-1] if times[number] and seconds is not None else 0.0
        count = len(times[number])
        return count >= runs or (count >= fewest and spent[number] + ahead > bound)

    bound, warmed = compute_bound(), 0
    while warmed < warmup and spent[0] <= _WARMING * bound:
        run(0)
        warmed += 1
    bound, spent[0] = compute_bound(), 0.0
    while not all(map(is_done, range(len(works)))):
        for number in range(len(works)):
            for _ in range(-(-runs // _TURNS)):
                if not is_done(number):
                    times[number].append(run(number))
                    progress.advance()
    while len(times[0]) < _MOST and spent[0] < min(_BRIEF, bound):
        times[0].append(run(0))
    return Times(tuple(map(np.asarray, times)), warmed)
