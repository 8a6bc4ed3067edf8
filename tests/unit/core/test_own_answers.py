"""A task without labels: the model's own answers in fp32 stand for them, and everything says so."""

from __future__ import annotations

import numpy as np
import pytest

import rtlab
from rtlab.core.data import CalibrationData
from rtlab.core.metrics import named
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


def test_the_normalized_squared_error_is_the_share_of_energy() -> None:
    """(1 + 4) of (1 + 9 + 4) in two samples, by hand."""
    labels = np.array([[1.0, 3.0], [2.0, 0.0]])
    found = named("nmse").tally(labels + np.array([[1.0, 0.0], [0.0, 2.0]]), labels)
    assert 100 * 5 / 14 == pytest.approx(found.value)
    assert [1, 4] == [pytest.approx(v / 100) for v in found.amounts]
    assert not named("nmse").higher
