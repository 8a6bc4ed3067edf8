"""The child's side of an installation: pip, as ``python -m pip`` runs it, in a process of its own.

It ends with its child when somebody stops it, and what it downloads lies in the child's own temporary folder.
"""

from __future__ import annotations

import contextlib
import io
import os
import runpy
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any

#: Seconds between two looks at how much has arrived.
_PAUSE = 0.2
_MB = 1_000_000


def install(payload: tuple[str, str, str], report: Any) -> tuple[int, str]:
    """Run pip: a wheel of a requirement, and nothing that it needs, into a folder; report the megabytes that arrive.

    Args:
        payload: The requirement, the folder, and a folder with the wheels, which is then the only place that is asked;
            empty asks pip's own index.
        report: Gets the megabytes.

    Returns:
        How pip ended (0 where all is installed), and what it wrote.
    """
    requirement, folder, source = payload
    # pip refuses --target together with an installation for the user, which a configuration may ask for.
    os.environ["PIP_USER"] = "0"
    source_options = ["--no-index", "--find-links", source] if source else []
    sys.argv = [
        "pip", "install", "--target", folder, "--no-deps", "--only-binary", ":all:", "--no-compile",
        "--no-input", "--disable-pip-version-check", "--no-warn-conflicts", "--progress-bar", "off", "--retries", "1",
        *source_options, requirement,
    ]  # fmt: skip
    done = threading.Event()
    watcher = threading.Thread(target=_watch, args=(folder, report, done), daemon=True)
    watcher.start()
    words = io.StringIO()
    code: object = 0
    try:
        with contextlib.redirect_stdout(words), contextlib.redirect_stderr(words):
            runpy.run_module("pip", run_name="__main__", alter_sys=True)
    except SystemExit as end:
        code = end.code
    finally:
        done.set()
        watcher.join()
    return code if isinstance(code, int) else int(code is not None), words.getvalue()


def _watch(folder: str, report: Any, done: threading.Event) -> None:
    """Tell how many megabytes lie where pip puts them."""
    reported_mb = 0
    while not done.wait(_PAUSE):
        received_mb = (measure_size(Path(folder)) + measure_size(Path(tempfile.gettempdir()))) // _MB
        if received_mb > reported_mb:
            report.advance(received_mb - reported_mb)
            reported_mb = received_mb


def measure_size(folder: Path) -> int:
    """Bytes of all files below a folder; what goes while it is counted does not count."""
    total = 0
    for directory, _, files in os.walk(folder):
        for name in files:
            with contextlib.suppress(OSError):
                total += os.lstat(os.path.join(directory, name)).st_size  # noqa: PTH118 - names by the thousand
    return total
