"""Reading of users' files."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

#: Bytes that a file may unpack to, and the ratio up to which more is allowed: what is not packed has no limit.
_MOST_UNPACKED, _PACKED = 1 << 30, 2
#: Folders of virtual files.
SYSTEM = {("dev",), ("proc",), ("sys",)}


#: A file's size in bytes, and its time of change in nanoseconds.
FileFingerprint = tuple[int, int]


class NoFileError(OSError):
    """A path is that of no regular file; its text is the reason alone."""

    def __str__(self) -> str:
        return self.strerror or ""


def open_input(path: str | Path) -> BinaryIO:
    """Open a user's file for reading.

    Raises:
        OSError: it cannot be opened, or (NoFileError) is no regular file: a pipe or a device may block for ever.
    """
    path = Path(path)
    if not stat.S_ISREG(path.stat().st_mode) or path.resolve().parts[1:2] in SYSTEM:
        what = "a folder" if path.is_dir() else "a device, a pipe or a file of the system's own"
        raise NoFileError(errno.EINVAL, f"it is {what}, and no file", str(path))
    return path.open("rb")


def read_input(path: str | Path) -> bytes:
    """All bytes of a user's file; errors are those of ``open_input``."""
    with open_input(path) as file:
        return file.read()


@contextlib.contextmanager
def open_arrays(path: str | Path) -> Iterator[Any]:
    """The arrays of an ``.npz`` or the one of an ``.npy``, as ``numpy.load`` gives them; pickles are refused.

    Raises:
        OSError: as of ``open_input``.
        ValueError: it holds no arrays, or a small file would unpack to more than ``_MOST_UNPACKED`` bytes.
    """
    import numpy as np

    with open_input(path) as file:
        arrays = np.load(file, allow_pickle=False)
        if not isinstance(arrays, np.lib.npyio.NpzFile):
            yield arrays
            return
        with arrays:
            size = sum(member.file_size for member in arrays.zip.infolist()) if arrays.zip else 0
            if size > max(_MOST_UNPACKED, _PACKED * os.fstat(file.fileno()).st_size):
                raise ValueError(
                    f"it unpacks to {size / 2**30:.3g} GiB, and {_MOST_UNPACKED / 2**30:.3g} GiB is the limit of a "
                    "file that is packed so tightly; numpy.savez writes one that is not packed"
                )
            yield arrays


def fingerprint_file(path: Path) -> FileFingerprint | None:
    """The fingerprint of a file; None where there is none."""
    try:
        stat_result = path.stat()
    except (OSError, ValueError):
        return None
    return stat_result.st_size, stat_result.st_mtime_ns
