"""The work of one sweep: its tasks here or in the workers of an executor."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import logging
import time
import zlib
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent import futures
from concurrent.futures import Executor, Future
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

from rtlab.core.progress import check
from rtlab.errors import Cancelled, ReadError, RtlabError, wrap_error
from rtlab.study import store, sweep_task
from rtlab.study.clusters import find_missing, is_worker_death
from rtlab.study.study_copies import StudyCopies
from rtlab.study.sweep_progress import SweepProgress, choose_kind, count_running
from rtlab.study.sweep_rows import decode_row
from rtlab.study.sweep_task import MissingStudy, Needs, SweepTask, list_needs, record_failure

#: Seconds between looks at whether a sweep is cancelled, and at whether there are workers for what waits.
_TICK_S, _LOOK_S = 0.1, 5.0
#: How often a task is given out again because the worker is gone that had the copy of its study.
_MOST_LOSSES = 10
#: Tasks that an executor has at once.
_MOST_GIVEN = 2_000
_LOG = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True)
class _Attempt:
    """A task that is given to a worker of an executor, with a copy of its study or None.

    ``failures`` counts the attempts that failed before, ``losses`` those whose copy was gone.
    """

    task: SweepTask
    failures: int = 0
    losses: int = 0
    executor: Executor | None = None
    copy: Any = None


class _WorkerDeath(Exception):  # noqa: N818 - what befell a task, and no fault
    """The worker of a task died; ``broke_executor`` says that no other takes its place."""

    def __init__(self, *, broke_executor: bool) -> None:
        super().__init__()
        self.broke_executor = broke_executor


class _Lines:
    """Tasks in lines before their executors, each of which has so many at most at once.

    A scheduler that takes in thousands of tasks one by one answers nobody meanwhile, and loses its connections.
    """

    def __init__(self, choose: Callable[[SweepTask], Executor]) -> None:
        self._choose = choose
        self._lines: dict[Executor, deque[_Attempt]] = {}
        self._given = Counter[Executor]()

    def __bool__(self) -> bool:
        return any(self._lines.values())

    def add(self, attempt: _Attempt) -> None:
        """Put a task at the end of its line."""
        self._lines.setdefault(self._choose(attempt.task), deque()).append(attempt)

    def take(self) -> Iterator[tuple[_Attempt, Executor]]:
        """The tasks that executors have room for."""
        for executor, line in self._lines.items():
            while line and self._given[executor] < _MOST_GIVEN:
                self._given[executor] += 1
                yield line.popleft(), executor

    def make_room(self, executor: Executor | None) -> None:
        """A task that an executor was given is over."""
        if executor is not None:
            self._given[executor] -= 1

    @property
    def counts(self) -> Mapping[Executor, int]:
        """How many tasks of each executor are not over."""
        return {executor: len(line) + self._given[executor] for executor, line in self._lines.items()}


class SweepRun:
    """The work of one call of ``ResultStore.run``."""

    def __init__(
        self, folder: Path, tasks: Sequence[SweepTask], retries: int, progress: SweepProgress
    ) -> None:
        self._folder, self._tasks, self._progress = folder, tasks, progress
        self._retries = retries
        self._finished = 0
        self._copies = StudyCopies(folder)
        self._numbers = itertools.count(1)
        #: How many tasks of each study are not finished.
        self._open_studies = Counter(task.study for task in tasks)
        #: What variants wait for that no worker has, in words.
        self._waiting = ""
        self._look_at = time.monotonic() + _LOOK_S

    def run_here(self) -> None:
        """One after the other, in this process."""
        for task in self._tasks:
            self._progress.report(1, 1)
            for attempt in range(self._retries + 1):
                check(self._progress, "the sweep")
                try:
                    sweep_task.run_task(task, self._progress)
                except (Cancelled, AssertionError):
                    raise
                except Exception as error:  # noqa: BLE001 - whatever befell one variant, the others are tried
                    if attempt == self._retries:
                        self._finish(task, error)
                else:
                    self._finish(task)
                    break

    def run_in(self, executor: Executor | Callable[[Needs], Executor]) -> None:
        """In an executor's workers; a broken one is replaced where there is a function that returns another."""
        queue, fruitless = [*self._tasks], 0
        while queue:
            before = self._finished
            queue, is_broken = self._run_queue(queue, executor)
            fruitless = fruitless + 1 if before == self._finished else 0
            if queue and fruitless and not is_broken:
                queue, is_broken = self._run_alone(queue, executor)
            if len(queue) == 1 and fruitless > self._retries:
                # Nothing else ran when the worker died.
                self._finish(queue[0], _make_death_error(1, self._finished))
                queue = []
            if queue and is_broken and (isinstance(executor, Executor) or fruitless > self._retries):
                raise _make_death_error(len(queue), self._finished)

    def _run_alone(
        self, queue: Sequence[SweepTask], executor: Executor | Callable[[Needs], Executor]
    ) -> tuple[list[SweepTask], bool]:
        """Run tasks whose workers died one after the other: what kills a worker alone has failed."""
        for i, task in enumerate(queue):
            left, is_broken = self._run_queue([task], executor)
            if is_broken:
                return [*left, *queue[i + 1 :]], True
            if left:
                self._finish(task, _make_killer_error(task))
        return [], False

    def _run_queue(
        self, queue: Sequence[SweepTask], executor: Executor | Callable[[Needs], Executor]
    ) -> tuple[list[SweepTask], bool]:
        """Run tasks; returns those that are left since workers died, and whether an executor is broken."""
        left: list[SweepTask] = []
        is_broken = False
        pending: dict[Future[Any], _Attempt] = {}
        done: SimpleQueue[Future[Any]] = SimpleQueue()
        choose = (lambda _: executor) if isinstance(executor, Executor) else _choose_by_needs(executor)
        lines = _Lines(choose)
        try:
            for task in queue:
                lines.add(_Attempt(task))
            while lines or pending:
                for attempt, executor_of_task in lines.take():
                    try:
                        future, sent = self._submit(attempt, executor_of_task)
                    except futures.BrokenExecutor:  # noqa: PERF203 - it may break at each
                        lines.make_room(executor_of_task)
                        left.append(attempt.task)
                        is_broken = True
                    else:
                        pending[future] = sent
                        future.add_done_callback(done.put)
                check(self._progress, "the sweep")
                self._look(lines.counts, pending)
                with contextlib.suppress(Empty):
                    future = done.get(timeout=_TICK_S)
                    attempt = pending.pop(future)
                    lines.make_room(attempt.executor)
                    try:
                        for next_attempt in self._receive(attempt, future):
                            lines.add(next_attempt)
                    except _WorkerDeath as death:
                        left.append(attempt.task)
                        is_broken = is_broken or death.broke_executor
        finally:
            for future in pending:
                future.cancel()
        return left, is_broken

    def _receive(self, attempt: _Attempt, future: Future[Any]) -> list[_Attempt]:
        """Take what came of a task; returns the attempt that follows, if one does.

        Raises:
            _WorkerDeath: its worker died.
        """
        if future.cancelled() and attempt.copy is not None and attempt.losses < _MOST_LOSSES:
            # The worker is gone that had the copy.
            self._copies.drop(attempt.task.study)
            return [dataclasses.replace(attempt, losses=attempt.losses + 1)]
        error = futures.CancelledError() if future.cancelled() else future.exception()
        if is_worker_death(error):
            raise _WorkerDeath(
                broke_executor=isinstance(error, (futures.BrokenExecutor, futures.CancelledError))
            )
        if error is not None and attempt.failures < self._retries:
            return [dataclasses.replace(attempt, failures=attempt.failures + 1)]
        answer = future.result() if error is None else None
        if isinstance(answer, MissingStudy):
            self._copies.send(attempt.executor, attempt.task.study, answer.host)
            return [attempt]
        self._finish(attempt.task, error, answer)
        return []

    def _submit(self, attempt: _Attempt, executor: Executor) -> tuple[Future[Any], _Attempt]:
        """Give a task to a worker, with a copy of its study where some worker was without."""
        copy = self._copies.get(executor, attempt.task.study)
        arguments = () if copy is None else (None, copy)
        task = dataclasses.replace(attempt.task, attempt=next(self._numbers))
        future = executor.submit(sweep_task.run_task, task, *arguments)
        return future, dataclasses.replace(attempt, executor=executor, copy=copy)

    def _look(self, counts: Mapping[Executor, int], pending: Collection[Future[Any]]) -> None:
        """Count now and then what runs, and say what variants wait for that no worker has."""
        if self._progress.is_due:
            self._progress.report(*count_running(counts, pending))
        if time.monotonic() < self._look_at:
            return
        self._look_at = time.monotonic() + _LOOK_S
        self._touch_mark(self._tasks[0])
        missing = [(find_missing(executor), count) for executor, count in counts.items()]
        words = ", ".join(f"{count} wait for {what}" for what, count in missing if what)
        if words != self._waiting:
            self._waiting = words
            self._progress.announce(words)
            if words:
                _LOG.warning("the sweep: %s", words)

    def _touch_mark(self, task: SweepTask) -> None:
        """Show that the sweep goes on."""
        with contextlib.suppress(OSError):
            (self._folder / task.mark).touch()

    def _finish(
        self, task: SweepTask, error: BaseException | None = None, files: Mapping[str, bytes] | None = None
    ) -> None:
        """Note that a task is done: it failed, wrote its result, or brought the files of its entry."""
        if files is not None:
            try:
                content = {name: zlib.decompress(packed) for name, packed in files.items()}
                store.write_entry(self._folder / store.ENTRIES, task.key, content, replace=task.replaces)
            except RtlabError as refusal:
                error = refusal
        if error is None:
            # One of an earlier sweep is over.
            (self._folder / store.FAILED / f"{task.key}.json").unlink(missing_ok=True)
        elif isinstance(error, ReadError) or not isinstance(error, Exception):
            # The store itself cannot be read, which befalls all variants.
            raise error
        elif not task.replaces:
            record_failure(self._folder, task, wrap_error(error, f'build "{task.name}"'))
        self._touch_mark(task)
        self._finished += 1
        self._open_studies[task.study] -= 1
        if not self._open_studies[task.study]:
            self._copies.drop(task.study)
        self._progress.finish(choose_kind(task), self._read_duration(task), failed=error is not None)

    def _read_duration(self, task: SweepTask) -> float | None:
        """The seconds of work in a result; None where there is none."""
        try:
            return decode_row(
                (self._folder / store.ENTRIES / task.key / store.ROW).read_bytes(), task.key
            ).work_s
        except OSError:
            return None


def _choose_by_needs(make: Callable[[Needs], Executor]) -> Callable[[SweepTask], Executor]:
    """The executors that a user's function returns, one for each kind of needs."""
    executors: dict[str, Executor] = {}

    def choose(task: SweepTask) -> Executor:
        needs = list_needs(task.variant)
        if str(needs) not in executors:
            executors[str(needs)] = make(needs)
        return executors[str(needs)]

    return choose


def _make_killer_error(task: SweepTask) -> RtlabError:
    return RtlabError(
        f'Cannot build or measure "{task.name}": the workers of the cluster that tried it were killed, one after the '
        "other, while nothing else ran. Look at their memory: dask worker --memory-limit."
    )


def _make_death_error(left: int, finished: int) -> RtlabError:
    return RtlabError(
        f"Cannot go on with the sweep: a worker of the executor ended, and the executor with it. {finished} variants "
        f"are finished, {left} are not. Look at the memory of the machine, and run it again with another executor, or "
        "with a function that returns one."
    )
