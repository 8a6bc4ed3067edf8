"""Engines that real GPUs wrote, in the folder that ``RTLAB_RECORDED`` names; tests of them lie in ``tests/recorded``."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from engines import (
    ENGINES as ENGINES,
    NAMES_ONLY as NAMES_ONLY,
    detailed as detailed,
    each as each,
    files as files,
    read as read,
)

FOLDER = Path(os.environ.get("RTLAB_RECORDED") or "/nowhere") / "engines"
REAL = sorted(FOLDER.iterdir()) if FOLDER.is_dir() else []
present = pytest.mark.skipif(not REAL, reason="RTLAB_RECORDED names no folder")
