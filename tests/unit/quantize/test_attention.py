"""Where attention is, when it is quantized, and in which type the rest of such a model is."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from rtlab import backends
from rtlab.core.attention import AttentionSizes, find_attentions, has_attention
from rtlab.core.compiler_info import AttentionKernel, Maker
from rtlab.core.scale import Scale
from rtlab.core.variant import Precision, Variant
from rtlab.quantize import prepare, quantizable
from rtlab.quantize.placement import plan
from tests.decoders import Decoder

INT8 = AttentionKernel(
    Precision.INT8, frozenset({32}), (16, 64), frozenset({"fp16", "fp32"}), output_pair=True
)
FP8 = AttentionKernel(Precision.FP8, frozenset({32}), (16, 64), frozenset({"fp16"}))
COMPILER = Maker("Some", half_attention=True, attention_kernels=(INT8, FP8))
SMALL = Decoder(layers=1)


def ready(model, precision, maker=COMPILER, target="sm89"):
    scales = {v: Scale(2.0) for v in quantizable(model)}
    return prepare(model, Variant.of(precision, target=target), scales=scales, maker=maker)


def kinds(model, op):
    """Types of what nodes of an operator write."""
    return {model.values[n.outputs[0]].dtype for n in model.top if n.op == op}


def test_attention_is_where_a_softmax_stands_between_two_products_of_activations():
    (found,) = find_attentions(SMALL.make())
    assert (found.scores.id, found.softmax, found.context.id) == (
        "layer0/scores/MatMul", "layer0/Softmax", "layer0/context/MatMul",
    )  # fmt: skip
    assert found.sizes == AttentionSizes(4, 32, (32, 32), "fp32")
    (dynamic,) = find_attentions(dataclasses.replace(SMALL, length=0).make())
    assert (dynamic.sizes.head_size, dynamic.sizes.lengths) == (32, None)


@pytest.mark.parametrize(
    "net",
    [
        "x[4, 8]; a: s = MatMul(x, w); b: p = Softmax(s); c: y = MatMul(p, x); y[4, 8]",
        "x[4, 8]; a: s = Softmax(x); c: y = MatMul(s, w); y[4, 8]",
    ],
)
def test_a_softmax_beside_a_product_with_a_weight_is_no_attention(make, net: str):
    made = make(net, {"w": np.ones((8, 8) if "Softmax(x)" in net else (8, 4), np.float32)})
    assert not find_attentions(made)
    assert not has_attention(made)


@pytest.mark.parametrize("guard", ["scale", "mask", "number", "cast"])
def test_scales_masks_guards_and_casts_belong_to_attention(make, guard: str):
    between, behind = {
        "scale": ("t: t = Div(s, h);", ""),
        "mask": ("t: t = Where(m, s, h);", ""),
        "number": ("t: t = Identity(s);", "n: i = IsNaN(q); g: p = Where(i, h, q);"),
        "cast": ("t: t = Cast(s, to=1);", "g: p = Cast(q, to=1);"),
    }[guard]
    net = (
        "x[4, 8]; k[8, 4]; v[4, 8]; a: s = MatMul(x, k); "
        f"{between} b: {'q' if behind else 'p'} = Softmax(t); {behind} c: y = MatMul(p, v); y[4, 8]"
    )
    made = make(net, {"h": np.float32(2), "m": np.ones((4, 4), bool)})
    assert [AttentionSizes(None, 8, (4, 4), "fp32", guard == "number")] == [
        a.sizes for a in find_attentions(made)
    ]


def test_a_kernel_says_which_inputs_and_outputs_of_attention_are_quantized():
    model = SMALL.make()
    plain = plan(model)
    decided = plan(model, kernels=(INT8,))
    scores, context = "layer0/scores/MatMul", "layer0/context/MatMul"
    more = {v: e for v, e in decided.activations.items() if v not in plain.activations}
    assert more == {
        "layer0/q/rotary/Add": ((scores, 0),),
        "layer0/keys/Transpose": ((scores, 1),),
        "layer0/v/Transpose": ((context, 1),),
        "layer0/Softmax": ((context, 0),),
    }
    assert not set(decided.activations) - set(quantizable(model))
    # Behind views, the pair in front of the next product is that of the output; without it there is one behind.
    nodes = [n.id for n in model.top if n.id != "layer0/output/MatMul"]
    part = plan(model, nodes, kernels=(INT8,))
    assert (("layer0/context/Transpose", 0),) == part.activations[context]
    assert not set(part.activations) - set(quantizable(model))
    float8 = plan(model, precision=Precision.FP8, kernels=(dataclasses.replace(FP8, types=INT8.types),))
    assert context not in float8.activations
    assert {"layer0/Softmax": 1.0} == float8.thresholds


@pytest.mark.parametrize(
    "kernel",
    [
        dataclasses.replace(INT8, head_sizes=frozenset({64})),
        dataclasses.replace(INT8, lengths=(16, 31)),
        dataclasses.replace(INT8, types=FP8.types),
        dataclasses.replace(INT8, precision=Precision.FP8),
    ],
)
def test_attention_that_no_kernel_takes_is_left(kernel):
    model = SMALL.make()
    assert plan(model).activations == plan(model, kernels=(kernel,)).activations


@pytest.mark.parametrize(
    ("sizes", "why"),
    [
        (AttentionSizes(4, 32, (32, 32), "fp16"), ""),
        (AttentionSizes(4, 40, (32, 32), "fp16"), "with heads of 40 channels"),
        (AttentionSizes(4, 64, (32, 32), "bf16"), ""),
        (AttentionSizes(4, 32, (32, 32), "bf16"), "with heads of 32 channels and this type around"),
        (AttentionSizes(4, 32, (32, 65), "fp16"), "with lengths of 32 and 65"),
        (AttentionSizes(4, 32, None, "fp16"), "with a dynamic length"),
        (AttentionSizes(1, 32, (32, 32), "fp16"), "with one head"),
        (AttentionSizes(4, 32, (32, 32), "fp16", is_guarded=True), "with a guard behind its softmax"),
        (AttentionSizes(4, 32, (32, 32), "fp64"), "with this type around"),
    ],
)
def test_why_no_kernel_takes_an_attention(sizes: AttentionSizes, why: str):
    kernels = (INT8, dataclasses.replace(INT8, head_sizes=frozenset({64}), types=frozenset({"bf16"})))
    assert sizes.explain_misfit(kernels) == (why and f"no INT8 kernel takes an attention {why}")
    assert (sizes.find_kernel(kernels) is None) == bool(why)


def test_one_head_has_no_kernel_for_several():
    model = dataclasses.replace(SMALL, width=32, heads=1).make()
    assert plan(model).activations == plan(model, kernels=(INT8,)).activations


def test_what_is_around_decides_after_the_rest_has_its_type():
    """FP8 has a kernel in FP16 here, and so it is quantized only where the rest becomes FP16."""
    model = SMALL.make()
    for precision, stored in (
        ("fp8", "fp8"),
        ({"*": "fp32", "op:MatMul": "fp8", "op:Softmax": "fp8"}, "fp32"),
    ):
        done = ready(model, precision)
        maker = done.model.producers[done.model.by_id["layer0/context/MatMul"].inputs[0]]
        assert ("DequantizeLinear" if stored == "fp8" else "Softmax") == maker.op


def test_attention_is_quantized_as_a_whole_or_not_at_all():
    model = SMALL.make()
    nodes = [n.id for n in model.top if n.op != "Softmax"]
    assert plan(model, nodes).activations == plan(model, nodes, kernels=(INT8,)).activations


@pytest.mark.parametrize(("precision", "stored"), [("int8", "int8"), ("fp8", "fp8"), ("int4", "int4")])
def test_the_rest_of_a_model_with_attention_is_fp16(precision: str, stored: str):
    done = ready(SMALL.make(), precision)
    assert {"fp16"} == kinds(done.model, "Softmax") == kinds(done.model, "DequantizeLinear")
    assert {"fp16"} == {p.value for n, p in done.precisions.items() if n == "layer0/Softmax"}
    assert any(
        n.startswith("the rest is fp16 but for sums of squares, since Some runs a whole attention")
        for n in done.notes
    )
    products = {
        done.precisions[n.id].value for n in done.model.top if n.id in {"layer0/q/MatMul", "head/MatMul"}
    }
    assert {precision} == products
    assert any(stored in (v.dtype or "") for v in done.model.values.values())


def test_fp32_around_is_a_choice():
    done = ready(SMALL.make(), {"*": "fp32", "op:MatMul": "int8"})
    assert {"fp32"} == kinds(done.model, "Softmax") == kinds(done.model, "DequantizeLinear")
    assert not any("the rest is fp16" in n for n in done.notes)


@pytest.mark.parametrize("maker", [None, Maker("Other")])
def test_other_compilers_have_fp32_around(maker):
    done = ready(SMALL.make(), "int8", maker)
    assert {"fp32"} == kinds(done.model, "Softmax") == kinds(done.model, "DequantizeLinear")


def test_each_backend_with_kernels_of_16_bits_for_attention_has_fp16_around():
    """TensorRT's own is known from its documentation alone, and the note says so."""
    model, proofs = SMALL.make(), {}
    for name in backends.registry():
        maker = backends.get(name).capabilities().maker
        done = ready(model, "int8", maker, "sm86")
        assert ({"fp16"} if maker.half_attention else {"fp32"}) == kinds(done.model, "Softmax")
        proofs[name] = [("by its documentation" in n) for n in done.notes if n.startswith("the rest is fp16")]
    assert [True] == proofs["tensorrt"]
    assert [False] == proofs["tensorrt-rtx"]
    assert [] == proofs["onnxruntime"]


