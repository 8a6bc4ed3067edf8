"""Who is told of long work, and what an interrupt does to it."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator

from rtlab.core.progress import Silent, Terminal
from rtlab.core.protocols import Progress
from rtlab.errors import Cancelled


@contextlib.contextmanager
def report_progress(progress: Progress | None) -> Iterator[Progress]:
    """The reporter that was given, or the host's for as long as the work takes; an interrupt cancels."""
    host_reporter = _create_host_reporter() if progress is None else None
    try:
        yield host_reporter or progress or Silent()
    except KeyboardInterrupt:
        raise Cancelled(
            "Stopped the study: interrupted. What was finished or seen is kept; call it again to go on."
        ) from None
    finally:
        if host_reporter is not None:
            host_reporter.close()


def _create_host_reporter() -> Silent:
    """The host's reporter: a bar in a notebook, a line on a terminal, nothing in a pipe."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    if shell is not None and getattr(shell, "kernel", None) is not None:
        from rtlab.study.progress_bar import ProgressBar

        return ProgressBar()
    return Terminal()
