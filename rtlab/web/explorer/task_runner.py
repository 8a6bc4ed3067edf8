"""The work behind the Explorer: one piece at a time, on a thread, so that the kernel stays free to receive Cancel."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from rtlab.core.progress import Reporting
from rtlab.documents.contract import BuildState
from rtlab.errors import Cancelled, VariantError
from rtlab.web.explorer.widget import IDLE, ExplorerWidget
from rtlab.web.page.table import describe_failure


class TaskRunner:
    """Does one piece of work at a time on a thread, and shows on the widget how far it is and how it failed."""

    def __init__(self, widget: ExplorerWidget) -> None:
        self.widget = widget
        #: Called when work begins, with the variant that it builds if it builds one; and when it is over.
        self.on_start: Callable[[str], None] = lambda _: None
        self.on_end: Callable[[], None] = lambda: None
        self.thread: threading.Thread | None = None
        self._progress: Reporting | None = None
        #: The variant that is being built.
        self.building, self.busy = "", False

    def wait(self, timeout: float | None = None) -> None:
        """Block until there is no work."""
        end = None if timeout is None else time.monotonic() + timeout
        while (thread := self.thread) is not None:
            thread.join(None if end is None else max(0.0, end - time.monotonic()))
            if thread is self.thread or thread.is_alive():
                break

    def cancel(self) -> None:
        """Stop the work."""
        if self._progress is not None:
            self._progress.cancel()

    def start(self, work: Callable[[Reporting], object], action: str, name: str = "") -> None:
        """Do work on a thread, unless there is some: ``action`` continues "Cannot", ``name`` is the variant built."""
        with self.widget.lock:
            if self.busy:
                return
            self.widget.failure = None
            self.building, self.busy = name, True

        def tell(phase: str, done: int, total: int | None, elapsed: float) -> None:
            fraction = min(1.0, done / total) if total else None
            text = phase + progress.pace
            self.widget.build = dict(BuildState(running=True, phase=text, fraction=fraction, elapsed=elapsed))

        self._progress = progress = Reporting(tell)
        progress.phase("Starting")
        self.on_start(name)

        def main() -> None:
            try:
                work(progress)
            except Cancelled:
                pass
            except Exception as error:  # noqa: BLE001 - whatever it is, the user must read it in the cell
                self.widget.failure = dict(describe_failure(error, action))
            finally:
                self.building = ""
                self.on_end()
                self.widget.stamp += 1
                # Last, since the next work may start at once.
                self.busy = False
                self.widget.build = dict(IDLE)

        self.thread = threading.Thread(target=main, name="rtlab-build", daemon=True)
        self.thread.start()

    def report_error(self, error: Exception, action: str) -> None:
        """Show why something could not be done; ``action`` continues "Cannot"."""
        # One like that on screen would be no change, and the page would go on waiting.
        self.widget.failure = None
        self.widget.failure = {**describe_failure(error, action), "kind": type(error).__name__}

    def check_idle(self, prefix: str) -> None:
        """Raise ``VariantError`` while there is work."""
        if self.busy:
            raise VariantError(f"{prefix}: another build is running. Wait for it, or cancel it first.")
