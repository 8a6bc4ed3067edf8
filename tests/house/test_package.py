"""What goes along with the code: versions, lists of packages, types, and the checks before a commit."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

import rtlab
from rtlab.cli import main

ROOT = Path(__file__).parents[2]
PROJECT = (ROOT / "pyproject.toml").read_text(encoding="utf-8")


def listed(name: str) -> dict[str, str]:
    """Requirements of a list in pyproject.toml with their bounds, by package; Python 3.10 has no reader of TOML."""
    (inside,) = re.findall(rf"^{name} = \[\n(.*?)^\]", PROJECT, re.DOTALL | re.MULTILINE)
    return dict(re.findall(r'^  "([\w-]+)(>=[\d.]+)', inside, re.MULTILINE))


def test_one_version_everywhere() -> None:
    (declared,) = re.findall(r'^version = "(.*)"', PROJECT, re.MULTILINE)
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert declared == rtlab.__version__ == cited["version"]
    assert [
        "abstract",
        "authors",
        "cff-version",
        "keywords",
        "license",
        "message",
        "title",
        "type",
        "version",
    ] == (sorted(cited))


def test_the_version_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main(["--version"])
    assert (0, f"rtlab {rtlab.__version__}\n") == (end.value.code, capsys.readouterr().out)


def test_types_are_offered_to_checkers_of_programs_that_import_rtlab() -> None:
    """PEP 561: without this file every name of rtlab is Any to them."""
    assert (Path(rtlab.__file__).parent / "py.typed").read_bytes() == b""


def test_the_list_for_machines_that_read_is_a_part_of_what_is_required() -> None:
    lines = (ROOT / "requirements-read.txt").read_text(encoding="utf-8").splitlines()
    read = dict(re.findall(r"^([\w-]+)(>=[\d.]+)$", "\n".join(lines), re.MULTILINE))
    assert len(read) == sum(bool(line) and not line.startswith("#") for line in lines)
    required = listed("dependencies")
    assert read == {name: required[name] for name in read}
    assert set() == {"onnxruntime", "jupyterlab", "polygraphy", "tensorrt-rtx", "plotly"} & set(read)


def test_hooks_before_a_commit_are_the_checks_of_the_tests() -> None:
    hooks = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text(encoding="utf-8"))["repos"]
    assert ["local"] == [repository["repo"] for repository in hooks]
    commands = [
        h["entry"].removeprefix(".venv/bin/").replace(" --force-exclude", "") for h in hooks[0]["hooks"]
    ]
    (style,) = re.findall(
        r"^style\(\) \{\n(.*?)^\}", (ROOT / "tests/run").read_text(), re.DOTALL | re.MULTILINE
    )
    checks = [line.strip().removesuffix(" .") for line in style.splitlines() if line.startswith("  ")]
    assert ["ruff check", "ruff format", "mypy", "lint-imports --no-cache"] == commands
    assert {*commands} - {"ruff format"} <= {*checks}
    assert "ruff format --check" in checks


def test_each_release_of_python_that_is_tested_is_a_classifier() -> None:
    named = {
        c.rpartition(" ")[2] for c in re.findall(r'"(Programming Language :: Python :: 3\.\d+)"', PROJECT)
    }
    assert {"3.10", "3.11", "3.12", "3.13"} == named
    assert "Python 3.10 to 3.13" in (ROOT / "README.md").read_text(encoding="utf-8")
