"""Calls of ONNX Runtime that end when the user asks, or when their time is over.

ONNX Runtime looks at its switch (``RunOptions.terminate``, or that of loading) between two nodes, inside of loops too,
but never within one. So a call runs on a thread of its own, while its caller watches clock, memory and user; where a
node does not end soon, the caller goes on without it, and the thread ends with that node.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import functools
import os
import queue
import sys
import threading
import time
from collections.abc import Callable
from concurrent import futures
from typing import Any, ClassVar, TypeVar

from rtlab.backends.live.child import Bounds, ChildWork, find_process, measure_memory
from rtlab.backends.live.session_child import RUNNING
from rtlab.core.progress import Silent, check
from rtlab.core.protocols import Limits, Progress

#: Seconds between two looks at the clock and the user, and those that a call has to end after it was told to.
_TICK, _GRACE = 0.05, 0.5
#: Seconds for which a thread without work waits for more, and those that Python waits at its end for calls at work.
_IDLE, _LAST = 0.5, 3.0

T = TypeVar("T")


class CancellableCaller:
    """Does calls, one after the other, in the time that all of them have together.

    Args:
        doing: How an error begins, such as ``Backend "onnxruntime" cannot run``.
        progress: Told of steps in the thread of the caller, and asked whether to stop; None is never stopped.
        limits: Bounds of all calls together: seconds, and bytes by which the process may grow.
        work: What it is, for the words of errors.
    """

    def __init__(
        self,
        error_prefix: str,
        progress: Progress | None = None,
        limits: Limits | None = None,
        *,
        work: ChildWork = RUNNING,
    ) -> None:
        self._progress, self._bounds = progress or Silent(), Bounds.of(error_prefix, work, limits or Limits())

    def call(self, work: Callable[[Progress], T], stop: Callable[[], object]) -> T:
        """What ``work`` returns or raises; it reports to the progress that it is given.

        Args:
            work: A call, done on a thread of its own.
            stop: Tells the call to end, from another thread.

        Raises:
            Cancelled: the user asked to stop.
            BackendError: the time or the memory is over, of the kind of the work.
        """
        # A brief call would be done before anybody looks.
        activity, process = self._bounds.work.activity, find_process()
        check(self._progress, activity)
        relay = _Relay()
        call = _PendingCall(relay, stop)
        _Thread.acquire().do(functools.partial(call.do, work))
        memory_limit = 0
        try:
            while not call.wait(_TICK):
                relay.forward(self._progress)
                check(self._progress, activity)
                memory_limit = memory_limit or self._bounds.compute_memory_limit(process)
                self._bounds.check(measure_memory(process), memory_limit)
        except BaseException:
            call.cancel()
            # Its words would be those of an end that we asked for.
            call.wait(_GRACE)
            raise
        relay.forward(self._progress)
        answer: T = call.answer.result()
        return answer


class _Thread:
    """A thread that does one piece of work after the other, and ends when it has had none for a while."""

    _idle: ClassVar[list[_Thread]] = []
    _lock: ClassVar[threading.Lock] = threading.Lock()

    def __init__(self) -> None:
        self._tasks: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        threading.Thread(target=self._work, name="rtlab-run", daemon=True).start()

    @classmethod
    def acquire(cls) -> _Thread:
        """One without work: the last that had some, whose processor still has what it needs at hand, or a new one."""
        with cls._lock:
            return cls._idle.pop() if cls._idle else cls()

    @classmethod
    def reset_after_fork(cls) -> None:
        """This process is a fork, and the threads are those of another."""
        cls._idle, cls._lock = [], threading.Lock()

    def do(self, work: Callable[[], None]) -> None:
        """Begin with a piece of work."""
        self._tasks.put(work)

    def _work(self) -> None:
        while True:
            try:
                work = self._tasks.get(timeout=_IDLE)
            except queue.Empty:
                with self._lock:
                    if self in self._idle:
                        self._idle.remove(self)
                        return
                continue
            work()
            # What it holds, such as a session with all its weights, must not wait for the next one.
            del work
            with self._lock:
                self._idle.append(self)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_Thread.reset_after_fork)


class _PendingCall:
    """A piece of work that has not ended, whether or not its caller still waits for it."""

    #: All of them: Python must not end under one, or it crashes.
    active: ClassVar[set[_PendingCall]] = set()

    def __init__(self, relay: _Relay, stop: Callable[[], object]) -> None:
        self._relay, self._stop = relay, stop
        self.answer: futures.Future[Any] = futures.Future()
        self.active.add(self)

    def do(self, work: Callable[[Progress], object]) -> None:
        """Do it; in its thread."""
        try:
            self.answer.set_result(work(self._relay))
        except BaseException as error:  # noqa: BLE001 - whatever it is, the caller must hear of it
            self.answer.set_exception(error)
        finally:
            self.active.discard(self)

    def cancel(self) -> None:
        """Tell it to end; from another thread."""
        self._relay.stop()
        self._stop()

    def wait(self, seconds: float) -> bool:
        """Whether it has ended, waited for so long."""
        return bool(futures.wait([self.answer], seconds).done)


@atexit.register
def _end() -> None:
    """Let no call come back to an interpreter that is gone.

    Until Python 3.14 a thread that does ends by unwinding its stack, and that of ONNX Runtime is C++ that must not be
    unwound: the process would abort after all of its work was done.
    """
    calls = tuple(_PendingCall.active)
    for call in calls:
        call.cancel()
    deadline = time.monotonic() + _LAST
    if not all(call.wait(max(0.0, deadline - time.monotonic())) for call in calls):
        _never_abort()


def _never_abort() -> None:
    """Where C++ would abort the process, a thread stands still from now on; the others end the process as usual."""
    name = {"linux": "libstdc++.so.6", "darwin": "libc++.1.dylib"}.get(sys.platform)
    if name is None:
        return
    with contextlib.suppress(AttributeError, OSError):
        handle = ctypes.CDLL(name)["_ZSt13set_terminatePFvvE"]
        handle.argtypes = [ctypes.c_void_p]
        handle(ctypes.cast(ctypes.CDLL(None).pause, ctypes.c_void_p))


class _Relay:
    """Progress of a call, told where its caller waits: what shows it need not be safe in other threads."""

    def __init__(self) -> None:
        self._phases: queue.SimpleQueue[tuple[str, int | None]] = queue.SimpleQueue()
        self._steps = self._forwarded_steps = 0
        self._stop = threading.Event()

    def phase(self, name: str, total: int | None = None) -> None:
        """Open a phase."""
        self._phases.put((name, total))

    def advance(self, steps: int = 1) -> None:
        """Count finished steps."""
        self._steps += steps

    def stop(self) -> None:
        """The caller waits no longer."""
        self._stop.set()

    def stopped(self) -> bool:
        """Whether the caller waits no longer."""
        return self._stop.is_set()

    def forward(self, progress: Progress) -> None:
        """Hand on what came since the last time."""
        with contextlib.suppress(queue.Empty):
            while True:
                progress.phase(*self._phases.get_nowait())
        if new_steps := self._steps - self._forwarded_steps:
            self._forwarded_steps += new_steps
            progress.advance(new_steps)
