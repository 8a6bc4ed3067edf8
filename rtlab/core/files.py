"""Atomic writing of files."""

from __future__ import annotations

import secrets
import shutil
import stat
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from rtlab.core.inputs import SYSTEM
from rtlab.errors import RtlabError

if TYPE_CHECKING:
    from rtlab.core.model import Model


def check_path(path: str | Path, what: str) -> Path:
    """The path of a file to write; raises ``RtlabError`` for what is no path, or names no file."""
    if isinstance(path, (str, Path)) and Path(path).name and "\0" not in str(path):
        return Path(path)
    reason = "it names no file" if isinstance(path, (str, Path)) else "it is no path"
    raise RtlabError(f'Cannot write {what} to "{path}": {reason}. Name a file in a folder that exists.')


def write(
    path: str | Path, content: bytes | Iterable[bytes], *, what: str, model: Model | None = None
) -> Path:
    """Write a file, replacing an old one when the new one is complete, and return its path.

    A symbolic link is followed; devices and pipes are written into.

    Args:
        path: The file.
        content: All of it, or its pieces in a row.
        what: Its name in an error: "the report".
        model: Whose files must not be written to.

    Raises:
        RtlabError: the file cannot be written there, or the model was read from it.
    """
    path = check_path(path, what)
    if model is not None and model.path is not None:
        sources = (model.path, *(model.path.parent / name for name in model.beside))
        if path.resolve() in {source.resolve() for source in sources}:
            raise RtlabError(
                f'Cannot write {what} to "{path}": the model was read from this file. Choose another name.'
            )
    pieces = (content,) if isinstance(content, bytes) else content
    try:
        if is_stream(path):
            with path.open("wb") as stream:
                stream.writelines(pieces)
        else:
            _replace(path.resolve(), pieces)
    except OSError as error:
        reason = error.strerror if path.parent.is_dir() else f'there is no folder "{path.parent}"'
        raise RtlabError(
            f'Cannot write {what} to "{path}": {reason}. Name a file in a folder that exists and is yours to write to.'
        ) from error
    return path


def is_stream(path: Path) -> bool:
    """Whether a path is a device, a pipe or an open file of a process: it is written into, and not replaced."""
    try:
        mode = path.stat().st_mode
    except OSError:
        return False
    opened = path.parent.resolve().parts[1:2] in SYSTEM
    return not stat.S_ISDIR(mode) and (opened or not stat.S_ISREG(mode))


def _replace(path: Path, pieces: Iterable[bytes]) -> None:
    """Write beside a file and put the new one in its place, with the permissions of the old one."""
    temporary_path = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        with temporary_path.open("xb") as file:
            file.writelines(pieces)
        if path.exists():
            shutil.copymode(path, temporary_path)
        temporary_path.replace(path)
    finally:
        temporary_path.unlink(missing_ok=True)


def find_package_data(name: str) -> Path | None:
    """A folder that rtlab brings along, such as ``sample_models``; None where it is not installed."""
    package = Path(__file__).parents[1]
    return next((f for f in (package / "_share" / name, package.parent / name) if f.is_dir()), None)
