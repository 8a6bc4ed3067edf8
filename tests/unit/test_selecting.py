"""Some samples in place of all: what is told of them, and that all come back."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

import rtlab
from rtlab.core.data import CalibrationData
from rtlab.core.task import Task
from rtlab.errors import CalibrationError
from rtlab.testing import tiny_model

SAMPLES = 24
FEW = (2, 3, 17)


@pytest.fixture(scope="module")
def built() -> rtlab.Study:
    """A variant beside fp32, compared and scored on samples whose size tells them apart."""
    return planned().run(budget_s=60)


@pytest.fixture
def study(built: rtlab.Study) -> Iterator[rtlab.Study]:
    """The same for each test, whatever the one before chose."""
    yield built
    built.accuracy.use_samples(None)


def planned(*, task: bool = True) -> rtlab.Study:
    model = tiny_model()
    data = CalibrationData.random(model, samples=SAMPLES, seed=2)
    (name,) = model.inputs
    sizes = np.linspace(0.2, 3, SAMPLES, dtype=np.float32).reshape(-1, 1, 1, 1)
    data = CalibrationData({name: data.arrays[name] * sizes}, source="grown")
    labels = np.arange(SAMPLES) % 4
    made = rtlab.Study(model, data=data, task=Task(data, labels) if task else None)
    for precision in ("fp32", "int8"):
        made.add(precision, precision=precision, backend="onnxruntime", target="cpu")
    return made


@pytest.mark.slow
def test_errors_and_score_are_of_the_chosen_samples(study) -> None:
    whole = study["int8"]
    study.accuracy.use_samples(FEW)
    few = study["int8"]
    (name,) = study.model.inputs
    part = CalibrationData({name: study.data.arrays[name][list(FEW)]})
    alone = rtlab.Study(study.model, data=study.data, task=Task(part, study.task.labels[list(FEW)]))
    alone.add("int8", precision="int8", backend="onnxruntime", target="cpu")
    other = alone.run(budget_s=60)["int8"]
    assert (3, 3) == (few.accuracy.samples, few.score.samples)
    assert other.score.value == few.score.value
    assert study.task.labels[list(FEW)].tolist() == study.state.scored_task.labels.tolist()
    for mine, theirs in zip(few.accuracy.values, other.accuracy.values, strict=True):
        assert theirs.rmse == pytest.approx(mine.rmse, rel=1e-6)
    assert few.accuracy.values != whole.accuracy.values
    assert FEW == study.state.selected_samples


def test_all_samples_come_back_as_they_were(study) -> None:
    before = dict(study.state.results)
    for samples in (FEW, [5], None):
        study.accuracy.use_samples(samples)
    for name, was in before.items():
        now = study.state.results[name]
        assert all(getattr(was, k) is getattr(now, k) for k in ("errors", "score", "profile")), name
        assert was.stages == now.stages, name
    assert () == study.state.selected_samples


def test_samples_that_were_picked_conclude_nothing(study) -> None:
    study.accuracy.use_samples(FEW)
    found = study.ask("score", variant="int8", baseline="fp32").result
    assert (None, None, None, "") == (found.interval, found.difference_interval, found.p, found.verdict)
    assert {f.sample for f in found.flipped} <= {*FEW}, "by the numbers that they have among all"


def test_without_a_task_errors_are_of_the_chosen_samples() -> None:
    study = planned(task=False).run(budget_s=60)
    study.accuracy.use_samples([4, 9])
    assert 2 == study["int8"].accuracy.samples
    study.accuracy.use_samples(data=CalibrationData.random(study.model, samples=8))
    assert () == study.state.selected_samples
    assert SAMPLES == study["int8"].accuracy.samples


@pytest.mark.parametrize("samples", [[], [0, 24], [-1, 3], [1.5], [True, False], 7], ids=str)
def test_what_is_no_choice_is_refused(samples) -> None:
    study = planned()
    with pytest.raises(CalibrationError):
        study.accuracy.use_samples(samples)
    assert () == study.state.selected_samples


def test_an_engine_that_was_built_again_has_no_errors_of_another(study) -> None:
    before = study.state.results["int8"]
    study.accuracy.use_samples(FEW)
    study.run(["int8"], again=True, budget_s=60)
    study.accuracy.use_samples(None)
    now = study.state.results["int8"]
    assert before.engine is not now.engine
    assert before.errors is not now.errors
    assert SAMPLES == now.score.samples


def test_measuring_goes_on_with_the_chosen_samples(study) -> None:
    study.accuracy.use_samples(FEW)
    study.measure("int8", budget_s=60)
    assert 3 == study["int8"].score.samples
