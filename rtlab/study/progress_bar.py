"""A progress bar below a cell."""

from __future__ import annotations

import ipywidgets
from IPython.display import display

from rtlab.core.progress import Reporting


class ProgressBar(Reporting):
    """Phase, steps and elapsed time of work that a cell waits for; the bar goes away with ``close``."""

    def __init__(self) -> None:
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
