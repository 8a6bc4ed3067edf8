"""The fuzzer itself: what it damages can still be read, most of it, and what it finds is told."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

FUZZ = Path(__file__).parents[1] / "fuzz"


@pytest.mark.slow
def test_half_of_the_inputs_are_read_and_none_is_raw() -> None:
    """Of each kind a dozen; ``tests/run fuzz`` does thousands."""
    command = [sys.executable, str(FUZZ / "run.py"), "--inputs", "108", "--seed", "5"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stdout[-2000:]
