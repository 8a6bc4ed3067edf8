"""ONNX Runtime in child processes: whatever it does to the process that it runs in, the notebook lives on.

Calls of several threads at once have a child each. A crash, a limit that is passed, or a cancel ends the child with all
of its sessions, and the next call starts another one.
"""

from __future__ import annotations

import contextlib
import dataclasses
import weakref
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from rtlab.backends.workers import inference
from rtlab.backends.workers.inference import SessionSpec
from rtlab.backends.workers.process import Bounds, ChildProcess, ChildWork
from rtlab.backends.workers.worker_pool import ChildPool, PooledChild
from rtlab.core.arrays import Batch
from rtlab.core.progress import Silent
from rtlab.core.protocols import Limits, Progress
from rtlab.errors import BackendError, BuildError, RunError

P = TypeVar("P")
R = TypeVar("R")

#: Seconds for which a child without sessions waits for work.
_IDLE = 60.0
_RETRY_HINT = (
    "What was found before is kept. Try again; if it crashes again, the model holds something that it cannot digest: "
    "try parts of it to find out which"
)
RUNNING = ChildWork(
    RunError, "the run", "ONNX Runtime's process", "choose smaller batches", "Choose smaller batches",
    f"{_RETRY_HINT}, or choose smaller batches.",
)  # fmt: skip
BUILDING = dataclasses.replace(
    RUNNING,
    failure=BuildError,
    activity="the build",
    time_hint="choose a smaller part of the model",
    memory_hint="Choose a smaller part of the model",
    retry_hint=f"{_RETRY_HINT}.",
)
#: Children of this process with their sessions.
POOL = ChildPool(_IDLE, lambda _: ChildProcess(Limits().stack, preload=inference.preload))


def prestart_child() -> None:
    """Start a child that is needed soon."""
    POOL.acquire()


def call(function: Callable[[P, Any], R], payload: P, bounds: Bounds, child: PooledChild | None = None) -> R:
    """Call a function of ``inference`` in a child, which first ends sessions that were dropped.

    Raises:
        Cancelled: the user asked to stop.
        BackendError: the child crashed or passed a limit, of the kind of the work.
        RtlabError: whatever the function itself raised.
    """
    child = child or POOL.acquire()
    if child.released:
        numbers = tuple(child.released)
        child.call(inference.close_sessions, numbers, bounds)
        child.released.difference_update(numbers)
    return child.call(function, payload, bounds)


class ChildSession:
    """A session in a child, by default one of the pool; dropping it ends it before the next call there.

    ``outputs`` are the names of what it computes.

    Raises:
        BuildError: ONNX Runtime refuses the model.
        Unavailable: the provider cannot start.
    """

    def __init__(self, spec: SessionSpec, bounds: Bounds, child: PooledChild | None = None) -> None:
        self._child = child or POOL.acquire()
        self.number, self.outputs = call(inference.open_session, spec, bounds, self._child)
        self._child.kept.add(self.number)
        self._drop = weakref.finalize(self, _release, self._child, self.number)
        self._drop.atexit = False

    @property
    def alive(self) -> bool:
        """Whether its child has not ended."""
        return self._child.process.alive

    def run(self, names: Sequence[str], batch: Batch, bounds: Bounds) -> list[Any]:
        """Run one batch; raises ``RunError`` where ONNX Runtime fails on it."""
        return call(inference.run, (self.number, list(names), dict(batch)), bounds, self._child)

    def close(self) -> None:
        """End it at once, unless its child is at work; then after that."""
        self._drop()
        if self._child.process.alive and not self._child.process.busy:
            with contextlib.suppress(BackendError):
                bounds = Bounds("Cannot end a session", RUNNING, Limits(), Silent())
                call(inference.trim_memory, None, bounds, self._child)


class DeliveringProgress(Silent):
    """The progress of a call that calls ``deliver`` each time before it says whether to stop."""

    def __init__(self, progress: Progress, deliver: Callable[[], None]) -> None:
        super().__init__()
        self._progress, self._deliver = progress, deliver

    def stopped(self) -> bool:
        """Whether the work should end, which may follow from what was delivered."""
        self._deliver()
        return self._progress.stopped()


def _release(child: PooledChild, number: int) -> None:
    child.kept.discard(number)
    child.released.add(number)
