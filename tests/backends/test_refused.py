"""What the compiler does not run: which kind of operator it is, and what works in its place."""

from __future__ import annotations

import re

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import rtlab
from nets import run
from rtlab import backends
from rtlab.documents import commands
from rtlab.errors import BuildError

here = backends.get("tensorrt-rtx").availability()
pytestmark = pytest.mark.skipif(not here.ok, reason=here.reason)

node = helper.make_node


def net(*nodes, opset: int = 17, constants=None, **outputs) -> rtlab.Model:
    """A product, and behind it some nodes that read its result "h"; ``outputs`` are types and shapes."""
    values = helper.make_tensor_value_info
    weight = np.random.default_rng(0).standard_normal((8, 4)).astype(np.float32)
    graph = helper.make_graph(
        [node("MatMul", ["x", "w"], ["h"], name="first"), *nodes],
        "g",
        [values("x", TensorProto.FLOAT, [1, 6, 8])],
        [values(name, kind, shape) for name, (kind, shape) in outputs.items()],
        [
            numpy_helper.from_array(weight, "w"),
            numpy_helper.from_array(np.int64([1]), "one"),
            *(numpy_helper.from_array(v, n) for n, v in (constants or {}).items()),
        ],
    )
    opsets = [helper.make_opsetid(d, 1) for d in {n.domain for n in nodes} - {""}]
    opsets.append(helper.make_opsetid("", opset))
    return rtlab.load(helper.make_model(graph, opset_imports=opsets, ir_version=10), name="net")


def built(model: rtlab.Model) -> rtlab.Study:
    study = rtlab.Study(model)
    study.add("v", target="sm86", backend="tensorrt-rtx")
    study.run(budget_s=0)
    return study


REFUSED = {
    "NonZero": (
        [node("NonZero", ["h"], ["y"], name="it")],
        (TensorProto.INT64, [3, "K"]),
        "TensorRT has it, TensorRT-RTX does not",
    ),
    "EfficientNMS_TRT": (
        [
            node("Sigmoid", ["h"], ["s"], name="s"),
            node("EfficientNMS_TRT", ["h", "s"], ["y", "b", "c", "l"], name="it", domain="trt.plugins"),
        ],
        (TensorProto.INT32, [1, 1]),
        "a plugin of TensorRT, and TensorRT-RTX has neither",
    ),
    "Unique": (
        [node("Unique", ["h"], ["y"], name="it")],
        (TensorProto.FLOAT, ["K"]),
        "TensorRT has no such operator",
    ),
    "SequenceConstruct": (
        [
            node("SequenceConstruct", ["h", "h"], ["q"], name="it"),
            node("ConcatFromSequence", ["q"], ["y"], name="join", axis=0),
        ],
        (TensorProto.FLOAT, [2, 6, 4]),
        "TensorRT has no such operator",
    ),
    "EPContext": (
        [node("EPContext", ["h"], ["y"], name="it", domain="com.microsoft", ep_cache_context=b"x")],
        (TensorProto.FLOAT, [1, 6, 4]),
        "an engine that ONNX Runtime compiled for itself",
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("op", REFUSED)
def test_a_refusal_names_the_kind_and_the_model_before_it_builds(op: str) -> None:
    nodes, output, kind = REFUSED[op]
    model = net(*nodes, y=output)
    with pytest.raises(BuildError, match=re.escape(f'"it" ({op}: {kind}')) as caught:
        built(model)
    assert caught.value.nodes[0] == "it"
    cut = re.search(r"until=(\[.*?\])", str(caught.value))
    assert cut is not None
    part = rtlab.Study(model).cut(until=re.findall(r'"(.*?)"', cut[1]))
    assert "first" in {n.id for n in built(part.model).model.top}


@pytest.mark.slow
def test_nothing_runs_nms_but_what_comes_before_it() -> None:
    nodes = [
        node("Transpose", ["h"], ["scores"], name="turn", perm=[0, 2, 1]),
        node("NonMaxSuppression", ["h", "scores", "one"], ["y"], name="/nms"),
    ]
    model = net(*nodes, y=(TensorProto.INT64, ["K", 3]))
    with pytest.raises(BuildError, match=r'"/nms" \(NonMaxSuppression: TensorRT has it') as caught:
        built(model)
    assert "--until h --until scores. This was not tried." in str(caught.value)
    assert len(built(rtlab.load(model.bytes(), until=["h", "scores"]))["v"].engine.layers) > 0


@pytest.mark.slow
def test_one_click_in_the_explorer_builds_the_model_before_what_is_refused() -> None:
    turn = node("Transpose", ["h"], ["scores"], name="turn", perm=[0, 2, 1])
    nms = node("NonMaxSuppression", ["h", "scores", "one"], ["y"], name="/nms")
    explorer = rtlab.Study(net(turn, nms, y=(TensorProto.INT64, ["K", 3]))).explore()
    explorer.run()
    explorer.wait()
    assert ["h", "scores"] == explorer.failure["until"]
    explorer._receive(explorer, commands.CutModel(explorer.failure["until"]).to_dict(), [])
    explorer.wait()
    assert explorer.failure is None
    assert ("h", "scores") == explorer.study.model.outputs
    assert explorer.study["fp32@sm86"].engine.layers


@pytest.mark.slow
def test_attention_without_a_kernel_is_decomposed_with_a_note() -> None:
    values = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [1, 2, 16, 32]) for n in "qkvy"]
    attention = node("Attention", ["q", "k", "v"], ["y"], name="it")
    graph = helper.make_graph([attention], "g", values[:3], values[3:])
    opsets = [helper.make_opsetid("", 23)]
    engine = built(rtlab.load(helper.make_model(graph, opset_imports=opsets, ir_version=10)))["v"].engine
    assert any("1 Attention node is decomposed" in n for n in engine.notes)
    assert sum("it" in layer.origins and layer.kind == "gemm" for layer in engine.layers) == 2


