"""The fuzzer itself: what it damages can still be read, most of it, and what it finds is told."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path

import onnx
import pytest

FUZZ = Path(__file__).parents[1] / "fuzz"
sys.path.insert(0, str(FUZZ))

import faults  # noqa: E402 - it lies beside the script that imports it

from rtlab.testing import tiny_model  # noqa: E402


@pytest.mark.slow
def test_half_of_the_inputs_are_read_and_none_is_raw() -> None:
    """Of each kind a dozen; ``tests/run fuzz`` does thousands."""
    command = [sys.executable, str(FUZZ / "run.py"), "--inputs", "108", "--seed", "5"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stdout[-2000:]


def test_a_damaged_model_differs_and_can_be_parsed() -> None:
    whole = tiny_model().bytes()
    made = [faults.of_model(random.Random(seed), whole, ()) for seed in range(60)]  # noqa: S311 - faults, no secrets
    assert all(onnx.load_model_from_string(data) is not None for data in made)
    assert len({*made} - {whole}) > 40
