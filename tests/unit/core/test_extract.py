"""Cutting nodes out of models that are more than a chain of operators."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

import strategies
from rtlab import load, samples
from rtlab.core.model import wrap
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
    """A branch alone is no model: its condition and its outer values come along."""
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
    assert {} == checked(model, "head/Gemm").shapes
