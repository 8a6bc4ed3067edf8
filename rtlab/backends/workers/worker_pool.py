"""Children that wait for the next call: a start takes most of a second, and many a call a tenth of that."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from rtlab.backends.workers.process import Bounds, ChildProcess

P = TypeVar("P")
R = TypeVar("R")

#: Seconds for which a child that builds waits.
_IDLE = 20.0


class PooledChild:
    """A child with the key and the environment that it was started for.

    ``kept`` are numbers of sessions that are still in use, for which it waits, and ``released`` of dropped ones.
    """

    def __init__(self, process: ChildProcess, key: Any, environment: dict[str, str]) -> None:
        self.process, self.key, self.environment = process, key, environment
        self.last_used = time.monotonic()
        self.kept, self.released = set[int](), set[int]()

    def call(self, function: Callable[[P, Any], R], payload: P, bounds: Bounds) -> R:
        """Call a function in the child: see ``ChildProcess.call``."""
        try:
            return self.process.call(function, payload, bounds)
        finally:
            self.last_used = time.monotonic()


class ChildPool:
    """Children of this process, started by ``start`` for a key; each ends after ``idle_s`` seconds without a call."""

    def __init__(self, idle_s: float, start: Callable[[Any], ChildProcess]) -> None:
        self.children: list[PooledChild] = []
        self._idle_s, self._start, self._lock = idle_s, start, threading.Lock()
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._reset_after_fork)

    def acquire(self, key: Any = None) -> PooledChild:
        """A child that is not at work and has the environment of now, or a new one."""
        # pytest changes its variable with every test, and no library reads it.
        now = {name: value for name, value in os.environ.items() if name != "PYTEST_CURRENT_TEST"}
        with self._lock:
            self._end(lambda child: child.environment != now)
            for child in reversed(self.children):
                if child.key == key and child.environment == now and not child.process.busy:
                    child.last_used = time.monotonic()
                    return child
            child = PooledChild(self._start(key), key, now)
            self.children.append(child)
            if len(self.children) == 1:
                threading.Thread(target=self._watch, name="rtlab-idle", daemon=True).start()
            return child

    def close(self, matches: Callable[[PooledChild], bool]) -> None:
        """End those that wait and match."""
        with self._lock:
            self._end(matches)

    def _end(self, matches: Callable[[PooledChild], bool]) -> None:
        for child in self.children:
            if matches(child) and not child.kept and not child.process.busy:
                child.process.close()
        self.children = [child for child in self.children if child.process.alive]

    def _watch(self) -> None:
        while self.children:
            time.sleep(self._idle_s / 4)
            self.close(lambda child: time.monotonic() - child.last_used > self._idle_s)

    def _reset_after_fork(self) -> None:
        """This process is a fork, and the children are those of another."""
        for child in self.children:
            child.process.detach()
        self.children, self._lock = [], threading.Lock()


#: Children that build, by the bytes of their stack and the folders on their path.
_POOL = ChildPool(_IDLE, lambda key: ChildProcess(key[0], path=key[1]))


def call(function: Callable[[P, Any], R], payload: P, bounds: Bounds, path: Sequence[str] = ()) -> R:
    """As ``process.call``, in a child that may have waited for it, and waits for the next one afterwards."""
    return _POOL.acquire((bounds.limits.stack, tuple(path))).call(function, payload, bounds)


def close(folder: str) -> None:
    """End the children that wait with this folder on their path."""
    _POOL.close(lambda child: folder in child.key[1])
