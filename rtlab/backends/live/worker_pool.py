"""Children that have compiled a model and wait for the next one: a search builds many small ones in a row.

A start takes most of a second, and the build of a few nodes a tenth of that.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

from rtlab.backends.live.child import ChildProcess, copy_environment
from rtlab.core.protocols import Limits, Progress

P = TypeVar("P")
R = TypeVar("R")

#: Seconds for which a child waits.
_IDLE = 20.0
#: Builds after which another child takes over, whatever the compiler has left behind in this one.
_BUILDS = 200

_lock = threading.Lock()
_idle_workers: list[_Worker] = []
#: Whether somebody looks after those who wait.
_has_watcher = False


class _Worker:
    """A child with what it was started for."""

    def __init__(self, limits: Limits, path: tuple[str, ...]) -> None:
        self.stack, self.environment, self.path = limits.stack, copy_environment(), path
        self.process = ChildProcess(limits, path=path)
        self.last_used, self.builds = 0.0, 0

    @property
    def is_exhausted(self) -> bool:
        return not self.process.alive or self.builds >= _BUILDS


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
    with acquire(limits, path) as process:
        return process.call(function, payload, progress=progress, error_prefix=error_prefix)


@contextlib.contextmanager
def acquire(limits: Limits, path: Sequence[str] = ()) -> Iterator[ChildProcess]:
    """A child that nobody else uses meanwhile; it waits for the next afterwards, unless it crashed.

    ``path`` is that of ``ChildProcess``: a child that has one release of a compiler serves no other.
    """
    path = tuple(path)
    with _lock:
        now = copy_environment()
        matches = [k for k in _idle_workers if (k.stack, k.environment, k.path) == (limits.stack, now, path)]
        worker = matches[-1] if matches else None
        if worker is not None:
            _idle_workers.remove(worker)
    if worker is None or worker.is_exhausted:
        worker = _Worker(limits, path)
    try:
        yield worker.process
    finally:
        worker.builds, worker.last_used = worker.builds + 1, time.monotonic()
        if worker.is_exhausted:
            worker.process.close()
        else:
            _return_to_pool(worker)


def close(folder: str) -> None:
    """End the children that wait with this folder on their path."""
    with _lock:
        for worker in [k for k in _idle_workers if folder in k.path]:
            _idle_workers.remove(worker)
            worker.process.close()


def _return_to_pool(worker: _Worker) -> None:
    global _has_watcher  # noqa: PLW0603 - one of the process, as those who wait are
    with _lock:
        _idle_workers.append(worker)
        if not _has_watcher:
            _has_watcher = True
            threading.Thread(target=_watch, name="rtlab-kept", daemon=True).start()


def _watch() -> None:
    """End children that nobody has used for a while, for as long as there are any."""
    global _has_watcher  # noqa: PLW0603 - one of the process
    while True:
        time.sleep(_IDLE / 4)
        with _lock:
            for worker in [k for k in _idle_workers if time.monotonic() - k.last_used > _IDLE]:
                _idle_workers.remove(worker)
                worker.process.close()
            if not _idle_workers:
                _has_watcher = False
                return


def _reset_after_fork() -> None:
    """This process is a fork, and the children are those of another."""
    global _lock, _has_watcher
    for worker in _idle_workers:
        worker.process.detach()
    _idle_workers.clear()
    _lock, _has_watcher = threading.Lock(), False


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_reset_after_fork)
