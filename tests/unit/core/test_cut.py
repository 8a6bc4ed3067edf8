"""Models cut at values, against graphs written by hand."""

import argparse
import pickle

import numpy as np
import pytest
from onnx import TensorProto, helper

import rtlab
from net_text import written
from nets import run
from rtlab.cli.opening import open_study
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


def compiler(*ops):
    """A build that refuses these operators, and nothing else."""

    def build(model):
        if nodes := [n.id for n in model.nodes if n.op in ops]:
            raise BuildError("No.", details="d", nodes=nodes)

    return build


def refusal(model, *ops, prepared=None):
    """What is said of a model where some operators are refused."""
    prepared = prepared or model
    with pytest.raises(BuildError) as caught:
        compiler(*ops)(prepared)
    return add_remedies(caught.value, "v", model, prepared, compiler(*ops))


def test_a_refusal_offers_the_model_before_it_and_says_that_nothing_was_tried():
    error = refusal(fork(), "Add")
    assert str(error) == (
        'No. Or build the model before it: study.cut(until=["i", "j"]), on the command line --until i --until j. '
        "This was not tried."
    )
    assert (error.details, error.nodes, error.until) == ("d", ("e",), ("i", "j"))
    assert ("i", "j") == pickle.loads(pickle.dumps(error)).until
    assert ["i", "j"] == describe_failure(error)["until"]
    assert [] == describe_failure(ValueError("x"))["until"]


def test_an_operator_is_offered_written_out_where_it_is_built_so():
    model = written("x[2]; a: h = Neg(x); b: i = Celu(h); c: y = Celu(i); y[2]")
    error = refusal(model, "Celu")
    assert str(error) == (
        'No. With "Celu" written as the operators that define it, it builds the model, as was tried: '
        'study.fusion.suggest_edit("v", ["inline op:Celu"]), then study.run(); on the command line '
        "--rewrite 'inline op:Celu'."
    )
    assert (error.nodes, error.until, error.rewrites) == (("b", "c"), (), ("inline op:Celu",))
    assert ("inline op:Celu",) == pickle.loads(pickle.dumps(error)).rewrites
    shown = describe_failure(error, variant="v")
    assert (["inline op:Celu"], "v") == (shown["rewrites"], shown["variant"])


def test_what_is_written_out_goes_as_deep_as_the_refusals():
    nodes = [
        helper.make_node("Neg", ["x"], ["h"], name="n"),
        helper.make_node("SoftmaxCrossEntropyLoss", ["h", "t"], ["y"], name="it"),
    ]
    ends = [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in (("x", [3, 4]), ("y", []))]
    labels = helper.make_tensor("t", TensorProto.INT64, [3], [0, 1, 3])
    graph = helper.make_graph(nodes, "g", ends[:1], ends[1:], [labels])
    model = rtlab.load(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9))
    error = refusal(model, "SoftmaxCrossEntropyLoss", "NegativeLogLikelihoodLoss")
    assert error.rewrites == ("inline op:SoftmaxCrossEntropyLoss", "inline op:NegativeLogLikelihoodLoss")


def test_an_operator_that_is_refused_written_out_is_cut_off():
    error = refusal(written("x[2]; a: h = Neg(x); b: y = Celu(h); y[2]"), "Celu", "Elu")
    assert 'With "Celu" written as the operators that define it, it refuses "b/Elu", as was tried.' in str(
        error
    )
    assert (error.rewrites, error.until) == ((), ("h",))
    assert str(error).endswith("This was not tried.")


def test_the_cut_is_before_what_cannot_be_written_out():
    error = refusal(written("x[2]; a: h = Celu(x); b: i = Neg(h); c: y = Erf(i); y[2]"), "Celu", "Erf")
    assert error.until == ("i",)
    assert 'it refuses "c", as was tried. Or build the model before it' in str(error)


def test_a_node_in_a_body_is_cut_off_with_what_owns_the_body():
    value = helper.make_tensor_value_info
    x, y, o = (value(n, TensorProto.FLOAT, [2, 4]) for n in "xyo")
    body = helper.make_graph([helper.make_node("Neg", ["h"], ["o"], name="neg")], "b", [], [o])
    nodes = [
        helper.make_node("Relu", ["x"], ["h"], name="r"),
        helper.make_node("If", ["c"], ["y"], name="choice", then_branch=body, else_branch=body),
    ]
    graph = helper.make_graph(nodes, "g", [x, value("c", TensorProto.BOOL, [])], [y])
    model = rtlab.load(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9))
    error = refusal(model, "Neg")
    assert error.until == ("h",)
    assert 'Or build the model before If "choice", in which it lies: study.cut(until=["h"])' in str(error)


def test_an_operator_in_a_local_function_is_written_out_with_the_call():
    inner = [
        helper.make_node("Neg", ["a"], ["m"], name="neg"),
        helper.make_node("Celu", ["m"], ["b"], name="celu"),
    ]
    own = helper.make_function("own", "Own", ["a"], ["b"], inner, [helper.make_opsetid("", 17)])
    nodes = [
        helper.make_node("Relu", ["x"], ["h"], name="r"),
        helper.make_node("Own", ["h"], ["y"], name="call", domain="own"),
    ]
    ends = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [2, 4]) for n in "xy"]
    graph = helper.make_graph(nodes, "g", ends[:1], ends[1:])
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("own", 1)]
    model = rtlab.load(helper.make_model(graph, opset_imports=opsets, ir_version=9, functions=[own]))
    assert refusal(model, "Celu").rewrites == ("inline op:Own", "inline op:Celu")
    error = refusal(model, "Neg")
    assert (error.rewrites, error.until) == ((), ("h",))
    assert 'before Own "call", in which it lies' in str(error)


def test_a_model_that_is_one_call_is_cut_inside_of_its_function(tmp_path):
    inner = [
        helper.make_node("Neg", ["a"], ["m"], name="neg"),
        helper.make_node("Erf", ["m"], ["b"], name="erf"),
    ]
    own = helper.make_function("own", "Own", ["a"], ["b"], inner, [helper.make_opsetid("", 17)])
    ends = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [2, 4]) for n in "xy"]
    call = helper.make_node("Own", ["x"], ["y"], name="call", domain="own")
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("own", 1)]
    graph = helper.make_graph([call], "g", ends[:1], ends[1:])
    model = rtlab.load(helper.make_model(graph, opset_imports=opsets, ir_version=9, functions=[own]))
    error = refusal(model, "Erf")
    assert error.until == ("call/m",)
    assert "--until call/m. Calls are written out for that. This was not tried." in str(error)
    part = rtlab.Study(model).cut(until=error.until)
    assert [n.op for n in part.model.nodes] == ["Neg"]
    x = np.arange(8, dtype=np.float32).reshape(2, 4)
    np.testing.assert_array_equal(run(part.model.bytes(), {"x": x})[0], -x)
    # The command line reaches it too, and refuses what lies in no function.
    path = tmp_path / "called.onnx"
    path.write_bytes(model.bytes())
    args = argparse.Namespace(model=str(path), shape=[], until=["call/m"], data=None, preprocessing=None)
    assert [n.op for n in open_study(args).model.nodes] == ["Neg"]
    with pytest.raises(ModelError, match="no node writes this value"):
        open_study(argparse.Namespace(**{**vars(args), "until": ["call/none"]}))


def test_a_dynamic_scale_is_no_reason_to_rewrite_pairs_that_cannot_be_rewritten():
    model = dynamic()
    # Something else of it can be rewritten, and does not help.
    assert {True, False} == {f.fixable for f in check(model)}
    error = refusal(model, "MatMulInteger", "DynamicQuantizeLinear")
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
