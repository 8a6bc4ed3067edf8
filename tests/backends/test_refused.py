"""What the compiler does not run: which kind of operator it is, and what works in its place."""

from __future__ import annotations

import re

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import rtlab
from rtlab import backends
from rtlab.documents import commands
from rtlab.errors import BuildError

here = backends.get("tensorrt-rtx").availability()
pytestmark = pytest.mark.skipif(not here.ok, reason=here.reason)

node = helper.make_node


def net(*nodes, opset: int = 17, **outputs) -> rtlab.Model:
    """A product, and behind it some nodes that read its result "h"; ``outputs`` are types and shapes."""
    values = helper.make_tensor_value_info
    weight = np.random.default_rng(0).standard_normal((8, 4)).astype(np.float32)
    graph = helper.make_graph(
        [node("MatMul", ["x", "w"], ["h"], name="first"), *nodes],
        "g",
        [values("x", TensorProto.FLOAT, [1, 6, 8])],
        [values(name, kind, shape) for name, (kind, shape) in outputs.items()],
        [numpy_helper.from_array(weight, "w"), numpy_helper.from_array(np.int64([1]), "one")],
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
