"""docs/pipelines.md: what it tells to copy does what it says."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree as Tree

import numpy as np
import pytest
import yaml

import rtlab

PAGE = (Path(__file__).parents[2] / "docs" / "pipelines.md").read_text("utf-8")
BLOCKS = {kind: re.findall(rf"```{kind}\n(.*?)```", PAGE, re.DOTALL) for kind in ("bash", "yaml")}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files that the page names, and a branch that has the model already."""
    made = tmp_path_factory.mktemp("pipeline")
    sample = rtlab.samples.load("digits_mobilenet")
    (made / "model.onnx").write_bytes(sample.model.bytes())
    np.savez(made / "samples.npz", **sample.task.data.arrays)
    np.save(made / "labels.npy", sample.task.labels)
    git = ("git", "-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false")
    for command in (
        ("init", "-q"), ("add", "."), ("commit", "-qm", "a"), ("update-ref", "refs/remotes/origin/main", "HEAD"),
    ):  # fmt: skip
        subprocess.run([*git, *command], cwd=made, check=True)
    return made


def shell(script: str, folder: Path, **more: str) -> int:
    """What a job does with a script: it ends at the first line that fails."""
    found = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
    done = subprocess.run(
        ["bash", "-ec", script], cwd=folder, env={**os.environ, "PATH": found, **more}, check=False
    )
    return done.returncode


@pytest.mark.slow
def test_both_workflows_run_as_they_are_written(folder: Path) -> None:
    github, gitlab = (yaml.safe_load(block) for block in BLOCKS["yaml"])
    steps = [s for s in github["jobs"]["check"]["steps"] if "run" in s and "pip" not in s["run"]]
    scripts = [s["run"] for s in steps]
    (anew,) = (b for b in BLOCKS["bash"] if "--save baseline.json" in b and "--against" not in b)
    assert 0 == shell(anew, folder)
    for script in (scripts[0], *(line for line in gitlab["check"]["script"] if "pip" not in line)):
        (folder / "check.xml").unlink(missing_ok=True)
        assert 0 == shell(script, folder)
        names = [c.get("name") for c in Tree.parse(folder / "check.xml").iter("testcase")]
        assert [
            "numbers",
            "accuracy",
            "score",
            "latency",
            "fusion",
            "precision",
            "findings",
            "memory",
        ] == names
    summary = folder / "summary.md"
    assert 0 == shell(scripts[1], folder, GITHUB_STEP_SUMMARY=str(summary))
    assert "| accuracy | at most 0.5 points worse than fp32 |" in summary.read_text("utf-8")
    assert [1] == gitlab["check"]["allow_failure"]["exit_codes"]
    # What is worse fails both, also where that which could not be checked may pass.
    worse = scripts[0].replace("--precision int8", "--precision fp32").replace("fusion", "precision").strip()
    assert 3 == shell(worse, folder)
    assert 1 == shell(f"{worse} || [ $? -eq 1 ]", folder)


@pytest.mark.slow
def test_times_of_one_job_are_compared(folder: Path) -> None:
    (block,) = (b for b in BLOCKS["bash"] if "git show" in b)
    assert 0 == shell(block.replace("10%", "900%"), folder)
    assert (folder / "before.json").exists()
