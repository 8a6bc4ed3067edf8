"""A process that has loaded what every test loads, and forks one that runs pytest for each line that it reads.

It is started in a copy of the tree. A line asks for a run: ``{"tests": [[limit, name], ...], "limit": seconds}``. The
answer says how pytest ended, which test failed or began last, and what was printed. rtlab itself is loaded by the
child alone, since it is what changes.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import importlib
import json
import os
import shutil
import signal
import sys
import time
import traceback
import warnings
from pathlib import Path
from typing import Any

#: What takes long to load and is not mutated.
PRELOADED = (
    "numpy", "ml_dtypes", "scipy.stats", "scipy.sparse", "pandas", "onnx.helper", "onnx.shape_inference", "onnx_ir",
    "onnx_graphsurgeon", "onnxruntime", "polygraphy.json", "networkx", "hypothesis.strategies", "plotly.graph_objects",
    "anywidget", "ipywidgets", "IPython.display", "psutil", "PIL.Image", "sklearn.linear_model", "pytest", "pytest_cov",
    "pytest_timeout", "xdist.plugin", "asyncio", "concurrent.futures.process",
)  # fmt: skip
#: Who started this process; another one when it has ended.
PARENT = os.getppid()
#: The option of Linux by which a process is killed when its parent ends.
PR_SET_PDEATHSIG = 1
#: The exit status of a child in which pytest raised.
BROKEN = 70
#: Plugins of pytest were loaded before it rewrites their assertions.
PYTEST = (
    "-x", "-W", "ignore::pytest.PytestAssertRewriteWarning", "-p", "tests.plant.pytest_plugin",
    "-p", "no:cacheprovider", "-p", "no:anyio", "-p", "no:nbmake", "--benchmark-disable", "-q", "--no-header",
)  # fmt: skip


def run_tests(request: dict[str, Any], home: Path) -> dict[str, Any]:
    select, last, failed, out = (home / name for name in ("select", "last", "failed", "out"))
    last.unlink(missing_ok=True)
    failed.unlink(missing_ok=True)
    shutil.rmtree(home / "tmp", ignore_errors=True)
    (home / "tmp").mkdir()
    select.write_text("\n".join(f"{limit:.3f} {name}" for limit, name in request["tests"]), encoding="utf-8")
    files = [*dict.fromkeys(name.partition("::")[0] for _, name in request["tests"])]
    child = os.fork()
    if not child:
        status = BROKEN
        try:
            os.setsid()
            # Nothing goes on testing when this process is killed.
            ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
            with out.open("wb") as to, Path(os.devnull).open("rb") as nothing:
                os.dup2(nothing.fileno(), 0)
                os.dup2(to.fileno(), 1)
                os.dup2(to.fileno(), 2)
            os.environ["RTLAB_PLANT_SELECT"] = str(select)
            import pytest

            doctests = ("--doctest-modules",) if any(f.startswith("rtlab/") for f in files) else ()
            status = int(pytest.main([*PYTEST, *doctests, f"--basetemp={home / 'tmp' / 'pytest'}", *files]))
        except BaseException:  # noqa: BLE001 - the status says that it was not pytest that ended
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(status)
    status = _wait(child, time.monotonic() + request["limit"])
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)
    return {"status": status, "last": _read(last), "failed": _read(failed), "out": _read(out)[-4000:]}


def _wait(child: int, until: float) -> int | str:
    while True:
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid:
            return os.waitstatus_to_exitcode(status)
        if time.monotonic() > until or os.getppid() != PARENT:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child, signal.SIGKILL)
            os.waitpid(child, 0)
            return "limit"
        time.sleep(0.05)


def _read(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""


def main() -> None:
    warnings.simplefilter("ignore")
    for name in PRELOADED:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    assert "rtlab" not in sys.modules
    gc.collect()
    gc.freeze()
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    for line in sys.stdin:
        answers.write(json.dumps(run_tests(json.loads(line), Path.cwd().parent)) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
