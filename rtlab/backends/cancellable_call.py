"""Calls of ONNX Runtime in this process that end when the user asks, or when their time is over.

ONNX Runtime looks at its switch (``RunOptions.terminate``, or that of loading) between two nodes, inside of loops too,
but never within one. So a call runs on a thread of its own, while its caller watches clock, memory and user; where a
node does not end soon, the caller goes on without it, and the thread ends with that node.
"""

from __future__ import annotations

import atexit
import threading
from collections.abc import Callable
from concurrent import futures
from typing import Any, TypeVar

from rtlab.backends.workers.process import Bounds, ChildWork, find_process, measure_memory
from rtlab.backends.workers.session_child import RUNNING
from rtlab.core.progress import Silent, check
from rtlab.core.protocols import Limits, Progress

#: Seconds between two looks at the clock and the user, those that a call has to end after it was told to, and those
#: that Python waits at its end for calls at work.
_TICK, _GRACE, _LAST = 0.05, 0.5, 3.0

T = TypeVar("T")

#: Calls that have not ended, and what tells each to end: Python must not end under one, or it crashes.
_active: dict[futures.Future[Any], Callable[[], object]] = {}


class CancellableCaller:
    """Does calls, one after the other, in the time that all of them have together.

    Args:
        error_prefix: How an error begins, such as ``Backend "onnxruntime" cannot run``.
        progress: Asked whether to stop; None is never stopped.
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

    def call(self, work: Callable[[], T], stop: Callable[[], object]) -> T:
        """What ``work`` returns or raises, done on a thread of its own; ``stop`` tells it to end, from another thread.

        Raises:
            Cancelled: the user asked to stop.
            BackendError: the time or the memory is over, of the kind of the work.
        """
        activity, process = self._bounds.work.activity, find_process()
        check(self._progress, activity)
        answer: futures.Future[T] = futures.Future()
        _active[answer] = stop
        threading.Thread(target=_run, args=(work, answer), name="rtlab-run", daemon=True).start()
        memory_limit = 0
        try:
            while not futures.wait([answer], _TICK).done:
                check(self._progress, activity)
                # A brief call is over before it could take much.
                memory_limit = memory_limit or self._bounds.compute_memory_limit(process)
                self._bounds.check(measure_memory(process), memory_limit)
        except BaseException:
            stop()
            # Its words would be those of an end that we asked for.
            futures.wait([answer], _GRACE)
            raise
        return answer.result()


def _run(work: Callable[[], T], answer: futures.Future[T]) -> None:
    try:
        answer.set_result(work())
    except BaseException as error:  # noqa: BLE001 - whatever it is, the caller must hear of it
        answer.set_exception(error)
    finally:
        _active.pop(answer, None)


@atexit.register
def _end() -> None:
    """Let no call come back to an interpreter that is gone."""
    for stop in tuple(_active.values()):
        stop()
    futures.wait(tuple(_active), _LAST)
