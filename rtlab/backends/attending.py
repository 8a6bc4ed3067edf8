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

from rtlab.backends.live.apart import RUNNING
from rtlab.backends.live.child import Bounds, ChildWork, memory, running
from rtlab.core.progress import Silent, check
from rtlab.core.protocols import Limits, Progress

#: Seconds between two looks at the clock and the user, and those that a call has to end after it was told to.
_TICK, _GRACE = 0.05, 0.5
#: Seconds for which a thread without work waits for more, and those that Python waits at its end for calls at work.
_IDLE, _LAST = 0.5, 3.0

T = TypeVar("T")


class Attendant:
    """Does calls, one after the other, in the time that all of them have together.

    Args:
        doing: How an error begins, such as ``Backend "onnxruntime" cannot run``.
        progress: Told of steps in the thread of the caller, and asked whether to stop; None is never stopped.
        limits: Bounds of all calls together: seconds, and bytes by which the process may grow.
        work: What it is, for the words of errors.
    """

    def __init__(
        self,
        doing: str,
        progress: Progress | None = None,
        limits: Limits | None = None,
        *,
        work: ChildWork = RUNNING,
    ) -> None:
        self._progress, self._bounds = progress or Silent(), Bounds.of(doing, work, limits or Limits())

    def do(self, work: Callable[[Progress], T], stop: Callable[[], object]) -> T:
        """What ``work`` returns or raises; it reports to the progress that it is given.

        Args:
            work: A call, done on a thread of its own.
            stop: Tells the call to end, from another thread.

        Raises:
            Cancelled: the user asked to stop.
            BackendError: the time or the memory is over, of the kind of the work.
        """
        # A brief call would be done before anybody looks.
        doing, process = self._bounds.work.called, running()
        check(self._progress, doing)
        relay = _Relay()
        call = _Pending(relay, stop)
        _Thread.free().do(functools.partial(call.do, work))
        most = 0
        try:
            while not call.ended(_TICK):
                relay.tell(self._progress)
                check(self._progress, doing)
                most = most or self._bounds.granted(process)
                self._bounds.check(memory(process), most)
        except BaseException:
            call.end()
            # Its words would be those of an end that we asked for.
            call.ended(_GRACE)
            raise
        relay.tell(self._progress)
        done: T = call.answer.result()
        return done


class _Thread:
    """A thread that does one piece of work after the other, and ends when it has had none for a while."""

    _idle: ClassVar[list[_Thread]] = []
    _lock: ClassVar[threading.Lock] = threading.Lock()

    def __init__(self) -> None:
        self._given: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        threading.Thread(target=self._work, name="rtlab-run", daemon=True).start()

    @classmethod
    def free(cls) -> _Thread:
        """One without work: the last that had some, whose processor still has what it needs at hand, or a new one."""
        with cls._lock:
            return cls._idle.pop() if cls._idle else cls()

    @classmethod
    def forked(cls) -> None:
        """This process is a fork, and the threads are those of another."""
        cls._idle, cls._lock = [], threading.Lock()

    def do(self, work: Callable[[], None]) -> None:
        """Begin with a piece of work."""
        self._given.put(work)

    def _work(self) -> None:
        while True:
            try:
                work = self._given.get(timeout=_IDLE)
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
    os.register_at_fork(after_in_child=_Thread.forked)


class _Pending:
    """A piece of work that has not ended, whether or not its caller still waits for it."""

    #: All of them: Python must not end under one, or it crashes.
    running: ClassVar[set[_Pending]] = set()

    def __init__(self, relay: _Relay, stop: Callable[[], object]) -> None:
        self._relay, self._stop = relay, stop
        self.answer: futures.Future[Any] = futures.Future()
        self.running.add(self)

    def do(self, work: Callable[[Progress], object]) -> None:
        """Do it; in its thread."""
        try:
            self.answer.set_result(work(self._relay))
        except BaseException as error:  # noqa: BLE001 - whatever it is, the caller must hear of it
            self.answer.set_exception(error)
        finally:
            self.running.discard(self)

    def end(self) -> None:
        """Tell it to end; from another thread."""
        self._relay.stop()
        self._stop()

    def ended(self, seconds: float) -> bool:
        """Whether it has ended, waited for so long."""
        return bool(futures.wait([self.answer], seconds).done)


@atexit.register
def _end() -> None:
    """Let no call come back to an interpreter that is gone.

    Until Python 3.14 a thread that does ends by unwinding its stack, and that of ONNX Runtime is C++ that must not be
    unwound: the process would abort after all of its work was done.
    """
    calls = tuple(_Pending.running)
    for call in calls:
        call.end()
    until = time.monotonic() + _LAST
    if not all(call.ended(max(0.0, until - time.monotonic())) for call in calls):
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
        self._told: queue.SimpleQueue[tuple[str, int | None]] = queue.SimpleQueue()
        self._steps = self._passed = 0
        self._stop = threading.Event()

    def phase(self, name: str, total: int | None = None) -> None:
        """Open a phase."""
        self._told.put((name, total))

    def advance(self, steps: int = 1) -> None:
        """Count finished steps."""
        self._steps += steps

    def stop(self) -> None:
        """The caller waits no longer."""
        self._stop.set()

    def stopped(self) -> bool:
        """Whether the caller waits no longer."""
        return self._stop.is_set()

    def tell(self, progress: Progress) -> None:
        """Hand on what came since the last time."""
        with contextlib.suppress(queue.Empty):
            while True:
                progress.phase(*self._told.get_nowait())
        if new := self._steps - self._passed:
            self._passed += new
            progress.advance(new)
