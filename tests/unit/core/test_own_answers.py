"""A task without labels: the model's own answers in fp32 stand for them, and everything says so."""

from __future__ import annotations

import numpy as np
import pytest

import rtlab
from rtlab.core.data import CalibrationData
from rtlab.core.metrics import Metric, named
from rtlab.core.task import Task
from rtlab.testing import tiny_model


def data(samples: int = 12) -> CalibrationData:
    noise = CalibrationData.random(tiny_model(), samples=samples, seed=3)
    return CalibrationData(noise.arrays, source="own")


def study(task: Task) -> rtlab.Study:
    made = rtlab.Study(tiny_model(), data=data(), task=task)
    for precision in ("fp32", "int8"):
        made.add(precision, precision=precision, backend="onnxruntime", target="cpu")
    return made


@pytest.fixture(scope="module")
def scored() -> rtlab.Study:
    return study(Task(data())).run(budget_s=60)


def test_fp32_agrees_with_itself_and_others_as_often_as_their_largest_is_the_same(scored) -> None:
    """By hand from what both give."""
    answers = {}
    for name in ("fp32", "int8"):
        held = scored[name].facts.score.held.joined()
        answers[name] = next(iter(held.values())).argmax(axis=1)
    assert (answers["fp32"] == scored.task.labels).all()
    assert 100.0 == scored["fp32"].score.value
    assert 100 * (answers["int8"] == answers["fp32"]).mean() == scored["int8"].score.value
    assert "top-1 against fp32" == scored["int8"].score.name


@pytest.mark.parametrize(
    ("shape", "metric", "name"),
    [
        ((6, 5), None, "top-1 against fp32"), ((6, 1), None, "normalized squared error against fp32"),
        ((6,), None, "normalized squared error against fp32"),
        ((6, 2, 3), None, "normalized squared error against fp32"),
        ((6, 2, 3), "cosine", "cosine similarity against fp32"),
        ((6, 2, 3), "cer", "character error rate against fp32"), ((6, 5), "top-3", "top-3 against fp32"),
    ],
)  # fmt: skip
def test_answers_become_labels_of_the_metric(shape, metric, name) -> None:
    outputs = np.random.default_rng(0).normal(size=shape).astype(np.float32)
    task = Task(data(6), metric=metric).answered({"y": outputs})
    assert (name, True, False) == (task.name, task.reference, task.unanswered)
    perfect = 0.0 if not task.higher else 1.0 if metric == "cosine" else 100.0
    assert perfect == pytest.approx(task.score(outputs), abs=1e-9)


def test_a_function_and_a_metric_of_ones_own_get_the_answers_themselves() -> None:
    outputs = np.arange(12, dtype=np.float32).reshape(6, 2)

    def agreement(y, labels):
        return float((y == labels).mean())

    task = Task(data(6), metric=agreement).answered({"y": outputs})
    assert ("agreement against fp32", 1.0) == (task.name, task.score(outputs))
    own = Metric("nearness", lambda y, t: -np.abs(y - t).sum(axis=1))
    assert -2.0 == Task(data(6), metric=own).answered({"y": outputs}).score(outputs + 1)
    assert "mine" == Task(data(6), metric=own, name="mine").answered({"y": outputs}).name


def test_the_normalized_squared_error_is_the_share_of_energy() -> None:
    """(1 + 4) of (1 + 9 + 4) in two samples, by hand."""
    labels = np.array([[1.0, 3.0], [2.0, 0.0]])
    found = named("nmse").tally(labels + np.array([[1.0, 0.0], [0.0, 2.0]]), labels)
    assert 100 * 5 / 14 == pytest.approx(found.value)
    assert [1, 4] == [pytest.approx(v / 100) for v in found.amounts]
    assert not named("nmse").higher


@pytest.mark.slow
def test_a_repair_needs_no_labels() -> None:
    made = study(Task(data(24), metric="nmse")).run(budget_s=60)
    found = made.repair("int8", max_drop=100.0)
    assert ("normalized squared error against fp32", "%") == (found.metric, found.unit)
    # Its graph is optimized more than that of what gave the answers.
    assert found.baseline == pytest.approx(0, abs=1e-6)
    assert 0 < found.before < 100
