"""Calls of ONNX Runtime in this process that end when the user asks, or when their time is over.

ONNX Runtime looks at its switch (``RunOptions.terminate``, or that of loading) between two nodes, inside of loops too,
but never within one. So a call runs on a thread of its own, while its caller watches clock, memory and user; where a
node does not end soon, the caller goes on without it, and the thread ends with that node.
"""

from __future__ import annotations

import atexit
import contextlib
import dataclasses
import functools
import threading
from collections.abc import Callable
from concurrent import futures
from typing import Any, TypeVar

from rtlab.backends.workers import inference
from rtlab.backends.workers.inference import SessionSpec
from rtlab.backends.workers.process import Bounds
from rtlab.core.progress import check

#: Seconds between two looks at the clock and the user, those that a call has to end after its switch is set, and those
#: that Python waits at its end for calls at work.
_TICK, _GRACE, _LAST = 0.05, 0.5, 3.0

T = TypeVar("T")

#: Calls that have not ended, and the switch of each: Python must not end under one, or it crashes.
_active: dict[futures.Future[Any], Callable[[], object]] = {}


def call(work: Callable[[], T], stop: Callable[[], object], bounds: Bounds) -> T:
    """What ``work`` returns or raises, done on a thread of its own; ``stop`` ends it, from another thread.

    Raises:
        Cancelled: the user asked to stop.
        BackendError: the time or the memory is over, of the kind of the work.
    """
    check(bounds.progress, bounds.activity)
    answer: futures.Future[T] = futures.Future()
    _active[answer] = stop
    threading.Thread(target=_run, args=(work, answer), name="rtlab-run", daemon=True).start()
    try:
        while not futures.wait([answer], _TICK).done:
            bounds.check()
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


def open_session(
    open_source: Callable[[], contextlib.AbstractContextManager[bytes | str]],
    spec: SessionSpec,
    bounds: Bounds,
) -> Any:
    """A session in this process on what ``open_source`` yields; errors as ``inference.create_session`` and ``call``."""
    options = inference.create_session_options(spec)

    def create() -> Any:
        # Weights are written in this thread too, which takes a while where there are many.
        with open_source() as data:
            return inference.create_session(dataclasses.replace(spec, data=data), options)

    stop = functools.partial(options.set_load_cancellation_flag, True)  # noqa: FBT003 - it has no name
    return call(create, stop, bounds)
