"""Temporary folders: gone with their process, however it ends; never those of one that lives."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

import rtlab
from rtlab.backends.live.child import RUNNING, ChildProcess
from rtlab.core import temporary
from rtlab.core.progress import Silent
from rtlab.core.protocols import Limits
from rtlab.errors import RunError

ROOT = Path(rtlab.__file__).parents[1]


def leave(payload: object, report: object) -> str:
    """What a vendor does: a file in the folder for temporary files; then it dies, where that is asked."""
    number, path = tempfile.mkstemp(prefix="vendor-")
    os.close(number)
    if payload == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    return path


@pytest.mark.skipif(os.name != "posix", reason="signals of POSIX")
def test_what_a_killed_process_leaves_goes_with_the_next_and_of_a_living_one_nothing(tmp_path: Path) -> None:
    begin = "import os, subprocess, sys; from rtlab.core import temporary; path = temporary.make_folder(); "
    environment = {**os.environ, "TMPDIR": str(tmp_path), "PYTHONPATH": str(ROOT)}

    def python(code: str) -> tuple[int, int]:
        """How a process ends, and how many folders are there then."""
        done = subprocess.run([sys.executable, "-c", begin + code], env=environment, check=False)
        return done.returncode, len([*tmp_path.iterdir()])

    assert (-signal.SIGKILL, 1) == python("os.kill(os.getpid(), 9)")
    assert (-signal.SIGKILL, 1) == python("os.kill(os.getpid(), 9)")
    another = f"subprocess.run([sys.executable, '-c', {begin!r}], check=True); os.stat(path)"
    assert (0, 0) == python(another)
    assert (0, 0) == python("fork = os.fork(); path = fork and os.waitpid(fork, 0) and os.stat(path)")


@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix", reason="signals of POSIX")
@pytest.mark.parametrize("how", ["close", "die"])
def test_what_a_child_leaves_in_the_temporary_folder_goes_with_it(monkeypatch, tmp_path, how) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(temporary, "_process_folder", None)
    session = ChildProcess(Limits(), work=RUNNING)
    left = Path(session.call(leave, "live", progress=Silent(), error_prefix="Cannot leave"))
    assert left.is_file()
    assert temporary._get_process_folder() in left.parents
    if how == "die":
        with pytest.raises(RunError, match="crashed with SIGKILL"):
            session.call(leave, "die", progress=Silent(), error_prefix="Cannot leave")
    else:
        session.close()
    assert [] == list(tmp_path.rglob("vendor-*"))
    temporary._process_folder.remove()
