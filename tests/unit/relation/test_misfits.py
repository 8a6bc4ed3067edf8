"""Shapes and attributes that the checker of ONNX lets pass, and that no operator takes."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import helper, numpy_helper

import rtlab
from rtlab.errors import ModelError
from rtlab.relation.work import works

INFO = helper.make_tensor_value_info


def model(op: str, weights: list[tuple[int, ...]], **attributes):
    """One node that reads ``x`` and weights of these shapes."""
    names = [f"w{i}" for i in range(len(weights))]
    graph = helper.make_graph(
        [helper.make_node(op, ["x", *names], ["y"], name="one", **attributes)], "g", [INFO("x", 1, [2, 3, 4])],
        [INFO("y", 1, [2, 1, 3, 4])],
        [numpy_helper.from_array(np.ones(w, np.float32), n) for n, w in zip(names, weights, strict=True)],
    )  # fmt: skip
    return rtlab.load(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 22)], ir_version=10))


@pytest.mark.parametrize(
    ("op", "weights", "attributes"),
    [
        ("LSTM", [(16, 4), (1, 16, 4)], {"hidden_size": 4}),
        ("GRU", [(1, 12, 4), (12,)], {"hidden_size": 4}),
    ],
)
def test_the_work_of_a_node_whose_shapes_do_not_fit_is_unknown(op, weights, attributes) -> None:
    found = works(model(op, weights, **attributes))["one"]
    assert (found.macs, found.flops) == (None, None)
    assert found.parameters == sum(map(np.prod, weights))


def test_a_type_that_onnx_has_not_is_refused_in_words() -> None:
    """The checker compares a type with what is inferred, and infers nothing behind operators of others."""
    nodes = [helper.make_node("Other", ["x"], ["y"], domain="other")]
    graph = helper.make_graph(nodes, "g", [INFO("x", 1, [2])], [INFO("y", 1, [2])])
    graph.output[0].type.tensor_type.elem_type = 255
    opsets = [helper.make_opsetid("", 22), helper.make_opsetid("other", 1)]
    with pytest.raises(ModelError) as refused:
        rtlab.load(helper.make_model(graph, opset_imports=opsets, ir_version=10))
    assert "Nobody foresaw" not in str(refused.value)
