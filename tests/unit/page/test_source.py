"""The source graph of models of every kind: bodies, functions, and what hurts a drawing."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import strategies
from nets import fp32_proto
from rtlab import Study, load
from rtlab.analyses.cards.picture import Graph
from rtlab.core.model import Model, wrap
from rtlab.documents.serialization import decode, encode
from rtlab.relation.mapping import Mapping, Pair, map_to_places
from rtlab.testing import tiny_model
from rtlab.web.page.graph import engine_view, source_graph

FLOAT, BOOL, INT64 = TensorProto.FLOAT, TensorProto.BOOL, TensorProto.INT64
info, node = helper.make_tensor_value_info, helper.make_node


def graph_of(model: Model) -> Graph:
    """The source graph, held against what every source graph promises."""
    graph = source_graph(model)
    boxes = graph["boxes"]
    assert len(boxes) == len({b["id"] for b in boxes})
    assert all(b["parent"] < i for i, b in enumerate(boxes))
    assert all((b["parent"] >= 0) == bool(b["body"]) for b in boxes)
    drawn = {b["id"] for b in boxes if b["kind"] == "node"}
    assert {p.id for p in model.places.values() if p.node.op != "Constant"} == drawn
    for box in boxes:
        if box["kind"] == "node":
            assert model.node(box["id"])
    assert graph == decode(encode(graph))
    return graph


def wires(graph: Graph) -> set[tuple[str, str, str]]:
    ids = [b["id"] for b in graph["boxes"]]
    return {(ids[e["source"]], ids[e["target"]], e["value"]) for e in graph["edges"]}


def inside(graph: Graph, owner: str, body: str) -> list[str]:
    at = next(i for i, b in enumerate(graph["boxes"]) if b["id"] == owner)
    return [b["id"] for b in graph["boxes"] if b["parent"] == at and b["body"] == body]


def branch(name: str, op: str, read: str, out: str) -> onnx.GraphProto:
    return helper.make_graph([node(op, [read], [out], name=name)], name, [], [info(out, FLOAT, None)])


def if_model() -> onnx.ModelProto:
    bodies = {"then_branch": branch("yes", "Relu", "x", "a"), "else_branch": branch("no", "Neg", "h", "b")}
    nodes = [node("Abs", ["x"], ["h"], name="abs"), node("If", ["flag"], ["y"], name="choose", **bodies)]
    return strategies.of_nodes(nodes, weights=[numpy_helper.from_array(np.array(True), "flag")])


def loop_model(carried: str = "state") -> onnx.ModelProto:
    steps = [
        node("Add", [carried, "x"], ["next"], name="step"),
        node("Identity", ["go"], ["on"], name="keep"),
    ]
    inputs = [info("i", INT64, []), info("go", BOOL, []), info(carried, FLOAT, [1, 4])]
    body = helper.make_graph(steps, "body", inputs, [info("on", BOOL, []), info("next", FLOAT, [1, 4])])
    nodes = [node("Loop", ["count", "yes", "x"], ["y"], name="loop", body=body)]
    weights = [numpy_helper.from_array(np.array(v), n) for n, v in (("count", 3), ("yes", True))]
    return strategies.of_nodes(nodes, weights=weights)


def function_model() -> onnx.ModelProto:
    """``twice`` calls ``shift`` two times, and the graph calls ``twice`` two times and ``once`` one time."""
    opset = [helper.make_opsetid("", 17), helper.make_opsetid("local", 1)]
    shift = helper.make_function(
        "local", "shift", ["u"], ["v"],
        [node("Constant", [], ["one"], name="c", value=numpy_helper.from_array(np.float32(1))),
         node("Add", ["u", "one"], ["v"], name="add")], opset,
    )  # fmt: skip
    twice = helper.make_function(
        "local", "twice", ["u"], ["w"],
        [node("shift", ["u"], ["t"], name="first", domain="local"),
         node("shift", ["t"], ["w"], name="second", domain="local")], opset,
    )  # fmt: skip
    once = helper.make_function("local", "once", ["u"], ["v"], [node("Neg", ["u"], ["v"], name="neg")], opset)
    calls = ("twice", "x", "h", "a"), ("twice", "h", "k", "b"), ("once", "k", "y", "c0")
    nodes = [node(op, [x], [y], name=name, domain="local") for op, x, y, name in calls]
    proto = strategies.of_nodes(nodes)
    proto.opset_import.append(helper.make_opsetid("local", 1))
    proto.functions.extend([shift, twice, once])
    return proto


def test_branches_stand_in_their_if_and_read_the_outer_value_themselves() -> None:
    """What a branch reads is not what the If reads: its condition is another input."""
    graph = graph_of(load(if_model()))
    assert ["yes", "choose/then_branch/output a"] == inside(graph, "choose", "then_branch")
    assert ["no", "choose/else_branch/output b"] == inside(graph, "choose", "else_branch")
    assert {
        ("input x", "abs", "x"), ("input x", "yes", "x"), ("abs", "no", "h"),
        ("yes", "choose/then_branch/output a", "a"), ("no", "choose/else_branch/output b", "b"),
        ("choose", "output y", "y"),
    } == wires(graph)  # fmt: skip


def test_the_subtitle_counts_boxes_of_the_main_graph_and_of_bodies_apart() -> None:
    assert "2 nodes · 2 in bodies" == source_graph(load(if_model()))["subtitle"]
    assert "10 nodes" == source_graph(tiny_model())["subtitle"]
    # Of shift's Constant nothing is drawn, four times.
    assert "3 nodes · 9 in bodies" == source_graph(load(function_model()))["subtitle"]


@pytest.mark.parametrize("carried", ["state", "x_"])
def test_a_loop_shows_what_it_carries_as_pills(carried) -> None:
    """Iteration, condition and state are the body's own, whatever their names."""
    graph = graph_of(load(loop_model(carried)))
    pills = [f"loop/body/input {n}" for n in ("i", "go", carried)]
    outputs = ["loop/body/output on", "loop/body/output next"]
    assert [*pills, "step", "keep", *outputs] == inside(graph, "loop", "body")
    assert (f"loop/body/input {carried}", "step", carried) in wires(graph)
    assert {("input x", "step", "x"), ("input x", "loop", "x")} <= wires(graph)


