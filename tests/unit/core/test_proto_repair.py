"""What other tools write wrong and everybody means alike loads, is told, and is written nowhere."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from rtlab import CalibrationData, Study, load
from rtlab.core import proto_repair
from rtlab.core.task import Task
from rtlab.errors import ModelError

node = helper.make_node

FLOAT = TensorProto.FLOAT


@pytest.fixture(autouse=True)
def promises(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever a test here puts right keeps what it promises."""
    decided = proto_repair.passes

    def watched(proto: onnx.ModelProto, doing: str) -> Iterator[object]:
        for one in decided(proto, doing):
            before = onnx.ModelProto()
            before.CopyFrom(proto)
            yield one
            for promise in one.promises:
                assert "" == promise.check(before, proto), f'"{one.name}" promises: {promise.name}'

    monkeypatch.setattr(proto_repair, "passes", watched)


def info(name: str, shape: list[int | str | None] | None) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, FLOAT, shape)


def model(nodes, inputs, outputs, weights=None, inner=None, **options) -> onnx.ModelProto:
    graph = helper.make_graph(nodes, "g", inputs, outputs, weights or [], value_info=inner or [])
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("local", 1)]
    return helper.make_model(graph, ir_version=9, opset_imports=opsets, **options)


def paddle(batch: int = -1, size: int = -1) -> onnx.ModelProto:
    """As Paddle writes a detector: what is not known is -1, in inputs, inner values and outputs."""
    weight = numpy_helper.from_array(np.ones((4, 3, 3, 3), np.float32), "w")
    nodes = [node("Conv", ["x", "w"], ["h"], "conv", pads=[1] * 4), node("Relu", ["h"], ["y"], "relu")]
    shape = [batch, 4, size, size]
    return model(nodes, [info("x", [batch, 3, size, size])], [info("y", shape)], [weight], [info("h", shape)])


@pytest.mark.parametrize("size", [-1, 0, -(2**62)])
def test_an_input_size_that_is_none_is_dynamic(size, tmp_path) -> None:
    path = tmp_path / "detector.onnx"
    path.write_bytes(before := paddle(-1, size).SerializeToString())
    net = load(path, shapes={"x": (1, 3, 32, 48)})
    assert (None, 3, None, None) == net.values["x"].shape
    for name in ("h", "y"):
        assert [False, True, False, False] == [isinstance(d, int) for d in net.values[name].shape]
    assert (1, 4, 32, 48) == net.static().values["h"].shape
    (note,) = net.notes
    assert f'"x" -1×3×{size}×{size} is ?×3×?×?; so are those of 2' in note
    assert net.notes == net.static().notes
    assert before == path.read_bytes()


def test_a_batch_below_one_is_dynamic_and_runs() -> None:
    """With the batch alone unknown nothing needs to be named."""
    net = load(paddle(size=8))
    assert net.dynamic_batch
    data = CalibrationData.random(net, samples=3)
    study = Study(net, data=data, task=Task(data, np.zeros(3)))
    study.add("fp32", target="cpu")
    assert 3 == study.run()["fp32"].score.samples


def test_sizes_below_zero_inside_sequences_and_bodies_are_unknown() -> None:
    sequence = helper.make_tensor_sequence_value_info("s", FLOAT, [-1, 2])
    optional = helper.make_value_info(
        "o", helper.make_optional_type_proto(helper.make_tensor_type_proto(FLOAT, [0]))
    )
    bodies = {
        f"{name}_branch": helper.make_graph(
            [node("Identity", ["x"], [name], name)], name, [], [info(name, [-1, 2])]
        )
        for name in ("then", "else")
    }
    nodes = [
        node("SequenceAt", ["s", "i"], ["a"], "at"),
        node("If", ["c"], ["b"], "if", **bodies),
        node("OptionalGetElement", ["o"], ["d"], "get"),
    ]
    others = (("i", TensorProto.INT64), ("c", TensorProto.BOOL))
    scalars = [helper.make_tensor_value_info(n, kind, []) for n, kind in others]
    inputs = [info("x", [2, 2]), sequence, optional, *scalars]
    proto = model(nodes, inputs, [info("a", ["A", 2]), info("b", ["B", 2]), info("d", ["D"])])
    proto.opset_import[0].version = 18
    (note,) = load(proto).notes
    assert 'input "s" -1×2 is ?×2, "o" 0 is ?; so are those of 2' in note


def test_nodes_are_sorted_by_what_their_bodies_read() -> None:
    inner = [node("Neg", ["t"], ["r"], "inner late"), node("Abs", ["h"], ["t"], "inner early")]
    bodies = {
        "then_branch": helper.make_graph(inner, "then", [], [info("r", None)]),
        "else_branch": helper.make_graph([node("Neg", ["h"], ["e"], "else")], "else", [], [info("e", None)]),
    }
    nodes = [node("If", ["c"], ["y"], "if", **bodies), node("Relu", ["x"], ["h"], "relu")]
    inputs = [info("x", [2]), helper.make_tensor_value_info("c", TensorProto.BOOL, [])]
    net = load(model(nodes, inputs, [info("y", [2])]))
    assert ["relu", "if", "else", "inner early", "inner late"] == [n.id for n in net.nodes]
    assert ("2 nodes stood before what they read: sorted",) == net.notes


