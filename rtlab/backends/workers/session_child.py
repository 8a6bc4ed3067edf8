"""ONNX Runtime in child processes: whatever it does to the process that it runs in, the notebook lives on.

A child keeps sessions and does one call after the other; calls of several threads at once have a child each. A crash, a
limit that is passed, or a cancel ends the child with all of its sessions, and the next call starts another one.
"""

from __future__ import annotations

import contextlib
import dataclasses
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from rtlab.backends.workers import inference
from rtlab.backends.workers.inference import SessionSpec
from rtlab.backends.workers.process import Bounds, ChildProcess, ChildWork
from rtlab.backends.workers.shared_memory import SharedMemoryPool
from rtlab.backends.workers.worker_pool import ChildPool, PooledChild
from rtlab.core.arrays import Batch
from rtlab.core.progress import Silent
from rtlab.core.protocols import Limits, Progress
from rtlab.errors import BackendError, BuildError, RunError

if TYPE_CHECKING:
    from rtlab.backends.interleaved_timing import Times
    from rtlab.backends.placement import Partition
    from rtlab.backends.readers.optimized import NodeRuns

P = TypeVar("P")
R = TypeVar("R")

#: Seconds for which a child without sessions waits for work.
_IDLE = 60.0
_RETRY_HINT = (
    "What was found before is kept. Try again; if it crashes again, the model holds something that it cannot digest: "
    "try parts of it to find out which"
)
RUNNING = ChildWork(
    RunError, "the run", "ONNX Runtime's process", "ONNX Runtime's process",
    "choose smaller batches", "choose smaller batches", f"{_RETRY_HINT}, or choose smaller batches.",
    limit_to_free_memory=True,
)  # fmt: skip
BUILDING = dataclasses.replace(
    RUNNING,
    failure=BuildError,
    activity="the build",
    time_hint="choose a smaller part of the model",
    memory_hint="choose a smaller part of the model",
    retry_hint=f"{_RETRY_HINT}.",
)


def _start(_: None) -> tuple[ChildProcess, SharedMemoryPool]:
    rooms = SharedMemoryPool()
    return ChildProcess(Limits(), work=RUNNING, first=inference.preload, files=rooms.fds), rooms


_Child = PooledChild[None, SharedMemoryPool]
#: Children of this kernel with their sessions, each with rooms for what they compute.
POOL = ChildPool[None, SharedMemoryPool](_IDLE, _start)


def prestart_child() -> None:
    """Start a child that will be wanted soon."""
    POOL.acquire(None)


class ChildCaller:
    """Calls that one task needs, in the time that all of them have together.

    Args:
        error_prefix: How an error begins, such as ``Backend "onnxruntime" cannot run``.
        progress: Told of steps, and asked whether to stop; None is never stopped.
        limits: Bounds of all calls together: seconds, and bytes by which the process may grow.
        work: What it is, for the words of errors.

    Every method raises ``Cancelled`` when the user asked to stop, and the error of the work when the child crashes or
    passes a limit.
    """

    def __init__(
        self,
        error_prefix: str,
        progress: Progress | None = None,
        limits: Limits | None = None,
        *,
        work: ChildWork = RUNNING,
    ) -> None:
        self.error_prefix = error_prefix
        self._progress, self._bounds = progress or Silent(), Bounds.of(error_prefix, work, limits or Limits())

    def optimize(self, spec: SessionSpec) -> tuple[Partition, ...]:
        """Make a session and let it go: see ``inference.optimize``.

        Raises:
            BuildError: ONNX Runtime refuses the model.
            Unavailable: the provider cannot start.
        """
        return self.call(POOL.acquire(None), inference.optimize, spec)

    def open_session(self, spec: SessionSpec) -> ChildSession:
        """Make a session that stays. Errors are those of ``optimize``."""
        child = POOL.acquire(None)
        return ChildSession(child, *self.call(child, inference.open_session, spec))

    def time(
        self,
        specs: tuple[SessionSpec, SessionSpec],
        batch: Batch,
        *,
        runs: int,
        warmup: int,
        seconds: float | None,
        max_profiled_runs: int | None,
    ) -> tuple[Times, Mapping[str, NodeRuns]]:
        """Time a session without the profiler and one with it: see ``inference.time``.

        Raises:
            RunError: ONNX Runtime fails on the batch.
        """
        payload = *specs, dict(batch), runs, warmup, seconds, max_profiled_runs
        return self.call(POOL.acquire(None), inference.time_sessions, payload)

    def call(self, child: _Child, function: Callable[[P, Any], R], payload: P) -> R:
        """What a function of ``inference`` gives in a child, which first ends sessions that nobody wants any more."""
        if child.released:
            numbers = tuple(child.released)
            child.execute(inference.close_sessions, numbers, self._progress, self._bounds)
            child.released.difference_update(numbers)
        return child.execute(function, payload, self._progress, self._bounds)


class ChildSession:
    """A session in a child; ``outputs`` are its names. Dropping it ends it before the next call there."""

    def __init__(self, child: _Child, number: int, outputs: tuple[str, ...]) -> None:
        self._child, self._number, self.outputs = child, number, outputs
        child.kept.add(number)
        self._drop = weakref.finalize(self, _release, child.kept, child.released, number)
        self._drop.atexit = False

    @property
    def alive(self) -> bool:
        """Whether its child has not ended."""
        return self._child.process.alive

    def run(self, caller: ChildCaller, names: Sequence[str], batch: Batch) -> list[Any]:
        """Run one batch; raises ``RunError`` where ONNX Runtime fails on it."""
        pool = self._child.context
        fd = pool.acquire()
        payload = self._number, tuple(names), dict(batch), fd
        try:
            arrays = caller.call(self._child, inference.run, payload)
        except BaseException:
            pool.release(fd)
            raise
        return pool.read_arrays(fd, arrays)

    def close(self) -> None:
        """End it at once, unless its child is at work; then after that."""
        self._drop()
        if self._child.process.alive and not self._child.process.busy:
            with contextlib.suppress(BackendError):
                self._child.context.clear()
                ChildCaller("Cannot end a session").call(self._child, inference.trim_memory, None)


def _release(kept: set[int], released: set[int], number: int) -> None:
    kept.discard(number)
    released.add(number)
