"""Models whose inputs leave the batch open, and whose constants do not: they run with one batch alone."""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest
from onnx import helper

import rtlab
from nets import graph_proto


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
    assert not study.failures
