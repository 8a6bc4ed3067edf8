"""What every experiment has: a budget that counts, a cancel that loses nothing, a tool that is handed in."""

from __future__ import annotations

import contextlib
import dataclasses
import time
from collections.abc import Iterator
from typing import ClassVar

import pytest

import rtlab
from rtlab import CalibrationData
from rtlab.backends.reference import get_evaluator
from rtlab.core.budget import Budget, WorkContext
from rtlab.core.progress import Silent
from rtlab.core.variant import Calibrator
from rtlab.errors import Cancelled
from rtlab.experiments.experiment import run_experiment
from rtlab.experiments.ranking import CalibratorRanking
from rtlab.experiments.sweep import BatchSweep
from rtlab.testing import ReferenceBackend, tiny_model


@dataclasses.dataclass(frozen=True)
class Squares:
    """Squares of numbers, a build and two runs each; what it is handed may stop it in the middle of a step."""

    numbers: tuple[int, ...]
    partial: ClassVar[bool] = False

    def steps(self, rig: WorkContext[list[int]]) -> Iterator[tuple[int, ...]]:
        found: list[int] = []
        for number in rig.iterate(self.numbers, "squaring"):
            rig.tool.append(number)
            rig.count(builds=1)
            if rig.stopped():
                raise Cancelled("Stopped within a step.")
            found.append(number**2)
            rig.count(runs=2)
            yield tuple(found)


class Partial(Squares):
    partial = True


@pytest.mark.parametrize(
    ("allowance", "tried"),
    [
        ({}, 5),
        ({"builds": 2}, 2),
        ({"runs": 3}, 2),
        ({"runs": 1}, 1),
        ({"builds": 0}, 1),
        ({"seconds": 0}, 1),
        ({"seconds": 1000, "builds": 9, "runs": 6}, 3),
    ],
    ids=str,
)
def test_an_experiment_ends_when_what_it_may_take_is_used_up_but_not_before_it_found_something(
    allowance, tried
) -> None:
    """By hand: each number takes a build and two runs."""
    tool: list[int] = []
    rig = WorkContext(tool, budget=Budget(**allowance))
    assert tuple(n**2 for n in range(tried)) == run_experiment(Squares(tuple(range(5))), rig)
    assert list(range(tried)) == tool
    assert (tried, 2 * tried) == (rig.builds, rig.runs)


def test_the_seconds_count_from_when_the_rig_is_made(monkeypatch) -> None:
    clock = [100.0]
    monkeypatch.setattr("rtlab.core.budget.time.monotonic", lambda: clock[0])
    rig = WorkContext([], budget=Budget(seconds=10))
    seen: list[tuple[int, ...]] = []

    def keep(found: tuple[int, ...]) -> None:
        seen.append(found)
        clock[0] += 4

    assert (0, 1, 4) == run_experiment(Squares(tuple(range(9))), rig, keep)
    assert [(0,), (0, 1), (0, 1, 4)] == seen


@pytest.mark.parametrize("kind", [Squares, Partial])
def test_a_cancel_keeps_what_was_found_and_says_so_unless_a_part_is_an_answer(kind) -> None:
    progress, kept = Silent(), []

    def keep(found) -> None:
        kept.append(found)
        if len(found) == 2:
            progress.cancel()

    cancelled = contextlib.nullcontext() if kind.partial else pytest.raises(Cancelled, match="squaring")
    with cancelled:
        assert (0, 1) == run_experiment(kind((0, 1, 2, 3)), WorkContext([], progress), keep)
    assert [(0,), (0, 1)] == kept
    with pytest.raises(Cancelled):
        run_experiment(kind((0, 1)), WorkContext([], progress))


@pytest.mark.parametrize(("allowed", "batches"), [({}, [1, 2, 4]), ({"runs": 4}, [1, 2])])
def test_a_sweep_runs_on_what_it_is_handed_and_keeps_to_its_runs(allowed, batches) -> None:
    model, runner = tiny_model(), ReferenceBackend()
    study = rtlab.Study(model, data=CalibrationData.random(model, samples=4))
    study.add("plain", precision="fp32", backend=runner)
    facts = study.run(budget_s=0.1)["plain"].facts
    facts = dataclasses.replace(facts, measured=facts.engine)
    rig = WorkContext(runner, budget=Budget(**allowed))
    sweep = dataclasses.replace(BatchSweep.of(facts, study.data, (4, 1, 2), None), runs=2)
    assert batches == [row.batch for row in run_experiment(sweep, rig).rows]
    assert 2 * len(batches) == rig.runs


@pytest.mark.parametrize(("allowed", "tried"), [({}, 3), ({"builds": 3}, 2), ({"builds": 1}, 1)])
def test_a_ranking_keeps_to_its_builds_and_gives_those_that_were_tried(allowed, tried) -> None:
    model = tiny_model()
    data = CalibrationData.random(model, samples=8)
    ranges = rtlab.Study(model, data=data).calibration.observe().ranges
    wanted = [Calibrator.of(c) for c in ("minmax", "percentile(90)", "mse")]
    rig = WorkContext(get_evaluator(), budget=Budget(**allowed))
    found = run_experiment(CalibratorRanking(model, ranges, data, calibrators=wanted), rig)
    assert set(wanted[:tried]) == {r.calibrator for r in found}
    assert sorted((r.sqnr for r in found), reverse=True) == [r.sqnr for r in found]
    assert tried + 1 == rig.builds


def test_a_run_that_ends_since_the_budget_is_over_leaves_what_was_found_as_the_answer() -> None:

    class Slow(Squares):
        def steps(self, rig: WorkContext[list[int]]) -> Iterator[tuple[int, ...]]:
            yield (0,)
            while not rig.stopped():
                time.sleep(0.001)
            raise Cancelled("Stopped within a run.")

    assert (0,) == run_experiment(Slow(()), WorkContext([], budget=Budget(seconds=0.01)))
