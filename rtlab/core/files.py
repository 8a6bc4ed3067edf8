"""Writing a file so that whoever reads it sees the old one or the new one, never a part."""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import shutil
import stat
import time
from pathlib import Path
from typing import TYPE_CHECKING

from rtlab.core.inputs import SYSTEM
from rtlab.errors import RtlabError

if TYPE_CHECKING:
    from rtlab.core.model import Model


#: Seconds that a pipe may wait for its reader.
_WAIT = 5.0


def write_if_missing(path: Path, content: bytes) -> None:
    """Write a file unless there is one, also one that another process has just put there; raises ``OSError``."""
    if path.exists():
        return
    temporary_path = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        temporary_path.write_bytes(content)
        try:
            # Unlike a file that is moved, a second name is not given where there is one.
            path.hardlink_to(temporary_path)
        except FileExistsError:
            return
        except OSError:
            # Some systems of files have no second names.
            temporary_path.replace(path)
    finally:
        temporary_path.unlink(missing_ok=True)


def check_path(path: str | Path, what: str) -> Path:
    """The path of a file to write; raises ``RtlabError`` for what is no path, or names no file."""
    if isinstance(path, (str, Path)) and Path(path).name and "\0" not in str(path):
        return Path(path)
    reason = "it names no file" if isinstance(path, (str, Path)) else "it is no path"
    raise RtlabError(f'Cannot write {what} to "{path}": {reason}. Name a file in a folder that exists.')


def write(path: str | Path, content: bytes, *, what: str, model: Model | None = None) -> Path:
    """Write ``content``; a file at ``path`` is replaced at once, when the new one is complete.

    A symbolic link is followed; devices and pipes are written into.

    Args:
        path: The file.
        content: All of it.
        what: What is written, for the message of an error: "the report".
        model: Whose file must not be written to.

    Returns:
        The path.

    Raises:
        RtlabError: the file cannot be written there, or the model was read from it.
    """
    path = check_path(path, what)
    if model is not None and model.path is not None and path.resolve() == model.path.resolve():
        raise RtlabError(
            f'Cannot write {what} to "{path}": the model was read from this file. Choose another name.'
        )
    try:
        if is_stream(path):
            _write_into(path, content)
        else:
            _replace(path.resolve(), content)
    except OSError as error:
        if error.errno == errno.ENXIO:
            reason, remedy = "it is a pipe without a reader", "Start its reader, or name a file."
        else:
            reason = error.strerror or f"{error}"
            reason = reason if path.parent.is_dir() else f'there is no folder "{path.parent}"'
            remedy = "Name a file in a folder that exists and is yours to write to."
        raise RtlabError(f'Cannot write {what} to "{path}": {reason}. {remedy}') from error
    return path


def is_stream(path: Path) -> bool:
    """Whether a path is a device, a pipe or a file that a process has open: it is written into, and not replaced."""
    try:
        mode = path.stat().st_mode
    except OSError:
        return False
    opened = path.parent.resolve().parts[1:2] in SYSTEM
    return not stat.S_ISDIR(mode) and (opened or not stat.S_ISREG(mode))


def _write_into(path: Path, content: bytes) -> None:
    """Write into a device or a pipe; a pipe may get its reader within ``_WAIT`` seconds."""
    end = time.monotonic() + _WAIT
    # Without this flag, which Windows lacks, the system would wait for a reader for ever, and nobody could cancel.
    waiting = getattr(os, "O_NONBLOCK", 0)
    while True:
        try:
            file = os.open(path, os.O_WRONLY | waiting)
            break
        except OSError as error:
            if error.errno != errno.ENXIO or time.monotonic() > end:
                raise
            time.sleep(0.05)
    if waiting:
        os.set_blocking(file, True)
    with os.fdopen(file, "wb") as stream:
        stream.write(content)


def _replace(path: Path, content: bytes) -> None:
    """Write beside a file and put the new one in its place, with the permissions of the old one."""
    temporary_path = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        temporary_path.write_bytes(content)
        if path.exists():
            shutil.copymode(path, temporary_path)
        temporary_path.replace(path)
    finally:
        with contextlib.suppress(OSError):
            temporary_path.unlink()


def find_package_data(name: str) -> Path | None:
    """A folder that rtlab brings along, such as ``sample_models``; None where it is not installed."""
    package = Path(__file__).parents[1]
    return next((f for f in (package / "_share" / name, package.parent / name) if f.is_dir()), None)
