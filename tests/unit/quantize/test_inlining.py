"""Operators written out as those that define them, against formulas and ONNX Runtime's own operators."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import rtlab
from net_text import sized, written
from nets import run
from promises import broken
from rtlab.core.variant import Rewrite, Variant
from rtlab.errors import VariantError
from rtlab.quantize import passes, prepare
from rtlab.quantize.apply_transforms import make_activation_key
from rtlab.quantize.rewrites import apply_rewrites

node, info = helper.make_node, helper.make_tensor_value_info
X = np.linspace(-3, 3, 12, dtype=np.float32).reshape(3, 4)


def inlined(model, *patterns):
    out = apply_rewrites(model, [Rewrite("inline", p) for p in patterns])
    onnx.checker.check_model(out.proto(), full_check=True)
    assert [] == broken((passes.INTERFACE, passes.ORDER, passes.TYPES), model, out)
    return out


def loaded(nodes, outputs, opset=17, functions=(), **constants):
    """A model that reads "x" of 3 by 4."""
    graph = helper.make_graph(
        nodes, "g", [info("x", TensorProto.FLOAT, [3, 4])], outputs,
        [numpy_helper.from_array(np.asarray(v), k) for k, v in constants.items()],
    )  # fmt: skip
    opsets = [helper.make_opsetid("", opset), helper.make_opsetid("own", 1)]
    proto = helper.make_model(graph, opset_imports=opsets, ir_version=10, functions=functions)
    return rtlab.load(sized(proto), name="net")


def function(name, *nodes, opset=17, attributes=(), defaults=()):
    opsets = [helper.make_opsetid("", opset), helper.make_opsetid("own", 1)]
    return helper.make_function("own", name, ["a"], ["b"], nodes, opsets, attributes, defaults)


def test_an_operator_becomes_the_nodes_that_define_it_and_keeps_its_values():
    model = written("x[3, 4]; a: h = Neg(x); b: y = Celu(h, alpha=2.0); y[3, 4]")
    out = inlined(model, "op:Celu")
    assert {"a"} == {n.id for n in model.top} & {n.id for n in out.top}
    assert {n.origin for n in out.top} == {"a", "b"}
    assert all(n.id.startswith("b/") for n in out.top if n.origin == "b")
    assert (out.inputs, out.outputs, out.values["h"]) == (("x",), ("y",), model.values["h"])
    expected = np.maximum(-X, 0) + np.minimum(0, 2 * np.expm1(-X / 2))
    np.testing.assert_allclose(run(out.bytes(), {"x": X})[0], expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(
    ("op", "opset", "attributes", "constants"),
    [
        ("Celu", 12, {}, {}),
        ("MeanVarianceNormalization", 13, {"axes": [0, 1]}, {}),
        ("MeanVarianceNormalization", 20, {"axes": [1]}, {}),
        ("LayerNormalization", 17, {"axis": -1}, {"s": np.float32([1, 2, 3, 4])}),
        ("GroupNormalization", 21, {"num_groups": 2}, {"s": np.float32([1, 2, 3, 4]), "b": np.zeros(4, np.float32)}),
        ("CenterCropPad", 18, {}, {"s": np.int64([5, 2])}),
        ("ThresholdedRelu", 18, {"alpha": 0.5}, {}),
        ("Shrink", 21, {"lambd": 0.5, "bias": 0.25}, {}),
        ("Gelu", 20, {"approximate": "tanh"}, {}),
        ("Clip", 13, {}, {"low": np.float32(-1)}),
    ],
)  # fmt: skip
def test_what_is_written_out_computes_what_onnx_runtime_does(op, opset, attributes, constants):
    nodes = [node("Neg", ["x"], ["h"], name="n"), node(op, ["h", *constants], ["y"], name="it", **attributes)]
    shape = [5, 2] if op == "CenterCropPad" else [3, 4]
    model = loaded(nodes, [info("y", TensorProto.FLOAT, shape)], opset, **constants)
    out = inlined(model, "it")
    assert op not in {n.op for n in out.top}
    one, other = (run(m.bytes(), {"x": X})[0] for m in (model, out))
    np.testing.assert_allclose(other, one, rtol=1e-5, atol=1e-6)


def test_an_operator_of_what_defines_another_is_written_out_with_it():
    nodes = [
        node("Neg", ["x"], ["h"], name="n"),
        node("SoftmaxCrossEntropyLoss", ["h", "labels"], ["y"], name="it"),
    ]
    model = loaded(nodes, [info("y", TensorProto.FLOAT, [])], labels=np.int64([1, 0, 3]))
    once, whole = inlined(model, "it"), inlined(model, "it", "op:NegativeLogLikelihoodLoss")
    assert "NegativeLogLikelihoodLoss" in {n.op for n in once.top}
    assert "NegativeLogLikelihoodLoss" not in {n.op for n in whole.top}
    assert {n.origin for n in whole.top} == {"n", "it"}
    powers = np.exp(-X)
    expected = -np.log(powers / powers.sum(1, keepdims=True))[np.arange(3), [1, 0, 3]].mean()
    np.testing.assert_allclose(run(whole.bytes(), {"x": X})[0], expected, rtol=1e-5)


def test_outputs_that_a_node_does_not_have_are_not_computed():
    nodes = [node("LayerNormalization", ["x", "s"], ["y"], name="it")]
    out = inlined(loaded(nodes, [info("y", TensorProto.FLOAT, [3, 4])], s=np.ones(4, np.float32)), "it")
    read = {v for n in out.top for v in n.inputs} | {"y"}
    assert all(read & set(n.outputs) for n in out.top)


def test_a_local_function_is_written_out_with_its_attributes_and_its_own_nodes_as_origins():
    elu = node("Elu", ["m"], ["b"], name="elu")
    elu.attribute.append(
        onnx.AttributeProto(name="alpha", type=onnx.AttributeProto.FLOAT, ref_attr_name="slope")
    )
    default = [helper.make_attribute("slope", 2.0)]
    own = function("Own", node("Neg", ["a"], ["m"], name="neg"), elu, defaults=default)
    nodes = [
        node("Own", ["x"], ["h"], name="one", domain="own"),
        node("Own", ["h"], ["y"], name="two", domain="own", slope=0.5),
    ]
    model = loaded(nodes, [info("y", TensorProto.FLOAT, [3, 4])], functions=[own])
    out = inlined(model, "op:Own")
    assert [(n.id, n.origin) for n in out.nodes] == [
        ("one/neg", "neg"), ("one/elu", "elu"), ("two/neg", "neg"), ("two/elu", "elu"),
    ]  # fmt: skip
    assert not out.ir.functions
    half = np.where(-X > 0, -X, 2 * np.expm1(-X))
    expected = np.where(-half > 0, -half, 0.5 * np.expm1(-half))
    np.testing.assert_allclose(run(out.bytes(), {"x": X})[0], expected, rtol=1e-5, atol=1e-6)


def test_what_stands_in_a_body_is_written_out_there():
    def body(name, op):
        inner = [
            node("Neg", ["x"], [f"{name}0"], name=f"{name}_n"),
            node(op, [f"{name}0"], [name], name=f"{name}_it"),
        ]
        return helper.make_graph(inner, name, [], [info(name, TensorProto.FLOAT, None)])

    nodes = [
        node("ReduceMax", ["x"], ["m"], name="m", keepdims=0),
        node("Cast", ["m"], ["c"], name="c", to=TensorProto.BOOL),
        node("If", ["c"], ["y"], name="if", then_branch=body("t", "Celu"), else_branch=body("e", "Abs")),
    ]
    out = inlined(loaded(nodes, [info("y", TensorProto.FLOAT, [3, 4])]), "op:Celu")
    assert {n.origin for n in out.nodes if n.scope == ("if",)} == {"t_n", "t_it", "e_n", "e_it"}
    expected = np.maximum(-X, 0) + np.minimum(0, np.expm1(-X))
    np.testing.assert_allclose(run(out.bytes(), {"x": X})[0], expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("pattern", "words"),
    [
        ("op:Neg", "in opset 17, neither ONNX nor the model itself defines Neg by other operators"),
        ("op:Mish", "no node has an id, a name or an operator like this"),
    ],
)
def test_what_cannot_be_written_out_is_refused_with_the_reason(pattern, words):
    model = written("x[2]; a: h = Neg(x); b: y = Celu(h); y[2]")
    with pytest.raises(VariantError, match=rf'Cannot inline "{pattern}" in model "m": {words}'):
        apply_rewrites(model, [Rewrite("inline", pattern)])


def test_the_nodes_of_a_function_keep_their_origin_in_another_precision():
    model = written("x[3, 4]; a: h = MatMul(x, w); b: y = Celu(h); y[3, 4]", w=np.eye(4, dtype=np.float32))
    variant = Variant.of("fp16", rewrites=["inline op:Celu"])
    ready = prepare(apply_rewrites(model, variant.rewrites), variant)
    assert {n.origin for n in ready.model.top if n.op in {"Elu", "Div", "Mul"}} == {"b"}
    assert {n.origin for n in ready.model.top if n.op == "MatMul"} == {"a"}


def test_values_of_what_is_written_out_have_ranges_of_their_own():
    plain, other = Variant.of("int8"), Variant.of("int8", rewrites=["inline op:Celu"])
    assert make_activation_key(plain) != make_activation_key(other)


def test_a_study_lists_what_can_be_written_out():
    model = written(
        "x[3, 4]; a: h = Celu(x); b: i = Celu(h); c: j = Neg(i); d: y = Relu(j); y[3, 4]", opset=18
    )
    listed = rtlab.Study(model).fusion.rewrites
    assert [str(r) for r in listed("inline")] == ["inline op:Celu", "inline op:Relu"]
    assert listed() == ()
