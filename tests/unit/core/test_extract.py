"""Cutting nodes out of models, and models that people change by hand with ONNX GraphSurgeon."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnx_graphsurgeon as gs
import pytest
from onnx import TensorProto, helper, numpy_helper

import rtlab
import strategies
from nets import graph
from rtlab import load, samples
from rtlab.core.model import Model, wrap
from rtlab.quantize import placement
from rtlab.testing import tiny_model

node = helper.make_node


def checked(model, *ids: str):
    part = model.extract(ids)
    onnx.checker.check_model(part.proto(), full_check=True)
    return part


def test_the_cut_has_the_types_and_shapes_of_the_values_it_goes_through() -> None:
    part = checked(tiny_model(), "left/Conv", "right/Conv")
    assert (("act",), ("left", "right")) == (part.inputs, part.outputs)
    value = part.values["act"]
    assert ("fp32", ("N", 8, 8, 8)) == (value.dtype, value.shape)
    assert {"left_w", "right_w"} == {v.name for v in part.values.values() if v.kind == "constant"}


def test_a_node_in_a_branch_stands_for_the_if_with_all_it_reads() -> None:
    model = samples.load("control_flow").model
    inner = next(n for n in model.nodes if n.scope)
    part = checked(model, inner.id)
    assert [inner.scope[0]] == [n.id for n in part.top]
    assert inner.id in part.by_id


def test_a_place_in_a_function_stands_for_its_call() -> None:
    opset = [helper.make_opsetid("", 17), helper.make_opsetid("local", 1)]
    proto = strategies.of_nodes(
        [node("f", ["x"], ["h"], name="a", domain="local"), node("f", ["h"], ["y"], name="b", domain="local")]
    )
    proto.opset_import.append(helper.make_opsetid("local", 1))
    proto.functions.append(
        helper.make_function("local", "f", ["u"], ["v"], [node("Neg", ["u"], ["v"], name="neg")], opset)
    )
    model = load(proto)
    assert ["b"] == [n.id for n in checked(model, "b/neg").top]
    assert ["a", "b"] == [n.id for n in checked(model, "neg").top]


def test_a_constant_that_is_a_node_comes_along() -> None:
    one = numpy_helper.from_array(np.ones((1, 4), np.float32))
    nodes = [node("Constant", [], ["c"], name="c", value=one), node("Add", ["x", "c"], ["h"], name="add"),
             node("Relu", ["h"], ["y"], name="relu")]  # fmt: skip
    part = checked(load(strategies.of_nodes(nodes)), "add")
    assert ["c", "add"] == [n.id for n in part.nodes]
    assert (("x",), ("h",)) == (part.inputs, part.outputs)


def test_a_shape_that_nobody_knows_is_not_invented() -> None:
    """After an operator that ONNX does not know nothing is known; a scalar in its place would be a lie."""
    nodes = [
        node("Mystery", ["x"], ["h"], name="m", domain="vendor"),
        node("Relu", ["h"], ["y"], name="relu"),
    ]
    proto = strategies.of_nodes(nodes)
    proto.opset_import.append(helper.make_opsetid("vendor", 1))
    model = wrap(proto, name="custom")
    for id_ in ("m", "relu"):
        part = model.extract([id_])
        assert [id_] == [n.id for n in part.nodes]
        assert ("", None) == (part.values["h"].dtype, part.values["h"].shape)


def test_external_weights_are_inside_the_part(tmp_path) -> None:
    weight = numpy_helper.from_array(np.arange(4096, dtype=np.float32).reshape(1, 4096), "w")
    proto = strategies.of_nodes(
        [node("Add", ["x", "w"], ["y"], name="add")], weights=[weight], shape=(1, 4096)
    )
    onnx.save_model(
        proto, tmp_path / "m.onnx", save_as_external_data=True, location="m.data", size_threshold=0
    )
    part = checked(load(tmp_path / "m.onnx"), "add")
    (kept,) = part.proto().graph.initializer
    assert TensorProto.DEFAULT == kept.data_location
    np.testing.assert_array_equal(numpy_helper.to_array(weight), numpy_helper.to_array(kept))


def test_named_sizes_go_with_the_part() -> None:
    model = load(tiny_model(batch="N").proto(), shapes={"N": 4})
    assert {"N": 4} == checked(model, "stem/Conv").shapes
    model = load(tiny_model().proto(), shapes={"x": (2, 3, 8, 8)})
    assert {"N": 2} == checked(model, "head/Gemm").shapes


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
    net = turned()
    assert {} == placement.plan(net).weights
    found = net.edit(lambda graph: graph.fold_constants())
    assert ["product", "relu"] == [n.id for n in found.nodes]
    assert [("t", 1)] == list(placement.plan(found).weights)
    np.testing.assert_array_equal(WEIGHT.T, found.known["t"].numpy())
    assert ["turn", "product", "relu"] == [n.id for n in net.nodes]


def test_numbers_that_are_changed_are_the_new_ones() -> None:

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
