"""What a child leaves in the folder for temporary files."""

from __future__ import annotations

import os
import signal
import tempfile
from pathlib import Path

import pytest

from rtlab.backends.workers.process import RUNNING, Bounds, ChildProcess
from rtlab.core.progress import Silent
from rtlab.core.protocols import Limits
from rtlab.errors import RunError


def leave(payload: object, report: object) -> str:
    """What a vendor does: a file in the folder for temporary files; then it dies, where that is asked."""
    number, path = tempfile.mkstemp(prefix="vendor-")
    os.close(number)
    if payload == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    return path


@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix", reason="signals of POSIX")
@pytest.mark.parametrize("how", ["close", "die"])
def test_what_a_child_leaves_in_the_temporary_folder_goes_with_it(monkeypatch, tmp_path, how) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    session, bounds = ChildProcess(1 << 26), Bounds("Cannot leave", RUNNING, Limits(), Silent())
    left = Path(session.call(leave, "live", bounds))
    assert left.is_file()
    if how == "die":
        with pytest.raises(RunError, match="crashed with SIGKILL"):
            session.call(leave, "die", bounds)
    else:
        session.close()
    assert [] == list(tmp_path.iterdir())
