"""Temporary folders that go away with their process, however that ends.

What is made here lies in one folder of the process, which holds a lock in it. A process that ends by itself, or that is
told to (SIGTERM), removes it; one that was killed leaves it behind, without its lock, and the next one that makes a
folder removes it.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import shutil
import signal
import sys
import tempfile
import threading
from pathlib import Path
from typing import IO, TYPE_CHECKING

if TYPE_CHECKING:
    from types import FrameType

_PREFIX, _LOCK = "rtlab-", ".lock"
#: Folders that are made before one is taken whose lock nobody else tries at that moment.
_TRIES = 100
_guard = threading.Lock()
_made: _Own | None = None


def folder() -> tempfile.TemporaryDirectory[str]:
    """An empty folder, removed when it is closed, or dropped, or when the process ends."""
    return tempfile.TemporaryDirectory(dir=_own(), ignore_cleanup_errors=True)


def kept() -> Path:
    """An empty folder that stays until somebody removes it, or the process ends."""
    return Path(tempfile.mkdtemp(dir=_own()))


def _own() -> Path:
    """The folder of this process; a fork makes its own."""
    global _made  # noqa: PLW0603 - one per process
    with _guard:
        if _made is None or _made.process != os.getpid() or not _made.path.is_dir():
            _sweep(Path(tempfile.gettempdir()))
            _made = _Own()
        return _made.path


class _Own:
    """The folder of a process, and its lock, which the system lets go when the process ends."""

    def __init__(self) -> None:
        self.process = os.getpid()
        self.path, self._lock = _locked()
        atexit.register(self.remove)
        _when_told(self)

    def remove(self) -> None:
        """Remove it with all that is in it; only its own process does."""
        if self.process == os.getpid():
            self._lock.close()
            shutil.rmtree(self.path, ignore_errors=True)


def _locked() -> tuple[Path, IO[bytes]]:
    """An empty folder and its lock, which is taken.

    Between the two another process may take it for one that was left behind, and remove it: no clock tells them apart,
    for clocks are put right and those of two machines differ. So it is looked at once more, and another one is made.
    """
    for last in range(_TRIES, 0, -1):
        path = Path(tempfile.mkdtemp(prefix=_PREFIX))
        lock = (path / _LOCK).open("wb")
        taken = _taken(lock)
        if taken is None or last == 1:
            break
        with contextlib.suppress(OSError):
            if taken and os.path.samestat(os.fstat(lock.fileno()), (path / _LOCK).stat()):
                break
        lock.close()
        shutil.rmtree(path, ignore_errors=True)
    return path, lock


def _when_told(own: _Own) -> None:
    """Remove a folder on SIGTERM, of which Python ends without another word, unless somebody listens to it already."""
    if threading.current_thread() is not threading.main_thread() or os.name != "posix":
        return
    if signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        return

    def end(number: int, _: FrameType | None) -> None:
        own.remove()
        # As if nobody had listened: whoever sent it sees what it asked for.
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)

    signal.signal(signal.SIGTERM, end)


def _sweep(home: Path) -> None:
    """Remove folders whose process is gone."""
    for path in home.glob(f"{_PREFIX}*/{_LOCK}"):
        with contextlib.suppress(OSError), path.open("r+b") as lock:
            if _taken(lock):
                shutil.rmtree(path.parent, ignore_errors=True)


def _taken(lock: IO[bytes]) -> bool | None:
    """Whether this process has taken a lock; None where the system has no such locks."""
    if sys.platform == "win32":
        return None
    import fcntl

    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return None
    return True
