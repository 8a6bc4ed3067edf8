"""Models with a state: an input whose first dimension is no batch, and has several rows for each sample."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper

import rtlab
from nets import graph_proto
from rtlab.core.bootstrap import compare_paired
from rtlab.core.data import CalibrationData
from rtlab.core.metrics import Metric
from rtlab.core.model import Model, load
from rtlab.core.stage import Stage
from rtlab.core.task import Task

SAMPLES, WIDTH = 48, 8


def model(*, first: str = "sound") -> Model:
    """A step of a cell with two states, as models that hear speech have it: state (2, n, 8), sound (n, 8), a rate."""
    rng = np.random.default_rng(0)
    weights = {
        "w": rng.standard_normal((WIDTH, WIDTH)).astype(np.float32),
        "v": rng.standard_normal((WIDTH, 1)).astype(np.float32),
        "zero": np.array(0),
        "one": np.array(1),
    }
    nodes = [
        helper.make_node("Gather", ["state", "zero"], ["h"], name="/h", axis=0),
        helper.make_node("Gather", ["state", "one"], ["c"], name="/c", axis=0),
        helper.make_node("MatMul", ["sound", "w"], ["a"], name="/a"),
        helper.make_node("Add", ["a", "h"], ["b"], name="/b"),
        helper.make_node("Mul", ["b", "c"], ["d"], name="/d"),
        helper.make_node("Tanh", ["d"], ["e"], name="/e"),
        helper.make_node("MatMul", ["e", "v"], ["speech"], name="/speech"),
    ]
    inputs = {"sound": (TensorProto.FLOAT, ["n", WIDTH]), "state": (TensorProto.FLOAT, [2, "n", WIDTH])}
    inputs |= {"rate": (TensorProto.INT64, [])}
    order = sorted(inputs, key=lambda name: name != first)
    ends = [(n, *inputs[n]) for n in order], [("speech", TensorProto.FLOAT, ["n", 1])]
    return load(graph_proto(nodes, *ends, weights).SerializeToString(), shapes={"state": (2, 1, WIDTH)})


def data() -> CalibrationData:
    rng = np.random.default_rng(1)
    sound = rng.standard_normal((SAMPLES, WIDTH)).astype(np.float32)
    state = rng.standard_normal((2 * SAMPLES, 1, WIDTH)).astype(np.float32)
    return CalibrationData({"sound": sound, "state": state, "rate": np.full(SAMPLES, 16_000)})


@pytest.mark.parametrize("first", ["sound", "state"])
def test_the_first_samples_have_all_rows_of_their_states(first) -> None:
    net, given = model(first=first), data()
    given.check(net)
    few = given.take(5)
    assert {"sound": 5, "state": 10, "rate": 5} == {k: len(v) for k, v in few.arrays.items()}
    batches = list(few.batches(net))
    assert [1] * 5 == [few.samples_in(net, b) for b in batches]
    for i, batch in enumerate(batches):
        assert (batch["state"] == given.arrays["state"][2 * i : 2 * i + 2]).all()
        assert (batch["sound"] == given.arrays["sound"][i : i + 1]).all()
    (last,) = list(few.batches(net, skip=4))
    assert (last["sound"] == given.arrays["sound"][4:5]).all()


@pytest.mark.slow
def test_such_a_model_goes_the_whole_way_without_labels() -> None:
    """All samples are compared: the time was not over when the states were."""
    given = data()
    study = rtlab.Study(model(), data=given, task=Task(given))
    study.add("fp32", backend="onnxruntime", target="cpu")
    study.add("int8", calibrator="minmax", backend="onnxruntime", target="cpu")
    study.run(budget_s=60)
    assert "done" == study["int8"].stages[Stage.COMPARED].state
    assert (32, SAMPLES) == (study["int8"].accuracy.samples, study["int8"].score.samples)
    assert "normalized squared error against fp32" == study["int8"].score.name
    repair = study.accuracy.repair("int8", runs=1)
    assert (repair.chosen, repair.reported) == (SAMPLES // 2, SAMPLES // 2)
    # By hand: the second half alone.
    later = {k: v[len(v) // 2 :] for k, v in given.arrays.items()}
    half = rtlab.Study(model(), data=given, task=Task(CalibrationData(later)))
    half.add("int8", calibrator="minmax", backend="onnxruntime", target="cpu")
    half.run(budget_s=60)
    # The error is a tenth of the signal: FP32's rounding, 1e-7 of the signal in other batches, is 1e-6 of the error.
    assert half["int8"].score.value == pytest.approx(repair.before, rel=1e-5)
    ranked = study.accuracy.sensitivity("int8").ranking
    # By hand: what is left of the error where the first of them computes in fp32, and where the second does.
    for g in ranked:
        study.add(g.node, precision={"*": "int8", g.node: "fp32"}, calibrator="minmax", backend="onnxruntime")
    study.run(budget_s=60)
    left = [study[g.node].score.value for g in ranked]
    every = [*left, study["int8"].score.value]
    assert left
    assert every == sorted(set(every))


def test_a_mistake_in_a_long_label_is_no_miss() -> None:
    """One of six characters is wrong in one of two samples: one twelfth, and the difference is as much."""
    rate = Metric("mistakes", lambda y, t: (y != t).mean(axis=1), "%", higher=False, link="share")
    labels = np.arange(12).reshape(2, 6)
    wrong = labels.copy()
    wrong[1, 0] = 99
    right, worse = (rate.tally(y, labels) for y in (labels, wrong))
    assert 100 / 12 == pytest.approx(worse.value)
    assert not worse.hits
    assert not right.hits
    found = compare_paired(right, worse)
    assert found is not None
    assert 100 / 12 == pytest.approx(found.difference)
    assert found.lost is None
