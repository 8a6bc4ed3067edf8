"""What a user installs: the wheel in a clean environment, away from the checkout."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

#: No trace of the environment that runs the tests.
CLEAN = {k: v for k, v in os.environ.items() if k not in {"PYTHONPATH", "VIRTUAL_ENV"}}


def first_that_works(*commands: list[str]) -> None:
    """Run a module of the tests' environment; another one where that fails.

    uv takes a fraction of pip's time, and knows nothing of an index that only pip's settings name.
    """
    for command in commands:
        done = subprocess.run(
            [sys.executable, "-m", *command], check=False, env=CLEAN, stdin=subprocess.DEVNULL
        )
        if done.returncode == 0:
            return
    raise AssertionError(f"None of these ended well: {[shlex.join(c) for c in commands]}")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of this checkout."""
    folder = tmp_path_factory.mktemp("wheel")
    first_that_works(
        ["uv", "build", "--quiet", "--wheel", "--out-dir", str(folder), str(ROOT)],
        ["pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(folder), str(ROOT)],
    )
    return next(folder.glob("rtlab-*.whl"))


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the programs of a clean environment with rtlab in it."""
    folder = tmp_path_factory.mktemp("clean")
    venv.create(folder)
    programs = folder / ("Scripts" if os.name == "nt" else "bin")
    # Neither compiles anything: what is imported below is little of what is installed.
    python = str(programs / "python")
    first_that_works(
        ["uv", "pip", "install", "--quiet", "--python", python, str(wheel)],
        ["pip", "--python", python, "install", "--quiet", "--no-compile", str(wheel)],
    )
    return programs


def run(installed: Path, program: str, *arguments: str, folder: Path) -> str:
    """What an installed program prints, run in a folder with nothing of rtlab in it."""
    done = subprocess.run(
        [str(installed / program), *arguments], cwd=folder, env=CLEAN, stdin=subprocess.DEVNULL,
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_wheel_carries_notebooks_samples_and_bundles(wheel):
    names = set(zipfile.ZipFile(wheel).namelist())
    wanted = {f"rtlab/_share/{p.relative_to(ROOT).as_posix()}" for p in (ROOT / "notebooks").glob("*.ipynb")}
    wanted |= {f"rtlab/_share/sample_models/{p.name}" for p in (ROOT / "sample_models").glob("*.onnx")}
    recorded = (ROOT / "sample_models" / "recordings").iterdir()
    wanted |= {f"rtlab/_share/sample_models/recordings/{p.name}" for p in recorded}
    tabs = {f"tab-{p.stem}" for p in (ROOT / "widgets" / "src" / "panels").glob("*.tsx")}
    bundles = {n for n in names if n.startswith("rtlab/static/") and n.endswith(".js")}

    assert wanted <= names
    made = {Path(n).stem for n in bundles}
    assert {"core", "explorer", "figures", "graph", "inline", "loader", "report", *tabs} == made
    tab = {n.split("/data/share/jupyter/labextensions/rtlab/")[-1] for n in names if "/labextensions/" in n}
    assert {"install.json", "package.json"} < tab
    assert [True] == [n.startswith("static/remoteEntry.") for n in tab if n.endswith(".js")]
    assert [] == [n for n in names if "node_modules" in n or n.startswith(("tests/", "widgets/"))]


def test_the_wheel_says_under_which_licences_it_comes(wheel):
    archive = zipfile.ZipFile(wheel)
    names = archive.namelist()
    metadata = archive.read(next(n for n in names if n.endswith(".dist-info/METADATA"))).decode()
    assert "\nLicense-Expression: Apache-2.0\n" in metadata
    own = archive.read(next(n for n in names if n.endswith(".dist-info/licenses/LICENSE")))
    assert (ROOT / "LICENSE").read_bytes() == own
    assert b"Apache License" in own
    lock = json.loads((ROOT / "widgets" / "package-lock.json").read_text())["packages"]
    told = archive.read("rtlab/static/NOTICES.txt").decode()
    # What each bundle imports, seen in its sources; signals brings its core.
    carried, drawing = {"preact", "@preact/signals", "@preact/signals-core"}, "plotly.js-cartesian-dist-min"
    for name in (*carried, drawing):
        assert f"\n{name} {lock[f'node_modules/{name}']['version']}\n" in told
    assert len(carried) + 1 == told.count("Permission is hereby granted") == told.count("Copyright (c)")
    head = archive.read("rtlab/static/core.js").decode().split("*/")[0]
    assert carried == set(re.findall(r"^(\S+) \S+ \(MIT\), Copyright \(c\) ", head, re.MULTILINE))
    assert "Permission is hereby granted" in head
    assert f"{drawing} " in archive.read("rtlab/static/figures.js").decode().split("*/")[0]
    # What stands on the core carries nobody's, nor does what a saved notebook keeps.
    others = ("/core.js", "/figures.js")
    for name in names:
        if name.startswith("rtlab/static/") and name.endswith(".js") and not name.endswith(others):
            assert "Copyright" not in archive.read(name).decode()


def test_every_package_file_is_in_the_wheel(wheel):
    names = set(zipfile.ZipFile(wheel).namelist())
    modules = {p.relative_to(ROOT).as_posix() for p in (ROOT / "rtlab").rglob("*.py")}

    assert set() == (modules | {"rtlab/py.typed"}) - names


def test_a_packaged_sample_is_inspected(installed, tmp_path):
    said = json.loads(run(installed, "rtlab", "inspect", "digits_inception", "--json", folder=tmp_path))
    nodes = {node["id"] for node in said["model"]["nodes"]}
    in_layers = {node for layer in said["engine"]["layers"] for node in layer["nodes"]}
    reasons = {entry["node"]: entry["reason"] for entry in said["unmapped"]}

    assert nodes == in_layers | set(reasons)
    assert set() == in_layers & set(reasons)
    assert "unknown" not in reasons.values()


def test_the_explorer_can_be_made(installed, tmp_path):
    code = (
        "import pathlib, rtlab; sample = rtlab.samples.load('digits_inception'); "
        "study = rtlab.Study(sample.model, data=sample.calibration, task=sample.task); "
        "print(type(study.explore()).__name__); print(pathlib.Path(rtlab.__file__).resolve())"
    )
    name, where = run(installed, "python", "-c", code, folder=tmp_path).splitlines()[-2:]

    assert "Explorer" == name
    assert ROOT not in Path(where).parents


def test_a_machine_that_only_reads_needs_no_more_than_its_list(wheel, installed, tmp_path):
    run(
        installed, "rtlab", "inspect", "digits_inception", "--precision", "fp16", "--no-run", "--save", "build.json",
        folder=tmp_path,
    )  # fmt: skip
    venv.create(tmp_path / "reader")
    reader = tmp_path / "reader" / ("Scripts" if os.name == "nt" else "bin")
    python = str(reader / "python")
    for what in (["--requirement", str(ROOT / "requirements-read.txt")], ["--no-deps", str(wheel)]):
        first_that_works(
            ["uv", "pip", "install", "--quiet", "--python", python, *what],
            ["pip", "--python", python, "install", "--quiet", "--no-compile", *what],
        )
    lacks = "import importlib.util as u; print([n for n in ('onnxruntime', 'jupyterlab', 'plotly') if u.find_spec(n)])"
    assert "[]\n" == run(reader, "python", "-c", lacks, folder=tmp_path)

    read = json.loads(
        run(reader, "rtlab", "read", "build.json", "--json", "-o", "report.html", folder=tmp_path)
    )
    there = json.loads(run(installed, "rtlab", "read", "build.json", "--json", folder=tmp_path))
    assert there == read
    assert "<script" in (tmp_path / "report.html").read_text(encoding="utf-8")
    code = (
        "import rtlab; study = rtlab.read('build.json'); study.report('report.md'); rtlab.available(); "
        "print(*study.frame().layers)"
    )
    layers = len(read["engine"]["layers"])
    assert layers > 10
    assert str(layers) == run(reader, "python", "-c", code, folder=tmp_path).strip()
    assert "digits_inception" in (tmp_path / "report.md").read_text(encoding="utf-8")
