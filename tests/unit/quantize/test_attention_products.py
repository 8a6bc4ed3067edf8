"""ONNX's Attention written out as products, where a compiler has a quantized kernel for these."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator

from decoders import AttentionNode, operators
from rtlab.backends.onnxruntime import OnnxRuntime
from rtlab.core.compiler_info import AttentionKernel, Maker
from rtlab.core.progress import Silent
from rtlab.core.protocols import BuildRequest
from rtlab.core.scale import Scale
from rtlab.core.variant import Precision, Variant
from rtlab.quantize import passes, prepare, quantizable
from rtlab.quantize.attention_products import explain_unwritable, write_out
from rtlab.quantize.quantizer_toggles import INPUT, build_switched_model

INT8 = AttentionKernel(
    Precision.INT8, frozenset({32, 64}), (2, 512), frozenset({"fp32", "fp16"}), output_pair=True
)
FP8 = AttentionKernel(Precision.FP8, frozenset({64}), (16, 64), frozenset({"fp16"}))
SMALL_FP8 = AttentionKernel(
    Precision.FP8, frozenset({32}), (16, 64), frozenset({"fp16"}), avoided="FP8 of 32 channels is coarse"
)
COMPILER = Maker("Some", half_attention=True, attention_kernels=(INT8, FP8, SMALL_FP8))


def evaluate(model, feed):
    """ONNX's own definition of each operator, in NumPy."""
    return ReferenceEvaluator(model.proto()).run(None, feed)[0]


def ready(model, precision, maker=COMPILER, scale=4.0):
    scales = {v: Scale(scale) for v in quantizable(model)}
    return prepare(model, Variant.of(precision, target="sm120"), scales=scales, maker=maker)


@pytest.mark.parametrize(
    "sizes",
    [
        AttentionNode(),
        AttentionNode(flat=True, batch="N"),
        AttentionNode(kv_heads=2, mask="float"),
        AttentionNode(kv_heads=1, flat=True, mask="row", opset=25),
        AttentionNode(mask="bool", queries=20, opset=24),
        AttentionNode(batch="N", queries=16, keys=24, attributes=(("is_causal", 1), ("scale", 0.3))),
        AttentionNode(flat=True, mask="float", attributes=(("is_causal", 1),)),
    ],
    ids=["heads", "flat", "grouped", "one key head", "hidden", "causal", "causal and masked"],
)
def test_products_give_what_the_operator_gives(sizes: AttentionNode):
    model, written = sizes.make(), []
    products = passes.run(model, [write_out(["attention"], written)])
    onnx.checker.check_model(products.proto(), full_check=True)
    feed = sizes.feed()
    np.testing.assert_allclose(evaluate(products, feed), evaluate(model, feed), atol=2e-6)
    assert not any(n.op == "Attention" for n in products.top)
    assert {"attention"} == {n.origin for n in products.top if n.id not in model.by_id}
    assert "MatMul" == products.by_id["attention"].op
    # What else it reads holds the same numbers as the operator's inputs.
    assert {*written[0].sources.values()} <= {"q_n", "k_n", "v_n", "a"}


@pytest.mark.parametrize(
    ("sizes", "why"),
    [
        (AttentionNode(attributes=(("softcap", 2.0),)), "with a cap of its scores"),
        (AttentionNode(attributes=(("softmax_precision", 1),)), "with a type of its softmax"),
    ],
)
def test_what_has_no_products_says_why(sizes: AttentionNode, why: str):
    model = sizes.make()
    assert why in explain_unwritable(model, model.by_id["attention"])
    done = ready(model, "int8")
    assert "Attention" == done.model.by_id["attention"].op
    assert any(n.startswith("1 node stays fp16: an Attention") and why in n for n in done.notes)


