"""What a binding says while it works: its messages, and the progress of a build."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def message_logger(trt: Any, on_message: Callable[[Any, str], object]) -> Any:
    """A logger of the binding that gives severity and text of every message to ``on_message``.

    It is called very often. An exception in it would be swallowed by the binding.
    """

    class Logger(trt.ILogger):  # type: ignore[misc,name-defined,unused-ignore] # base of the untyped binding
        log = staticmethod(on_message)

        def __init__(self) -> None:
            trt.ILogger.__init__(self)

    return Logger()


def progress_monitor(trt: Any, report: Any) -> Any:
    """A progress monitor that translates nested phases: the outermost counts, the others name what is going on."""

    class Monitor(trt.IProgressMonitor):  # type: ignore[misc,name-defined,unused-ignore]
        def __init__(self) -> None:
            trt.IProgressMonitor.__init__(self)

        def phase_start(self, phase_name: str, parent_phase: str | None, num_steps: int) -> None:  # noqa: ARG002
            report.phase(phase_name, num_steps)

        def step_complete(self, phase_name: str, step: int) -> bool:  # noqa: ARG002
            report.advance()
            return True

        def phase_finish(self, phase_name: str) -> None:
            pass

    return Monitor()
