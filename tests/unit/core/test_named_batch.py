"""A batch that is named with the sizes of a model is that of every run, time and comparison."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper

import nets
import rtlab
from rtlab.experiments.sizing import batch_size

FLOAT = TensorProto.FLOAT


def written() -> rtlab.Model:
    """A model of open batch whose Reshape holds a batch of 1."""
    nodes = [
        helper.make_node("Reshape", ["x", "shape"], ["r"], "reshape"),
        helper.make_node("MatMul", ["r", "w"], ["y"], "product"),
    ]
    weights = {"shape": np.array([1, 6]), "w": np.eye(6, dtype=np.float32)}
    return nets.graph(nodes, [("x", FLOAT, ["N", 2, 3])], [("y", FLOAT, ["N", 6])], weights)


@pytest.mark.parametrize(
    ("shapes", "batch", "sizes"),
    [
        ({}, 0, [10]),
        ({"x": (1, 2, 3)}, 1, [1] * 10),
        ({"N": 1}, 1, [1] * 10),
        ({"x": (4, 2, 3)}, 4, [4, 4]),
        ({"N": 5}, 5, [5, 5]),
    ],
)
def test_data_is_cut_into_batches_of_the_named_size(shapes, batch, sizes) -> None:
    nodes = [helper.make_node("Relu", ["x"], ["y"], "relu")]
    model = nets.graph(nodes, [("x", FLOAT, ["N", 2, 3])], [("y", FLOAT, ["N", 2, 3])], {}).sized(shapes)
    assert model.named_batch == batch
    assert model.free_batch is not bool(batch)
    arrays = np.arange(60, dtype=np.float32).reshape(10, 2, 3)
    data = rtlab.CalibrationData({"x": arrays})
    stream = rtlab.CalibrationData.of(lambda: ({"x": a} for a in arrays), model=model)
    for source in (data, stream):
        batches = [b["x"] for b in source.batches(model, 10)]
        assert [len(b) for b in batches] == sizes
        np.testing.assert_array_equal(np.concatenate(batches), arrays[: sum(sizes)])
    assert (batch_size(model, ["y"], data) > 1) is not bool(batch)


def test_inputs_that_were_given_two_batches_are_free() -> None:
    nodes = [helper.make_node("Relu", [n], [f"{n}_out"], n) for n in "ab"]
    inputs, outputs = ([(f"{n}{end}", FLOAT, [n.upper(), 2]) for n in "ab"] for end in ("", "_out"))
    model = nets.graph(nodes, inputs, outputs, {})
    assert model.sized({"A": 2, "B": 3}).free_batch
    assert model.sized({"A": 2}).free_batch
    assert model.sized({"A": 2, "B": 2}).named_batch == 2


def test_a_model_that_holds_a_batch_of_one_is_compared_and_timed_in_batches_of_one() -> None:
    study = rtlab.Study(written().sized({"x": (1, 2, 3)}))
    study.add("fp16", precision="fp16", backend="onnxruntime", target="cpu")
    study.run()
    compared = study["fp16"].accuracy
    assert compared.samples > 1
    assert {v.elements for v in compared.values} == {6 * compared.samples}


def test_one_inference_of_a_named_batch_is_timed_and_estimated() -> None:
    nodes = [helper.make_node("Relu", ["x"], ["y"], "relu")]
    ends = [("x", FLOAT, ["N", 256, 1024])], [("y", FLOAT, ["N", 256, 1024])]
    model = nets.graph(nodes, *ends, {})
    times = {}
    for batch in (1, 16):
        study = rtlab.Study(model.sized({"N": batch}))
        study.add("fp32", backend="onnxruntime", target="cpu")
        times[batch] = study.run()["fp32"].timing.shown
    # 16 times the bytes; whatever else the machine does, not the same.
    assert times[16] > 3 * times[1]
