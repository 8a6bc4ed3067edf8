"""Models that ONNX Runtime optimized: whose values theirs are, and which times are whose."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from onnx import ModelProto, TensorProto, helper

from rtlab.backends.files import optimized
from rtlab.core.engine import Layer

FREE = "InsertedPrecisionFreeCast_"


def blocked() -> ModelProto:
    """A node in blocked layout, named after the value ``mid`` that it computes, and one behind a free cast."""
    graph = helper.make_graph(
        [
            helper.make_node("Conv", ["x", "w"], ["reorder"], "mid_nchwc", domain="com.microsoft.nchwc"),
            helper.make_node("Relu", [f"{FREE}mid"], ["y"], "relu"),
        ],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 3, 8, 8])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [helper.make_tensor("w", TensorProto.FLOAT, [1], [1.0])],
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft.nchwc", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


@pytest.mark.parametrize(
    ("known", "stands_for"),
    [
        ({"x", "mid", "y"}, [{"reorder": "mid"}, {f"{FREE}mid": "mid"}]),
        # Fusion may make a value that the model does not have.
        ({"x", "y"}, [{}, {}]),
        # Without the model, only the layout tells whose value it is.
        (None, [{"reorder": "mid"}, {}]),
    ],
)
def test_values_under_another_name_are_told_where_the_model_has_them(known, stands_for):
    """A tensor is compared with the one that it stands for, so a wrong name would compare strangers."""
    layers, _, _ = optimized.read(blocked(), "m", known)

    assert stands_for == [layer.attributes["values"] for layer in layers]


def test_constants_inputs_and_open_dimensions_are_told_apart():
    """A weight is no input of a layer, and a dimension without a size is -1."""
    layers, inputs, outputs = optimized.read(blocked(), "m", None)

    assert ["x"] == [t.name for t in layers[0].inputs]
    assert ["w"] == [t.name for t in layers[0].constants]
    assert [(-1, 3, 8, 8)] == [t.shape for t in inputs]
    assert [("y", None)] == [(t.name, t.shape) for t in outputs]


def test_samples_are_times_of_kernels_in_the_order_of_their_runs():
    """A layer that ran only while warming up has no time, which is not a time of nothing."""
    rows = [("a", 1000.0), ("b", 5.0), ("a", 2000.0), ("strange", 3.0)]
    events = [{"cat": "Node", "name": f"{n}_kernel_time", "dur": t} for n, t in rows]
    events += [{"cat": "Node", "name": "a_fence_before", "dur": 7.0}, {"cat": "Session", "name": "model_run"}]
    told = optimized.kernels(events)
    del told["b"].taken[:1]
    found = optimized.samples(told, [Layer(f"{i}:{n}", n, "", i) for i, n in enumerate("ab")])

    assert ["0:a"] == list(found)
    np.testing.assert_array_equal([1.0, 2.0], found["0:a"])


NAMES = ["plain", "end\r\nof", 'a"b', "C:\\new", "two\nlines", 'x","args" : {"y', '{"cat" : "', "é"]


@pytest.mark.parametrize("escaped", [False, True])
def test_names_are_read_as_each_release_writes_them(tmp_path: Path, escaped: bool):
    """Up to 1.30 they stand as they are; a backslash is then no escape, and a quote does not end a name."""
    lines = ['{"cat" : "Session","dur" :9,"name" :"model_run","args" : {}}']
    for name in NAMES:
        text = json.dumps(name)[1:-1] if escaped else name
        more = '{"provider" : "CPU","node_index" : "3"}'
        lines.append(f'{{"cat" : "Node","dur" :1000,"name" :"{text}_kernel_time","args" : {more}}}')
    path = tmp_path / "profile.json"
    path.write_text("[\n" + ",\n".join(lines) + "\n]\n", encoding="utf-8", newline="\n")
    found = optimized.kernels(optimized.written(path, escaped=escaped))

    assert NAMES == list(found)
    assert {("CPU", 3, (1.0,))} == {(k.provider, k.index, tuple(k.taken)) for k in found.values()}


def test_an_event_that_cannot_be_read_costs_its_own_time_alone(tmp_path: Path):
    """A name may hold what begins the next event."""
    path = tmp_path / "profile.json"
    event = '{{"cat" : "Node","dur" :2000,"name" :"{}_kernel_time","args" : {{}}}}'
    names = ["before", 'a\n{"cat" : "Node"', "behind"]
    path.write_text("[\n" + ",\n".join(map(event.format, names)) + "\n]\n", encoding="utf-8", newline="\n")

    assert ["before", "behind"] == list(optimized.kernels(optimized.written(path, escaped=False)))
