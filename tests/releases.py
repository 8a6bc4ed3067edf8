"""Releases of TensorRT-RTX that tests may build with: those that are kept here, and one that is quickly fetched."""

from __future__ import annotations

import functools
import os
import tempfile
from pathlib import Path

from rtlab.backends import compilers
from rtlab.errors import RtlabError

#: What is fetched where it is not here: 93 MB, some seconds.
QUICK = "1.6.1.120"


@functools.cache
def missing(version: str) -> str:
    """Why a release cannot be built with; empty where it is here. The quick one is installed for the process."""
    if not any(c.own for c in compilers.known()):
        return "TensorRT-RTX is not installed"
    if any(c.version == version for c in compilers.known()):
        return ""
    why = f"TensorRT-RTX {version} is not installed here; rtlab compilers add {version} brings it"
    if version != QUICK:
        return f"{why} (tests fetch {QUICK} alone by themselves)"
    # Beside those that are here, and gone with the process.
    room = _room()
    before, place = os.environ.get("RTLAB_COMPILERS"), compilers.folder()
    os.environ["RTLAB_COMPILERS"] = room.name
    try:
        compilers.add(version)
    except RtlabError as error:
        if before is None:
            del os.environ["RTLAB_COMPILERS"]
        else:
            os.environ["RTLAB_COMPILERS"] = before
        return f"{why}, which tests tried: {error}"
    for kept in place.glob("[0-9]*"):
        (compilers.folder() / kept.name).symlink_to(kept, target_is_directory=True)
    return ""


@functools.cache
def _room() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="rtlab-tests-")


def here() -> list[str]:
    missing(QUICK)
    return [c.version for c in compilers.known()]


def path() -> Path:
    return compilers.folder()
