"""Reporters of long work, and the switch that ends it."""

from __future__ import annotations

import math
import sys
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, TextIO

from rtlab.errors import Cancelled

if TYPE_CHECKING:
    # Child processes import this module, and need no ONNX.
    from rtlab.core.protocols import Progress

#: Seconds after which a rate means something.
_SETTLED = 1.0
#: Seconds that work has beyond a deadline which measured nothing by then.
_GRACE = 1.5


class Silent:
    """Reports nothing; ``cancel`` may be called from any thread."""

    def __init__(self) -> None:
        self._stop = threading.Event()
        self.started = time.monotonic()

    def phase(self, name: str, total: int | None = None) -> None:
        """Open a phase."""

    def advance(self, steps: int = 1) -> None:
        """Report steps."""

    def cancel(self) -> None:
        """Ask the work to end at its next step."""
        self._stop.set()

    def stopped(self) -> bool:
        """Whether ``cancel`` was called."""
        return self._stop.is_set()

    def close(self) -> None:
        """Take away what was shown; nothing here."""


class Reporting(Silent):
    """Calls ``show(phase, done, total, elapsed_seconds)`` on each phase, then at most ten times a second."""

    def __init__(self, show: Callable[[str, int, int | None, float], None]) -> None:
        super().__init__()
        self._show = show
        self._name, self._done, self._last, self._began = "", 0, 0.0, 0.0
        self._total: int | None = None
        self._until, self._details = math.inf, ""

    def phase(self, name: str, total: int | None = None) -> None:
        """Open a phase and show it at once."""
        self._name, self._done, self._total = name, 0, total
        self._began, self._until, self._details = time.monotonic(), math.inf, ""
        self._report()

    def bound(self, seconds: float) -> None:
        """The open phase ends in so many seconds at the latest: no longer time is announced."""
        self._until = min(self._until, time.monotonic() + seconds)

    def detail(self, text: str) -> None:
        """Show words of the open phase at once, in place of its pace."""
        self._details = text
        self._report()

    def advance(self, steps: int = 1) -> None:
        """Count steps and show them when a tenth of a second has passed."""
        self._done += steps
        if time.monotonic() - self._last >= 0.1:
            self._report()

    def _report(self) -> None:
        self._last = time.monotonic()
        self._show(self._name, self._done, self._total, self._last - self.started)

    @property
    def position(self) -> str:
        """The phase that is open, and how far it came: ``Calibrating, 3 of 64``; empty before the first."""
        return f"{self._name}, {self._done} of {self._total}" if self._total else self._name

    @property
    def pace(self) -> str:
        """Steps per second and time left, after the first second; or what ``detail`` says."""
        if self._details:
            return f" · {self._details}"
        taken = self._last - self._began
        if not self._total or self._done < 1 or taken < _SETTLED:
            return ""
        rate = self._done / taken
        remaining, bound = max(0, self._total - self._done) / rate, max(0.0, self._until - self._last)
        left = f"{remaining:.0f} s left" if remaining <= bound else f"{bound:.0f} s left at most"
        return f" · {rate:.3g}/s, {left}"


class Terminal(Reporting):
    """One line per phase on a terminal's standard error; nothing in a pipe."""

    def __init__(self, stream: TextIO | None = None) -> None:
        # The process's own, since a command cleans what it prints of control characters; none where it was closed.
        out = stream or sys.__stderr__

        def show(name: str, done: int, total: int | None, elapsed: float) -> None:
            if out is not None and out.isatty():
                part = f" {done}/{total}" if total else ""
                out.write(f"\r\x1b[K{name}{part} · {elapsed:.1f} s{self.pace}")
                out.flush()

        self._out = out
        super().__init__(show)

    def close(self) -> None:
        """Clear the line."""
        if self._out is not None and self._out.isatty():
            self._out.write("\r\x1b[K")
            self._out.flush()


class Deadline(Terminal):
    """The reporter of a command with a time limit: stages end with it, and all work a moment later."""

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self.until = time.monotonic() + seconds

    @property
    def remaining(self) -> float:
        """Seconds that are left."""
        return max(0.0, self.until - time.monotonic())

    @property
    def is_over(self) -> bool:
        """Whether the time is over."""
        return not self.remaining

    def stopped(self) -> bool:
        """Whether the work has to end now."""
        return super().stopped() or time.monotonic() > self.until + _GRACE


def check(progress: Progress, activity: str) -> None:
    """Raise ``Cancelled`` when the user asked to stop."""
    if progress.stopped():
        raise Cancelled(f"Stopped {activity}: cancelled by the user. Start it again when you like.")