@pytest.mark.parametrize("opset", [23, 25])
def test_both_products_of_an_operator_are_quantized_as_its_inputs_are(opset: int):
    model = operators(opset)
    assert {"qr", "kr", "v", "a"} <= {*quantizable(model)}
    scales = {v: Scale(2.0 + i) for i, v in enumerate(quantizable(model))}
    done = prepare(model, Variant.of("int8", target="sm86"), scales=scales, maker=COMPILER)
    graph, amax = done.model, {}
    for node in graph.top:
        if node.op == "MatMul" and node.origin == "attention":
            for value in node.inputs:
                pair = graph.producers[value]
                assert "DequantizeLinear" == pair.op
                amax[len(amax)] = 127 * float(graph.known[pair.inputs[1]].numpy())
    expected = [scales["qr"].amax, scales["kr"].amax, 1.0, scales["v"].amax]
    np.testing.assert_allclose(list(amax.values()), expected, rtol=1e-3)
    assert "int8" == done.precisions["attention"]
    assert {*done.precisions} <= {*model.by_id}
    assert any(n.startswith("1 Attention is written out as products and a softmax") for n in done.notes)


@pytest.mark.parametrize(("precision", "size"), [("int8", 32), ("fp8", 64)])
def test_quantized_products_cost_little_beside_the_layers_around(precision: str, size: int):
    """In decibels of the output, over the same model whose attention stays in 16 bits."""
    model = operators(23, size=size)
    x = np.random.default_rng(1).standard_normal((1, 32, 2 * size), np.float32)
    exact = evaluate(model, {"x": x}).astype(np.float64)
    ratios = []
    for kernels in ((), COMPILER.attention_kernels):
        maker = Maker("Some", half_attention=True, attention_kernels=kernels)
        rounded = evaluate(ready(model, precision, maker).model, {"x": x})
        ratios.append(10 * np.log10((exact**2).sum() / ((exact - rounded) ** 2).sum()))
    assert 0 < ratios[0] - ratios[1] < 3, ratios


def test_what_rounds_in_the_products_can_be_switched_off():
    """Against the products as they are before: with every switch off it is the source, and with all on the variant."""
    model = operators(23)
    x = np.random.default_rng(2).standard_normal((1, 32, 64), np.float32)
    done = ready(model, "int8")
    switched = build_switched_model(done.reference, done.emulation)
    assert {"attention", "attention/scores"} <= {*switched.nodes}
    runner = OnnxRuntime()
    results = []
    for state in (False, True):
        engine = runner.build(BuildRequest(switched.model, Variant.of("fp32"), level="basic"), Silent())
        feed = {"x": x, INPUT: np.full(len(switched.quantizers), state)}
        results.append(runner.outputs(engine, feed, ("y",))["y"])
    np.testing.assert_allclose(results[0], evaluate(model, {"x": x}), atol=1e-5)
    np.testing.assert_allclose(results[1], evaluate(done.emulation, {"x": x}), atol=2e-2)
    assert np.abs(results[1] - results[0]).max() > 1e-3


def test_a_kernel_that_is_avoided_is_a_note():
    done = ready(operators(23), "fp8")
    assert "Attention" == done.model.by_id["attention"].op
    assert "1 node stays fp16: FP8 of 32 channels is coarse (attention)" in done.notes


@pytest.mark.parametrize(
    ("sizes", "cause"),
    [
        (AttentionNode(size=48), "heads of 48 channels"),
        (AttentionNode(heads=1, kv_heads=1), "one head"),
        (AttentionNode(keys=513), "lengths of 24 and 513"),
    ],
)
def test_an_operator_without_a_kernel_stays_with_its_reason(sizes: AttentionNode, cause: str):
    done = ready(sizes.make(), "int8")
    assert f"1 node stays fp16: no INT8 kernel takes an attention with {cause} (attention)" in done.notes
    assert "Attention" == done.model.by_id["attention"].op


@pytest.mark.parametrize(
    "choice", ["int4", "fp16", {"*": "fp32", "op:MatMul": "int8"}, {"*": "int8", "attention": "fp16"}]
)
def test_an_operator_that_nobody_quantizes_stays(choice):
    assert "Attention" == ready(operators(23), choice).model.by_id["attention"].op
    assert "Attention" == ready(operators(23), choice, None).model.by_id["attention"].op
