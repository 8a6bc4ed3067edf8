"""Sizes that are proposed for what a model leaves open, against what ONNX Runtime accepts."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper

from nets import graph
from rtlab.core.model import Model

FLOAT, FAILURES = TensorProto.FLOAT, onnxruntime.capi.onnxruntime_pybind11_state


def net(nodes, inputs, rank: int, **constants) -> Model:
    ends = [(n, FLOAT, s) for n, s in inputs.items()], [("y", FLOAT, [None] * rank)]
    return graph(nodes, *ends, constants)


def runs(model: Model, shapes) -> bool:
    """Whether ONNX Runtime computes the model at these shapes."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(model.bytes(), options, providers=["CPUExecutionProvider"])
    try:
        session.run(None, {n: np.zeros(s, np.float32) for n, s in shapes.items()})
    except (FAILURES.Fail, FAILURES.InvalidArgument):
        return False
    return True


def reader(height: int | str | None = None) -> Model:
    """A text recogniser: three strides of 4, 4 and 3 have to leave one row, which becomes a sequence."""
    convs = [
        helper.make_node("Conv", ["x", "w"], ["a"], strides=[4, 4], kernel_shape=[4, 4]),
        helper.make_node("MaxPool", ["a"], ["b"], strides=[12, 1], kernel_shape=[12, 1]),
        helper.make_node("Squeeze", ["b", "axis"], ["y"]),
    ]
    weights = np.full((5, 3, 4, 4), 0.1, np.float32)
    return net(convs, {"x": ["N", 3, height, "?"]}, 3, w=weights, axis=np.int64([2]))


def test_a_reader_of_lines_gets_the_height_that_it_reads() -> None:
    """224 rows become more than one, and what follows takes one."""
    model = reader()
    assert {"x": (1, 3, 48, 320)} == model.proposed
    assert runs(model, model.proposed)
    assert not runs(model, {"x": (1, 3, 224, 224)}), "else this says nothing"


def test_a_size_that_the_model_fixes_or_a_user_named_stays() -> None:
    assert {"x": (1, 3, 48, 224)} == reader(48).proposed
    assert {"x": (1, 3, 48, 64)} == reader("h").sized({"x": (1, 3, 48, 64)}).proposed
    assert {"x": (1, 3, 224, 224)} == reader("h").sized({"h": 224}).proposed, "nothing fits: the usual"


def test_sound_gets_what_the_first_window_spans() -> None:
    """ONNX infers a size of 1 where a window of 400 finds 128 samples; a runtime refuses that."""
    conv = helper.make_node("Conv", ["u", "w"], ["y"], strides=[160])
    lift = helper.make_node("Unsqueeze", ["sound", "axis"], ["u"])
    model = net(
        [lift, conv], {"sound": ["batch", None]}, 3, w=np.ones((2, 1, 400), np.float32), axis=np.int64([1])
    )
    assert {"sound": (1, 512)} == model.proposed
    assert runs(model, model.proposed)
    assert not runs(model, {"sound": (1, 128)})


@pytest.mark.parametrize("batch", ["batch", None])
def test_the_state_of_a_recurrence_has_the_batch_of_what_it_reads(batch) -> None:
    """With a symbol it is the same one; without, the second of three dimensions is the batch of a state."""
    add = helper.make_node("Add", ["x", "state"], ["y"])
    model = net([add], {"x": [batch, "length", 128], "state": [2, batch, 128]}, 3)
    assert {"x": (1, 128, 128), "state": (2, 1, 128)} == model.proposed
    # The length of frames with one batch is no state.
    assert {"x": (1, 128, 80)} == net(
        [helper.make_node("Relu", ["x"], ["y"])], {"x": [1, None, 80]}, 3
    ).proposed


def test_a_symbol_has_one_size_and_a_question_mark_is_none() -> None:
    """PaddlePaddle writes a question mark into every dimension that it leaves open."""
    add = helper.make_node("Add", ["a", "b"], ["y"])
    told = net([add], {"a": ["N", "length", 8], "b": ["N", "length", 1]}, 3).proposed
    assert {"a": (1, 128, 8), "b": (1, 128, 1)} == told
    wide = net([add], {"a": ["?", 3, "?", "?"], "b": ["?", 1, 1, 1]}, 4)
    assert {"a": (1, 3, 224, 224), "b": (1, 1, 1, 1)} == wide.proposed


def test_what_is_proposed_runs_where_a_shape_is_not_known() -> None:
    """The checker of a graph accepts what has no one shape; the usual sizes stand."""
    where = helper.make_node("NonZero", ["x"], ["i"])
    cast = helper.make_node("Cast", ["i"], ["y"], to=onnx.TensorProto.FLOAT)
    assert {"x": (1, 128)} == net([where, cast], {"x": ["N", "n_words"]}, 2).proposed