def test_nodes_of_functions_are_sorted() -> None:
    inside = [node("Neg", ["t"], ["b"], "late"), node("Abs", ["a"], ["t"], "early")]
    opsets = [helper.make_opsetid("", 17)]
    function = helper.make_function("local", "Twist", ["a"], ["b"], inside, opsets)
    nodes = [node("Twist", ["x"], ["y"], "call", domain="local")]
    net = load(model(nodes, [info("x", [2])], [info("y", [2])], functions=[function]))
    assert ["call", "early", "late"] == [n.id for n in net.nodes]


def test_a_circle_names_its_nodes() -> None:
    nodes = [
        node("Add", ["x", "b"], ["a"], "first"),
        node("Neg", ["a"], ["b"]),
        node("Neg", ["a"], ["y"], "third"),
    ]
    with pytest.raises(ModelError) as caught:
        load(model(nodes, [info("x", [2])], [info("y", [2])]), name="m")
    told = str(caught.value).partition("circle: ")[2].partition(". A graph")[0]
    assert {'"first"', "unnamed Neg (1)"} == set(told.split(" → "))


def test_a_circle_through_a_body_is_found() -> None:
    branches = {
        f"{n}_branch": helper.make_graph([node("Neg", ["back"], [n], n)], n, [], [info(n, None)])
        for n in ("then", "else")
    }
    nodes = [node("If", ["c"], ["y"], "if", **branches), node("Abs", ["y"], ["back"], "abs")]
    with pytest.raises(ModelError, match=r'"(if|abs)" → "(if|abs)" → "(if|abs)"'):
        load(model(nodes, [helper.make_tensor_value_info("c", TensorProto.BOOL, [])], [info("y", [2])]))


def test_what_breaks_a_promise_is_named() -> None:
    early = node("Neg", ["x"], ["h"], "early")
    late = node("Abs", ["h"], ["y"], "late")
    good = model([early, late], [info("x", [2])], [info("y", [2])])
    short = model([early], [info("x", [2])], [info("y", [2])])
    swapped = model([late, early], [info("x", [2])], [info("y", [2])])
    below = model([early, late], [info("x", [-1])], [info("y", [2])])
    stays, possible = proto_repair.find_impossible_sizes(good).promises
    same, ordered = proto_repair.find_node_order(good, "Cannot load:").promises
    for promise in (stays, possible, same, ordered):
        assert "" == promise.check(good, good)
    assert "" == same.check(good, swapped)
    for promise, other in (
        (same, short),
        (stays, short),
        (stays, swapped),
        (ordered, swapped),
        (possible, below),
    ):
        assert promise.check(good, other)


def test_an_empty_tensor_inside_stays_empty() -> None:
    """Resize of opset 11 has an empty second input, which older files also list as an input of the graph."""
    empty = numpy_helper.from_array(np.zeros(0, np.float32), "roi")
    scales = numpy_helper.from_array(np.float32([1, 1, 2, 2]), "scales")
    nodes = [node("Resize", ["x", "roi", "scales"], ["y"], "resize", mode="nearest")]
    inputs = [info("x", [1, 3, 4, 4]), info("roi", [0])]
    inner = [helper.make_tensor_value_info("scales", FLOAT, [4])]
    net = load(model(nodes, inputs, [info("y", [1, 3, 8, 8])], [empty, scales], inner))
    assert () == net.notes
    assert (0,) == net.values["roi"].shape
    inputs[0] = info("x", [-1, 3, 0, 0])
    assert (0,) == load(model(nodes, inputs, [info("y", [0, 3, 0, 0])], [empty, scales])).values["roi"].shape


def test_weights_beside_the_model_survive_sorting(tmp_path) -> None:
    """The checker sees the sorted graph, and not the file that is as it was."""
    weight = numpy_helper.from_array(np.arange(4, dtype=np.float32), "w")
    nodes = [node("Neg", ["a"], ["y"], "late"), node("Add", ["x", "w"], ["a"], "early")]
    onnx.save_model(
        model(nodes, [info("x", [-1, 4])], [info("y", [-1, 4])], [weight]), tmp_path / "m.onnx",
        save_as_external_data=True, location="w.bin", size_threshold=0,
    )  # fmt: skip
    net = load(tmp_path / "m.onnx")
    assert ["early", "late"] == [n.id for n in net.top]
    np.testing.assert_array_equal(np.arange(4), numpy_helper.to_array(net.proto().graph.initializer[0]))
