"""A limit of the address space (``ulimit -v``): a result, or words that name the limit; never a traceback."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="limits of Linux")

INSPECT = ["-m", "rtlab", "inspect", "digits_inception", "--precision", "int8", "--budget", "8"]
STUDY = """
import rtlab
sample = rtlab.samples.load("digits_inception")
study = rtlab.Study(sample.model, data=sample.calibration)
study.add("int8", target="sm86", backend="tensorrt-rtx")
try:
    study.run(budget_s=1)
except rtlab.errors.RtlabError as error:
    print("refused:", error)
else:
    print("result:", len(study["int8"].engine.layers), "layers")
"""
#: The process itself, ONNX Runtime and the compiler come to a limit one after the other; where, their versions say.
HOW = {"compiler": ["--target", "sm86"], "cpu": ["--backend", "onnxruntime"]}


def confined(gib: float, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Python, in a shell that grants so much address space."""
    return subprocess.run(
        ["sh", "-c", f'ulimit -v {int(gib * 2**20)}; exec "$@"', "sh", sys.executable, *arguments],
        capture_output=True, text=True, check=False, timeout=200, env={**os.environ, "OPENBLAS_NUM_THREADS": "2"},
    )  # fmt: skip


def words(gib: float) -> str:
    return f"a process may have no more than {int(gib * 2**20) / 2**20:.2f} GiB of address space here (ulimit -v)"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("how", "gib"),
    [("compiler", 0.3), ("compiler", 0.7), ("compiler", 1.3), ("compiler", 2.0), ("cpu", 0.7), ("cpu", 2.0)],
)
def test_the_command_line_gives_a_result_or_names_the_limit(how: str, gib: float) -> None:
    ran = confined(gib, *INSPECT, *HOW[how])
    said = f"{ran.stdout}{ran.stderr}"
    assert "Traceback" not in said, said
    if ran.returncode == 0:
        assert ran.stdout.startswith("digits_inception · int8·auto: 80 nodes → "), said
    else:
        assert 1 == ran.returncode, said
        assert words(gib) in ran.stderr, said
        assert "(ulimit -v unlimited)" in ran.stderr, said
    # Both happen.
    assert (gib < 1) <= (ran.returncode == 1), said


@pytest.mark.slow
@pytest.mark.parametrize("gib", [0.3, 1.3])
def test_a_study_gives_a_result_or_an_error_of_rtlab_that_names_the_limit(gib: float) -> None:
    ran = confined(gib, "-c", STUDY)
    assert 0 == ran.returncode, ran.stderr
    refused, _, why = ran.stdout.partition("refused: ")
    assert words(gib) in why if why else "result: " in refused, ran.stdout
