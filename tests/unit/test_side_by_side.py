"""Two processes on one folder: no file is torn, and neither loses what the other one wrote."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import rtlab
from rtlab.cli.notebooks import copy_notebooks
from rtlab.core import files
from rtlab.core.ranges import Ranges
from rtlab.errors import RtlabError
from rtlab.formulations.cache import timing_cache
from rtlab.testing import tiny_model

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


def test_times_that_several_processes_measure_are_all_in_the_cache(tmp_path) -> None:
    """Each reads it, tunes for a minute and writes it: the last one would write what it had read before."""
    path = tmp_path / "times.json"
    together(
        tmp_path,
        f"""
import datetime
from rtlab.formulations.cache import timing_cache
from rtlab.formulations.trial import Trial
when = datetime.datetime(2026, 1, 2, tzinfo=datetime.timezone.utc)
trial = Trial("im2col", 2, 1.5, (1.25, 1.75), 10, 1e-6, 2e-5, ok=True, taken=when)
cache = timing_cache(home / "times.json", "cpu", "ORT 1")
ready()
for i in range({TIMES}):
    cache.keep(f"{{who}}/{{i}}", trial)
    cache.save()
""",
        lambda: timing_cache(path, "cpu", "ORT 1"),
    )
    found = timing_cache(path, "cpu", "ORT 1").entries
    assert {f"{who}/{i}" for who in range(PROCESSES) for i in range(TIMES)} == set(found)
    assert [] == [
        p.name for p in tmp_path.iterdir() if p.name not in {"go", "times.json"} and "ready" not in p.name
    ]


def test_who_keeps_a_folder_to_himself_does_not_stop_a_cache_from_being_written(
    tmp_path, monkeypatch
) -> None:
    """A lock helps those who ask for it; a program that holds one for hours must not hold us."""
    fcntl = pytest.importorskip("fcntl")
    monkeypatch.setattr(files, "_WAIT", 0.05)
    other = os.open(tmp_path, os.O_RDONLY)
    try:
        fcntl.flock(other, fcntl.LOCK_EX)
        timing_cache(tmp_path / "t.json", "cpu", "ORT 1").save()
    finally:
        os.close(other)
    assert (tmp_path / "t.json").exists()


def test_what_is_written_to_one_path_is_of_one_writer(tmp_path) -> None:
    """A report, a prepared model, its scales, ranges: whoever reads them meanwhile reads a whole one."""
    out = tmp_path / "out"
    out.mkdir()

    def read() -> None:
        for name, whole in (
            ("report.html", lambda p: p.read_text().rstrip().endswith("</html>")),
            ("int8.onnx", lambda p: rtlab.load(p.read_bytes()).nodes),
            ("int8.onnx.scales.json", lambda p: json.loads(p.read_text())),
            ("ranges.npz", lambda p: Ranges.read(p).samples),
        ):
            if (out / name).exists():
                assert whole(out / name), name

    together(
        tmp_path,
        """
study = rtlab.Study(tiny_model(), data=rtlab.CalibrationData.random(tiny_model(), samples=8))
for name in ("fp32", "int8"):
    study.add(name, target="cpu", backend="onnxruntime")
study.run(budget_s=0)
ready()
for _ in range(5):
    study.to_html(home / "out" / "report.html")
    study.export("int8", home / "out" / "int8.onnx")
    study.ranges().save(home / "out" / "ranges.npz")
""",
        read,
    )
    read()
    assert {"report.html", "int8.onnx", "ranges.npz"} < {p.name for p in out.iterdir()}
    assert [] == [p.name for p in out.iterdir() if p.name.startswith(".")]


def test_temporary_folders_of_processes_that_start_together_are_their_own(tmp_path, monkeypatch) -> None:
    """Each removes what killed ones left behind; what another one is just making must not be among it."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    together(
        tmp_path,
        f"""
from rtlab.core import scratch
ready()
for i in range({TIMES}):
    scratch._made = None
    room = scratch.kept()
    (room / "weights").write_text(str(who))
    for _ in range(5):
        scratch._sweep(home)
        assert str(who) == (room / "weights").read_text()
""",
    )
    assert {"go", *(f"ready-{i}" for i in range(PROCESSES))} == {p.name for p in tmp_path.iterdir()}


def test_notebooks_that_two_copy_at_once_are_whole_and_a_users_own_stay(tmp_path) -> None:
    """Two people start rtlab lab in one folder; one of them saves what he wrote."""
    folder = tmp_path / "notebooks"
    for _ in range(5):
        threads = [threading.Thread(target=copy_notebooks, args=(folder,)) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        copied = sorted(folder.iterdir())
        assert copied
        for path in copied:
            json.loads(path.read_text())
            path.unlink()
    (first := copied[0]).write_text("my own")
    copy_notebooks(folder)
    assert "my own" == first.read_text()
    assert [] == [p.name for p in folder.iterdir() if p.name.startswith(".")]


def test_a_file_that_another_process_puts_there_first_stays(tmp_path, monkeypatch) -> None:
    """Between the look whether it is there and the writing."""
    path = tmp_path / "a.ipynb"
    path.write_text("my own")
    monkeypatch.setattr(Path, "exists", lambda _: False)
    files.added(path, b"ours")
    assert b"my own" == path.read_bytes()
    assert [path] == list(tmp_path.iterdir())


def test_ranges_that_cannot_be_written_are_words(tmp_path) -> None:
    study = rtlab.Study(tiny_model(), data=rtlab.CalibrationData.random(tiny_model(), samples=4))
    with pytest.raises(RtlabError, match=r'Cannot write the ranges to ".*": there is no folder'):
        study.ranges().save(tmp_path / "nowhere" / "ranges.npz")
