"""The host's reporter of long work, and interrupts."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator

from rtlab.core.progress import Reporting, Terminal
from rtlab.core.protocols import Progress
from rtlab.errors import Cancelled


@contextlib.contextmanager
def report_progress(progress: Progress | None) -> Iterator[Progress]:
    """A reporter; an interrupt cancels the work.

    By default it is the host's, for as long as the work takes: a bar in a notebook, a line on a terminal.
    """
    host_reporter: ProgressBar | Terminal | None = None
    if progress is None:
        host_reporter = ProgressBar() if has_kernel() else Terminal()
        progress = host_reporter
    try:
        yield progress
    except KeyboardInterrupt:
        raise Cancelled(
            "Stopped the study: interrupted. What was finished or seen is kept; call it again to go on."
        ) from None
    finally:
        if host_reporter is not None:
            host_reporter.close()


def has_kernel() -> bool:
    """Whether this is the kernel of a notebook."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return getattr(shell, "kernel", None) is not None


class ProgressBar(Reporting):
    """Phase, steps and elapsed time below a cell; the bar goes away with ``close``."""

    def __init__(self) -> None:
        import ipywidgets
        from IPython.display import display

        self._bar = ipywidgets.FloatProgress(min=0.0, max=1.0, layout={"width": "240px"})
        self._text = ipywidgets.Label()
        self._box = ipywidgets.HBox([self._bar, self._text])

        def show(name: str, done: int, total: int | None, elapsed: float) -> None:
            self._bar.value = min(1.0, done / total) if total else 0.0
            part = f" {done} of {total}" if total else ""
            self._text.value = f"{name}{part} · {elapsed:.1f} s{self.pace}"

        super().__init__(show)
        display(self._box)  # type: ignore[no-untyped-call,unused-ignore] # IPython has no type information here

    def close(self) -> None:
        """Take the bar away."""
        for widget in (self._box, self._bar, self._text):
            widget.close()
