"""What tells a file from another of its name."""

from __future__ import annotations

from pathlib import Path

#: A file's size in bytes, and when it was written, in nanoseconds.
Stamp = tuple[int, int]


def stamp(path: Path) -> Stamp | None:
    """What tells a file from another of its name; None where there is none."""
    try:
        found = path.stat()
    except (OSError, ValueError):
        return None
    return found.st_size, found.st_mtime_ns
