"""What a sweep says of itself while it runs: counts, and the time left by the durations of what is finished."""

from __future__ import annotations

import dataclasses
import math
import time
from collections import Counter, defaultdict
from collections.abc import Collection, Hashable, Iterable
from concurrent.futures import Executor, Future
from typing import Any

from rtlab.core.phrases import pluralize
from rtlab.core.progress import Reporting, Silent
from rtlab.core.protocols import Progress
from rtlab.study.clusters import get_client
from rtlab.study.sweep_task import SweepTask

#: Seconds between two counts of what runs, and between two reports.
_PERIOD_S, _SHOWN_S = 2.0, 0.1
#: Of so many seconds on, time is told in the larger unit.
_LONG_S, _LONG_MIN = 120.0, 120.0


def choose_kind(task: SweepTask) -> Hashable:
    """What has to be alike for two variants to take about as long: model and samples, builder, precision."""
    return task.study, task.variant.backend, task.variant.precision


class DurationEstimator:
    """Expects of each task the mean duration of finished ones of its kind; of a new kind, that of all."""

    def __init__(self) -> None:
        self._seconds: defaultdict[Hashable, float] = defaultdict(float)
        self._counts: Counter[Hashable] = Counter()

    def add(self, kind: Hashable, seconds: float) -> None:
        """A task of this kind took so long."""
        self._seconds[kind] += seconds
        self._counts[kind] += 1

    @property
    def total(self) -> float:
        """The seconds of all tasks that are finished."""
        return sum(self._seconds.values())

    def estimate(self, left: Counter[Hashable]) -> float | None:
        """The seconds of work in so many tasks of each kind, one after the other; None before any is finished."""
        if not self._counts:
            return None
        mean = self.total / self._counts.total()
        return sum(
            count * (self._seconds[kind] / self._counts[kind] if self._counts[kind] else mean)
            for kind, count in left.items()
        )


@dataclasses.dataclass(frozen=True)
class SweepCounts:
    """How far a sweep is: variants by status, and the seconds that are left, None before anything is measured.

    ``done`` counts those that an earlier sweep finished too. ``running`` is None where the executor does not say.
    """

    done: int
    failed: int
    running: int | None
    waiting: int
    seconds_left: float | None

    def __str__(self) -> str:
        parts = [f"{self.done} done"]
        parts += [f"{self.running} running"] if self.running is not None else []
        parts += [f"{self.failed} failed"] if self.failed else []
        parts += [
            f"{self.waiting} waiting" if self.running is not None else f"{self.waiting} running or waiting"
        ]
        parts += [f"about {format_duration(self.seconds_left)} left"] if self.seconds_left else []
        return ", ".join(parts)


def format_duration(seconds: float) -> str:
    """Seconds, minutes or hours in two digits: 45 s, 12 min, 3.5 h."""
    if seconds < _LONG_S:
        return f"{max(1.0, seconds):.0f} s"
    minutes = seconds / 60
    return f"{minutes:.0f} min" if minutes < _LONG_MIN else f"{minutes / 60:.2g} h"


class SweepProgress(Silent):
    """Counts the variants of a sweep, reports them in the words of a reporter, and stops when that one does.

    What builds a variant gets it as its reporter, and is not heard: only the sweep as a whole is reported.
    """

    def __init__(
        self, reporter: Progress, kinds: Iterable[Hashable], *, finished: int = 0, failed: int = 0
    ) -> None:
        super().__init__()
        self._reporter = reporter
        self._left = Counter(kinds)
        self._done, self._failed = finished, failed
        self._durations = DurationEstimator()
        self._running: int | None = None
        self._workers: int | None = None
        self._last_finish = self.started
        self._last_report = self._last_shown = -math.inf
        self._total = self._left.total() + finished + failed
        self.announce("")

    def announce(self, words: str) -> None:
        """Report the phase with words about all of it, such as what variants wait for."""
        title = f"Running {pluralize(self._total, 'variant')}"
        self._reporter.phase(f"{title}, {words}" if words else title, self._total)
        self._reporter.advance(self._done + self._failed)

    def stopped(self) -> bool:
        """Whether the sweep is cancelled."""
        return super().stopped() or self._reporter.stopped()

    @property
    def is_due(self) -> bool:
        """Whether it is time to count again what runs."""
        return time.monotonic() - self._last_report >= _PERIOD_S

    def report(self, running: int | None, workers: int | None) -> None:
        """Say what runs now, and on how many workers; None where the executor does not tell."""
        self._running, self._workers = running, workers
        self._last_report = time.monotonic()
        self._show()

    def finish(self, kind: Hashable, seconds: float | None, *, failed: bool) -> None:
        """A variant is finished, after so many seconds where that is known."""
        self._left[kind] -= 1
        self._failed, self._done = self._failed + failed, self._done + (not failed)
        self._last_finish = time.monotonic()
        if seconds is not None:
            self._durations.add(kind, seconds)
        self._reporter.advance()
        self._show()

    @property
    def counts(self) -> SweepCounts:
        """How far the sweep is."""
        left = self._left.total()
        running = None if self._running is None else min(self._running, left)
        return SweepCounts(
            self._done, self._failed, running, left - (running or 0), self._estimate_left(left)
        )

    def _estimate_left(self, left: int) -> float | None:
        work = self._durations.estimate(self._left)
        if work is None:
            return None
        # Where nobody tells how many workers there are, the work that was done by now does.
        measured = self._durations.total / max(_SHOWN_S, self._last_finish - self.started)
        workers = min(self._workers or self._running or max(1.0, measured), max(1, left))
        # What runs began about when others ended.
        return max(0.0, work / workers - (time.monotonic() - self._last_finish))

    def _show(self) -> None:
        now = time.monotonic()
        if isinstance(self._reporter, Reporting) and now - self._last_shown >= _SHOWN_S:
            self._last_shown = now
            self._reporter.detail(str(self.counts))


def count_running(
    executors: Iterable[Executor], pending: Collection[Future[Any]]
) -> tuple[int | None, int | None]:
    """How many tasks run, and how many workers there are; None where an executor does not tell.

    A pool says how many workers it has, and marks as running also what it has handed to them to be next. A Dask client
    is asked what its workers process.
    """
    running, workers = sum(future.running() for future in pending), 0
    has_unknown = False
    for executor in executors:
        client = get_client(executor)
        if isinstance(size := getattr(executor, "_max_workers", None), int):
            workers += size
        elif client is not None:
            try:
                threads, keys = client.nthreads(), client.processing()
            except Exception:  # noqa: BLE001 - whatever befell the cluster, its futures say
                has_unknown = True
                continue
            workers += sum(threads.values())
            running += sum(min(threads.get(worker, 0), len(names)) for worker, names in keys.items())
        else:
            has_unknown = True
    if has_unknown:
        return running or None, None
    return min(running, workers), workers
