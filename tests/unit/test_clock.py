"""The clock on the wall is put right, by a second or by a day, while work goes on: no duration is taken from it."""

from __future__ import annotations

import ast
import itertools
import time
from pathlib import Path

import pytest

import rtlab
from rtlab import CalibrationData, Study
from rtlab.core.progress import Silent
from rtlab.core.stage import Budget
from rtlab.testing import tiny_model

DAY = 86_400.0


@pytest.fixture(params=[-DAY, DAY], ids=["back", "forward"])
def jumping(request, monkeypatch):
    """The clock goes a day back, or forward, whenever somebody looks at it."""
    turns, real = itertools.count(1), time.time
    monkeypatch.setattr(time, "time", lambda: real() + request.param * next(turns))
    monkeypatch.setattr(time, "time_ns", lambda: int(1e9 * (real() + request.param * next(turns))))


@pytest.mark.usefixtures("jumping")
def test_a_study_measures_all_it_has_time_for_whatever_the_clock_says() -> None:
    model = tiny_model()
    study = Study(model, data=CalibrationData.random(model, samples=8))
    study.add("fp32", target="cpu", backend="onnxruntime")
    study.add("int8", target="cpu", backend="onnxruntime")
    study.run(budget_s=60)
    assert ["done", "done", "done", "none"] == [s.state for s in study["int8"].stages.values()]
    assert 0 < study["int8"].engine.seconds < 600
    assert 0 < study["int8"].timing.total < 60_000
    assert study.tune(budget_s=0.5).layers


@pytest.mark.usefixtures("jumping")
def test_a_budget_is_used_by_the_time_that_passes() -> None:
    budget = Budget(5.0)
    with budget.share(Silent(), 1.0) as within:
        time.sleep(0.01)
        assert 4.0 < within.left < 5.0
        assert not within.stopped()
    assert 4.0 < budget.left < 5.0


@pytest.mark.usefixtures("jumping")
def test_the_page_is_told_how_long_work_has_taken_and_not_when_it_began() -> None:
    """What it showed was its own clock less the kernel's: minutes below zero on a laptop whose clock is late."""
    model = tiny_model()
    explorer = Study(model, data=CalibrationData.random(model, samples=8)).explore()
    told: list[dict] = []
    explorer.observe(lambda change: told.append(change["new"]), "build")
    explorer.run(precision="fp32", target="cpu").wait(120)
    times = [t["elapsed"] for t in told if t["running"]]
    assert times == sorted(times)
    assert 0 <= times[0] <= times[-1] < 600


def test_nothing_of_rtlab_asks_the_clock_on_the_wall_for_a_duration() -> None:
    """``time.time`` tells when, and ``datetime.now`` stands beside what was built or measured, as its date."""
    home = Path(rtlab.__file__).parent
    asked = [
        f"{path.relative_to(home)}:{node.lineno}"
        for path in home.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and (node.value.id, node.attr) in {("time", "time"), ("time", "time_ns"), ("clock", "time")}
    ]
    assert [] == asked
