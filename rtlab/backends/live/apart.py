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
from rtlab.backends.live.child import Bounds, ChildProcess, ChildWork, environment
from rtlab.backends.live.inference import SessionOrder
from rtlab.backends.live.rooms import Rooms
from rtlab.core.arrays import Batch
from rtlab.core.progress import Silent
from rtlab.core.protocols import Limits, Progress
from rtlab.errors import BackendError, BuildError, RunError

if TYPE_CHECKING:
    from rtlab.backends.files.optimized import NodeRuns
    from rtlab.backends.placement import Partition
    from rtlab.backends.watch import Times

P = TypeVar("P")
R = TypeVar("R")

#: Seconds for which a child without sessions waits for work.
_IDLE = 60.0
_AGAIN = (
    "What was found before is kept. Try again; if it crashes again, the model holds something that it cannot digest: "
    "try parts of it to find out which"
)
RUNNING = ChildWork(
    RunError, "the run", "ONNX Runtime's process", "ONNX Runtime's process",
    "choose smaller batches", "choose smaller batches", f"{_AGAIN}, or choose smaller batches.", free=True,
)  # fmt: skip
BUILDING = dataclasses.replace(
    RUNNING,
    failure=BuildError,
    called="the build",
    quicker="choose a smaller part of the model",
    smaller="choose a smaller part of the model",
    again=f"{_AGAIN}.",
)


class _Child:
    """A child process of this kernel's, started in the environment that the notebook has now."""

    _all: ClassVar[list[_Child]] = []
    _lock: ClassVar[threading.Lock] = threading.Lock()

    def __init__(self) -> None:
        self.rooms = Rooms()
        self.session = ChildProcess(Limits(), work=RUNNING, first=inference.ready, files=self.rooms.numbers)
        self.environment = environment()
        self.used = time.monotonic()
        #: Numbers of the sessions that it keeps, and of those of them that nobody wants any more.
        self.kept: set[int] = set()
        self.unwanted: set[int] = set()

    @classmethod
    def free(cls) -> _Child:
        """One that is not at work, or a new one."""
        with cls._lock:
            now = environment()
            for child in cls._all:
                if child.environment != now and child.idle(0.0):
                    child.session.close()
            cls._all = [c for c in cls._all if c.session.alive]
            for child in reversed(cls._all):
                if not child.session.busy and child.environment == now:
                    child.used = time.monotonic()
                    return child
            if not cls._all:
                threading.Thread(target=cls._watch, name="rtlab-idle", daemon=True).start()
            cls._all.append(made := cls())
            return made

    @classmethod
    def _watch(cls) -> None:
        """End children that nobody has used for a while, for as long as there are any."""
        while True:
            time.sleep(_IDLE / 4)
            with cls._lock:
                for child in cls._all:
                    if child.idle(_IDLE):
                        child.session.close()
                cls._all = [c for c in cls._all if c.session.alive]
                if not cls._all:
                    return

    @classmethod
    def forked(cls) -> None:
        """This process is a fork, and the children are those of another."""
        for child in cls._all:
            child.session.forget()
        cls._all, cls._lock = [], threading.Lock()

    def idle(self, seconds: float) -> bool:
        """Whether nobody has wanted anything of it for so long."""
        wanted = self.kept - self.unwanted
        return not wanted and not self.session.busy and time.monotonic() - self.used > seconds

    def do(self, function: Callable[[P, Any], R], payload: P, progress: Progress, bounds: Bounds) -> R:
        """What a function of ``inference`` gives."""
        if self.unwanted:
            gone = tuple(self.unwanted)
            self.session.do(inference.forget, gone, progress, bounds)
            self.kept.difference_update(gone)
            self.unwanted.difference_update(gone)
        found = self.session.do(function, payload, progress, bounds)
        self.used = time.monotonic()
        return found

    def tidy(self) -> None:
        """End the sessions that nobody wants any more, where that keeps nobody waiting."""
        if self.session.alive and not self.session.busy:
            with contextlib.suppress(BackendError):
                self.rooms.clear()
                self.do(inference.rest, None, Silent(), Bounds.of("Cannot end a session", RUNNING, Limits()))


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_Child.forked)


def warm() -> None:
    """Start a child that will be wanted soon."""
    _Child.free()


class Errand:
    """Calls that one task needs, in the time that all of them have together.

    Args:
        doing: How an error begins, such as ``Backend "onnxruntime" cannot run``.
        progress: Told of steps, and asked whether to stop; None is never stopped.
        limits: Bounds of all calls together: seconds, and bytes by which the process may grow.
        work: What it is, for the words of errors.

    Every method raises ``Cancelled`` when the user asked to stop, and the error of the work when the child crashes or
    passes a limit.
    """

    def __init__(
        self,
        doing: str,
        progress: Progress | None = None,
        limits: Limits | None = None,
        *,
        work: ChildWork = RUNNING,
    ) -> None:
        self.doing = doing
        self._progress, self._bounds = progress or Silent(), Bounds.of(doing, work, limits or Limits())

    def optimize(self, order: SessionOrder) -> tuple[Partition, ...]:
        """Make a session and let it go: see ``inference.optimize``.

        Raises:
            BuildError: ONNX Runtime refuses the model.
            Unavailable: the provider cannot start.
        """
        return self.call(_Child.free(), inference.optimize, order)

    def keep(self, order: SessionOrder) -> KeptSession:
        """Make a session that stays. Errors are those of ``optimize``."""
        child = _Child.free()
        return KeptSession(child, *self.call(child, inference.keep, order))

    def time(
        self,
        orders: tuple[SessionOrder, SessionOrder],
        batch: Batch,
        *,
        runs: int,
        warmup: int,
        seconds: float | None,
        most: int | None,
    ) -> tuple[Times, Mapping[str, NodeRuns]]:
        """Time a session without the profiler and one with it: see ``inference.time``.

        Raises:
            RunError: ONNX Runtime fails on the batch.
        """
        payload = *orders, dict(batch), runs, warmup, seconds, most
        return self.call(_Child.free(), inference.time, payload)

    def call(self, child: _Child, function: Callable[[P, Any], R], payload: P) -> R:
        """What a function of ``inference`` gives in a child."""
        return child.do(function, payload, self._progress, self._bounds)


class KeptSession:
    """A session in a child; ``outputs`` are its names. Dropping it ends it before the next call there."""

    def __init__(self, child: _Child, number: int, outputs: tuple[str, ...]) -> None:
        self._child, self._number, self.outputs = child, number, outputs
        child.kept.add(number)
        self._drop = weakref.finalize(self, child.unwanted.add, number)
        self._drop.atexit = False

    @property
    def alive(self) -> bool:
        """Whether its child has not ended."""
        return self._child.session.alive

    @property
    def pid(self) -> int:
        """The number of its child."""
        return self._child.session.pid

    def run(self, errand: Errand, names: Sequence[str], batch: Batch) -> list[Any]:
        """Run one batch.

        Raises:
            RunError: ONNX Runtime fails on it.
        """
        rooms = self._child.rooms
        room = rooms.take()
        payload = self._number, tuple(names), dict(batch), room
        try:
            found = errand.call(self._child, inference.run, payload)
        except BaseException:
            rooms.back(room)
            raise
        return rooms.arrays(room, found)

    def close(self) -> None:
        """End it at once, unless its child is at work; then after that."""
        self._drop()
        self._child.tidy()
