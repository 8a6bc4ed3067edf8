"""Two processes on one folder: no file is torn, and neither loses what the other one wrote."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from rtlab.core import files
from rtlab.formulations.cache import read_timing_cache

PROCESSES, TIMES = 3, 20

START = f"""
import pathlib, sys, time
sys.path[:0] = {[p for p in sys.path if p]!r}
who, home = int(sys.argv[1]), pathlib.Path(sys.argv[2])
import rtlab
from rtlab.testing import tiny_model
def ready():
    (home / f"ready-{{who}}").touch()
    while not (home / "go").exists():
        time.sleep(0.001)
"""


def together(home: Path, program: str, watch=None) -> None:
    """Run a program in several processes at once, each with its number, while ``watch`` looks at what they write."""
    children = [
        subprocess.Popen([sys.executable, "-c", START + program, str(i), str(home)], stderr=subprocess.PIPE, text=True)
        for i in range(PROCESSES)
    ]  # fmt: skip
    while sum((home / f"ready-{i}").exists() for i in range(PROCESSES)) < PROCESSES:
        assert all(c.poll() is None for c in children), [c.stderr.read() for c in children if c.poll()]
    (home / "go").touch()
    while watch is not None and any(c.poll() is None for c in children):
        watch()
    said = [c.communicate(timeout=120)[1] for c in children]
    assert [0] * PROCESSES == [c.returncode for c in children], said


@pytest.mark.slow
def test_times_that_several_processes_measure_are_all_in_the_cache(tmp_path) -> None:
    """Each reads it, tunes for a minute and writes it: the last one would write what it had read before."""
    path = tmp_path / "times.json"
    together(
        tmp_path,
        f"""
import datetime
from rtlab.formulations.cache import read_timing_cache
from rtlab.formulations.trial import Trial
when = datetime.datetime(2026, 1, 2, tzinfo=datetime.timezone.utc)
trial = Trial("im2col", 2, 1.5, (1.25, 1.75), 10, 1e-6, 2e-5, ok=True, taken=when)
cache = read_timing_cache(home / "times.json", "cpu", "ORT 1")
ready()
for i in range({TIMES}):
    cache.store(f"{{who}}/{{i}}", trial)
    cache.save()
""",
        lambda: read_timing_cache(path, "cpu", "ORT 1"),
    )
    found = read_timing_cache(path, "cpu", "ORT 1").entries
    assert {f"{who}/{i}" for who in range(PROCESSES) for i in range(TIMES)} == set(found)
    assert [] == [
        p.name for p in tmp_path.iterdir() if p.name not in {"go", "times.json"} and "ready" not in p.name
    ]


def test_a_file_that_another_process_puts_there_first_stays(tmp_path, monkeypatch) -> None:
    path = tmp_path / "a.ipynb"
    path.write_text("my own")
    monkeypatch.setattr(Path, "exists", lambda _: False)
    files.write_if_missing(path, b"ours")
    assert b"my own" == path.read_bytes()
    assert [path] == list(tmp_path.iterdir())
