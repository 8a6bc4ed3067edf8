"""Built-in metrics by hand, what bad input is told, and answers in fp32 that stand for labels."""

import math

import numpy as np
import pytest

import rtlab
from rtlab.core.data import CalibrationData
from rtlab.core.facts import Score
from rtlab.core.metrics import find_metric
from rtlab.core.task import Predictions, Task
from rtlab.errors import CalibrationError
from rtlab.testing import tiny_model


def test_top_k_counts_the_label_among_the_largest():
    """The ranks of the labels are 1, 2, 3 and, of equal ones, 2."""
    outputs = np.array([[9, 1, 0], [5, 4, 0], [5, 4, 0], [7, 7, 0]], np.float32)
    labels = np.array([0, 1, 2, 1])
    assert [25.0, 75.0, 100.0] == [score(f"top-{k}", outputs, labels) for k in (1, 2, 3)]


def test_a_nan_is_no_hit():
    outputs = np.array([[np.nan, np.nan], [1, np.nan], [3, 1]], np.float32)
    found = task("top-1", np.zeros(3, int)).tally(outputs)
    assert [0, 0, 1] == found.amounts.tolist()
    assert 2 == found.broken


def test_psnr_by_hand():
    """An error of a tenth: 20 dB; of one step of 255: 48.13 dB; the errors are averaged, and not the decibels."""
    labels = np.full((4, 8), 0.5)
    assert 20.0 == pytest.approx(score("psnr", labels + 0.1, labels))
    assert 48.13 == pytest.approx(
        score("psnr", np.full((4, 8), 101.0), np.full((4, 8), 100, np.uint8)), abs=0.01
    )
    mixed = labels + np.array([0.1, 0.1, 0.3, 0.3])[:, None]
    assert -10 * math.log10(0.05) == pytest.approx(score("psnr", mixed, labels))


def test_squared_error_and_cosine_by_hand():
    """(3, 4) and (4, 3): errors of 1 and 1, a cosine of 24 / 25."""
    outputs, labels = np.array([[3.0, 4.0]] * 2), np.array([[4.0, 3.0]] * 2)
    assert 1.0 == score("mse", outputs, labels)
    assert 24 / 25 == pytest.approx(score("cosine", outputs, labels))
    assert 0.0 == score("cosine", np.zeros((2, 2)), labels), "an output of zeros points nowhere"


def test_perplexity_by_hand():
    """Two tokens of probability 1/2 and 1/8: the root of 16; logits or their softmax, and -100 does not count."""
    chances = np.array([[[0.5, 0.25, 0.25], [0.125, 0.125, 0.75], [1.0, 0.0, 0.0]]])
    labels = np.array([[0, 1, -100]])
    assert 4.0 == pytest.approx(score("perplexity", chances, labels))
    with np.errstate(divide="ignore"):
        assert 4.0 == pytest.approx(score("perplexity", np.log(chances[:, :2]) + 7, labels[:, :2]))
    assert 10.0 == pytest.approx(score("perplexity", np.zeros((3, 10)), np.array([1, 2, 3])))


def test_perplexity_counts_tokens_and_not_samples():
    """Three tokens of 1/8 in one sample and one of 1/2 in the other: 2 to the power of 10 / 4."""
    chances = np.full((2, 3, 8), 1 / 8)
    chances[1, 0] = [0.5, *[0.5 / 7] * 7]
    assert 2**2.5 == pytest.approx(score("perplexity", chances, np.array([[1, 2, 3], [0, -1, -1]])))


def test_a_metric_of_ones_own_has_values():
    own = rtlab.Metric("overlap", each=lambda y, t: (y > 0).mean(axis=1) * t, unit="IoU")
    given = Task(DATA, np.ones(4), metric=own)
    outputs = np.array([[1, -1], [1, 1], [-1, -1], [1, 1]], np.float32)
    assert (0.625, "overlap", "IoU", True) == (given.score(outputs), given.name, given.unit, given.higher)
    held = Predictions()
    held.add({"y": outputs}, 4)
    found = Score.of(given, held, "here")
    assert found.interval.low < 0.625 < found.interval.high


@pytest.mark.parametrize(
    ("metric", "outputs", "labels", "words"),
    [
        ("top-9000x", np.zeros((3, 4)), np.zeros(3), '"top-9000x"'),
        ("top-1", np.zeros((3, 4)), 7, "labels are one int"),
        ("top-1", np.zeros((3, 4)), np.array(["a", "b", "c"]), "labels are text"),
        ("top-1", np.zeros((3, 4)), np.array([0, 0.5, 1]), "label 0.5"),
        ("top-1", np.zeros((2, 4)), np.array([-1, 0]), "label -1 of sample 0"),
        ("mse", np.zeros((2, 1)), np.array([[1.0], [np.inf]]), "first in sample 1"),
        ("perplexity", np.zeros((2, 3, 4)), np.zeros((2, 3)), "token ids"),
        ("perplexity", np.zeros((1, 3, 4)), np.array([[0, 4, 1]]), "3 tokens up to id 4"),
        (lambda *_: math.nan, np.zeros((2, 1)), np.zeros(2), "returned nan"),
        (lambda *_: np.zeros(2), np.zeros((2, 1)), np.zeros(2), "shape 2"),
        (lambda *_: "good", np.zeros((2, 1)), np.zeros(2), "good"),
        (lambda *_: 1 / 0, np.zeros((2, 1)), np.zeros(2), "ZeroDivisionError"),
        (rtlab.Metric("own", lambda *_: 3.0), np.zeros((2, 1)), np.zeros(2), '"own"'),
        (rtlab.Metric("own", lambda *_: 1 / 0), np.zeros((2, 1)), np.zeros(2), "ZeroDivisionError"),
    ],
)  # fmt: skip
def test_bad_input_is_told_in_words(metric, outputs, labels, words):
    with pytest.raises(CalibrationError, match=words):
        Task(DATA, labels, metric=metric).score(outputs)


DATA = CalibrationData({"x": np.zeros((4, 1), np.float32)})


def task(metric, labels, **more):
    """A task whose data nobody reads."""
    return Task(DATA, labels, metric=metric, **more)


def score(metric, outputs, labels, **more):
    """What a metric says."""
    return task(metric, labels, **more).score(outputs)


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
        held = scored[name].facts.score.predictions.concatenate()
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
        ((6, 5), "top-3", "top-3 against fp32"),
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
    found = find_metric("nmse").tally(labels + np.array([[1.0, 0.0], [0.0, 2.0]]), labels)
    assert 100 * 5 / 14 == pytest.approx(found.value)
    assert [1, 4] == [pytest.approx(v / 100) for v in found.amounts]
    assert not find_metric("nmse").higher
