"""Models that ONNX Runtime optimized: whose values theirs are, and which times are whose."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import ModelProto, TensorProto, helper

from nets import graph, graph_proto
from rtlab.backends.readers import optimized
from rtlab.core.engine import Layer
from rtlab.core.model import Model

FREE = "InsertedPrecisionFreeCast_"


def blocked() -> ModelProto:
    """A node in blocked layout, named after the value ``mid`` that it computes, and one behind a free cast."""
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["reorder"], "mid_nchwc", domain="com.microsoft.nchwc"),
        helper.make_node("Relu", [f"{FREE}mid"], ["y"], "relu"),
    ]
    ends = [("x", TensorProto.FLOAT, ["n", 3, 8, 8])], [("y", TensorProto.FLOAT, None)]
    return graph_proto(nodes, *ends, {"w": np.ones(1, np.float32)})


def plain(*nodes: onnx.NodeProto) -> Model:
    """The model that was optimized, of these nodes over ``x``; ``y`` is what it gives."""
    return graph(nodes, *([(n, TensorProto.FLOAT, ["n", 3, 8, 8])] for n in "xy"), {})


@pytest.mark.parametrize(
    ("source", "stands_for"),
    [
        (plain(helper.make_node("Abs", ["x"], ["mid"]), helper.make_node("Relu", ["mid"], ["y"])),
         [{"reorder": "mid"}, {f"{FREE}mid": "mid"}]),
        # Fusion may make a value that the model does not have.
        (plain(helper.make_node("Relu", ["x"], ["y"])), [{}, {}]),
        # Without the model, only the layout tells whose value it is.
        (None, [{"reorder": "mid"}, {}]),
    ],
)  # fmt: skip
def test_values_under_another_name_are_told_where_the_model_has_them(source, stands_for):
    """A tensor is compared with the one that it stands for, so a wrong name would compare strangers."""
    layers, _, _ = optimized.read(blocked(), "m", source)
    assert stands_for == [layer.attributes["values"] for layer in layers]


def conv(*values: str, name: str) -> onnx.NodeProto:
    return helper.make_node("Conv", values[:-1], values[-1:], name, pads=[1] * 4)


def pool(value: str) -> onnx.NodeProto:
    return helper.make_node("MaxPool", [value], ["y"], "pool", kernel_shape=[2, 2])


@pytest.mark.parametrize(
    ("nodes", "last"),
    [
        # A sum in a convolution belongs to it: ONNX Runtime names the layer after the convolution's own value; what it
        # gives is the sum, or what is behind it.
        ([conv("x", "w1", "a", name="1"), conv("a", "w2", "b", name="2"),
          helper.make_node("Add", ["b", "a"], ["c"], "sum"), pool("c")], "c"),
        ([conv("x", "w1", "a", name="1"), conv("a", "w2", "b", name="2"),
          helper.make_node("Add", ["b", "a"], ["c"], "sum"), helper.make_node("Relu", ["c"], ["d"], "relu"),
          pool("d")], "d"),
        # A product is no part of a convolution, and works on blocked values under its own name.
        ([conv("x", "w1", "a", name="1"), conv("x", "w2", "b", name="2"),
          helper.make_node("Mul", ["b", "a"], ["c"], "product"), conv("c", "w1", "d", name="3"), pool("d")], "d"),
        # A node may bear the name that ONNX Runtime gives to the layer of another one.
        ([conv("x", "w1", "a", name="1"), conv("a", "w2", "b", name="2"),
          helper.make_node("Mul", ["b", "a"], ["c"], "b_nchwc"), conv("c", "w1", "d", name="3"), pool("d")], "d"),
    ],
    ids=["sum", "sum and ReLU", "product", "a name taken"],
)  # fmt: skip
def test_a_tensor_in_blocked_layout_is_the_value_that_it_stands_for(tmp_path, nodes, last) -> None:
    """Each is held against the values of the model, as ONNX Runtime itself computes them."""
    rng = np.random.default_rng(0)
    weights = {n: rng.normal(size=(16, 16, 3, 3)).astype(np.float32) for n in ("w1", "w2")}
    ends = [("x", TensorProto.FLOAT, [1, 16, 8, 8])], [("y", TensorProto.FLOAT, [1, 16, 7, 7])]
    model = graph(nodes, *ends, weights)
    options = onnxruntime.SessionOptions()
    options.optimized_model_filepath = str(tmp_path / "optimized.onnx")
    onnxruntime.InferenceSession(model.bytes(), options, providers=["CPUExecutionProvider"])
    proto = onnx.load(tmp_path / "optimized.onnx")
    layers, _, _ = optimized.read(proto, "m", model)
    stands = {k: v for layer in layers for k, v in layer.attributes["values"].items()}
    made = next(x for x in reversed(layers) if x.kind == "Conv").outputs[0]
    if not made.name.startswith("reorder"):
        pytest.skip("ONNX Runtime uses no blocked layout on this processor")
    assert last == stands[made.name]
    assert {"fp32"} == {t.dtype for layer in layers for t in (*layer.inputs, *layer.outputs)}
    # All that a layer gives is a value of the model, under one name or another.
    given_by = {t.name for layer in layers for t in layer.outputs if layer.kind != "ReorderInput"}
    assert given_by <= {*stands, *model.values}
    # The values themselves: 16 channels are one block or two, which are put back in order.
    asked = [n for n in stands if n.startswith("reorder")]
    proto.graph.output.extend(onnx.ValueInfoProto(name=n) for n in asked)
    given = {"x": rng.normal(size=(1, 16, 8, 8)).astype(np.float32)}
    off = onnxruntime.SessionOptions()
    off.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    held = onnxruntime.InferenceSession(proto.SerializeToString(), off, providers=["CPUExecutionProvider"])
    whole = onnx.load_from_string(model.bytes())
    inner = dict.fromkeys(stands[n] for n in asked if stands[n] not in {"x", "y"})
    whole.graph.output.extend(onnx.ValueInfoProto(name=n) for n in inner)
    right = onnxruntime.InferenceSession(whole.SerializeToString(), off, providers=["CPUExecutionProvider"])
    for name in asked:
        true = given["x"] if stands[name] == "x" else right.run([stands[name]], given)[0]
        (found,) = held.run([name], given)
        blocks = (found.reshape(1, 16 // b, *found.shape[2:], b) for b in (8, 16))
        orders = [block.transpose(0, 1, 4, 2, 3).reshape(true.shape) for block in blocks]
        scale = np.abs(true).max()
        assert any(np.allclose(true / scale, one / scale, atol=1e-4) for one in orders), name


def test_constants_inputs_and_open_dimensions_are_told_apart():
    layers, inputs, outputs = optimized.read(blocked(), "m", None)
    assert ["x"] == [t.name for t in layers[0].inputs]
    assert ["w"] == [t.name for t in layers[0].constants]
    assert [(-1, 3, 8, 8)] == [t.shape for t in inputs]
    assert [("y", None)] == [(t.name, t.shape) for t in outputs]


def test_samples_are_times_of_kernels_in_the_order_of_their_runs():
    rows = [("a", 1000.0), ("b", 5.0), ("a", 2000.0), ("strange", 3.0)]
    events = [{"cat": "Node", "name": f"{n}_kernel_time", "dur": t} for n, t in rows]
    events += [{"cat": "Node", "name": "a_fence_before", "dur": 7.0}, {"cat": "Session", "name": "model_run"}]
    told = optimized.collect_kernel_times(events)
    del told["b"].milliseconds[:1]
    found = optimized.collect_samples(told, [Layer(f"{i}:{n}", n, "", i) for i, n in enumerate("ab")])
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
    found = optimized.collect_kernel_times(optimized.read_events(path, names_escaped=escaped))
    assert NAMES == list(found)
    assert {("CPU", 3, (1.0,))} == {(k.provider, k.index, tuple(k.milliseconds)) for k in found.values()}


def test_an_event_that_cannot_be_read_costs_its_own_time_alone(tmp_path: Path):
    path = tmp_path / "profile.json"
    event = '{{"cat" : "Node","dur" :2000,"name" :"{}_kernel_time","args" : {{}}}}'
    names = ["before", 'a\n{"cat" : "Node"', "behind"]
    path.write_text("[\n" + ",\n".join(map(event.format, names)) + "\n]\n", encoding="utf-8", newline="\n")
    assert ["before", "behind"] == list(
        optimized.collect_kernel_times(optimized.read_events(path, names_escaped=False))
    )
