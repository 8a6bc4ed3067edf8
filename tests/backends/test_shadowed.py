"""What lies in the current folder, beside a model, is imported by no child process and by no command."""

from __future__ import annotations

import importlib.metadata
import os
import subprocess
import sys
from pathlib import Path

import pytest

import rtlab
from rtlab.testing import tiny_model

#: Modules that rtlab or what it needs would import where they are installed.
ABSENT = {
    "tensorrt", "tensorrt_rtx", "cuda", "cupy", "pycuda", "torch", "sympy", "sitecustomize", "usercustomize",
}  # fmt: skip
#: Of no use to a process, but for a reader of the failure: which module, and whose process.
DECOY = """
import os, pathlib
with open({marks!r}, "a") as marks:
    marks.write(f"{{os.getpid()}} {{__name__}}\\n")
raise ImportError("a decoy")
"""


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Path:
    """A folder with a model, and beside it a module of every name that a process may import."""
    names = {*sys.stdlib_module_names, *importlib.metadata.packages_distributions(), *ABSENT}
    for name in sorted(n for n in names if n.isidentifier() and n != "rtlab"):
        (tmp_path / f"{name}.py").write_text(DECOY.format(marks=str(tmp_path / "marks")), encoding="utf-8")
    (tmp_path / "model.onnx").write_bytes(tiny_model().bytes())
    monkeypatch.chdir(tmp_path)
    return tmp_path


def marks(folder: Path) -> list[list[str]]:
    path = folder / "marks"
    return [line.split() for line in path.read_text().splitlines()] if path.exists() else []


@pytest.mark.parametrize(
    "command",
    ["inspect model.onnx --precision int8", "report model.onnx -o report.html", "doctor", "compilers list"],
)
@pytest.mark.slow
def test_a_command_runs_nothing_that_lies_beside_the_model(folder, command) -> None:
    program = Path(sys.executable).with_name("rtlab")
    done = subprocess.run([program, *command.split()], capture_output=True, text=True, check=False)
    assert marks(folder) == []
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("backend", ["tensorrt-rtx", "onnxruntime"])
def test_children_of_a_notebook_run_nothing_that_lies_beside_it(folder, backend, monkeypatch) -> None:
    """A kernel has its folder first on its path; what it imports itself is its user's business."""
    if not rtlab.available()[backend].ok:
        pytest.skip(f"{backend} is not there")
    monkeypatch.syspath_prepend("")
    study = rtlab.Study("model.onnx")
    study.add("int8", precision="int8", backend=backend, target="cpu" if backend == "onnxruntime" else "sm86")
    study.run()
    assert study["int8"].engine.layers
    assert [m for m in marks(folder) if m[0] != str(os.getpid())] == []


@pytest.mark.slow
def test_the_server_of_notebooks_runs_nothing_that_lies_in_its_folder(folder) -> None:
    from rtlab.cli import _START

    done = subprocess.run(
        [sys.executable, "-c", _START, "--version"], capture_output=True, text=True, check=False, timeout=120
    )
    assert marks(folder) == []
    assert done.returncode == 0, done.stderr
