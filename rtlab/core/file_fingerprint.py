"""What tells a file from another of its name."""

from __future__ import annotations

from pathlib import Path

#: A file's size in bytes, and when it was written, in nanoseconds.
FileFingerprint = tuple[int, int]


def fingerprint_file(path: Path) -> FileFingerprint | None:
    """What tells a file from another of its name; None where there is none."""
    try:
        stat_result = path.stat()
    except (OSError, ValueError):
        return None
    return stat_result.st_size, stat_result.st_mtime_ns
