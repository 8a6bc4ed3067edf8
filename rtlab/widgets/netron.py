"""Netron's own server, on a free port of this machine, for as long as the process lives."""

from __future__ import annotations

import atexit
import contextlib
import logging
import re
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

_folder: tempfile.TemporaryDirectory[str] | None = None
_served: dict[tuple[str, str], tuple[str, int]] = {}


def serve(path: Path) -> str:
    """Serve a file that exists; returns the address of the page. The file is read only."""
    return _serve(str(path.absolute()), str(path.stat().st_mtime_ns))


def serve_bytes(data: bytes, name: str, digest: str) -> str:
    """Serve a model that is no file: it is written to a temporary folder that goes away with the process.

    Args:
        data: An ONNX file.
        name: What Netron shows; what is no file name in it is replaced.
        digest: Tells models of one name apart.
    """
    global _folder  # noqa: PLW0603 - one per process
    if _folder is None:
        _folder = tempfile.TemporaryDirectory(prefix="rtlab-netron-")
    folder = Path(_folder.name) / digest[:16]
    folder.mkdir(exist_ok=True)
    file = folder / f"{re.sub(r'[^A-Za-z0-9._ -]', '_', name).strip('. ')[:100] or 'model'}.onnx"
    file.write_bytes(data)
    return _serve(str(file), digest)


def _serve(file: str, digest: str) -> str:
    import netron

    key = file, digest
    if not _served:
        atexit.register(_close)
    if key not in _served:
        with _quiet():
            _served[key] = netron.start(file, address=("127.0.0.1", 0), browse=False)
        _separate(_served[key])
    host, port = _served[key]
    return f"http://{host}:{port}"


def _separate(address: tuple[str, int]) -> None:
    """Netron keeps what it serves in the class of its handlers, so a second server would change the first one's."""
    for thread in threading.enumerate():
        server: Any = getattr(thread, "server", None)
        if server is not None and getattr(thread, "address", None) == address:
            handler = server.RequestHandlerClass
            server.RequestHandlerClass = type(handler.__name__, (handler,), {"content": handler.content})


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Netron announces itself, and sets up the root logger for that where nobody did: both would reach the cell."""
    root, logger, nothing = logging.getLogger(), logging.getLogger("netron"), logging.NullHandler()
    before = logger.level
    root.addHandler(nothing)
    logger.setLevel(logging.WARNING)
    try:
        yield
    finally:
        logger.setLevel(before)
        root.removeHandler(nothing)


def _close() -> None:
    import netron

    with _quiet():
        for address in _served.values():
            with contextlib.suppress(Exception):
                netron.stop(address)
    _served.clear()
    if _folder is not None:
        _folder.cleanup()
