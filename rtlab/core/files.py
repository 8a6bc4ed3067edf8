"""Writing a file so that whoever reads it sees the old one or the new one, never a part."""

from __future__ import annotations

import contextlib
import secrets
from pathlib import Path
from typing import TYPE_CHECKING

from rtlab.errors import RtlabError

if TYPE_CHECKING:
    from rtlab.core.model import Model


def named(path: str | Path, what: str) -> Path:
    """The path of a file to write.

    Raises:
        RtlabError: it is no path, or names no file.
    """
    if isinstance(path, (str, Path)) and Path(path).name and "\0" not in str(path):
        return Path(path)
    found = "it names no file" if isinstance(path, (str, Path)) else "it is no path"
    raise RtlabError(f'Cannot write {what} to "{path}": {found}. Name a file in a folder that exists.')


def write(path: str | Path, content: bytes, *, what: str, model: Model | None = None) -> Path:
    """Write ``content``; a file at ``path`` is replaced at once, when the new one is complete.

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
    path = named(path, what)
    if model is not None and model.path is not None and path.resolve() == model.path.resolve():
        raise RtlabError(
            f'Cannot write {what} to "{path}": the model was read from this file. Choose another name.'
        )
    beside = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        beside.write_bytes(content)
        beside.replace(path)
    except OSError as error:
        found = error.strerror if path.parent.is_dir() else f'there is no folder "{path.parent}"'
        raise RtlabError(
            f'Cannot write {what} to "{path}": {found}. Name a file in a folder that exists and is yours to '
            "write to."
        ) from error
    finally:
        with contextlib.suppress(OSError):
            beside.unlink()
    return path
