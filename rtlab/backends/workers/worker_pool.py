"""Children that wait for the next call: a start takes most of a second, and many a call a tenth of that."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

from rtlab.backends.workers.process import BUILDING, Bounds, ChildProcess, copy_environment
from rtlab.core.protocols import Limits, Progress

C = TypeVar("C")
K = TypeVar("K")
P = TypeVar("P")
R = TypeVar("R")

#: Seconds for which a child that builds waits, and builds after which another one takes over, whatever the compiler has
#: left behind in it.
_IDLE, _BUILDS = 20.0, 200


class PooledChild(Generic[K, C]):
    """A child with what it was started for, ``key`` and the environment; ``calls`` counts those that have ended.

    ``context`` is what its caller has beside it. ``kept`` are numbers of what somebody may still want of it, so that it
    waits, and ``released`` of what nobody wants any more.
    """

    def __init__(self, process: ChildProcess, key: K, context: C) -> None:
        self.process, self.key, self.context, self.environment = process, key, context, copy_environment()
        self.last_used, self.calls = time.monotonic(), 0
        self.kept, self.released = set[int](), set[int]()

    def execute(self, function: Callable[[P, Any], R], payload: P, progress: Progress, bounds: Bounds) -> R:
        """What a function gives in the child; see ``ChildProcess``."""
        try:
            return self.process.execute(function, payload, progress, bounds)
        finally:
            self.last_used, self.calls = time.monotonic(), self.calls + 1


class ChildPool(Generic[K, C]):
    """Children of this process, started by ``start`` for a key; who waits longer than ``idle_s`` seconds ends."""

    def __init__(self, idle_s: float, start: Callable[[K], tuple[ChildProcess, C]]) -> None:
        self.children: list[PooledChild[K, C]] = []
        self._idle_s, self._start, self._lock = idle_s, start, threading.Lock()
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._reset_after_fork)

    def acquire(self, key: K) -> PooledChild[K, C]:
        """One that is not at work and has the environment of now, or a new one."""
        with self._lock:
            now = copy_environment()
            self._end(lambda child: child.environment != now)
            for child in reversed(self.children):
                if child.key == key and child.environment == now and not child.process.busy:
                    child.last_used = time.monotonic()
                    return child
            if not self.children:
                threading.Thread(target=self._watch, name="rtlab-idle", daemon=True).start()
            process, context = self._start(key)
            self.children.append(PooledChild(process, key, context))
            return self.children[-1]

    def close(self, matches: Callable[[K], bool]) -> None:
        """End those that wait and whose key matches."""
        with self._lock:
            self._end(lambda child: matches(child.key))

    def _end(self, matches: Callable[[PooledChild[K, C]], bool]) -> None:
        for child in self.children:
            if matches(child) and not child.kept and not child.process.busy:
                child.process.close()
        self.children = [child for child in self.children if child.process.alive]

    def _watch(self) -> None:
        while True:
            time.sleep(self._idle_s / 4)
            with self._lock:
                self._end(lambda child: time.monotonic() - child.last_used > self._idle_s)
                if not self.children:
                    return

    def _reset_after_fork(self) -> None:
        """This process is a fork, and the children are those of another."""
        for child in self.children:
            child.process.detach()
        self.children, self._lock = [], threading.Lock()


#: Children that build, by the bytes of their stack and the folders on their path.
_POOL = ChildPool[tuple[int, tuple[str, ...]], None](
    _IDLE, lambda key: (ChildProcess(Limits(stack=key[0]), path=key[1]), None)
)


def call(
    function: Callable[[P, Any], R],
    payload: P,
    *,
    limits: Limits,
    progress: Progress,
    error_prefix: str,
    path: Sequence[str] = (),
) -> R:
    """As ``child.call``, in a child that may have waited for it, and waits for the next one afterwards."""
    child = _POOL.acquire((limits.stack, tuple(path)))
    try:
        return child.execute(function, payload, progress, Bounds.of(error_prefix, BUILDING, limits))
    finally:
        if child.calls >= _BUILDS:
            child.process.close()


def close(folder: str) -> None:
    """End the children that wait with this folder on their path."""
    _POOL.close(lambda key: folder in key[1])
