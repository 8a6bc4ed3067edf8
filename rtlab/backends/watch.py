"""Whole inferences against the clock, and why their layers do not sum to them."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Mapping, Sequence
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
#: Part of its time that one may warm up for.
_WARMING = 0.1
#: Turns that each of several takes, so that all of them see the same load of the machine.
_TURNS = 3
#: So many times that a work was made ready tell how long the next one takes: not each has much to make.
_AHEAD = 8
#: Part of the latency by which layers may miss it unsaid.
_TOLERANCE = 0.1


class Times(NamedTuple):
    """Of each that was timed: milliseconds of its runs, shape ``(runs,)``, and how many it had before them."""

    taken: tuple[NDArray[np.float64], ...]
    warmups: tuple[int, ...]


def alternate(
    works: Sequence[Callable[[], object]],
    progress: Progress,
    runs: int,
    warmup: int,
    *,
    seconds: float | None = None,
    ready: Callable[[int], None] = lambda _: None,
) -> Times:
    """Milliseconds of ``runs`` runs of each, in turns, after ``warmup`` untimed ones.

    The first goes on where runs are brief, up to 300 within half a second. After ten seconds of its own each ends, but
    not before its third run; in a budget of ``seconds``, after its part of that, but not before its first. Warming up
    ends after a tenth of that time, with one run; where the budget is half spent by then, the others do without.
    ``ready`` is called before each run with the number of its work, and makes what that needs; this counts as time that
    the work took, and not as time of a run.

    Raises:
        Cancelled: ``progress`` asked to stop.
    """
    end = None if seconds is None else time.perf_counter() + seconds
    bound = _BOUND if seconds is None else min(_BOUND, 1e3 * max(0.0, seconds) / len(works))
    all_ = [_Work(number, run, ready, progress) for number, run in enumerate(works)]
    warmups: list[int] = []
    for work in all_:
        late = bool(warmups) and end is not None and time.perf_counter() > end - (seconds or 0.0) / 2
        warmups.append(0 if late else work.warm(warmup, _WARMING * bound))
    if end is not None:
        bound = min(bound, 1e3 * max(0.0, end - time.perf_counter()) / len(works))
    fewest = _FEWEST if end is None else 1

    def done(work: _Work) -> bool:
        # In a budget, a run is not begun that would end after it.
        ahead = work.ahead if end is not None else 0.0
        return len(work.taken) >= runs or (len(work.taken) >= fewest and work.spent + ahead > bound)

    turn = -(-runs // _TURNS)
    while not all(map(done, all_)):
        for work in all_:
            for _ in range(turn):
                if done(work):
                    break
                work.time()
                progress.advance()
    first = all_[0]
    while len(first.taken) < _MOST and first.spent < min(_BRIEF, bound):
        first.time()
    return Times(tuple(np.asarray(work.taken) for work in all_), tuple(warmups))


class _Work:
    """One of those that are timed: milliseconds of its runs, and of what was made for each."""

    def __init__(
        self, number: int, run: Callable[[], object], ready: Callable[[int], None], progress: Progress
    ) -> None:
        self._run, self._ready, self._progress = run, functools.partial(ready, number), progress
        self.taken: list[float] = []
        self._making: list[float] = []

    @property
    def spent(self) -> float:
        """Milliseconds of all that it took."""
        return sum(self.taken) + sum(self._making)

    @property
    def ahead(self) -> float:
        """Milliseconds that another run may take; 0 where nobody knows."""
        return self.taken[-1] + max(self._making[-_AHEAD:]) if self.taken else 0.0

    def warm(self, most: int, bound: float) -> int:
        """Run untimed, until it took as many milliseconds; how often."""
        spent: list[float] = []
        while len(spent) < most and sum(spent) <= bound:
            self._ready()
            spent.append(_timed(self._run, self._progress))
        return len(spent)

    def time(self) -> None:
        """Run once."""
        self._making.append(_timed(self._ready, self._progress))
        self.taken.append(_timed(self._run, self._progress))


def _timed(work: Callable[[], object], progress: Progress) -> float:
    check(progress, "timing")
    started = time.perf_counter()
    work()
    return (time.perf_counter() - started) * 1e3


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
