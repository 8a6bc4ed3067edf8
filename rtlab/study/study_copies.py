"""Copies of studies for workers that do not see the folder of a sweep's store.

A copy goes into the memory of a Dask cluster, which brings it to each worker once, and there into a folder for
temporary files, where all workers of a machine and later sweeps find it.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
import tempfile
from concurrent.futures import Executor
from pathlib import Path
from typing import Any

from rtlab.core.files import write
from rtlab.errors import ReadError, RtlabError
from rtlab.study import store
from rtlab.study.clusters import get_client

#: Bytes of copies on one machine; the oldest are removed beyond.
_MOST_BYTES = 8 << 30


def find_copy(study: str) -> Path | None:
    """The copy of a study on this machine; None where there is none. One that is damaged is removed."""
    for path in sorted(_make_folder().glob(f"{study}.*.rtlab")):
        with contextlib.suppress(OSError):
            with path.open("rb") as file:
                digest = hashlib.sha256(file.read()).hexdigest()
            if path.name == _name_copy(study, digest):
                # What is used last is removed last.
                os.utime(path)
                return path
            path.unlink()
    return None


def write_copy(study: str, content: bytes) -> Path:
    """Write a copy of a study on this machine; raises ``RtlabError`` where that is not possible."""
    folder = _make_folder()
    path = folder / _name_copy(study, hashlib.sha256(content).hexdigest())
    write(path, content, what="a copy of the study")
    others: list[tuple[float, int, Path]] = []
    for other in folder.glob("*.rtlab"):
        # Another worker may remove it at the same time.
        with contextlib.suppress(OSError):
            status = other.stat()
            others.append((status.st_mtime, status.st_size, other))
    room = _MOST_BYTES
    for _, size, other in sorted(others, reverse=True):
        room -= size
        if room < 0 and other != path:
            other.unlink(missing_ok=True)
    return path


def _name_copy(study: str, digest: str) -> str:
    return f"{study}.{digest[:32]}.rtlab"


def _make_folder() -> Path:
    """The folder of this user's copies; raises ``RtlabError`` where it is another's."""
    owner = os.getuid() if hasattr(os, "getuid") else ""
    folder = Path(tempfile.gettempdir()) / f"rtlab-studies-{owner}"
    folder.mkdir(mode=0o700, exist_ok=True)
    status = folder.lstat()
    is_mine = owner == "" or (status.st_uid == owner and not status.st_mode & 0o022)
    if not stat.S_ISDIR(status.st_mode) or not is_mine:
        raise RtlabError(
            f'Cannot keep a copy of the study in "{folder}": others can write to it. Remove it, or set TMPDIR to a '
            "folder of yours."
        )
    return folder


class StudyCopies:
    """The copies that a sweep has in the memory of Dask clusters."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._futures: dict[tuple[int, str], Any] = {}

    def get(self, executor: Executor, study: str) -> Any:
        """What stands for a copy among the arguments of a task; None where no worker lacked the study so far."""
        return self._futures.get((id(get_client(executor)), study))

    def send(self, executor: Executor | None, study: str, host: str) -> None:
        """Send a study to the cluster of an executor, unless it is there.

        Raises:
            ReadError: the executor is of no Dask cluster, or the study's file cannot be read.
        """
        client = get_client(executor)
        if client is None:
            raise ReadError(
                f'Cannot run the sweep on {host}: there is no store "{self._folder}" there. Put the store into a '
                "folder that every worker sees under the same path, or take the executor of a Dask client, by which "
                "workers get copies."
            )
        if (id(client), study) in self._futures:
            return
        path = self._folder / store.STUDIES / f"{study}.rtlab"
        try:
            content = path.read_bytes()
        except OSError as error:
            raise ReadError(f'Cannot read "{path}": {error.strerror}. Run the sweep again.') from error
        self._futures[id(client), study] = client.scatter(content, hash=False)

    def drop(self, study: str) -> None:
        """Free the memory of a study's copies."""
        self._futures = {key: future for key, future in self._futures.items() if key[1] != study}
