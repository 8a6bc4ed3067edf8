"""Loops that compute nothing get a node to be ended at, and compute what they did."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from rtlab.backends.heeding import amend, heeding
from rtlab.core.model import load
from rtlab.testing import tiny_model

VALUE = helper.make_tensor_value_info


def looped(nodes, outputs, constants=(), *, within: bool = False) -> onnx.ModelProto:
    """A loop of five steps over ``on`` and ``sum``; within a branch of an If, if wanted."""
    kinds = ((TensorProto.BOOL, []), (TensorProto.FLOAT, [2]))
    body = helper.make_graph(
        nodes,
        "body",
        [
            VALUE("i", TensorProto.INT64, []),
            VALUE("on", TensorProto.BOOL, []),
            VALUE("sum", TensorProto.FLOAT, [2]),
        ],
        [VALUE(n, k, shape) for n, (k, shape) in zip(outputs, kinds, strict=True)],
        [numpy_helper.from_array(np.asarray(v), n) for n, v in constants],
    )
    loop = helper.make_node("Loop", ["n", "", "x"], ["y"], body=body)
    if within:
        branch = helper.make_graph([loop], "then", [], [VALUE("y", TensorProto.FLOAT, [2])])
        other = helper.make_graph(
            [helper.make_node("Neg", ["x"], ["neg"])], "else", [], [VALUE("neg", TensorProto.FLOAT, [2])]
        )
        loop = helper.make_node("If", ["yes"], ["y"], then_branch=branch, else_branch=other)
    weights = [numpy_helper.from_array(np.array(5), "n"), numpy_helper.from_array(np.array(True), "yes")]
    graph = helper.make_graph(
        [loop], "g", [VALUE("x", TensorProto.FLOAT, [2])], [VALUE("y", TensorProto.FLOAT, [2])], weights
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


IDLE = {
    "handed on": ([], ["on", "sum"], ()),
    "constants": ([], ["t", "c"], (("t", True), ("c", np.ones(2, np.float32)))),
    "a stop": ([], ["f", "c"], (("f", False), ("c", np.ones(2, np.float32)))),
    "folded": (
        [helper.make_node("Add", ["c", "c"], ["d"]), helper.make_node("Not", ["f"], ["t"])],
        ["t", "d"],
        (("f", False), ("c", np.ones(2, np.float32))),
    ),
    "known shapes": (
        [
            helper.make_node("Shape", ["sum"], ["s"]),
            helper.make_node("Cast", ["s"], ["many"], to=1),
            helper.make_node("Concat", ["many", "many"], ["on/heeded"], axis=0),
        ],
        ["on", "on/heeded"],
        (),
    ),
}


@pytest.mark.parametrize("within", [False, True], ids=["in the graph", "in a branch"])
@pytest.mark.parametrize("name", IDLE)
def test_a_body_that_computes_nothing_gets_a_node_and_gives_the_same(name, within) -> None:
    """By ONNX's own reference evaluator."""
    proto = looped(*IDLE[name], within=within)
    x = {"x": np.array([3.0, -4.0], np.float32)}
    (wanted,) = ReferenceEvaluator(proto).run(None, x)
    amended = onnx.load_from_string(heeding(load(proto, name="idle"), proto.SerializeToString()))
    assert proto != amended
    onnx.checker.check_model(amended)
    (found,) = ReferenceEvaluator(amended).run(None, x)
    np.testing.assert_array_equal(wanted, found)
    assert not amend(amended.graph)


def test_what_computes_something_stays_as_it_is() -> None:
    """A node more would be one more to explain."""
    steps = [helper.make_node("Add", ["sum", "one"], ["more"]), helper.make_node("Identity", ["on"], ["go"])]
    data = looped(steps, ["go", "more"], [("one", np.ones(1, np.float32))]).SerializeToString()
    assert data is heeding(load(onnx.load_from_string(data), name="counts"), data)
    model = tiny_model()
    data = model.bytes()
    assert data is heeding(model, data)
