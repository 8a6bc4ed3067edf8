"""Models that people change by hand with ONNX GraphSurgeon."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnx_graphsurgeon as gs
import pytest
from onnx import helper

import rtlab
from nets import graph
from rtlab.core.model import Model
from rtlab.quantize import placement

node = helper.make_node
WEIGHT = np.random.default_rng(0).standard_normal((40, 64)).astype(np.float32)


def turned() -> Model:
    """A product whose weight is turned in the graph, as exporters leave it."""
    nodes = [
        node("Transpose", ["w"], ["t"], name="turn", perm=[1, 0]),
        node("MatMul", ["x", "t"], ["p"], name="product"),
        node("Relu", ["p"], ["y"], name="relu"),
    ]
    return graph(nodes, [("x", 1, ["N", 64])], [("y", 1, ["N", 40])], {"w": WEIGHT})


def test_a_weight_that_is_computed_is_folded_and_can_be_quantized() -> None:
    """The remedy for "its weight is computed from constants"."""
    net = turned()
    assert {} == placement.plan(net).weights
    found = net.edit(lambda graph: graph.fold_constants())
    assert ["product", "relu"] == [n.id for n in found.nodes]
    assert [("t", 1)] == list(placement.plan(found).weights)
    np.testing.assert_array_equal(WEIGHT.T, found.known["t"].numpy())
    assert ["turn", "product", "relu"] == [n.id for n in net.nodes]


def test_numbers_that_are_changed_are_the_new_ones() -> None:
    """And those of the model stay: weights are shared, not lent."""

    def change(graph: Any) -> None:
        graph.tensors()["w"].values *= 2

    net = turned()
    np.testing.assert_array_equal(WEIGHT * 2, net.edit(change).known["w"].numpy())
    np.testing.assert_array_equal(WEIGHT, net.known["w"].numpy())


def test_a_node_that_is_put_in_is_there_and_the_others_keep_their_names() -> None:
    def change(graph: Any) -> None:
        relu = next(n for n in graph.nodes if n.name == "relu")
        made = gs.Variable("a", np.float32)
        # At the end, where it does not belong: nodes are sorted.
        graph.nodes.append(gs.Node("Abs", "abs", inputs=[relu.inputs[0]], outputs=[made]))
        relu.inputs[0] = made

    assert ["turn", "product", "abs", "relu"] == [n.id for n in turned().edit(change).nodes]


@pytest.mark.parametrize(
    "name", ["digits_inception", "digits_gru", "control_flow", "hostile_names", "digits_qat"]
)
def test_a_model_that_is_not_changed_computes_the_same(name: str) -> None:
    """Bodies, functions, hostile names and pairs of others come through."""
    source = rtlab.samples.load(name).model
    found = source.edit(lambda _: None)
    assert (source.inputs, source.outputs) == (found.inputs, found.outputs)
    assert {n.id: n.name for n in found.top}.items() <= {n.id: n.name for n in source.top}.items()
    for key, tensor in found.known.items():
        np.testing.assert_array_equal(source.known[key].numpy(), tensor.numpy())
    onnx.checker.check_model(found.proto(), full_check=True)


def test_weights_that_nobody_touches_are_the_same_bytes() -> None:
    def change(graph: Any) -> None:
        graph.outputs = [graph.tensors()["p"]]

    found = turned().edit(change)
    assert ("p",) == found.outputs
    assert ["turn", "product"] == [n.id for n in found.nodes]
    assert WEIGHT.tobytes() == found.known["w"].tobytes()
