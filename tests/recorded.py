"""Engines that real GPUs wrote, of the folder that ``RTLAB_RECORDED`` names; their tests lie in ``tests/recorded``."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import engines
from rtlab.analyses.timing.times import Timing
from rtlab.core.engine import Engine

FOLDER = Path(os.environ.get("RTLAB_RECORDED") or "/nowhere") / "engines"
REAL = sorted(FOLDER.iterdir()) if FOLDER.is_dir() else []
NAMES_ONLY, files = engines.NAMES_ONLY, engines.files
present = pytest.mark.skipif(not REAL, reason="RTLAB_RECORDED names no folder")


def read(folder: Path | str) -> tuple[Engine, Timing | None]:
    return engines.read(FOLDER / folder)
