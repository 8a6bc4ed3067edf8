"""Flags of trtexec: what is written is what its help takes, and a size is what was meant."""

from __future__ import annotations

import ast
import re
import shlex
from pathlib import Path

import pytest

from rtlab.core import trtexec

HOME = Path(__file__).parents[3]
PYTHON = sorted((HOME / "rtlab").rglob("*.py"))
#: A flag as it is typed. Those of other programs have dashes within.
FLAG = re.compile(r"(?<![\w-])--[a-zA-Z]\w*(?![\w-])(?:=(?:\"[^\"]*\"|'[^']*'|[^\s'\"`,;)]+))?")
#: Flags of Jupyter's and Polygraphy's in texts that look like trtexec's or name it.
OTHERS = frozenset({"LabApp", "ServerApp", "Gl", "tf32"})
#: Those of trtexec, by its help.
FLAGS = frozenset({
    "noDataTransfers", "versionCompatible",
    "onnx", "saveEngine", "loadEngine", "exportLayerInfo", "exportProfile", "exportTimes", "exportOutput",
    "dumpProfile", "dumpLayerInfo", "separateProfileRun", "profilingVerbosity", "verbose", "useCudaGraph",
    "stronglyTyped", "noTF32", "fp16", "int8", "calib", "layerPrecisions", "precisionConstraints", "sparsity",
    "minShapes", "optShapes", "maxShapes", "inputIOFormats", "outputIOFormats", "workspace", "memPoolSize",
    "builderOptimizationLevel", "timingCacheFile", "allowGPUFallback", "plugins", "staticPlugins", "dynamicPlugins",
    "hardwareCompatibilityLevel", "useSpinWait", "help",
})  # fmt: skip


def literals(path: Path) -> list[str]:
    """The texts of a file, docstrings among them."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return [n.value for n in ast.walk(tree) if isinstance(n, ast.Constant) and isinstance(n.value, str)]


def texts() -> dict[str, list[str]]:
    """What users and readers of the code see of flags, by file."""
    found = {str(p.relative_to(HOME)): literals(p) for p in PYTHON}
    for path in (
        *sorted((HOME / "widgets" / "src").rglob("*.ts*")),
        HOME / "README.md",
        HOME / "CHANGELOG.md",
        *sorted((HOME / "docs").glob("*.md")),
    ):
        lines = path.read_text(encoding="utf-8").splitlines()
        found[str(path.relative_to(HOME))] = [line for line in lines if "trtexec" in line]
    return found


@pytest.mark.slow
def test_every_flag_in_a_text_is_one_of_trtexec_or_of_another_program() -> None:
    """In Python, in the page, in README, CHANGELOG and documentation."""
    wrong, seen = set(), set()
    for file, match in (
        (f, m) for f, lines in texts().items() for text in lines for m in FLAG.finditer(text)
    ):
        name = match[0].removeprefix("--").partition("=")[0]
        # One of several words, or beside trtexec's name, is no other program's.
        ours = name.lower() != name or "trtexec --" in match.string
        if ours and name not in OTHERS | FLAGS:
            wrong.add(f"{file}: {name}")
        seen.add(name)
    assert set() == wrong
    assert {"exportLayerInfo", "memPoolSize", "loadEngine", "calib"} <= seen


@pytest.mark.parametrize("size", [1, 1023, 1 << 20, (1 << 20) + 1, 984_064, 5 << 30])
def test_bytes_that_are_written_are_at_least_those_that_were_meant(size) -> None:
    written = trtexec.format_flag("memPoolSize", {"workspace": size})
    assert size <= int(written.rpartition(":")[2]) << 20 < size + (1 << 20)


def test_a_command_survives_a_shell() -> None:
    line = trtexec.format_command(
        trtexec.format_flag("onnx", "my model.onnx"),
        trtexec.format_flag("optShapes", "in:0:1x3,b:2"),
        trtexec.format_flag("noTF32"),
    )
    assert ["trtexec", "--onnx=my model.onnx", "--optShapes=in:0:1x3,b:2", "--noTF32"] == shlex.split(line)
