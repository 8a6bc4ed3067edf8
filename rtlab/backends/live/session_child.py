"""ONNX Runtime in child processes: whatever it does to the process that it runs in, the notebook lives on.

A child keeps sessions and does one call after the other; calls of several threads at once have a child each. A crash, a
limit that is passed, or a cancel ends the child with all of its sessions, and the next call starts another one.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import threading
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from rtlab.backends.live import inference
from rtlab.backends.live.child import Bounds, ChildProcess, ChildWork, copy_environment
from rtlab.backends.live.inference import SessionSpec
from rtlab.backends.live.shared_memory import SharedMemoryPool
from rtlab.core.arrays import Batch
from rtlab.core.progress import Silent
from rtlab.core.protocols import Limits, Progress
from rtlab.errors import BackendError, BuildError, RunError

if TYPE_CHECKING:
    from rtlab.backends.files.optimized import NodeRuns
    from rtlab.backends.interleaved_timing import Times
    from rtlab.backends.placement import Partition

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


class _Child:
    """A child process of this kernel's, started in the environment that the notebook has now."""

    _children: ClassVar[list[_Child]] = []
    _lock: ClassVar[threading.Lock] = threading.Lock()

    def __init__(self) -> None:
        self.memory_pool = SharedMemoryPool()
        self.process = ChildProcess(
            Limits(), work=RUNNING, first=inference.preload, files=self.memory_pool.fds
        )
        self.environment = copy_environment()
        self.last_used = time.monotonic()
        #: Numbers of the sessions that it keeps, and of those of them that nobody wants any more.
        self.session_ids: set[int] = set()
        self.released_ids: set[int] = set()

    @classmethod
    def acquire(cls) -> _Child:
        """One that is not at work, or a new one."""
        with cls._lock:
            now = copy_environment()
            for child in cls._children:
                if child.environment != now and child.is_idle(0.0):
                    child.process.close()
            cls._children = [c for c in cls._children if c.process.alive]
            for child in reversed(cls._children):
                if not child.process.busy and child.environment == now:
                    child.last_used = time.monotonic()
                    return child
            if not cls._children:
                threading.Thread(target=cls._watch, name="rtlab-idle", daemon=True).start()
            cls._children.append(new_child := cls())
            return new_child

    @classmethod
    def _watch(cls) -> None:
        """End children that nobody has used for a while, for as long as there are any."""
        while True:
            time.sleep(_IDLE / 4)
            with cls._lock:
                for child in cls._children:
                    if child.is_idle(_IDLE):
                        child.process.close()
                cls._children = [c for c in cls._children if c.process.alive]
                if not cls._children:
                    return

    @classmethod
    def reset_after_fork(cls) -> None:
        """This process is a fork, and the children are those of another."""
        for child in cls._children:
            child.process.detach()
        cls._children, cls._lock = [], threading.Lock()

    def is_idle(self, seconds: float) -> bool:
        """Whether nobody has wanted anything of it for so long."""
        active_ids = self.session_ids - self.released_ids
        return not active_ids and not self.process.busy and time.monotonic() - self.last_used > seconds

    def call(self, function: Callable[[P, Any], R], payload: P, progress: Progress, bounds: Bounds) -> R:
        """What a function of ``inference`` gives."""
        if self.released_ids:
            ended_ids = tuple(self.released_ids)
            self.process.execute(inference.close_sessions, ended_ids, progress, bounds)
            self.session_ids.difference_update(ended_ids)
            self.released_ids.difference_update(ended_ids)
        answer = self.process.execute(function, payload, progress, bounds)
        self.last_used = time.monotonic()
        return answer

    def end_released_sessions(self) -> None:
        """End the sessions that nobody wants any more, where that keeps nobody waiting."""
        if self.process.alive and not self.process.busy:
            with contextlib.suppress(BackendError):
                self.memory_pool.clear()
                self.call(
                    inference.trim_memory,
                    None,
                    Silent(),
                    Bounds.of("Cannot end a session", RUNNING, Limits()),
                )


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_Child.reset_after_fork)


def prestart_child() -> None:
    """Start a child that will be wanted soon."""
    _Child.acquire()


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
        return self.call(_Child.acquire(), inference.optimize, spec)

    def open_session(self, spec: SessionSpec) -> ChildSession:
        """Make a session that stays. Errors are those of ``optimize``."""
        child = _Child.acquire()
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
        return self.call(_Child.acquire(), inference.time_sessions, payload)

    def call(self, child: _Child, function: Callable[[P, Any], R], payload: P) -> R:
        """What a function of ``inference`` gives in a child."""
        return child.call(function, payload, self._progress, self._bounds)


class ChildSession:
    """A session in a child; ``outputs`` are its names. Dropping it ends it before the next call there."""

    def __init__(self, child: _Child, number: int, outputs: tuple[str, ...]) -> None:
        self._child, self._number, self.outputs = child, number, outputs
        child.session_ids.add(number)
        self._drop = weakref.finalize(self, child.released_ids.add, number)
        self._drop.atexit = False

    @property
    def alive(self) -> bool:
        """Whether its child has not ended."""
        return self._child.process.alive

    @property
    def pid(self) -> int:
        """The number of its child."""
        return self._child.process.pid

    def run(self, caller: ChildCaller, names: Sequence[str], batch: Batch) -> list[Any]:
        """Run one batch.

        Raises:
            RunError: ONNX Runtime fails on it.
        """
        pool = self._child.memory_pool
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
        self._child.end_released_sessions()
