"""``--budget`` on the command line: all of a command ends with it, and shows what was done by then."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time

import onnx
import pytest

from rtlab import cli
from rtlab.backends.onnxruntime import OnnxRuntime
from rtlab.core.progress import check
from rtlab.study import runner, stages
from rtlab.testing import tiny_model

CPU = ["--target", "cpu", "--backend", "onnxruntime"]


@pytest.fixture
def model(tmp_path):
    path = tmp_path / "model.onnx"
    onnx.save(tiny_model().proto(), path)
    return str(path)


def endless(progress) -> None:
    while True:
        check(progress, "what never ends")
        time.sleep(0.01)


@pytest.mark.parametrize("command", ["inspect", "report", "check"])
def test_a_build_that_is_too_long_ends_with_the_budget(model, tmp_path, monkeypatch, capsys, command) -> None:
    monkeypatch.setattr(runner, "compile_variant", lambda _, progress: endless(progress))
    monkeypatch.chdir(tmp_path)
    began = time.monotonic()
    assert cli.main([command, model, *CPU, "--budget", "0.3"]) == 1
    assert time.monotonic() - began < 5.3
    assert "--budget" in capsys.readouterr().err


def test_a_stage_that_is_too_long_leaves_what_was_built(model, monkeypatch, capsys) -> None:
    monkeypatch.setattr(stages._Measuring, "_time", lambda _, within: endless(within))
    began = time.monotonic()
    assert cli.main(["inspect", model, *CPU, "--budget", "2", "--json"]) == 0
    assert time.monotonic() - began < 7
    told = json.loads(capsys.readouterr().out)
    assert told["engine"]["layers"]
    assert {stage["stage"]: stage["state"] for stage in told["stages"]}["timed"] == "missing"


def test_what_is_there_before_an_engine_is_shown(model, monkeypatch, capsys) -> None:
    """The graph of the file, what was calibrated on, the notes of the prepared model, and in what the time was over."""

    def build(_, request, progress) -> None:
        progress.phase("Building for ever", 9)
        endless(progress)

    monkeypatch.setattr(OnnxRuntime, "build", build)
    command = ["inspect", model, *CPU, "--precision", "int8", "--pin", "op:Relu=fp16", "--budget", "3"]
    assert cli.main(command) == 1
    out, err = capsys.readouterr()
    nodes = onnx.load(model).graph.node
    assert f"graph: {len(nodes)} nodes (" in out
    assert re.search(r'^input: ".+", fp32 ', out, re.MULTILINE)
    assert "calibrated on " in out
    assert "note: FP16 accumulation is not emulated" in out
    assert 'used up, in "Building for ever, 0 of 9"' in err


@pytest.mark.slow
def test_variants_that_were_built_in_time_are_reported(model, tmp_path, monkeypatch, capsys) -> None:
    built = runner.compile_variant
    slow = lambda job, progress: endless(progress) if job.name == "fp16" else built(job, progress)  # noqa: E731
    monkeypatch.setattr(runner, "compile_variant", slow)
    page = tmp_path / "r.html"
    command = ["report", model, *CPU, "--precision", "fp32", "--precision", "fp16", "-o", str(page)]
    assert cli.main([*command, "--budget", "2"]) == 0
    assert "fp16" in capsys.readouterr().err
    assert page.exists()


def test_a_default_limits_measuring_alone(model, monkeypatch, capsys) -> None:
    monkeypatch.setattr(cli.budget, "Deadline", None)
    assert cli.main(["inspect", model, *CPU, "--no-run"]) == 0
    assert cli.main(["inspect", model, *CPU, "--budget", "0"]) == 0
    assert cli.main(["inspect", model, *CPU, "--no-run", "--budget", "inf"]) == 0
    assert "compiled" in capsys.readouterr().out


@pytest.mark.slow
def test_what_does_not_hear_of_the_end_is_ended(model) -> None:
    code = (
        "import subprocess, sys, time\n"
        "from rtlab.cli import main, opening\n"
        "def hang(study, given):\n"
        "    child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
        "    print(child.pid, flush=True)\n"
        "    time.sleep(600)\n"
        "opening.run = hang\n"
        f"sys.argv[1:] = ['inspect', {model!r}, '--budget', '6']\n"
        "main()\n"
    )
    began = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False
    )
    assert time.monotonic() - began < 13.5
    assert (done.returncode, "--budget" in done.stderr, "Traceback" in done.stderr) == (1, True, False)
    # What is there is shown all the same.
    number, *shown = done.stdout.splitlines()
    assert re.match(r"graph: \d+ nodes", shown[1])
    import psutil

    pid = int(number)
    until = time.monotonic() + 5
    while psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:
        assert time.monotonic() < until
        time.sleep(0.05)
