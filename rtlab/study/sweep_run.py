"""The work of one sweep: its tasks here or in the workers of an executor."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from concurrent import futures
from concurrent.futures import Executor, Future
from pathlib import Path
from queue import Empty, SimpleQueue

from rtlab.core.progress import Silent, check
from rtlab.core.protocols import Progress
from rtlab.errors import Cancelled, ReadError, RtlabError, wrap_error
from rtlab.study import store, sweep_task
from rtlab.study.sweep_task import Needs, SweepTask, list_needs, record_failure

#: Seconds between looks at whether a sweep is cancelled.
_TICK_S = 0.1


class _Quiet(Silent):
    """Passes on a cancel alone: the sweep reports its own progress."""

    def __init__(self, progress: Progress) -> None:
        super().__init__()
        self._progress = progress

    def stopped(self) -> bool:
        """Whether the sweep is cancelled."""
        return super().stopped() or self._progress.stopped()


class SweepRun:
    """The work of one call of ``ResultStore.run``."""

    def __init__(self, folder: Path, tasks: Sequence[SweepTask], retries: int, progress: Progress) -> None:
        self._folder, self._tasks, self._progress = folder, tasks, progress
        self._retries = retries
        self._finished = 0

    def run_here(self) -> None:
        """One after the other, in this process."""
        quiet = _Quiet(self._progress)
        for task in self._tasks:
            for attempt in range(self._retries + 1):
                check(self._progress, "the sweep")
                try:
                    sweep_task.run_task(task, quiet)
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
            queue = self._run_queue(queue, executor)
            fruitless = fruitless + 1 if before == self._finished else 0
            if len(queue) == 1 and fruitless > self._retries:
                # Nothing else ran when the worker died.
                self._finish(queue[0], _make_death_error(1, self._finished))
                queue = []
            if queue and (isinstance(executor, Executor) or fruitless > self._retries):
                raise _make_death_error(len(queue), self._finished)

    def _run_queue(
        self, queue: Sequence[SweepTask], executor: Executor | Callable[[Needs], Executor]
    ) -> list[SweepTask]:
        """Run tasks; returns those that are left when the executor is broken."""
        left: list[SweepTask] = []
        pending: dict[Future[None], tuple[SweepTask, int]] = {}
        done: SimpleQueue[Future[None]] = SimpleQueue()
        choose = (lambda _: executor) if isinstance(executor, Executor) else _choose_by_needs(executor)
        try:
            tries = [(task, 0) for task in queue]
            while tries or pending:
                for task, attempt in tries:
                    try:
                        future = choose(task).submit(sweep_task.run_task, task)
                    except futures.BrokenExecutor:  # noqa: PERF203 - it may break at each
                        left.append(task)
                    else:
                        pending[future] = task, attempt
                        future.add_done_callback(done.put)
                tries = []
                check(self._progress, "the sweep")
                with contextlib.suppress(Empty):
                    future = done.get(timeout=_TICK_S)
                    task, attempt = pending.pop(future)
                    error = None if future.cancelled() else future.exception()
                    if future.cancelled() or isinstance(
                        error, (futures.BrokenExecutor, futures.CancelledError)
                    ):
                        left.append(task)
                    elif error is not None and attempt < self._retries:
                        tries.append((task, attempt + 1))
                    else:
                        self._finish(task, error)
        finally:
            for future in pending:
                future.cancel()
        return left

    def _finish(self, task: SweepTask, error: BaseException | None = None) -> None:
        if error is None:
            # One of an earlier sweep is over.
            (self._folder / store.FAILED / f"{task.key}.json").unlink(missing_ok=True)
        elif isinstance(error, ReadError) or not isinstance(error, Exception):
            # The store itself cannot be read, which befalls all variants.
            raise error
        else:
            record_failure(self._folder, task, wrap_error(error, f'build "{task.name}"'))
        self._finished += 1
        self._progress.advance()


def _choose_by_needs(make: Callable[[Needs], Executor]) -> Callable[[SweepTask], Executor]:
    """The executors that a user's function returns, one for each kind of needs."""
    executors: dict[str, Executor] = {}

    def choose(task: SweepTask) -> Executor:
        needs = list_needs(task.variant)
        if str(needs) not in executors:
            executors[str(needs)] = make(needs)
        return executors[str(needs)]

    return choose


def _make_death_error(left: int, finished: int) -> RtlabError:
    return RtlabError(
        f"Cannot go on with the sweep: a worker of the executor ended, and the executor with it. {finished} variants "
        f"are finished, {left} are not. Look at the memory of the machine, and run it again with another executor, or "
        "with a function that returns one."
    )
