"""Temporary folders: gone with their process, however it ends; never those of one that lives."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from rtlab.backends.live.child import RUNNING, ChildProcess
from rtlab.core import scratch
from rtlab.core.progress import Silent
from rtlab.core.protocols import Limits
from rtlab.errors import RunError

SCRIPT = """
import sys, threading, time
from rtlab.core import scratch

def wait():
    # Python hears a signal that comes just before a sleep only when that ends.
    for _ in range(600):
        time.sleep(0.1)

def work():
    with scratch.folder() as room:
        kept = scratch.kept()
        (kept / "weights").write_text("large")
        print(room, flush=True)
        wait()

how = sys.argv[1]
if how == "thread":
    scratch.kept()
    threading.Thread(target=work, daemon=True).start()
    wait()
elif how == "ends":
    scratch.kept(); scratch.folder(); print(scratch.kept(), flush=True)
elif how == "raises":
    with scratch.folder(): print(scratch.kept(), flush=True); raise SystemExit(3)
else:
    work()
"""


def started(folder: Path, how: str) -> tuple[subprocess.Popen[str], Path]:
    """A process, and the folder of its own in which its folders lie."""
    clean = {**os.environ, "TMPDIR": str(folder)}
    child = subprocess.Popen(
        [sys.executable, "-c", SCRIPT, how], env=clean, stdout=subprocess.PIPE, text=True
    )
    assert child.stdout is not None
    with child.stdout as said:
        return child, Path(said.readline().strip()).parent


@pytest.mark.parametrize("how", ["ends", "raises"])
def test_a_process_that_ends_leaves_nothing(tmp_path: Path, how: str) -> None:
    child, _ = started(tmp_path, how)
    child.wait(60)
    assert [] == list(tmp_path.iterdir())


@pytest.mark.skipif(os.name != "posix", reason="signals of POSIX")
@pytest.mark.parametrize("how", ["main", "thread"])
@pytest.mark.parametrize("sent", [signal.SIGTERM, signal.SIGINT])
def test_a_process_that_is_told_to_end_leaves_nothing_and_ends_by_that_signal(
    tmp_path: Path, how: str, sent
) -> None:
    child, own = started(tmp_path, how)
    assert any(p.name == "weights" for p in own.rglob("*"))
    child.send_signal(sent)
    assert -sent == child.wait(60)
    assert [] == list(tmp_path.iterdir())


@pytest.mark.skipif(os.name != "posix", reason="locks of POSIX")
@pytest.mark.parametrize("clock", [-86_400, 0, 86_400])
def test_what_a_killed_process_left_is_removed_by_the_next_and_nothing_of_one_that_lives(
    tmp_path: Path, clock: int
) -> None:
    """Whatever the clock says of when they were made: it may have been put right since, by a day."""
    dead, its = started(tmp_path, "main")
    living, other = started(tmp_path, "main")
    stranger = tmp_path / "rtlab-notes"
    stranger.mkdir()
    try:
        dead.kill()
        dead.wait(60)
        assert its.is_dir()
        now = time.time()
        for path in (its, other):
            os.utime(path / ".lock", (now + clock, now + clock))
        next_, _ = started(tmp_path, "ends")
        next_.wait(60)
        assert {other, stranger} == set(tmp_path.iterdir())
        assert any(p.name == "weights" for p in other.rglob("*"))
    finally:
        living.kill()
        living.wait(60)


@pytest.mark.skipif(os.name != "posix", reason="locks of POSIX")
def test_a_folder_that_is_taken_for_one_left_behind_is_made_once_more(tmp_path, monkeypatch) -> None:
    """Between the making of a lock and its taking, another process sweeps."""
    taken, swept = scratch._taken, []

    def late(lock):
        if not swept:
            swept.append(True)
            scratch._sweep(tmp_path)
        return taken(lock)

    monkeypatch.setattr(scratch.tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(scratch, "_made", None)
    monkeypatch.setattr(scratch, "_taken", late)
    room = scratch.kept()
    assert swept
    assert [room.parent] == list(tmp_path.iterdir())
    scratch._sweep(tmp_path)
    assert room.is_dir()


@pytest.mark.skipif(os.name != "posix", reason="signals of POSIX")
def test_who_listens_to_the_signal_already_goes_on_listening(monkeypatch) -> None:
    """As a server does that ends its work in order."""
    heard: list[int] = []
    before = signal.signal(signal.SIGTERM, lambda number, _: heard.append(number))
    try:
        monkeypatch.setattr(scratch, "_made", None)
        assert scratch.kept().is_dir()
        os.kill(os.getpid(), signal.SIGTERM)
        assert [signal.SIGTERM] == heard
    finally:
        signal.signal(signal.SIGTERM, before)


def leave(payload: object, report: object) -> str:
    """What a vendor does: a file in the folder for temporary files; then it dies, where that is asked."""
    number, path = tempfile.mkstemp(prefix="vendor-")
    os.close(number)
    if payload == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    return path


@pytest.mark.skipif(os.name != "posix", reason="signals of POSIX")
@pytest.mark.parametrize("how", ["close", "die"])
def test_what_a_child_leaves_in_the_temporary_folder_goes_with_it(
    monkeypatch, tmp_path: Path, how: str
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(scratch, "_made", None)
    session = ChildProcess(Limits(), work=RUNNING)
    left = Path(session.call(leave, "live", progress=Silent(), doing="Cannot leave"))
    assert left.is_file()
    assert scratch._own() in left.parents
    if how == "die":
        with pytest.raises(RunError, match="crashed with SIGKILL"):
            session.call(leave, "die", progress=Silent(), doing="Cannot leave")
    else:
        session.close()
    assert [] == list(tmp_path.rglob("vendor-*"))
    scratch._made.remove()
