"""The clock on the wall is put right while work goes on: no duration is taken from it."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import rtlab


@pytest.mark.slow
def test_nothing_of_rtlab_asks_the_clock_on_the_wall_for_a_duration() -> None:
    """``time.time`` tells when, and ``datetime.now`` stands beside what was built or measured, as its date."""
    home = Path(rtlab.__file__).parent
    clocks = {"time.time", "time.time_ns", "clock.time"}
    assert [] == [
        f"{path.relative_to(home)}:{node.lineno}"
        for path in home.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Attribute) and ast.unparse(node) in clocks
    ]
