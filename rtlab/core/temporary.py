"""Temporary folders that go away with their process.

They lie in one folder of the process, which holds a lock in it. What a killed process leaves has no lock any more, and
goes when the next process makes its first folder.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import shutil
import sys
import tempfile
import threading
from pathlib import Path

if sys.platform != "win32":
    import fcntl

_PREFIX, _LOCK = "rtlab-", ".lock"
_guard = threading.Lock()
_process_folder: _ProcessFolder | None = None


def folder() -> tempfile.TemporaryDirectory[str]:
    """An empty folder, removed when it is closed, or dropped, or when the process ends."""
    return tempfile.TemporaryDirectory(dir=_get_process_folder(), ignore_cleanup_errors=True)


def make_folder() -> Path:
    """An empty folder that stays until somebody removes it, or the process ends."""
    return Path(tempfile.mkdtemp(dir=_get_process_folder()))


def _get_process_folder() -> Path:
    """The folder of this process; a fork makes its own."""
    global _process_folder  # noqa: PLW0603 - one per process
    with _guard:
        if (
            _process_folder is None
            or _process_folder.process != os.getpid()
            or not _process_folder.path.is_dir()
        ):
            _remove_stale_folders()
            _process_folder = _ProcessFolder()
        return _process_folder.path


class _ProcessFolder:
    """The folder of a process, and its lock, which the system releases when the process ends."""

    def __init__(self) -> None:
        self.process, self.path = os.getpid(), Path(tempfile.mkdtemp(prefix=_PREFIX))
        atexit.register(self.remove)
        if sys.platform != "win32":
            self._lock = (self.path / f"{_LOCK}.new").open("wb")
            with contextlib.suppress(OSError):
                fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                # Nobody sees a lock file that is not locked yet.
                Path(self._lock.name).rename(self.path / _LOCK)

    def remove(self) -> None:
        """Remove it with all that is in it; only its own process does."""
        if self.process == os.getpid():
            shutil.rmtree(self.path, ignore_errors=True)


def _remove_stale_folders() -> None:
    """Remove folders whose process is gone."""
    if sys.platform != "win32":
        for path in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*/{_LOCK}"):
            with contextlib.suppress(OSError), path.open("r+b") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(path.parent, ignore_errors=True)
