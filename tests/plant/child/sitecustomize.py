"""Records which lines of rtlab a child process of a test runs, while the coverage map is made.

coverage.py writes its data when a process ends, and rtlab kills its children. Here each line is written when it runs
first under a test. ``RTLAB_PLANT_CURRENT`` names the file that holds the test of the moment.
"""

from __future__ import annotations

import os
import sys
import threading
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

_PREFIX = str(Path(__file__).parents[3] / "rtlab") + os.sep


def _trace_lines(current: Path) -> None:
    out = (current.parent / f"child-{os.getpid()}").open("a", buffering=1, encoding="utf-8")
    test = ""
    seen: set[tuple[CodeType, int]] = set()

    def call(frame: FrameType, _event: str, _argument: object) -> Any:
        nonlocal test
        if not frame.f_code.co_filename.startswith(_PREFIX):
            return None
        now = current.read_text(encoding="utf-8")
        if now != test:
            test = now
            seen.clear()
        return line(frame, "line", None)

    def line(frame: FrameType, _event: str, _argument: object) -> Any:
        where = frame.f_code, frame.f_lineno
        if where not in seen:
            seen.add(where)
            path = frame.f_code.co_filename[len(_PREFIX) :]
            out.write(f"rtlab/{path}\t{frame.f_lineno}\t{test}\n")
        return line

    threading.settrace(call)
    sys.settrace(call)


# Set by pytest while a test runs: this is a process that a test started, and not pytest itself.
if "PYTEST_CURRENT_TEST" in os.environ and "RTLAB_PLANT_CURRENT" in os.environ:
    _trace_lines(Path(os.environ["RTLAB_PLANT_CURRENT"]))
