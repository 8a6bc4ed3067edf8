"""A batch that is named, or written into constants, is that of every run, time and comparison."""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper

import nets
import rtlab
from nets import graph_proto
from rtlab.experiments.running import batch_size

FLOAT = TensorProto.FLOAT


@pytest.mark.parametrize(
    ("shapes", "batch", "sizes"),
    [
        ({}, 0, [10]), ({"x": (1, 2, 3)}, 1, [1] * 10), ({"N": 1}, 1, [1] * 10), ({"x": (4, 2, 3)}, 4, [4, 4]),
        ({"N": 5}, 5, [5, 5]),
    ],
)  # fmt: skip
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


def made(nodes, weights, dims, outs):
    return graph_proto(nodes, [("x", 1, ["batch", *dims])], [("y", 1, [None] * outs)], weights)


def reshape(*target: int):
    nodes = [helper.make_node("Reshape", ["x", "s"], ["r"]), helper.make_node("MatMul", ["r", "w"], ["y"])]
    return made(nodes, {"s": np.array(target), "w": np.ones((8, 4), np.float32)}, (2, 8), len(target))


def state(batch: int):
    """An LSTM whose first state is a constant."""
    rng = np.random.default_rng(0)
    weights = {"w": (1, 16, 4), "r": (1, 16, 4), "h": (1, batch, 4), "c": (1, batch, 4)}
    nodes = [
        helper.make_node("Transpose", ["x"], ["t"], perm=[1, 0, 2]),
        helper.make_node("LSTM", ["t", "w", "r", "", "", "h", "c"], ["y"], hidden_size=4),
    ]
    return made(nodes, {n: rng.normal(size=s).astype(np.float32) for n, s in weights.items()}, (3, 4), 4)


def joined(batch: int, axis: int = 1):
    """A token that is joined to each sample, as in a vision transformer."""
    node = helper.make_node("Concat", ["k", "x"], ["y"], axis=axis)
    return made([node], {"k": np.ones((batch, 1, 4), np.float32)}, (3, 4) if axis else (1, 4), 3)


CASES = (
    (reshape, (1, 2, 8), 1), (reshape, (3, 2, 8), 3), (reshape, (-1, 2, 8), 0), (reshape, (0, 2, 8), 0),
    (reshape, (-1, 8), 0), (state, (1,), 1), (state, (2,), 2), (joined, (1,), 1), (joined, (4,), 4),
    (joined, (1, 0), 0),
)  # fmt: skip


@pytest.mark.parametrize(("make", "given", "batch"), CASES, ids=lambda v: getattr(v, "__name__", repr(v)))
def test_the_batch_that_constants_allow_is_the_one_that_runs(make, given, batch) -> None:
    proto = make(*given)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(proto.SerializeToString(), options)
    dims = session.get_inputs()[0].shape[1:]

    def runs(size: int) -> bool:
        try:
            session.run(None, {"x": np.ones((size, *dims), np.float32)})
        except Exception:  # noqa: BLE001 - whatever it says
            return False
        return True

    assert [b for b in range(1, 6) if runs(b)] == ([batch] if batch else [1, 2, 3, 4, 5])
    model = rtlab.load(proto)
    assert (model.written_batch, model.named_batch, model.free_batch) == (batch, batch, not batch)
    # A larger one is asked for: what is written counts, and that is said once.
    asked = rtlab.load(proto, shapes={"x": (32, *dims)}) if batch else model
    assert asked.input_shape("x")[0] == (batch or 1)
    assert [str(batch) in note for note in asked.notes] == ([True] if batch else [])
    assert len(asked.sized({"x": (16, *dims)}).sized({"x": (16, *dims)}).notes) <= 2


@pytest.mark.parametrize("shapes", [{}, {"x": (1, 2, 8)}, {"x": (32, 2, 8)}])
def test_samples_are_run_in_the_written_batch(shapes) -> None:
    study = rtlab.Study(rtlab.load(reshape(1, 2, 8), shapes=shapes))
    study.add("int8", target="cpu", backend="onnxruntime")
    study.run()
    assert study["int8"].stages["compared"].state == "done"
    assert not study.state.failures
    compared = study["int8"].accuracy
    assert compared.samples > 1
    assert {v.elements for v in compared.values} <= {n * compared.samples for n in (8, 16)}
