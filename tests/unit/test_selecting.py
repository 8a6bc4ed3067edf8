"""Some samples in place of all: what is told of them, and that all come back."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

import rtlab
from rtlab.core.data import CalibrationData
from rtlab.core.stage import Stage
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
    built.only(None)


def planned(*, task: bool = True) -> rtlab.Study:
    model = tiny_model()
    data = CalibrationData.random(model, samples=SAMPLES, seed=2)
    (name,) = model.inputs
    grown = data.arrays[name] * np.linspace(0.2, 3, SAMPLES, dtype=np.float32).reshape(
        -1, *[1] * (data.arrays[name].ndim - 1)
    )
    data = CalibrationData({name: grown}, source="grown")
    labels = np.arange(SAMPLES) % 4
    made = rtlab.Study(model, data=data, task=Task(data, labels) if task else None)
    for precision in ("fp32", "int8"):
        made.add(precision, precision=precision, backend="onnxruntime", target="cpu")
    return made


@pytest.mark.slow
def test_errors_and_score_are_of_the_chosen_samples(study) -> None:
    """As those of a study which has no others: its sums, its hits."""
    whole = study["int8"].facts
    study.only(FEW)
    few = study["int8"]
    (name,) = study.model.inputs
    part = CalibrationData({name: study.data.arrays[name][list(FEW)]})
    alone = rtlab.Study(study.model, data=study.data, task=Task(part, study.task.labels[list(FEW)]))
    alone.add("int8", precision="int8", backend="onnxruntime", target="cpu")
    other = alone.run(budget_s=60)["int8"]
    assert (3, 3) == (few.accuracy.samples, few.score.samples)
    assert other.score.value == few.score.value
    assert study.task.labels[list(FEW)].tolist() == study.snapshot().task.labels.tolist()
    # Nothing is compared of the reference itself, whatever is chosen.
    assert "none" == study["fp32"].stages[Stage.COMPARED].state
    for mine, theirs in zip(few.accuracy.values, other.accuracy.values, strict=True):
        assert theirs.rmse == pytest.approx(mine.rmse, rel=1e-6)
    assert any(
        a.rmse != b.rmse
        for a, b in zip(few.accuracy.values, rtlab.questions.accuracy.of(whole).values, strict=True)
    )
    assert "3 chosen samples of grown" in few.accuracy.source
    assert FEW == study.chosen == study.snapshot().chosen


def test_all_samples_come_back_as_they_were(study) -> None:
    """Nothing is measured anew of what was known, and times were never touched."""
    before = dict(study.facts)
    study.only(FEW).only([5]).only(None)
    for name, was in before.items():
        now = study.facts[name]
        assert was.errors is now.errors, name
        assert was.score is now.score, name
        assert was.profile is now.profile, name
        assert was.stages == now.stages, name
    assert () == study.chosen


def test_samples_that_were_picked_conclude_nothing(study) -> None:
    """They were chosen because they flipped: an interval of them is one of the choice."""
    study.only(FEW)
    found = study.ask("score", variant="int8", baseline="fp32").noun
    assert (None, None, None, "") == (found.interval, found.difference_interval, found.p, found.verdict)
    assert any("Only 3 chosen samples" in n for n in found.notes)
    assert {f.sample for f in found.flipped} <= {*FEW}, "by the numbers that they have among all"


def test_without_a_task_errors_are_of_the_chosen_samples() -> None:
    """Those of the study's data; other data ends the choice."""
    study = planned(task=False).run(budget_s=60)
    study.only([4, 9])
    assert 2 == study["int8"].accuracy.samples
    study.use(CalibrationData.random(study.model, samples=8))
    assert () == study.chosen
    assert SAMPLES == study["int8"].accuracy.samples


@pytest.mark.parametrize(
    ("samples", "words"),
    [
        ([], "none is named"),
        ([0, 24], "no sample 24 in grown"),
        ([-1, 3], "no sample -1"),
        ([1.5], '"1.5"'),
        ([True, False], '"True"'),
        (7, "not iterable"),
    ],
)
def test_what_is_no_choice_is_told_in_words(samples, words) -> None:
    """And loses nothing."""
    study = planned()
    with pytest.raises(CalibrationError, match=words):
        study.only(samples)
    assert () == study.chosen


def test_an_engine_that_was_built_again_has_no_errors_of_another(study) -> None:
    """Nobody knows whether it computes the same."""
    before = study.facts["int8"]
    study.only(FEW)
    study.run(["int8"], again=True, budget_s=60)
    study.only(None)
    now = study.facts["int8"]
    assert before.engine is not now.engine
    assert before.errors is not now.errors
    assert SAMPLES == now.score.samples


def test_measuring_goes_on_with_the_chosen_samples(study) -> None:
    """What was stopped is not gone on with on others."""
    study.only(FEW)
    study.measure("int8", budget_s=60)
    assert 3 == study["int8"].score.samples
