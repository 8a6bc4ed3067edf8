"""The clock on the wall is put right, by a second or by a day, while work goes on: no duration is taken from it."""

from __future__ import annotations

import ast
import itertools
import time
from pathlib import Path

import pytest

import rtlab
from rtlab.core.progress import Silent
from rtlab.core.stage import Budget

DAY = 86_400.0


@pytest.fixture(params=[-DAY, DAY], ids=["back", "forward"])
def jumping(request, monkeypatch):
    """The clock goes a day back, or forward, whenever somebody looks at it."""
    turns, real = itertools.count(1), time.time
    monkeypatch.setattr(time, "time", lambda: real() + request.param * next(turns))
    monkeypatch.setattr(time, "time_ns", lambda: int(1e9 * (real() + request.param * next(turns))))


@pytest.mark.usefixtures("jumping")
def test_a_budget_is_used_by_the_time_that_passes() -> None:
    budget = Budget(5.0)
    with budget.share(Silent(), 1.0) as within:
        time.sleep(0.01)
        assert 4.0 < within.left < 5.0
        assert not within.stopped()
    assert 4.0 < budget.left < 5.0


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
