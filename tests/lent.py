"""Child processes that serve one test after the other where a stand-in's child is not the point.

A child imports NumPy, ONNX and the stand-in before it does anything, half a second each time, and a test of a study
starts several. To those who use them these are ``child.ChildProcess``; calls, pickles, limits and crashes are real.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Any, ClassVar

from rtlab.backends.live import (
    apart,  # noqa: F401  # It takes the class when it is imported, which has to be before anything stands there.
    child,
    loaded,
)
from rtlab.core.progress import Silent
from rtlab.core.protocols import Limits
from rtlab.errors import BackendError

#: The real one, whatever stands in its place meanwhile.
ChildProcess = child.ChildProcess


class Lent:
    """A child for one binding of the stand-ins, taken at the first call, and kept for others when it is closed."""

    _idle: ClassVar[dict[object, list[ChildProcess]]] = {}

    def __init__(
        self, limits: Limits, *, work: child.ChildWork = child.BUILDING, path: Sequence[str] = ()
    ) -> None:
        self._limits, self._work, self._path = limits, work, tuple(path)
        self._session: ChildProcess | None = None
        self._key: object = None
        self._closed = False

    def call(self, function: Any, payload: Any, **how: Any) -> Any:
        """What ``child.ChildProcess.call`` gives."""
        if self._session is None:
            self._session = self._taken(payload)
        return self._session.call(function, payload, **how)

    def _taken(self, payload: Any) -> ChildProcess:
        modules = [getattr(payload, name, "") for name in ("binding", "cuda", "libraries")]
        if any(modules) and all(module.startswith("fake_trt") for module in modules if module):
            environment = frozenset((k, v) for k, v in os.environ.items() if k != "PYTEST_CURRENT_TEST")
            self._key = (*modules, self._limits, self._work, environment, self._path, tuple(sys.path))
            while kept := self._idle.get(self._key):
                if (session := kept.pop()).alive:
                    return session
        return ChildProcess(self._limits, work=self._work, path=self._path)

    @property
    def alive(self) -> bool:
        """Whether the child can answer."""
        return not self._closed and (self._session is None or self._session.alive)

    @property
    def busy(self) -> bool:
        """Whether a call is at work."""
        return self._session is not None and self._session.busy

    @property
    def pid(self) -> int:
        """The child's number."""
        assert self._session is not None
        return self._session.pid

    def close(self) -> None:
        """Keep it for the next one, or end it where it is at work."""
        session, self._closed = self._session, True
        if session is None or not session.alive:
            return
        key, self._key = self._key, None
        if key is None or session.busy:
            session.close()
            return
        try:
            session.call(loaded.close_plan, None, progress=Silent(), doing="Cannot close the plan")
        except BackendError:
            session.close()
        else:
            self._idle.setdefault(key, []).append(session)
