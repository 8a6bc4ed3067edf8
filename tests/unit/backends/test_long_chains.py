"""Graphs of one long chain: what rules predict of them takes a time that grows with the chain alone."""

from __future__ import annotations

import itertools

import onnx
from onnx import helper

import rtlab


def chain(nodes: int) -> onnx.ModelProto:
    """One Relu after the other."""
    names = ["x", *(f"v{i}" for i in range(nodes - 1)), "y"]
    made = [helper.make_node("Relu", [a], [b]) for a, b in itertools.pairwise(names)]
    ends = [helper.make_tensor_value_info(name, 1, [4]) for name in ("x", "y")]
    graph = helper.make_graph(made, "g", ends[:1], ends[1:])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def test_a_layer_of_a_predicted_engine_has_a_bounded_number_of_nodes() -> None:
    study = rtlab.Study(rtlab.load(chain(1200)))
    study.add("a", backend="classic")
    study.run(compare=False)
    counts = [len(layer.origins) for layer in study["a"].engine.layers]
    assert sum(counts) == 1200
    assert max(counts) <= 500
    assert study["a"].coverage.nodes == 1200
