"""Calls that would go to a child process, made in this one where only stand-ins are behind them.

A child imports NumPy, ONNX and the stand-in before it does anything; a test of a study starts several. Payloads and
results are copied by pickling, and each session has an open engine of its own. Tests about the child itself are marked
``own_child``.
"""

from __future__ import annotations

import pickle
import threading
from typing import Any, ClassVar

from rtlab.backends.workers import (
    loaded,
    process,
    session_child,  # noqa: F401  # It takes the class when it is imported, which has to be before anything stands there.
)
from rtlab.core.progress import check
from rtlab.errors import RtlabError

ChildProcess = process.ChildProcess


class _Report:
    def __init__(self, progress: Any, doing: str) -> None:
        self._progress, self._doing = progress, doing

    def phase(self, name: str, total: int | None = None) -> None:
        check(self._progress, self._doing)
        self._progress.phase(name, total)

    def advance(self, steps: int = 1) -> None:
        check(self._progress, self._doing)
        self._progress.advance(steps)


class Session:
    """In the place of ``child.ChildProcess``; a real one where a binding is no stand-in."""

    _lock: ClassVar[threading.RLock] = threading.RLock()

    def __init__(self, stack: int, **how: Any) -> None:
        self._how = (stack, how)
        self._child: ChildProcess | None = None
        self._opened: list[Any] | None = None
        self.alive, self.busy = True, False

    def call(self, function: Any, payload: Any, bounds: Any) -> Any:
        if self._opened is None and self._child is None:
            names = [n for n in (getattr(payload, n, "") for n in ("binding", "cuda")) if n]
            if not names or any("fake_trt" not in n for n in names):
                stack, more = self._how
                self._child = ChildProcess(stack, **more)
        if self._child is not None:
            try:
                return self._child.call(function, payload, bounds)
            finally:
                self.alive = self._child.alive
        report = _Report(bounds.progress, bounds.error_prefix)
        with self._lock:
            before, loaded._open[:] = loaded._open[:], self._opened or []
            try:
                check(bounds.progress, bounds.error_prefix)
                return _copy(function(_copy(payload), report))
            except RtlabError as error:
                raise _copy(error) from None
            finally:
                self._opened, loaded._open[:] = loaded._open[:], before

    def close(self) -> None:
        if self._child is not None:
            self._child.close()
        self._opened, self.alive = [], False


def _copy(value: Any) -> Any:
    return pickle.loads(pickle.dumps(value))
