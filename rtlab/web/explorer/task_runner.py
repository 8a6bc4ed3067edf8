"""The work behind the Explorer: one piece at a time, on a thread, so that the kernel stays free to hear Cancel."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import traitlets

from rtlab.core.progress import Reporting
from rtlab.documents.contract import BuildState
from rtlab.errors import Cancelled, VariantError
from rtlab.web.explorer.transport import Delivering
from rtlab.web.page.table import describe_failure

if TYPE_CHECKING:
    from typing_extensions import Self

_IDLE = BuildState(running=False, phase="", fraction=None, elapsed=0.0)


class Working(Delivering):
    """A widget that does one piece of work at a time."""

    build = traitlets.Dict(dict(_IDLE)).tag(sync=True)
    failure = traitlets.Dict(allow_none=True, default_value=None).tag(sync=True)
    #: Rises when what panels tell may have changed, so that the page asks again.
    stamp = traitlets.Int(0).tag(sync=True)

    def __init__(self, script: str, on_work_change: Callable[[str], None], **traits: Any) -> None:
        #: Called when work begins, with the variant that it builds if it builds one, and with "" when it is over.
        self._on_work_change = on_work_change
        #: What is on screen changes in one piece: cells, commands and builds are threads of their own.
        self._view_lock = threading.RLock()
        self._thread: threading.Thread | None = None
        self._progress: Reporting | None = None
        #: The variant that is being built.
        self._building, self._busy = "", False
        #: What a cell asked for while something else, such as opening the model, was under way.
        self._next: Callable[[], object] | None = None
        super().__init__(script, **traits)

    def wait(self, timeout: float | None = None) -> Self:
        """Block until the running build is done; a failure is shown in the Explorer, and in ``failure``."""
        end = None if timeout is None else time.monotonic() + timeout
        while (thread := self._thread) is not None:
            thread.join(None if end is None else max(0.0, end - time.monotonic()))
            if thread is self._thread or thread.is_alive():
                break
        return self

    def cancel(self) -> None:
        """Stop the running build; finished variants stay."""
        if self._progress is not None:
            self._progress.cancel()

    def _work(self, work: Callable[[Reporting], object], action: str) -> Self:
        if not self._busy:
            self.failure = None
            self._start(work, action)
        return self

    def _start(self, work: Callable[[Reporting], object], action: str, name: str = "") -> None:
        """Do work on a thread: ``action`` continues "Cannot", ``name`` is the variant that is built."""
        with self._view_lock:
            if self._busy:
                return
            self._building, self._busy = name, True

        def tell(phase: str, done: int, total: int | None, elapsed: float) -> None:
            fraction = min(1.0, done / total) if total else None
            text = phase + progress.pace
            self.build = dict(BuildState(running=True, phase=text, fraction=fraction, elapsed=elapsed))

        self._progress = progress = Reporting(tell)
        progress.phase("Starting")
        self._on_work_change(name)

        def main() -> None:
            try:
                work(progress)
            except Cancelled:
                self._next = None
            except Exception as error:  # noqa: BLE001 - whatever it is, the user must read it in the cell
                self._next = None
                self.failure = dict(describe_failure(error, action))
            finally:
                self._building = ""
                self._on_work_change("")
                self.stamp += 1
                # Last, since whoever sees it may ask for the next work at once.
                with self._view_lock:
                    self._busy = False
                    next_work, self._next = self._next, None
                self.build = dict(_IDLE)
                if next_work is not None:
                    next_work()

        self._thread = threading.Thread(target=main, name="rtlab-build", daemon=True)
        self._thread.start()

    def _report_error(self, error: Exception, action: str) -> None:
        # One like that on screen would be no change, and the page would go on waiting.
        self.failure = None
        self.failure = {**describe_failure(error, action), "kind": type(error).__name__}

    def _check_idle(self, prefix: str) -> None:
        if self._busy:
            raise VariantError(f"{prefix}: another build is running. Wait for it, or cancel it first.")
