"""A sweep on a thread of its own, so that the cell or the prompt that began it is free."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable

from rtlab.study.sweep_progress import SweepProgress


class BackgroundRun:
    """Work on a thread; ``progress`` has its counts, and cancels it.

    Args:
        work: The work.
        progress: What it reports to.
        stack: Closed when the work is over, in its thread.
    """

    def __init__(
        self, work: Callable[[], object], progress: SweepProgress, stack: contextlib.ExitStack
    ) -> None:
        self.progress = progress
        #: Why it ended before its time.
        self.error: BaseException | None = None
        self._thread = threading.Thread(
            target=self._main, args=(work, stack), name="rtlab-sweep", daemon=True
        )
        self._thread.start()

    def _main(self, work: Callable[[], object], stack: contextlib.ExitStack) -> None:
        try:
            with stack:
                work()
        except BaseException as error:  # noqa: BLE001 - whoever waits gets it
            self.error = error

    @property
    def is_running(self) -> bool:
        """Whether it goes on."""
        return self._thread.is_alive()

    def wait(self, timeout: float | None = None) -> None:
        """Block until the work is over, or so many seconds; raises what it ended with."""
        self._thread.join(timeout)
        if self.error is not None:
            raise self.error
