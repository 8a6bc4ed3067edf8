"""Outputs: what is replaced, what is written into, and what stays."""

from __future__ import annotations

import os
import signal
import stat
import threading
import zipfile
from pathlib import Path

import numpy as np
import pytest

import rtlab
from rtlab.cli import opening
from rtlab.core import files, inputs
from rtlab.errors import CalibrationError, RtlabError
from rtlab.quantize.cache import CalibrationCache
from rtlab.study import accuracy as checking
from rtlab.testing import tiny_model


def test_a_file_is_replaced_and_keeps_its_permissions(tmp_path) -> None:
    path = tmp_path / "report.html"
    path.write_bytes(b"old")
    path.chmod(0o600)
    assert files.write(path, b"new", what="it") == path
    assert (path.read_bytes(), stat.S_IMODE(path.stat().st_mode)) == (b"new", 0o600)
    assert [path] == [*tmp_path.iterdir()]


@pytest.mark.parametrize("exists", [True, False])
def test_a_symbolic_link_is_followed_and_stays(tmp_path, exists) -> None:
    target, link = tmp_path / "target", tmp_path / "link"
    if exists:
        target.write_bytes(b"old")
    link.symlink_to(target)
    files.write(link, b"new", what="it")
    assert link.is_symlink()
    assert target.read_bytes() == b"new"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="the system has no such device")
def test_devices_are_written_into() -> None:
    kind = Path("/dev/null").stat().st_mode
    files.write("/dev/null", b"gone", what="it")
    assert Path("/dev/null").stat().st_mode == kind
    with pytest.raises(RtlabError, match=r'"/dev/full": No space left'):
        files.write("/dev/full", b"no room", what="it")
    assert stat.S_ISCHR(Path("/dev/full").stat().st_mode)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="the system has no named pipes")
def test_a_pipe_is_written_into(tmp_path) -> None:
    pipe, read = tmp_path / "pipe", []
    os.mkfifo(pipe)
    reader = threading.Thread(target=lambda: read.append(pipe.read_bytes()))
    reader.start()
    content = bytes(200_000)  # more than a pipe holds at once
    files.write(pipe, content, what="it")
    reader.join()
    assert read == [content]
    assert stat.S_ISFIFO(pipe.stat().st_mode)


def test_a_file_that_a_process_has_open_is_written_into(tmp_path) -> None:
    path = tmp_path / "out"
    with path.open("wb") as out:
        files.write(f"/dev/fd/{out.fileno()}", b"first ", what="it")
    assert path.read_bytes() == b"first "


@pytest.mark.parametrize("path", ["missing/report.html", ".", "", "a\0b"])
def test_what_is_no_place_for_a_file_is_refused(tmp_path, monkeypatch, path) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(RtlabError, match="Cannot write it"):
        files.write(path, b"", what="it")
    assert [] == [*tmp_path.iterdir()]


#: Every way in which a path of a file enters.
DOORS = {
    "model": rtlab.load,
    "read": rtlab.read,
    "layers": lambda path: rtlab.read(layers=path),
    "log": lambda path: rtlab.read(log=path),
    "archive": lambda path: rtlab.read(archive=path),
    "data": lambda path: rtlab.Study(tiny_model(), data=path),
    "npz": rtlab.CalibrationData.read,
    "cache": CalibrationCache.read,
    "labels": opening.labels,
    "check": checking.read_check_record,
}


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="the system has no named pipes")
@pytest.mark.parametrize("suffix", [".npy", ""])
@pytest.mark.parametrize("door", DOORS)
def test_pipes_devices_and_files_of_the_system_are_refused_at_once(tmp_path, door, suffix) -> None:
    pipe, link = tmp_path / f"pipe{suffix}", tmp_path / f"link{suffix}"
    os.mkfifo(pipe)
    link.symlink_to("/proc/self/mem")
    signal.alarm(20)  # a read that never ends would hang the run
    try:
        for path in (pipe, Path("/dev/zero"), link):
            with pytest.raises(RtlabError, match=r"it is a device, a pipe or a file of the system"):
                DOORS[door](path)
    finally:
        signal.alarm(0)


def test_a_small_file_that_unpacks_to_gigabytes_is_refused_before_it_is_read(tmp_path, monkeypatch) -> None:
    bomb = tmp_path / "bomb.npz"
    np.savez_compressed(bomb, x=np.zeros(1 << 20, np.float32))
    monkeypatch.setattr(inputs, "_MOST_UNPACKED", 1 << 20)
    with pytest.raises(CalibrationError, match=r"unpacks to 0\.0039\d* GiB"):
        rtlab.CalibrationData.read(bomb)
    # What is not packed has no limit, and what is below it none either.
    np.savez(bomb, x=np.zeros(1 << 20, np.float32))
    assert rtlab.CalibrationData.read(bomb).arrays["x"].shape == (1 << 20,)
    np.savez_compressed(bomb, x=np.zeros(1 << 17, np.float32))
    assert zipfile.ZipFile(bomb).infolist()[0].file_size < 1 << 20
    assert rtlab.CalibrationData.read(bomb).arrays["x"].shape == (1 << 17,)
