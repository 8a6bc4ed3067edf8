from __future__ import annotations

import pytest
from onnx import TensorProto, helper

from nets import graph
from rtlab.core.model import Model
from rtlab.core.variant import Precision, Variant
from rtlab.errors import VariantError
from rtlab.quantize import assign

node, FLOAT = helper.make_node, TensorProto.FLOAT


def test_a_pin_counts_for_every_node_that_it_fits(tiny_model: Model):
    got = assign(tiny_model, Variant.of({"*": "int8", "head/*": "fp16", "stem/Conv": "fp32"}))
    assert all((n.startswith("head/")) == (p == "fp16") for n, p in got.items())
    assert Precision.FP32 is got["stem/Conv"]
    assert Precision.INT8 is got["left/Conv"]


def test_a_name_with_brackets_fits_itself(make):
    """PyTorch writes them, and in a pattern they mean a choice of letters."""
    net = make([node("Relu", ["x"], ["y"], name="layer[0]/relu")], {}, {"x": [1]}, {"y": [1]})
    assert ["fp16"] == list(assign(net, Variant.of({"layer[0]/relu": "fp16"})).values())


def test_an_id_means_its_node_alone(make):
    net = make(
        ["x[1]", node("Relu", ["x"], ["a"], name=""), "twice: b = Neg(a); twice: c = Abs(b)",
         node("Exp", ["c"], ["y"], name="#1"), "y[1]"]
    )  # fmt: skip
    named = {n.id: n.name for n in net.top}
    assert "twice" not in named
    assert ["#1"] == [n for n, p in assign(net, Variant.of({"#1": "fp16"})).items() if p == "fp16"]
    assert 2 == sum(p == "fp16" for p in assign(net, Variant.of({"twice": "fp16"})).values())


def test_a_pin_that_fits_nothing_names_what_is_near(tiny_model: Model):
    with pytest.raises(VariantError, match='Did you mean "stem/Conv"'):
        assign(tiny_model, Variant.of({"stem/Convolution": "fp16"}))
    with pytest.raises(VariantError, match=r'Did you mean "op:Conv"'):
        assign(tiny_model, Variant.of({"op:conv": "fp16"}))
    with pytest.raises(VariantError, match="Cannot pin"):
        assign(tiny_model, Variant.of({"zzzzzzzz": "fp16"}))


def test_a_node_in_a_body_cannot_be_pinned() -> None:
    """Bodies and functions stay as exported."""
    body = helper.make_graph([node("Mul", ["x", "x"], ["t"], "product")], "then", [], [])
    body.output.append(helper.make_tensor_value_info("t", FLOAT, [2]))
    outer = node("If", ["c"], ["y"], "outer", then_branch=body, else_branch=body)
    model = graph([outer], [("x", FLOAT, [2]), ("c", TensorProto.BOOL, [])], [("y", FLOAT, [2])], {})
    with pytest.raises(VariantError, match=r"no node of the main graph"):
        assign(model, Variant.of({"product": "fp16"}))


def test_operators_are_pinned_by_their_name_and_the_rest_is_fp32(tiny_model: Model):
    got = assign(tiny_model, Variant.of({"*": "fp16", "op:*Pool": "fp32", "op:Conv": "int8"}))
    assert ["fp32", "int8", "fp16"] == [got[n] for n in ("head/GlobalAveragePool", "left/Conv", "stem/Relu")]
    got = assign(tiny_model, Variant.of({"left/Conv": "int8"}))
    assert {"left/Conv"} == {n for n, p in got.items() if p != "fp32"}