def test_a_carried_name_that_equals_an_outer_one_is_the_inner_value_inside() -> None:
    """Exporters reuse names; an edge from the outer value would show a wrong dataflow."""
    proto = loop_model("h")
    proto.graph.node.insert(0, node("Abs", ["x"], ["h"], name="outer"))
    proto.graph.node[1].input[2] = "h"
    graph = graph_of(wrap(proto, name="shadowed"))
    assert ("loop/body/input h", "step", "h") in wires(graph)
    assert ("outer", "step", "h") not in wires(graph)
    assert ("outer", "loop", "h") in wires(graph)


def test_bodies_in_bodies_name_their_own_owner() -> None:
    inner = node("If", ["flag"], ["a"], name="inner", then_branch=branch("yes", "Relu", "x", "p"),
                 else_branch=branch("no", "Neg", "x", "q"))  # fmt: skip
    outer = helper.make_graph([inner], "outer", [], [info("a", FLOAT, None)])
    other = branch("e", "Abs", "x", "b")
    nodes = [node("If", ["flag"], ["y"], name="outer", then_branch=outer, else_branch=other)]
    flag = numpy_helper.from_array(np.array(True), "flag")
    graph = graph_of(load(strategies.of_nodes(nodes, weights=[flag])))
    assert "inner" in inside(graph, "outer", "then_branch")
    assert "yes" in inside(graph, "inner", "then_branch")


def test_each_call_of_a_function_has_a_copy_of_its_own() -> None:
    model = load(function_model())
    graph = graph_of(model)
    assert ["a/twice/input u", "a/first", "a/second", "a/twice/output w"] == inside(graph, "a", "twice")
    assert "b/first/add" in inside(graph, "b/first", "shift")
    assert ["c0/once/input u", "neg", "c0/once/output v"] == inside(graph, "c0", "once")
    assert ("a/first/shift/input u", "a/first/add", "u") in wires(graph)
    assert ("a/first", "a/second", "t") in wires(graph)
    assert not any(s.startswith("a/") and t.startswith("b/") for s, t, _ in wires(graph))


def test_a_copy_can_be_selected_and_lights_up_the_layers_of_its_call() -> None:
    model = load(function_model())
    assert model.node("add") is model.node("b/second/add")
    assert ("a/first/add", "a/second/add", "b/first/add", "b/second/add") == model.where("add")
    pairs = (Pair("a", "A", "declared"), Pair("add", "A", "inferred"), Pair("b", "B", "declared"),
             Pair("add", "B", "inferred"))  # fmt: skip
    found = map_to_places(Mapping(pairs, ()), model)
    assert ("A",) == found.layers("a/first/add") == found.layers("a")
    assert ("B",) == found.layers("b/second/add")


@pytest.mark.parametrize("make", [if_model, loop_model, function_model])
def test_every_link_of_an_engine_ends_at_boxes(make) -> None:
    study = Study(load(make()))
    study.add("fp32", target="cpu", backend="onnxruntime")
    view = engine_view(study.run()["fp32"].facts, study.model)
    nodes = {b["id"] for b in graph_of(study.model)["boxes"] if b["kind"] == "node"}
    linked = {p.node for p in view["pairs"]} | {u.node for u in view["unmapped"]}
    constants = {p.id for p in study.model.places.values() if p.node.op == "Constant"}
    assert nodes <= linked <= nodes | constants
    assert {c["node"] for b in view["graph"]["boxes"] for c in b["chips"]} <= linked
    for overlay in view["overlays"]:
        assert set(overlay["nodes"]) <= nodes | constants


