"""``rtlab doctor``: what it tries, what it says of what fails, and what it keeps to itself."""

from __future__ import annotations

import getpass
import platform
from pathlib import Path

import numpy as np
import pytest

from fake_gpu import Here, needs_api
from rtlab import backends
from rtlab.backends.reference import get_evaluator
from rtlab.cli import main
from rtlab.core.budget import WorkContext
from rtlab.core.progress import Silent
from rtlab.core.protocols import Progress
from rtlab.errors import BuildError, Cancelled, RunError
from rtlab.experiments import doctor as _doctor
from rtlab.experiments.doctor import Report, SelfTest, clean
from rtlab.experiments.experiment import run_experiment
from stopping import Stopping

USER = Path.home().name


def examine(table, progress: Progress) -> Report:
    """What is found of backends that the test brings."""
    return run_experiment(SelfTest(table), WorkContext(get_evaluator, progress))


def statuses(report: Report) -> dict[str, str]:
    return {c.name.partition(": ")[2] or c.name: c.status for c in report.checks}


@pytest.mark.slow
@needs_api
def test_every_step_on_a_gpu_is_tried_and_told():
    backend = Here("trt10")
    report = examine({"tensorrt": backend}, Silent())
    assert {"ok"} == set(statuses(report).values())
    assert report.versions["gpu"] == "Fake GPU, sm86, driver for CUDA 12.9"
    assert {} == backend._sessions


@needs_api
def test_failing_steps_do_not_take_the_others_along():

    class Wrong(Here):
        def outputs(self, engine, inputs, names=()):
            return {n: v * 1.01 for n, v in super().outputs(engine, inputs, names).items()}

        def profile(self, *_, **__):
            raise RunError("Error Code 7: the profiler is broken")

    report = examine({"tensorrt": Wrong("trt10")}, Silent())
    assert [
        "tensorrt: outputs against ONNX Runtime",
        "tensorrt: times of layers",
    ] == [c.name for c in report.failed]
    assert "Error Code 7: the profiler is broken" in report.failed[1].seen
    assert "ok" == statuses(report)["save and open again"]


def test_a_backend_that_cannot_build_skips_what_follows():
    class Broken(Here):
        def build(self, request, progress):
            raise BuildError('Backend "tensorrt" cannot build: no.', details="the vendor's last words")

    found = statuses(examine({"tensorrt": Broken("trt10")}, Silent()))
    assert "failed" == found["build and inspect on the GPU"]
    assert {"skipped"} == {found[n] for n in ("outputs against ONNX Runtime", "save and open again")}


def test_whatever_an_action_raises_is_a_failed_check():
    class Odd:
        name = "odd"

        def availability(self):
            raise ZeroDivisionError("in the plug-in")

    report = examine({"odd": Odd()}, Silent())
    assert ["ZeroDivisionError: in the plug-in"] == [c.seen for c in report.failed]


def test_cancelling_ends_it_and_an_unknown_backend_is_named(capsys) -> None:
    with pytest.raises(Cancelled):
        examine({}, Stopping())
    assert main(["doctor", "--backend", "nvidia"])
    assert '"nvidia"' in capsys.readouterr().err


@pytest.mark.slow
@needs_api
def test_it_really_builds_here():
    report = examine({"tensorrt-rtx": backends.get("tensorrt-rtx")}, Silent())
    found = statuses(report)
    assert () == tuple(report.failed)
    targets = backends.get("tensorrt-rtx").capabilities().targets
    assert {"ok"} == {found[f"build for {t}"] for t in targets if f"build for {t}" in found}


@pytest.mark.parametrize(
    ("said", "kept"),
    [
        (f"in /home/{USER}/secret project/x", ".../x"),
        ("see /opt/company/model.onnx:12", "see .../model.onnx:12"),
        (r"C:\Users\me\work\model.onnx is gone", ".../model.onnx is gone"),
        ('"~/models/a.plan" has', '".../a.plan" has'),
        ("3/4 of 1.5 MB/s, https://docs.nvidia.com/x/y", "3/4 of 1.5 MB/s, https://docs.nvidia.com/x/y"),
        ("/layer1/conv1/Conv", ".../Conv"),
    ],
)
def test_paths_keep_their_last_part(said, kept):
    assert kept in clean(said)


def test_host_and_user_are_left_out():
    names = [n for n in (platform.node(), getpass.getuser()) if len(n) > 2]
    words = clean(" ".join(f"on {n}, not {n}s" for n in names)).replace(",", "").split()
    assert not set(names) & set(words)


@pytest.mark.parametrize(("errors", "worst"), [((5e-4, 1e-4), "a"), ((1e-4, 5e-4), "b")])
def test_the_largest_error_of_several_outputs_is_told_wherever_it_is(errors, worst) -> None:
    wanted = {n: np.ones(3, np.float32) for n in "ab"}
    found = {n: np.float32([1, 1 + e, 1]) for n, e in zip("ab", errors, strict=True)}
    assert f'largest relative error 5.0e-04 at "{worst}"' == _doctor._compare(wanted, found)
    for name, value in (("b", 2), ("a", np.nan)):
        with pytest.raises(_doctor.Failed, match="is allowed"):
            _doctor._compare(wanted, {**found, name: np.float32([1, value, 1])})
