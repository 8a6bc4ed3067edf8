"""Errors of an output by the kinds of numbers that it holds, with arithmetic by hand."""

import math
import pickle

import numpy as np
import pytest
from onnx import helper

import rtlab
from nets import graph
from rtlab.analyses import accuracy
from rtlab.analyses.check import check_numbers, find_faults
from rtlab.core.data import CalibrationData
from rtlab.core.metrics import make_worst_slice_metric
from rtlab.core.slices import SliceSums, split_kinds
from rtlab.core.task import Task
from rtlab.errors import VariantError
from rtlab.experiments.sensitivity.loss import SampleLoss

RNG = np.random.default_rng(0)
#: Of 6 channels the first two are boxes, from 0 to 640.
SIZES = np.array([640, 640, 1, 1, 1, 1], np.float32)[None, :, None]


def detections(samples: int = 8) -> np.ndarray:
    return (RNG.random((samples, 6, 5)) * SIZES).astype(np.float32)


def sums(x: np.ndarray, y: np.ndarray, samples: int | None = None) -> SliceSums:
    made = SliceSums("out")
    made.add(x, y, len(x) if samples is None else samples)
    return made


def decibel(x: np.ndarray, y: np.ndarray) -> float:
    x, y = x.astype(np.float64), y.astype(np.float64)
    return 10 * np.log10(np.square(x).sum() / np.square(x - y).sum())


def test_the_part_that_was_lost_is_named_and_has_its_own_ratio():
    x = detections()
    y = x + 0.5
    y[:, 2:] = 0
    found = sums(x, y)
    worst = found.worst()
    assert ((1, (2, 3, 4, 5)), True, 0.0) == ((worst.axis, worst.indices), worst.zero, worst.sqnr)
    assert "channels 2 to 5 of out are all 0" == worst.fault
    assert decibel(x, y) == pytest.approx(found.sqnr)
    assert found.sqnr > 45
    z = x + 0.1
    assert decibel(x[:, 2:], z[:, 2:]) == pytest.approx(sums(x, z).worst().sqnr, rel=1e-6)


def test_every_axis_but_that_of_the_samples_is_looked_at():
    x = np.moveaxis(detections(), 1, 2)
    y = x.copy()
    y[:, :, 3] = 0
    worst = sums(x, y).worst()
    assert (2, (3,), True) == (worst.axis, worst.indices, worst.zero)
    # Without samples along the first axis it is one like the others.
    rows = np.array([[640.0], [0.5]]) * (1 + RNG.random((2, 8)))
    assert (0, (1,)) == ((w := sums(rows, rows * [[1.0], [0.0]], 1).worst()).axis, w.indices)


def test_batches_sum_to_what_all_samples_give():
    x = detections(12)
    y = x + RNG.normal(0, 0.3, x.shape).astype(np.float32)
    whole, parts = sums(x, y), SliceSums("out")
    for begin, end in ((0, 5), (5, 12)):
        parts.add(x[begin:end], y[begin:end], end - begin)
    assert whole.sqnr == pytest.approx(parts.sqnr)
    assert [s.sqnr for s in whole.by_kind()] == pytest.approx([s.sqnr for s in parts.by_kind()])
    # The number of boxes differs from picture to picture.
    parts.add(x[:1, :, :3], y[:1, :, :3], 1)
    assert [1] == list(parts.axes)


def test_few_elements_tell_no_kinds():
    """Of ten normal numbers one is 24 dB below its neighbour more often than not."""
    x = np.array([[1.0, -2, 0.01, 3]])
    assert sums(x, x * 1.1).worst() is None
    assert 1 == len([*sums(x, x).by_kind()])
    assert (2,) == sums(np.repeat(x, 8, axis=0), np.repeat(x, 8, axis=0) * 1.1).worst().indices


def test_kinds_are_24_decibels_apart():
    """Energies of 1 and 1/255 are one kind, of 1 and 1/257 two; what is 0 or rounding carries no signal."""
    assert [[0, 1]] == [g.tolist() for g in split_kinds(np.array([1.0, 1 / 255]))]
    assert [[1], [0]] == [g.tolist() for g in split_kinds(np.array([1 / 257, 1.0]))]
    assert [[0, 2]] == [g.tolist() for g in split_kinds(np.array([1.0, 0.0, 0.5, 1e-15]))]
    assert [] == split_kinds(np.zeros(3))


def test_probabilities_are_one_kind():
    logits = RNG.normal(size=(16, 4)) * 2
    logits[:, 3] -= 10
    x = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    assert sums(x, x + 1e-4 * RNG.random(x.shape)).worst() is None
    assert 2 == len([s for s in sums(np.exp(logits), np.exp(logits)).by_kind() if s.indices])


def test_a_channel_that_became_0_among_others_counts_and_nan_is_worst():
    x = RNG.normal(size=(8, 6)).astype(np.float32)
    y = x + 0.01
    y[:, 4] = 0
    assert ((4,), True, 0.0) == ((w := sums(x, y).worst()).indices, w.zero, w.sqnr)
    y[3, 1] = np.nan
    assert ((1,), False, -math.inf) == ((w := sums(x, y).worst()).indices, w.zero, w.sqnr)
    # A mask has the same infinities in both.
    x[:, 0] = y[:, 0] = -np.inf
    y[3, 1] = x[3, 1]
    assert ((4,), True) == ((w := sums(x, y).worst()).indices, w.zero)


