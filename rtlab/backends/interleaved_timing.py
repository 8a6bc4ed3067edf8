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

    milliseconds: tuple[NDArray[np.float64], ...]
    warmups: tuple[int, ...]


def alternate(
    works: Sequence[Callable[[], object]],
    progress: Progress,
    runs: int,
    warmup: int,
    *,
    seconds: float | None = None,
    prepare: Callable[[int], None] = lambda _: None,
) -> Times:
    """Milliseconds of ``runs`` runs of each, in turns, after ``warmup`` untimed ones.

    The first goes on where runs are brief, up to 300 within half a second. After ten seconds of its own each ends, but
    not before its third run; in a budget of ``seconds``, after its part of that, but not before its first. Warming up
    ends after a tenth of that time, with one run; where the budget is half spent by then, the others do without.
    ``prepare`` is called before each run with the number of its work, and makes what that needs; this counts as time
    that the work took, and not as time of a run.

    Raises:
        Cancelled: ``progress`` asked to stop.
    """
    end = None if seconds is None else time.perf_counter() + seconds
    bound = _BOUND if seconds is None else min(_BOUND, 1e3 * max(0.0, seconds) / len(works))
    timers = [_TimedCall(number, run, prepare, progress) for number, run in enumerate(works)]
    warmups: list[int] = []
    for work in timers:
        skip_warmup = bool(warmups) and end is not None and time.perf_counter() > end - (seconds or 0.0) / 2
        warmups.append(0 if skip_warmup else work.warm(warmup, _WARMING * bound))
    if end is not None:
        bound = min(bound, 1e3 * max(0.0, end - time.perf_counter()) / len(works))
    fewest = _FEWEST if end is None else 1

    def is_done(work: _TimedCall) -> bool:
        # In a budget, a run is not begun that would end after it.
        estimate = work.next_run_ms if end is not None else 0.0
        return len(work.milliseconds) >= runs or (
            len(work.milliseconds) >= fewest and work.total_ms + estimate > bound
        )

    turn = -(-runs // _TURNS)
    while not all(map(is_done, timers)):
        for work in timers:
            for _ in range(turn):
                if is_done(work):
                    break
                work.time()
                progress.advance()
    first = timers[0]
    while len(first.milliseconds) < _MOST and first.total_ms < min(_BRIEF, bound):
        first.time()
    return Times(tuple(np.asarray(work.milliseconds) for work in timers), tuple(warmups))


class _TimedCall:
    """One of those that are timed: milliseconds of its runs, and of what was made for each."""

    def __init__(
        self, number: int, run: Callable[[], object], prepare: Callable[[int], None], progress: Progress
    ) -> None:
        self._run, self._prepare, self._progress = run, functools.partial(prepare, number), progress
        self.milliseconds: list[float] = []
        self._preparation_ms: list[float] = []

    @property
    def total_ms(self) -> float:
        """Milliseconds of all that it took."""
        return sum(self.milliseconds) + sum(self._preparation_ms)

    @property
    def next_run_ms(self) -> float:
        """Milliseconds that another run may take; 0 where nobody knows."""
        return self.milliseconds[-1] + max(self._preparation_ms[-_AHEAD:]) if self.milliseconds else 0.0

    def warm(self, most: int, bound: float) -> int:
        """Run untimed, until it took as many milliseconds; how often."""
        warmup_ms: list[float] = []
        while len(warmup_ms) < most and sum(warmup_ms) <= bound:
            self._prepare()
            warmup_ms.append(_measure(self._run, self._progress))
        return len(warmup_ms)

    def time(self) -> None:
        """Run once."""
        self._preparation_ms.append(_measure(self._prepare, self._progress))
        self.milliseconds.append(_measure(self._run, self._progress))


def _measure(work: Callable[[], object], progress: Progress) -> float:
    check(progress, "timing")
    start = time.perf_counter()
    work()
    return (time.perf_counter() - start) * 1e3


def explain_differences(
    total: NDArray[np.float64],
    profiled_total: NDArray[np.float64],
    samples: Mapping[str, NDArray[np.float64]],
) -> list[str]:
    """Why the layers' medians do not sum to the latency, where they miss it by more than a tenth.

    All are milliseconds: ``total`` of inferences without the profiler, shape ``(inferences,)``, ``profiled_total`` of
    those with it and ``samples`` of layers, shape ``(runs,)`` each.
    """
    complete_samples = [taken for taken in samples.values() if len(taken) == len(profiled_total)]
    if not complete_samples:
        return []
    latency, profiled_latency = float(np.median(total)), float(np.median(profiled_total))
    table = np.stack(complete_samples)
    median_sum = float(np.median(table, axis=1).sum())
    median_run = float(np.median(table.sum(axis=0)))
    if abs(median_sum - latency) <= _TOLERANCE * latency:
        return []
    notes = []
    if abs(profiled_latency - latency) > _TOLERANCE * latency:
        notes.append(
            f"An inference took {profiled_latency:.3g} ms with the profiler, {latency:.3g} ms without"
        )
    if profiled_latency - median_run > _TOLERANCE * profiled_latency:
        notes.append(
            f"Of a profiled inference, {profiled_latency - median_run:.3g} ms passed between the layers"
        )
    if abs(median_run - median_sum) > _TOLERANCE * median_run:
        notes.append(
            f"Times are uneven, as where other work takes the processor: layers of one inference took "
            f"{median_run:.3g} ms together, their medians {median_sum:.3g} ms"
        )
    return notes
