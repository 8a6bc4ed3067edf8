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

from rtlab.backends.live.child import ChildProcess, environment
from rtlab.core.protocols import Limits, Progress

P = TypeVar("P")
R = TypeVar("R")

#: Seconds for which a child waits.
_IDLE = 20.0
#: Builds after which another child takes over, whatever the compiler has left behind in this one.
_BUILDS = 200

_lock = threading.Lock()
_waiting: list[_Kept] = []
#: Whether somebody looks after those who wait.
_watched = False


class _Kept:
    """A child with what it was started for."""

    def __init__(self, limits: Limits, path: tuple[str, ...]) -> None:
        self.stack, self.environment, self.path = limits.stack, environment(), path
        self.process = ChildProcess(limits, path=path)
        self.used, self.builds = 0.0, 0

    @property
    def spent(self) -> bool:
        return not self.process.alive or self.builds >= _BUILDS


def call(
    function: Callable[[P, Any], R],
    payload: P,
    *,
    limits: Limits,
    progress: Progress,
    doing: str,
    path: Sequence[str] = (),
) -> R:
    """As ``child.call``, in a child that may have waited for it, and waits for the next one afterwards."""
    with lent(limits, path) as process:
        return process.call(function, payload, progress=progress, doing=doing)


@contextlib.contextmanager
def lent(limits: Limits, path: Sequence[str] = ()) -> Iterator[ChildProcess]:
    """A child that nobody else uses meanwhile; it waits for the next afterwards, unless it crashed.

    ``path`` is that of ``ChildProcess``: a child that has one release of a compiler serves no other.
    """
    path = tuple(path)
    with _lock:
        now = environment()
        fitting = [k for k in _waiting if (k.stack, k.environment, k.path) == (limits.stack, now, path)]
        kept = fitting[-1] if fitting else None
        if kept is not None:
            _waiting.remove(kept)
    if kept is None or kept.spent:
        kept = _Kept(limits, path)
    try:
        yield kept.process
    finally:
        kept.builds, kept.used = kept.builds + 1, time.monotonic()
        if kept.spent:
            kept.process.close()
        else:
            _wait(kept)


def close(folder: str) -> None:
    """End the children that wait with this folder on their path."""
    with _lock:
        for kept in [k for k in _waiting if folder in k.path]:
            _waiting.remove(kept)
            kept.process.close()


def _wait(kept: _Kept) -> None:
    global _watched  # noqa: PLW0603 - one of the process, as those who wait are
    with _lock:
        _waiting.append(kept)
        if not _watched:
            _watched = True
            threading.Thread(target=_watch, name="rtlab-kept", daemon=True).start()


def _watch() -> None:
    """End children that nobody has used for a while, for as long as there are any."""
    global _watched  # noqa: PLW0603 - one of the process
    while True:
        time.sleep(_IDLE / 4)
        with _lock:
            for kept in [k for k in _waiting if time.monotonic() - k.used > _IDLE]:
                _waiting.remove(kept)
                kept.process.close()
            if not _waiting:
                _watched = False
                return


def _forked() -> None:
    """This process is a fork, and the children are those of another."""
    global _lock, _watched
    for kept in _waiting:
        kept.process.forget()
    _waiting.clear()
    _lock, _watched = threading.Lock(), False


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)