@pytest.mark.parametrize(
    "name",
    [
        "n" * 10_000, "\u202e\u05e9\u05dc\u05d5\u05dd", "🙂👩‍👩‍👧", "<img src=x onerror=alert(1)>", "input x",
        "output y", "a/b", "__proto__",
    ],
)  # fmt: skip
def test_any_name_reaches_the_box_as_it_was_written(name) -> None:
    """An id may differ, since compilers print it; what a person reads may not."""
    nodes = [node("Relu", ["x"], [f"{name}_h"], name=name), node("Neg", [f"{name}_h"], ["y"], name="b")]
    graph = graph_of(load(strategies.of_nodes(nodes)))
    box = next(b for b in graph["boxes"] if b["op"] == "Relu")
    assert (name, f"{name}_h") == (box["title"], box["outputs"][0]["name"])
    assert {(box["id"], "b", f"{name}_h")} <= wires(graph)


def test_scan_and_sequence_map_bodies_are_drawn() -> None:
    one = helper.make_graph(
        [node("Add", ["s", "r"], ["s2"], name="sum"), node("Identity", ["s2"], ["o"], name="copy")],
        "scan", [info("s", FLOAT, [4]), info("r", FLOAT, [4])], [info("s2", FLOAT, [4]), info("o", FLOAT, [4])],
    )  # fmt: skip
    zero = numpy_helper.from_array(np.zeros(4, np.float32), "zero")
    scan = strategies.of_nodes(
        [node("Scan", ["zero", "x"], ["last", "y"], name="scan", body=one, num_scan_inputs=1)], weights=[zero]
    )
    inputs, outputs = (
        [f"scan/body/{end}" for end in ends] for ends in (("input s", "input r"), ("output s2", "output o"))
    )
    assert [*inputs, "sum", "copy", *outputs] == inside(graph_of(load(scan)), "scan", "body")
    ends = [info("e", FLOAT, [1, 4])], [info("f", FLOAT, [1, 4])]
    item = helper.make_graph([node("Relu", ["e"], ["f"], name="relu")], "map", *ends)
    nodes = [
        node("SequenceConstruct", ["x", "x"], ["list"], name="make"),
        node("SequenceMap", ["list"], ["mapped"], name="map", body=item),
        node("SequenceAt", ["mapped", "zero"], ["y"], name="at"),
    ]
    proto = strategies.of_nodes(nodes, weights=[numpy_helper.from_array(np.array(0), "zero")])
    graph = graph_of(load(proto))
    assert ["map/body/input e", "relu", "map/body/output f"] == inside(graph, "map", "body")


def test_a_cycle_is_drawn_as_it_is() -> None:
    """No checker lets it pass, but a picture is how one finds it."""
    proto = strategies.of_nodes(
        [node("Add", ["x", "b"], ["a"], name="one"), node("Add", ["a", "x"], ["y"], name="two")],
        weights=[numpy_helper.from_array(np.ones((1, 4), np.float32), "b")],
    )
    model = wrap(proto, name="cyclic")
    first, second = model.ir.graph
    first.replace_input_with(1, second.outputs[0])
    assert {("one", "two", "a"), ("two", "one", "y")} <= wires(graph_of(model))


def test_a_node_of_two_thousand_inputs_keeps_them_all() -> None:
    nodes = [node("Relu", ["x"], [f"r{i}"], name=f"n{i}") for i in range(2000)]
    nodes.append(node("Sum", [f"r{i}" for i in range(2000)], ["y"], name="sum"))
    box = graph_of(load(strategies.of_nodes(nodes)))["boxes"][-2]
    assert ("sum", 2000) == (box["id"], len(box["inputs"]))


def test_edges_of_a_model_have_its_sizes_once_they_are_named() -> None:
    """Before that they have the symbols that the file has."""
    convolution = node("Conv", ["x", "w"], ["h"], "c", strides=[2, 2], pads=[1, 1, 1, 1])
    proto = fp32_proto(
        [convolution, node("Relu", ["h"], ["y"], "r")],
        {"x": ["N", 3, "height", 64]},
        {"y": ["N", 4, "rows", 32]},
        {"w": np.zeros((4, 3, 3, 3), np.float32)},
    )
    labels = [
        {e["value"]: e["label"] for e in graph_of(load(proto, shapes=s))["edges"]}
        for s in ({}, {"height": 96})
    ]
    assert "N×3×height×64 fp32" == labels[0]["x"]
    # (96 + 2 - 3) // 2 + 1 rows.
    assert {"x": "1×3×96×64 fp32", "h": "1×4×48×32 fp32", "y": "1×4×48×32 fp32"} == labels[1]