#: Operators that TensorRT-RTX 1.7.1 refuses and builds written out: opset, attributes, constants, outputs with shapes.
WRITTEN_OUT = {
    "CenterCropPad": (18, {"axes": [1, 2]}, {"size": np.int64([4, 6])}, {"y": [1, 4, 6]}),
    "LayerNormalization": (17, {}, {"s": np.float32([1, 2, 3, 4])}, {"y": [1, 6, 4], "mean": [1, 6, 1]}),
    "SoftmaxCrossEntropyLoss": (17, {}, {"t": np.int64([[1, 0, 3, 2]])}, {"y": []}),
}


@pytest.mark.slow
@pytest.mark.parametrize("op", WRITTEN_OUT)
def test_an_operator_that_others_define_is_built_from_these(op: str) -> None:
    opset, attributes, constants, shapes = WRITTEN_OUT[op]
    it = node(op, ["h", *constants], [*shapes], name="it", **attributes)
    model = net(
        it, opset=opset, constants=constants, **{n: (TensorProto.FLOAT, s) for n, s in shapes.items()}
    )
    study = rtlab.Study(model)
    study.add("v", target="sm86", backend="tensorrt-rtx")
    with pytest.raises(BuildError, match="it builds the model, as was tried") as caught:
        study.run(budget_s=0)
    assert (caught.value.nodes, caught.value.until) == (("it",), ())
    assert f"inline op:{op}" == caught.value.rewrites[0]
    name = study.fusion.suggest_edit("v", caught.value.rewrites)
    study.run([name], budget_s=0)
    facts = study[name]
    assert facts.mapping.layers("it")
    x = np.random.default_rng(1).standard_normal((1, 6, 8)).astype(np.float32)
    pairs = zip(run(model.bytes(), {"x": x}), run(facts.prepared.model.bytes(), {"x": x}), strict=True)
    for expected, actual in pairs:
        np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("precision", ["fp16", "int8"])
def test_what_is_written_out_is_built_in_other_precisions(precision: str) -> None:
    it = node("CenterCropPad", ["h", "size"], ["y"], name="it", axes=[1, 2])
    model = net(it, opset=18, constants={"size": np.int64([4, 6])}, y=(TensorProto.FLOAT, [1, 4, 6]))
    study = rtlab.Study(model)
    study.add("v", precision=precision, target="sm86", backend="tensorrt-rtx")
    with pytest.raises(BuildError, match="it builds the model, as was tried") as caught:
        study.run(budget_s=0)
    name = study.fusion.suggest_edit("v", caught.value.rewrites)
    study.run([name])
    assert study[name].mapping.layers("it")


