"""One timing at a time on a machine, taken again where other programs were busy there."""

from __future__ import annotations

import contextlib
import os
import platform
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from rtlab.core.trace import Profile

#: Seconds that a variant waits for other timings of its machine, and between two tries.
_SLOT_S, _TRY_S = 600.0, 0.05
#: The share of a machine's processors beyond which other programs are in the way of a timing; the most timings then.
_BUSY, _MOST_TIMINGS = 0.1, 3
#: What a system says of time that its processors worked, or were taken from it.
_WORK = ("user", "nice", "system", "irq", "softirq", "steal")


class TimingSlot:
    """A context in which no other timing runs on this machine: of this user's sweeps, and of the store's.

    Two files are locked, one in the folder for temporary files, and one in the store for other users and containers.
    A process that is killed leaves a lock. Who waits longer than ``_SLOT_S`` goes on without.

    Attributes:
        load: The share of the machine's processors that other programs took in the timing that counts, from 0 to 1.
        timings: How often the variant was timed.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self.load: float | None = None
        self.timings = 0
        user = os.getuid() if hasattr(os, "getuid") else ""
        self._paths = [Path(tempfile.gettempdir()) / f"rtlab-timing-{user}.lock"]
        if folder is not None:
            self._paths.append(folder / f".timing-{_identify_machine()}.lock")

    @contextlib.contextmanager
    def __call__(self) -> Iterator[Callable[[Callable[[], Profile], Callable[[], float]], Profile]]:
        """Wait for the slot, yield what takes a timing in it, and give it back."""
        deadline = time.monotonic() + _SLOT_S
        with contextlib.ExitStack() as stack:
            for path in self._paths:
                stack.enter_context(_lock(path, deadline))
            yield self.take

    def take(self, measure: Callable[[], Profile], remaining: Callable[[], float]) -> Profile:
        """The quietest of some timings: one, or more while other programs are busy and the seconds suffice."""
        best: Profile | None = None
        self.load, self.timings = None, 0
        while True:
            began, others = time.monotonic(), _measure_others()
            profile = measure()
            taken = time.monotonic() - began
            share = (_measure_others() - others) / max(taken, 1e-3) / (os.cpu_count() or 1)
            load = round(min(max(share, 0.0), 1.0), 2)
            self.timings += 1
            if best is None or self.load is None or load < self.load:
                best, self.load = profile, load
            if self.load <= _BUSY or self.timings == _MOST_TIMINGS or remaining() < taken:
                return best


def _measure_others() -> float:
    """Seconds that the processors of this machine worked by now for others than this process and its children."""
    import psutil

    times, mine = psutil.cpu_times(), 0.0
    me = psutil.Process()
    for process in (me, *me.children(recursive=True)):
        with contextlib.suppress(psutil.Error):
            own = process.cpu_times()
            mine += own.user + own.system
    return float(sum(getattr(times, name, 0.0) for name in _WORK)) - mine


def _identify_machine() -> str:
    """What all containers of a machine have in common; else its name."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except (OSError, ValueError):
        return platform.node()


@contextlib.contextmanager
def _lock(path: Path, deadline: float) -> Iterator[None]:
    """A context with the lock of a file, or without where there are none, or where it is not to be had in time."""
    try:
        import fcntl
    except ImportError:
        # Windows has none.
        yield
        return
    handle = None
    flags = os.O_NOFOLLOW | os.O_CLOEXEC
    # The file of another user can be read at most, which suffices for most file systems.
    for access in (os.O_CREAT | os.O_RDWR, os.O_RDONLY):
        with contextlib.suppress(OSError):
            handle = os.open(path, access | flags, 0o666)
            break
    if handle is None:
        yield
        return
    try:
        # A file system may have no locks.
        with contextlib.suppress(OSError):
            while time.monotonic() < deadline:
                with contextlib.suppress(BlockingIOError):
                    fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                time.sleep(_TRY_S)
        yield
    finally:
        os.close(handle)