def test_without_labels_the_worst_part_of_all_outputs_is_the_score():
    """Two outputs by hand: of the second, channels 2 to 5 are halved, a quarter of their energy."""
    first, second = RNG.normal(size=(4, 3)), detections(4).astype(np.float64)
    labels = np.concatenate([first, second.reshape(4, -1)], axis=1)
    other = second.copy()
    other[:, 2:] /= 2
    tally = make_worst_slice_metric({"a": (3,), "out": (6, 5)}).tally(
        {"a": first + 0.01, "out": other}, labels
    )
    assert (25.0, "channels 2 to 5 of out") == (pytest.approx(tally.value), tally.where)
    tally = make_worst_slice_metric({"a": (3,), "out": (6, 5)}).tally(
        {"a": first * 0.9, "out": second}, labels
    )
    assert (1.0, "a") == (pytest.approx(tally.value), tally.where)
    task = Task(CalibrationData.of({"x": first}))
    answered = pickle.loads(pickle.dumps(task.answered({"a": second})))
    assert ("", 0.0) == ((tally := answered.tally({"a": second})).where, tally.value)
    assert "top-1 against fp32" == task.answered({"a": first}).name


def test_errors_of_scores_count_beside_boxes_in_the_loss_of_a_place() -> None:
    """Half the loss is that of boxes, half that of scores, each over its own energy; by hand."""
    x = detections(4).astype(np.float64)
    loss = SampleLoss.of({"out": x}, ["out"], np.arange(4))
    y = x.copy()
    y[:, 2:] *= 0.9
    assert loss.each({"out": y}) == pytest.approx(np.full(4, 0.5 * 0.01))
    y[:, :2] *= 0.8
    assert loss.each({"out": y}) == pytest.approx(np.full(4, 0.5 * 0.01 + 0.5 * 0.04))
    same = SampleLoss.of({"out": x[:, 2:]}, ["out"], np.arange(4))
    assert same.each({"out": x[:, 2:] * 0.9}) == pytest.approx(np.full(4, 0.01))


@pytest.mark.slow
def test_what_spoils_the_scores_is_the_guilty_one() -> None:
    """In FP16 boxes keep 11 bits of 640 and scores are lost, where sums with 1024 leave them steps of 1."""
    node = helper.make_node
    nodes = [
        node("Add", ["x", "far"], ["moved"], name="move"),
        node("Sub", ["moved", "far"], ["scores"], name="back"),
        node("Mul", ["x", "wide"], ["boxes"], name="widen"),
        node("Concat", ["boxes", "scores"], ["out"], name="join", axis=1),
    ]
    weights = {"far": np.float32(1024), "wide": np.float32(640)}
    model = graph(nodes, [("x", 1, ("N", 3, 5))], [("out", 1, ("N", 6, 5))], weights)
    study = rtlab.Study(model, data={"x": RNG.random((16, 3, 5)).astype(np.float32)})
    study.add("fp16", precision="fp16", backend="onnxruntime", target="cpu")
    ranking = study.accuracy.sensitivity("fp16", by="node").ranking
    assert "move" == ranking[0].node
    assert ranking[0].best_effect > 0.01
    assert study.accuracy.sensitivity("fp16", by="node").total > 0.01


@pytest.mark.slow
def test_a_gate_sees_scores_that_became_0_under_boxes_that_are_right():
    """Both on one INT8 scale at the output, 640 / 127: a step of 5 leaves nothing of scores."""
    nodes = [
        helper.make_node("Mul", ["x", "size"], ["v"], name="scale"),
        helper.make_node("QuantizeLinear", ["v", "s", "z"], ["q"], name="q"),
        helper.make_node("DequantizeLinear", ["q", "s", "z"], ["out"], name="dq"),
    ]
    weights = {"size": SIZES, "s": np.float32(640 / 127), "z": np.int8(0)}
    model = graph(nodes, [("x", 1, ("N", 6, 5))], [("out", 1, ("N", 6, 5))], weights)
    study = rtlab.Study(model, data={"x": RNG.random((24, 6, 5)).astype(np.float32)})
    study.task = Task(study.data)
    study.add("fp32", backend="onnxruntime", target="cpu")
    study.run()
    assert accuracy.compute_accuracy(study["fp32"].facts).headline.startswith(
        "channels 2 to 5 of out are all 0"
    )
    # Its score is no reference for itself.
    assert find_faults(study["fp32"].facts, study["fp32"].facts)
    checked = study.accuracy.check("fp32", max_drop=1)
    assert {"numbers", "accuracy"} == {*checked.broken}
    assert 100 == pytest.approx({r.check: r for r in checked.rows}["accuracy"].value, abs=1e-6)
    assert "the whole output" in {r.check: r for r in checked.rows}["accuracy"].detail
    with pytest.raises(VariantError):
        study.calibration.rank(())
    row = check_numbers(study["fp32"].facts, None)
    assert ("broken", True) == (row.verdict, "channels 2 to 5 of out are all 0" in row.found)