@pytest.mark.slow
def test_one_click_in_the_explorer_builds_an_operator_from_others() -> None:
    it = node("CenterCropPad", ["h", "size"], ["y"], name="it", axes=[1, 2])
    model = net(it, opset=18, constants={"size": np.int64([4, 6])}, y=(TensorProto.FLOAT, [1, 4, 6]))
    explorer = rtlab.Study(model).explore()
    explorer.run()
    explorer.wait()
    failure = explorer.failure
    assert (failure["rewrites"], failure["until"]) == (["inline op:CenterCropPad"], [])
    values = {"rewrites": "\n".join(failure["rewrites"])}
    explorer._receive(explorer, commands.StartWork("remedy", failure["variant"], values).to_dict(), [])
    explorer.wait()
    assert explorer.failure is None
    assert explorer.study[f"{failure['variant']} rewritten"].engine.layers


@pytest.mark.slow
def test_a_refused_node_in_a_body_is_named_with_the_model_before_the_owner() -> None:
    def body(name: str, *nodes: onnx.NodeProto) -> onnx.GraphProto:
        return helper.make_graph(
            nodes, name, [], [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["K"])]
        )

    nodes = [
        node("Relu", ["h"], ["r"], name="relu"),
        node("ReduceMax", ["r"], ["most"], name="most", keepdims=0),
        node("Cast", ["most"], ["c"], name="condition", to=TensorProto.BOOL),
        node(
            "If", ["c"], ["y"], name="choice",
            then_branch=body("t", node("Unique", ["r"], ["t"], name="it")),
            else_branch=body("e", node("Reshape", ["r", "flat"], ["e"], name="e")),
        ),
    ]  # fmt: skip
    model = net(*nodes, constants={"flat": np.int64([-1])}, y=(TensorProto.FLOAT, ["K"]))
    with pytest.raises(BuildError, match='before If "choice", in which it lies') as caught:
        built(model)
    assert caught.value.until == ("r", "c")
    assert built(rtlab.Study(model).cut(until=caught.value.until).model)["v"].engine.layers


@pytest.mark.slow
def test_a_refused_operator_in_a_local_function_is_built_from_others() -> None:
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("own", 1)]
    inner = [
        node("Neg", ["a"], ["m"], name="neg"),
        node("CenterCropPad", ["m", "n"], ["b"], name="it", axes=[1, 2]),
    ]
    own = helper.make_function("own", "Own", ["a", "n"], ["b"], inner, opsets)
    call = node("Own", ["x", "size"], ["y"], name="call", domain="own")
    ends = [
        helper.make_tensor_value_info(n, TensorProto.FLOAT, s)
        for n, s in (("x", [1, 6, 4]), ("y", [1, 4, 6]))
    ]
    graph = helper.make_graph(
        [call], "g", ends[:1], ends[1:], [numpy_helper.from_array(np.int64([4, 6]), "size")]
    )
    model = rtlab.load(helper.make_model(graph, opset_imports=opsets, ir_version=10, functions=[own]))
    with pytest.raises(BuildError, match="it builds the model, as was tried") as caught:
        built(model)
    assert caught.value.rewrites == ("inline op:Own", "inline op:CenterCropPad")
    study = rtlab.Study(model)
    study.add("v", target="sm86", backend="tensorrt-rtx", rewrites=caught.value.rewrites)
    study.run(budget_s=0)
    assert study["v"].mapping.layers("neg")


@pytest.mark.slow
def test_attention_of_one_value_crashes_the_compiler_and_is_built_from_others() -> None:
    ends = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [1, 2, 16, 32]) for n in "xy"]
    nodes = [
        node("Identity", ["x"], ["v"], name="same"),
        node("Attention", ["x", "x", "v"], ["y"], name="it"),
    ]
    graph = helper.make_graph(nodes, "g", ends[:1], ends[1:])
    model = rtlab.load(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=10))
    with pytest.raises(
        BuildError,
        match=r'makes it crash: "it"\. With "Attention" written as the operators that define it, it builds',
    ) as caught:
        built(model)
    assert caught.value.rewrites == ("inline op:Attention",)
