"""One timing at a time on a machine."""

from __future__ import annotations

import contextlib
import os
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

#: Seconds that a variant waits for other timings of its machine, and between two tries.
_SLOT_S, _TRY_S = 600.0, 0.05


class TimingSlot:
    """A context in which no other timing of this user's sweeps runs on this machine.

    It is a lock of the system, which a process that is killed leaves. Who waits longer than ``_SLOT_S`` goes on
    without. ``load`` is that of the machine when the last timing was done.
    """

    def __init__(self) -> None:
        self.load: float | None = None

    @contextlib.contextmanager
    def __call__(self) -> Iterator[None]:
        """Wait for the slot, and give it back."""
        with self._lock():
            try:
                yield
            finally:
                cores = os.cpu_count() or 1
                with contextlib.suppress(OSError, AttributeError):
                    self.load = round(os.getloadavg()[0] / cores, 2)

    @staticmethod
    @contextlib.contextmanager
    def _lock() -> Iterator[None]:
        try:
            import fcntl
        except ImportError:
            # Windows has none.
            yield
            return
        path = Path(tempfile.gettempdir()) / f"rtlab-timing-{os.getuid()}.lock"
        handle = os.open(path, os.O_CREAT | os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            deadline = time.monotonic() + _SLOT_S
            while time.monotonic() < deadline:
                try:
                    fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:  # noqa: PERF203 - each try may be in vain
                    time.sleep(_TRY_S)
                else:
                    break
            yield
        finally:
            os.close(handle)
