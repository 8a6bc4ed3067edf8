"""The processor of this machine."""

from __future__ import annotations

import os
from pathlib import Path


def count_cores() -> int:
    """How many cores it has, as far as the operating system tells them from threads."""
    import psutil

    return int(psutil.cpu_count(logical=False) or os.cpu_count() or 1)


def get_name() -> str:
    """Its name, as the operating system tells it."""
    import platform

    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
