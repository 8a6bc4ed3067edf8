"""Flags of trtexec: what is written is what its help takes, and a size is what was meant."""

from __future__ import annotations

import ast
import re
import shlex
from pathlib import Path

import pytest

from rtlab.core import trtexec
from rtlab.errors import VariantError

HOME = Path(__file__).parents[3]
PYTHON = sorted((HOME / "rtlab").rglob("*.py"))
#: A flag as it is typed. Those of other programs have dashes within.
FLAG = re.compile(r"(?<![\w-])--[a-zA-Z]\w*(?![\w-])(?:=(?:\"[^\"]*\"|'[^']*'|[^\s'\"`,;)]+))?")
#: Flags of Jupyter's and Polygraphy's in texts that look like trtexec's or name it.
OTHERS = frozenset({"LabApp", "ServerApp", "Gl", "tf32"})


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
    """In Python, in the page, in README, CHANGELOG and documentation; values that follow are what the flag takes."""
    wrong, seen = {}, set()
    for file, match in (
        (f, m) for f, lines in texts().items() for text in lines for m in FLAG.finditer(text)
    ):
        name, _, value = match[0].removeprefix("--").partition("=")
        typed = match[0].rstrip(".:") if not value.endswith("...") else match[0]
        # One of several words, or beside trtexec's name, is no other program's.
        ours = name in trtexec.FLAGS or name.lower() != name or "trtexec --" in match.string
        if ours and name not in OTHERS and (said := trtexec.check(typed.removesuffix("="))):
            wrong[f"{file}: {typed}"] = said
        seen.add(name)
    assert {} == wrong
    assert {"exportLayerInfo", "memPoolSize", "loadEngine", "calib"} <= seen


@pytest.mark.parametrize(
    ("text", "nbytes"),
    [("1024", 1 << 30), ("1024M", 1 << 30), ("1G", 1 << 30), ("0.25", 1 << 18), ("512K", 1 << 19), ("7B", 7),
     ("1024MiB", 1024), ("1MiB", 1), ("2GB", 2), ("", None), ("1T", None), ("many", None)],
)  # fmt: skip
def test_a_size_is_read_as_trtexec_reads_it(text, nbytes) -> None:
    """Line 1 of a recorded log asks for 1024MiB, line 8 tells of 1,024 bytes; the help tells of the letters."""
    assert nbytes == trtexec.parse_size(text)
    assert (nbytes if text in {"1024MiB", "1MiB", "2GB"} else None) == trtexec.find_misread_size(text)


@pytest.mark.parametrize("size", [1, 1023, 1 << 20, (1 << 20) + 1, 984_064, 5 << 30])
def test_bytes_that_are_written_are_at_least_those_that_were_meant(size) -> None:
    written = trtexec.format_flag("memPoolSize", {"workspace": size})
    read = trtexec.parse_size(written.rpartition(":")[2])
    assert size <= read < size + (1 << 20)


@pytest.mark.parametrize(
    ("name", "value", "release", "said"),
    [
        ("memPoolSize", "workspace:1MiB", None, 'reads "1MiB" as 1 bytes. Write the number alone'),
        ("memPoolSize", "1024", None, "Write workspace:1024."),
        ("memPoolSize", {"workspace": 1}, (8, 2), "belongs to TensorRT 8.4 and later"),
        ("workspace", 1024, (10, 0), "up to 10.0, without it"),
        ("workspace", "1G", None, "Write the digits alone"), ("fp16", None, (11, 0), "up to 11.0, without it"),
        ("fp16", "yes", None, "takes no value"), ("profilingVerbosity", "all", None, "Choose one"),
        ("optShapes", "x=1x3", None, "x:1x3x224x224"), ("onnx", "", None, "Write one behind the sign"),
        ("workSpace", 1, None, "no such flag. Choose one of onnx"),
    ],
)  # fmt: skip
def test_what_trtexec_would_refuse_or_misread_is_not_written(name, value, release, said) -> None:
    with pytest.raises(VariantError, match="Cannot write") as caught:
        trtexec.format_flag(name, value, release=release)
    assert said in str(caught.value)


def test_a_command_survives_a_shell() -> None:
    line = trtexec.format_command(
        trtexec.format_flag("onnx", "my model.onnx"),
        trtexec.format_flag("optShapes", "in:0:1x3,b:2"),
        trtexec.format_flag("noTF32"),
    )
    assert ["trtexec", "--onnx=my model.onnx", "--optShapes=in:0:1x3,b:2", "--noTF32"] == shlex.split(line)
