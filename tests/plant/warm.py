"""A process that has loaded what every test loads, and forks one that runs pytest for each line that it reads.

It is started in a copy of the tree. A line asks for a run: ``{"tests": [[seconds, name], ...], "limit": seconds}``; the
answer says how pytest ended, which test failed or was the last, and what was printed. rtlab itself is loaded by the
child alone, since it is what changes.
"""

from __future__ import annotations

import contextlib
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

#: What takes long to load and is not examined.
HEAVY = (
    "numpy", "ml_dtypes", "scipy.stats", "scipy.sparse", "pandas", "onnx.helper", "onnx.shape_inference", "onnx_ir",
    "onnx_graphsurgeon", "onnxruntime", "polygraphy.json", "networkx", "hypothesis.strategies", "plotly.graph_objects",
    "anywidget", "ipywidgets", "IPython.display", "psutil", "PIL.Image", "sklearn.linear_model", "pytest", "pytest_cov",
    "pytest_timeout", "xdist.plugin", "asyncio", "concurrent.futures.process", "omnimalloc",
)  # fmt: skip
#: The exit status of a child that did not come to an end of pytest's.
BROKEN = 70
#: Plugins of pytest were loaded before it asks for their assertions.
PYTEST = (
    "-x", "-W", "ignore::pytest.PytestAssertRewriteWarning", "-p", "tests.plant.covering", "-p", "no:cacheprovider",
    "--benchmark-disable", "-q", "--no-header",
)  # fmt: skip


def run(asked: dict[str, object], tree: Path) -> dict[str, object]:
    """Fork, run the tests, and wait for them no longer than the limit."""
    home = tree.parent
    chosen, out = home / "chosen", home / "out"
    for told in (chosen.with_name("chosen.last"), chosen.with_name("chosen.failed")):
        told.unlink(missing_ok=True)
    shutil.rmtree(home / "tmp", ignore_errors=True)
    (home / "tmp").mkdir()
    chosen.write_text("\n".join(f"{s:.3f} {n}" for s, n in asked["tests"]), encoding="utf-8")  # type: ignore[attr-defined]
    files = [*dict.fromkeys(n.partition("::")[0] for _, n in asked["tests"])]  # type: ignore[attr-defined]
    started = time.monotonic()
    child = os.fork()
    if not child:
        status = BROKEN
        try:
            os.setsid()
            with out.open("wb") as to:
                os.dup2(to.fileno(), 1)
                os.dup2(to.fileno(), 2)
            with Path(os.devnull).open("rb") as nothing:
                os.dup2(nothing.fileno(), 0)
            os.environ["RTLAB_PLANT_CHOSEN"] = str(chosen)
            import pytest

            doctests = ("--doctest-modules",) if any(f.startswith("rtlab/") for f in files) else ()
            status = int(pytest.main([*PYTEST, *doctests, f"--basetemp={home / 'tmp' / 'pytest'}", *files]))
        except BaseException:  # noqa: BLE001 - what is not pytest's own is told by the status
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(status)
    ended = _wait(child, started + float(str(asked["limit"])))
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)
    return {
        "status": ended,
        "seconds": time.monotonic() - started,
        "last": _text(chosen.with_name("chosen.last")),
        "failed": _text(chosen.with_name("chosen.failed")),
        "out": out.read_text(encoding="utf-8", errors="replace")[-4000:] if out.exists() else "",
    }


def _wait(child: int, until: float) -> int | str:
    while True:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        if time.monotonic() > until:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child, signal.SIGKILL)
            os.waitpid(child, 0)
            return "limit"
        time.sleep(0.05)


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8") if path.exists() else ""


def main() -> None:
    """Load, then answer line by line."""
    warnings.simplefilter("ignore")
    for name in HEAVY:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    assert "rtlab" not in sys.modules
    gc.collect()
    gc.freeze()
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    for line in sys.stdin:
        answers.write(json.dumps(run(json.loads(line), Path.cwd())) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
