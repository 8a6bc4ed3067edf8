"""Who writes and who reads a value, also where functions and branches use its name again."""

from __future__ import annotations

import onnx
import pytest
from onnx import helper

from rtlab.core.model import Model, wrap
from rtlab.relation.flow import Flow

FLOAT, node = onnx.TensorProto.FLOAT, helper.make_node
OPSET = [helper.make_opsetid("", 17), helper.make_opsetid("own", 1)]


def model(*nodes: onnx.NodeProto, functions: tuple[onnx.FunctionProto, ...] = ()) -> Model:
    x, y = (helper.make_tensor_value_info(n, FLOAT, [2]) for n in "xy")
    graph = helper.make_graph(list(nodes), "g", [x], [y])
    return wrap(helper.make_model(graph, opset_imports=OPSET, functions=list(functions)), name="m")


def function(name: str, op: str) -> onnx.FunctionProto:
    """It calls its values as the main graph and the other functions do."""
    inner = [node(op, ["x"], ["t"], name=f"{name}0"), node(op, ["t"], ["y"], name=f"{name}1")]
    return helper.make_function("own", name, ["x"], ["y"], inner, OPSET)


def test_values_of_functions_are_not_those_of_the_graph_around_them() -> None:
    call = {"domain": "own"}
    calls = node("F", ["x"], ["t"], name="f", **call), node("G", ["t"], ["y"], name="g", **call)
    built = model(*calls, functions=(function("F", "Relu"), function("G", "Neg")))
    flow = Flow(built)
    read = {n.id: [r.id for r in flow.readers(n)] for n in built.nodes}
    assert {"f": ["g"], "g": [], "F0": ["F1"], "F1": [], "G0": ["G1"], "G1": []} == read
    written = {n.id: [w.id for w in flow.writers(n)] for n in built.nodes}
    assert {"f": [], "g": ["f"], "F0": [], "F1": ["F0"], "G0": [], "G1": ["G0"]} == written


def test_what_feeds_sizes_and_data_too_is_no_shape_arithmetic() -> None:
    """Two constants are shapes of a Reshape; one is added to data as well."""
    built = model(
        node("Constant", [], ["s"], name="sizes", value_ints=[2]),
        node("Constant", [], ["b"], name="both", value_ints=[2]),
        node("Reshape", ["x", "s"], ["r"], name="first"),
        node("Reshape", ["r", "b"], ["q"], name="second"),
        node("Cast", ["b"], ["c"], name="cast", to=FLOAT),
        node("Add", ["q", "c"], ["y"], name="add"),
    )
    reasons = Flow(built).reasons()
    shape, data = {"sizes": "shape"}, dict.fromkeys(("both", "cast"), "folded")
    assert {**shape, **data, "first": "view", "second": "view"} == reasons


@pytest.mark.parametrize(
    ("op", "sizes", "data"),
    [
        ("Pad", 1, 2), ("Resize", 3, 0), ("Tile", 1, 0), ("Expand", 1, 0), ("TopK", 1, 0), ("Split", 1, 0),
        ("Slice", 1, 0), ("Slice", 4, 0), ("Unsqueeze", 1, 0), ("Reshape", 1, 0),
    ],
)  # fmt: skip
def test_a_constant_is_a_shape_where_an_operator_reads_sizes(op, sizes, data) -> None:
    """The value that a Pad fills in is data: it stays where nothing else needs its type."""

    def feeding(slot: int) -> str:
        inputs = ["x", *[""] * max(sizes, data)]
        inputs[slot] = "c"
        first = node("Constant", [], ["c"], name="constant", value_ints=[1])
        built = model(first, node(op, inputs, ["t"], name="op"), node("Relu", ["t"], ["y"], name="relu"))
        return Flow(built).reasons()["constant"]

    assert ("shape", "folded") == (feeding(sizes), feeding(data))


def test_who_reads_a_value_twice_is_one_reader() -> None:
    built = model(node("Relu", ["x"], ["t"], name="a"), node("Mul", ["t", "t"], ["y"], name="square"))
    flow = Flow(built)
    assert ["square"] == [n.id for n in flow.value_readers("t")]
    assert ["t", "t"] == list(flow.inputs(built.node("square")))


def test_an_input_that_is_left_out_is_no_value() -> None:
    built = model(node("Relu", ["x"], ["low"], name="a"), node("Clip", ["x", "", "low"], ["y"], name="clip"))
    flow = Flow(built)
    assert ["x", "low"] == list(flow.inputs(built.node("clip")))
    assert [] == flow.value_readers("")
