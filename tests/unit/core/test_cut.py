"""Models cut at values, against graphs written by hand."""

import pickle

import numpy as np
import pytest
from onnx import TensorProto, helper

import rtlab
from net_text import written
from nets import run
from rtlab.errors import BuildError, ModelError
from rtlab.quantize.findings import check
from rtlab.study.remedies import add_remedies, find_cut
from rtlab.web.page.table import describe_failure


def fork():
    return written(
        "x[2, 4]; a: h = Mul(x, w); b: i = Relu(h); c: j = Exp(h); e: k = Add(i, j); f: y = Tanh(k); y[2, 4]",
        w=np.full(4, 3, np.float32),
    )


def test_a_model_up_to_values_has_what_they_follow_from_and_their_numbers():
    model = fork()
    part = rtlab.load(model.bytes(), until=["j", "h"])
    assert [n.id for n in part.top] == ["a", "c"]
    assert (part.outputs, part.inputs) == (("j", "h"), ("x",))
    assert part.values["j"].shape == (2, 4)
    assert 'cut at "j", "h"' in part.notes[0]
    x = np.arange(8, dtype=np.float32).reshape(2, 4) / 8
    exponential, product = run(part.bytes(), {"x": x})
    np.testing.assert_allclose(product, 3 * x, rtol=1e-6)
    np.testing.assert_allclose(exponential, np.exp(3 * x), rtol=1e-6)


def test_a_study_is_cut_with_the_samples_of_the_whole():
    x = np.ones((3, 2, 4), np.float32)
    part = rtlab.Study(fork(), data={"x": x}).cut(until="i")
    assert [n.id for n in part.model.top] == ["a", "b"]
    assert (part.model.outputs, part.data.count) == (("i",), 3)


def test_a_value_that_no_node_writes_is_refused_with_those_like_it():
    with pytest.raises(ModelError, match=r'at "hh": no node writes this value\. Did you mean "h"\?'):
        rtlab.load(fork().bytes(), until="hh")


def test_a_body_keeps_what_it_reads():
    value = helper.make_tensor_value_info
    x, y, o = (value(n, TensorProto.FLOAT, [2, 4]) for n in "xyo")
    body = helper.make_graph([helper.make_node("Neg", ["h"], ["o"], name="neg")], "b", [], [o])
    nodes = [
        helper.make_node("Relu", ["x"], ["h"], name="r"),
        helper.make_node("If", ["c"], ["u"], name="if", then_branch=body, else_branch=body),
        helper.make_node("Exp", ["u"], ["y"], name="e"),
    ]
    graph = helper.make_graph(nodes, "g", [x, value("c", TensorProto.BOOL, [])], [y])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    assert [n.id for n in rtlab.load(model, until="u").top] == ["r", "if"]


@pytest.mark.parametrize(
    ("refused", "values"),
    [({"c"}, ("h", "i")), ({"e"}, ("i", "j")), ({"a"}, ()), ({"b", "c"}, ("h",)), ({"f"}, ("k",))],
)
def test_the_cut_before_nodes_is_where_the_rest_reads(refused, values):
    assert find_cut(fork(), refused) == values


def test_an_output_before_the_cut_stays_one():
    model = written("x[2]; a: h = Neg(x); b: y = Exp(h); h[2]; y[2]")
    assert find_cut(model, {"b"}) == ("h",)
    model = written("x[2]; a: h = Neg(x); b: y = Exp(x); h[2]; y[2]")
    assert find_cut(model, {"b"}) == ("h",)


def test_a_refusal_offers_the_model_before_it_and_says_that_nothing_was_tried():
    error = add_remedies(BuildError("No.", details="d", nodes=("e",)), fork())
    assert str(error) == (
        'No. Or build the model before it: study.cut(until=["i", "j"]), on the command line --until i --until j. '
        "This was not tried."
    )
    assert (error.details, error.nodes, error.until) == ("d", ("e",), ("i", "j"))
    assert ("i", "j") == pickle.loads(pickle.dumps(error)).until
    assert ["i", "j"] == describe_failure(error)["until"]
    assert [] == describe_failure(ValueError("x"))["until"]


def test_an_operator_that_onnx_defines_by_others_is_named_with_what_writes_them():
    model = written("x[2]; a: h = Neg(x); b: y = Bernoulli(h); y[2]")
    assert 'ONNX defines "Bernoulli" by other operators' in str(
        add_remedies(BuildError("No.", nodes=("b",)), model)
    )
    assert "defines" not in str(add_remedies(BuildError("No.", nodes=("a",)), model))


def test_a_dynamic_scale_is_no_reason_to_rewrite_pairs_that_cannot_be_rewritten():
    model = dynamic()
    # Something else of it can be rewritten, and does not help.
    assert {True, False} == {f.fixable for f in check(model)}
    error = add_remedies(BuildError("No.", nodes=("m", "q")), model)
    assert "quantize the FP32 model, with constant scales" in str(error)
    assert "fix_qdq" not in str(error)


def dynamic():
    """A product without its scale, which has no other form, behind two pairs on one value, of which one can go."""
    pairs = [
        helper.make_node(op, [a, "t", "o"], [b], name=b)
        for op, a, b in zip(["QuantizeLinear", "DequantizeLinear"] * 2, "xabc", "abcd", strict=True)
    ]
    nodes = [
        *pairs,
        helper.make_node("DynamicQuantizeLinear", ["d"], ["i", "s", "z"], name="q"),
        helper.make_node("MatMulInteger", ["i", "w", "z"], ["p"], name="m"),
        helper.make_node("Cast", ["p"], ["y"], name="c", to=TensorProto.FLOAT),
    ]
    constants = [
        helper.make_tensor("w", TensorProto.INT8, [4, 4], [1] * 16),
        helper.make_tensor("t", TensorProto.FLOAT, [], [0.1]),
        helper.make_tensor("o", TensorProto.INT8, [], [0]),
    ]
    ends = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [2, 4]) for n in "xy"]
    graph = helper.make_graph(nodes, "g", ends[:1], ends[1:], constants)
    return rtlab.load(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9))