def test_a_model_without_attention_has_fp32_around(make):
    net = make(
        "x[1, 4, 4, 4]; a: a = Conv(x, w); s: s = Sigmoid(a); b: y = Conv(s, w); y",
        {"w": np.ones((4, 4, 1, 1), np.float32)},
    )
    assert ready(net, "int8").model.bytes() == ready(net, "int8", None).model.bytes()


def test_scales_that_16_bits_would_round_away_are_those_that_weights_are_stored_by(make, run):
    """A channel of weights around 1e-4 has a scale of 1e-6, which FP16 has in steps of 6e-8."""
    weight = np.random.default_rng(0).standard_normal((8, 8)).astype(np.float32)
    weight[:, 0] *= 1e-4
    weight[:, 1] = 1e-9
    net = make("x[4, 8]; m: y = MatMul(x, w); y[4, 8]", {"w": weight})
    done = ready(net, {"*": "fp16", "op:MatMul": "int8"})
    stored = {
        n.inputs[0]: n
        for n in done.model.top
        if n.op == "DequantizeLinear" and n.inputs[0] in done.model.known
    }
    ((integers, node),) = stored.items()
    scale = done.model.known[node.inputs[1]].numpy()
    assert scale.dtype == np.float16
    values = done.model.known[integers].numpy().astype(np.float32) * scale.astype(np.float32)
    assert np.all(np.abs(values - weight) <= scale.astype(np.float32) * 0.5 + 127 * 6e-8)
