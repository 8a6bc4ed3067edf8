"""Transformers through NVIDIA's own builder: attention in one layer where rtlab quantizes it, and in FP16 elsewhere.

The last tests are what these choices rest on: which patterns of Q/DQ pairs the builder makes one quantized kernel of.
"""

from __future__ import annotations

import dataclasses

import ml_dtypes
import numpy as np
import pytest

import trt_nets
from decoders import AttentionNode, Decoder, operators
from patterns import QuantizedAttention, linear
from rtlab import Study, backends
from rtlab.core.engine import Engine
from rtlab.core.model import Model, load
from rtlab.core.options import BuildOptions
from rtlab.core.progress import Silent
from rtlab.core.protocols import BuildRequest
from rtlab.core.scale import Scale
from rtlab.core.variant import Variant
from rtlab.errors import BuildError
from rtlab.quantize import prepare, quantizable

RTX = backends.get("tensorrt-rtx")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not RTX.availability().ok, reason=RTX.availability().reason),
]
SMALL = Decoder(layers=2)


def built(model, precision, target="sm86") -> Engine:
    variant = Variant.of(precision, target=target)
    scales = {v: Scale(2.0) for v in quantizable(model)}
    ready = prepare(model, variant, scales=scales, maker=RTX.capabilities().maker)
    return RTX.build(BuildRequest(ready.model, variant, several=True), Silent())


def listed(model: Model, target: str) -> Engine:
    """A model as it is, with 16 to 64 positions where these are dynamic."""
    dynamic = [n for n in model.inputs if "L" in (model.values[n].shape or ())]
    bounds = {n: [(1, 4, length, 64) for length in (16, 64, 64)] for n in dynamic}
    options = BuildOptions(profiles=[bounds]) if dynamic else None
    variant = Variant.of("fp32", target=target, options=options)
    return RTX.build(BuildRequest(model, variant, several=True), Silent())


def attention(engine) -> list[set[str]]:
    """Types of what each layer that is a whole attention reads."""
    return [{t.dtype for t in y.inputs} for y in engine.layers if "_mha" in f"{y.tactic} {y.name}"]


@pytest.mark.parametrize(
    ("precision", "target", "heads", "read"),
    [
        ("int8", "sm86", 4, "int8"), ("int8", "sm120", 2, "int8"), ("fp8", "sm89", 2, "fp8"),
        # Heads of 32 are left to FP16.
        ("fp8", "sm89", 4, "fp16"),
    ],
)  # fmt: skip
def test_attention_is_one_layer_that_reads_what_rtlab_quantizes(
    precision: str, target: str, heads: int, read: str
):
    model = dataclasses.replace(SMALL, heads=heads).make()
    assert [{read}, {read}] == attention(built(model, precision, target))


@pytest.mark.parametrize(
    "sizes",
    [
        dataclasses.replace(SMALL, width=160),
        dataclasses.replace(SMALL, length=544, layers=1),
        dataclasses.replace(SMALL, kind=np.float16, width=160),
    ],
    ids=["40 channels", "544 tokens", "an export in FP16"],
)
def test_attention_that_has_no_int8_kernel_is_one_layer_in_fp16(sizes: Decoder):
    assert [{"fp16"}] * sizes.layers == attention(built(sizes.make(), "int8"))


@pytest.mark.parametrize("precision", ["int8", "int4"])
def test_fp16_around_is_fewer_layers_than_fp32_around(precision: str):
    model = dataclasses.replace(SMALL, width=160).make()
    around = [built(model, p) for p in (precision, {"*": "fp32", "op:MatMul": precision})]
    assert [2, 0] == [len(attention(e)) for e in around]
    assert len(around[0].layers) < len(around[1].layers)


@pytest.mark.parametrize(
    ("sizes", "precision", "layers", "read"),
    [
        (Decoder(), {"*": "fp32", "op:MatMul": "int8"}, 59, ""),
        (Decoder(), {"*": "fp16", "op:MatMul": "int8"}, 51, "fp16"),
        (Decoder(), "int8", 47, "int8"),
        # Heads of 40 channels have no INT8 kernel.
        (Decoder(width=160), "int8", 51, "fp16"),
    ],
    ids=["FP32 around", "FP16 around", "by default", "heads of 40"],
)
def test_layers_of_a_decoder_of_four_blocks(sizes: Decoder, precision: object, layers: int, read: str):
    engine = built(sizes.make(), precision)
    assert layers == len(engine.layers)
    assert ([{read}] * 4 if read else []) == attention(engine)


@pytest.mark.parametrize("kind", [np.float16, np.float32])
def test_an_export_in_fp16_is_quantized_as_one_in_fp32(kind: type):
    engine = built(dataclasses.replace(SMALL, kind=kind).make(), "int8")
    products = [y for y in engine.layers if y.kind == "gemm"]
    assert (
        len(products) == 9
    )  # q, k and v in one and gate and up in one, output and down: of two layers; the head
    assert {"int8"} == {y.inputs[0].dtype for y in products}
    assert [{"int8"}, {"int8"}] == attention(engine)


@pytest.mark.parametrize(
    ("kind", "heads", "read"),
    [(ml_dtypes.bfloat16, 2, "int8"), (ml_dtypes.bfloat16, 4, "bf16"), (np.float32, 2, "int8")],
    ids=["an export in BF16", "an export in BF16 with small heads", "BF16 around"],
)
def test_int8_has_bf16_around(kind: type, heads: int, read: str):
    precision: object = "int8"
    if kind is np.float32:
        precision = {"*": "bf16", "op:MatMul": "int8", "op:Softmax": "int8"}
    model = dataclasses.replace(SMALL, heads=heads, kind=kind).make()
    engine = built(model, precision)
    assert [{read}, {read}] == attention(engine)
    products = [y for y in engine.layers if y.kind == "gemm"]
    assert 9 == len(products)
    assert {("int8", "bf16")} == {(y.inputs[0].dtype, y.outputs[0].dtype) for y in products}


@pytest.mark.parametrize("kind", [np.float16, ml_dtypes.bfloat16])
def test_an_export_in_16_bits_multiplies_in_fp4(kind: type):
    engine = built(dataclasses.replace(SMALL, kind=kind, layers=1).make(), "fp4", "sm120")
    products = [y for y in engine.layers if y.kind == "gemm"]
    assert 8 == len(products)
    assert {"fp4"} == {y.inputs[0].dtype for y in products}


@pytest.mark.parametrize(
    ("sizes", "precision", "target"),
    [
        (AttentionNode(), "int8", "sm86"),
        (AttentionNode(flat=True, kv_heads=2, mask="float", opset=25), "int8", "sm89"),
        (AttentionNode(mask="bool", size=64, batch=1), "int8", "sm120"),
        (AttentionNode(size=64, queries=32, keys=48, attributes=(("is_causal", 1),)), "int8", "sm86"),
        (AttentionNode(size=64, queries=32, keys=32, flat=True, kv_heads=1), "fp8", "sm89"),
        (AttentionNode(size=128, queries=64, keys=64, mask="row", opset=24), "fp8", "sm120"),
    ],
)
def test_the_operator_is_one_quantized_layer_in_products(sizes: AttentionNode, precision: str, target: str):
    model = sizes.make()
    engine = built(model, precision, target)
    (read,) = attention(engine)
    assert precision in read
    (layer,) = [y for y in engine.layers if "_mha" in f"{y.tactic} {y.name}"]
    assert "attention" in layer.origins


def test_a_study_compares_the_operator_with_its_products():
    """What each node makes of exact inputs is that of the study where attention stays, but for attention's own."""
    samples = [{"x": np.random.default_rng(i).standard_normal((1, 32, 64), np.float32)} for i in range(4)]
    study = Study(operators(23), data=samples)
    study.add("int8", target="sm86", backend="tensorrt-rtx")
    study.add("kept", precision={"*": "int8", "op:Attention": "fp16"}, target="sm86", backend="tensorrt-rtx")
    study.run()
    own = [{v.value: v.own_sqnr for v in study[n].accuracy.values} for n in ("int8", "kept")]
    assert own[0].keys() == own[1].keys() == {v for v in own[0] if "/" not in v}
    assert own[0]["a"] is None
    assert own[1]["a"] is not None
    for value in own[0].keys() - {"a"}:
        assert own[0][value] == pytest.approx(own[1][value], abs=0.1), value
    ranking = study.accuracy.sensitivity("int8").ranking
    assert "attention" in {row.node for row in ranking}


@pytest.mark.parametrize("opset", [23, 24, 25])
@pytest.mark.parametrize("precision", ["fp32", "tf32", "fp16", "bf16", "int8", "fp8", "int4", "fp4"])
def test_operators_of_opset_23_build_in_every_precision(precision: str, opset: int):
    model = operators(opset)
    engine = built(model, precision, "sm120")
    # None in FP32, which parts attention.
    assert (precision not in {"fp32", "tf32"}) == len(attention(engine))
    if precision == "int8":
        assert [{"int8"}] == attention(engine)
    if precision not in {"fp32", "tf32"}:
        assert any(t.dtype in {"fp16", precision} for y in engine.layers for t in y.inputs)


ROW = QuantizedAttention()
FLOAT8 = QuantizedAttention("fp8", "qkpv")


@pytest.mark.parametrize(
    ("pattern", "targets", "read"),
    [
        # All five pairs, whatever is around.
        (ROW, ("sm86", "sm89", "sm120"), "int8"),
        (dataclasses.replace(ROW, kind="fp32", mask="added"), ("sm86", "sm120"), "int8"),
        (dataclasses.replace(ROW, kind="bf16", mask="added"), ("sm86", "sm89", "sm120"), "int8"),
        (dataclasses.replace(ROW, kind="bf16", size=32), ("sm86",), "int8"),
        (dataclasses.replace(ROW, kind="bf16", size=32, mask="added"), ("sm86", "sm120"), ""),
        (dataclasses.replace(ROW, kv_heads=2, mask="input"), ("sm86",), "int8"),
        # Fewer pairs are accepted and part the attention, but for those on keys, or on values, alone.
        (dataclasses.replace(ROW, pairs="qkpv"), ("sm86", "sm89", "sm120"), ""),
        (dataclasses.replace(ROW, pairs="qk"), ("sm86", "sm120"), ""),
        (dataclasses.replace(ROW, pairs="pv"), ("sm86", "sm120"), ""),
        # Sizes.
        (dataclasses.replace(ROW, size=32, length=512), ("sm86", "sm120"), "int8"),
        (dataclasses.replace(ROW, size=64, length=512), ("sm86", "sm120"), "int8"),
        (dataclasses.replace(ROW, size=40), ("sm86", "sm120"), ""),
        (dataclasses.replace(ROW, size=72), ("sm86",), ""),
        (dataclasses.replace(ROW, size=256), ("sm86", "sm120"), ""),
        (dataclasses.replace(ROW, length=1024), ("sm86", "sm120"), ""),
        # FP8.
        (FLOAT8, ("sm89", "sm120"), "fp8"),
        (dataclasses.replace(FLOAT8, kind="bf16", size=40, mask="added"), ("sm89", "sm120"), "fp8"),
        (dataclasses.replace(FLOAT8, size=256, kv_heads=2, mask="input"), ("sm89", "sm120"), "fp8"),
        (dataclasses.replace(FLOAT8, kind="fp32"), ("sm89", "sm120"), ""),
        (dataclasses.replace(FLOAT8, kind="fp32", pairs="qkpvo"), ("sm89", "sm120"), "fp8"),
        (dataclasses.replace(FLOAT8, length="L"), ("sm89", "sm120"), ""),
        # Pairs round ONNX's operator are computed, and then it is one kernel in FP16.
        (dataclasses.replace(ROW, pairs="qkvo", operator=True), ("sm86", "sm120"), "fp16"),
        (dataclasses.replace(FLOAT8, pairs="qkvo", operator=True), ("sm89", "sm120"), "fp16"),
    ],
)  # fmt: skip
def test_pairs_that_make_attention_one_quantized_layer(
    pattern: QuantizedAttention, targets: tuple[str, ...], read: str
):
    """The layer reads ``read`` and whatever a mask is of; empty where there is none in a quantized type."""
    for target in targets:
        types = attention(listed(pattern.make(), target))
        assert ([read] if read else []) == [t for s in types for t in s if t in {read, "int8", "fp8"}], types


@pytest.mark.parametrize(
    ("form", "targets", "layer"),
    [
        ("int8", ("sm86", "sm89", "sm120"), ("gemm", "int8", "int8")),
        ("int8 weights", ("sm86", "sm89", "sm120"), ("runtime_fusion", "fp16", "int8")),
        ("fp8", ("sm89", "sm120"), ("gemm", "fp8", "fp8")),
        ("fp8 by channel", ("sm89", "sm120"), ("gemm", "fp8", "fp8")),
        ("int4 of 16", ("sm86", "sm89", "sm120"), ("runtime_fusion", "fp16", "int4")),
        ("int4 of 128", ("sm86", "sm89", "sm120"), ("runtime_fusion", "fp16", "int4")),
        # All numbers are written out first.
        ("int4 by channel", ("sm86", "sm89", "sm120"), ("gemm", "fp16", "")),
    ],
)
def test_what_a_linear_layer_multiplies(form: str, targets: tuple[str, ...], layer: tuple[str, str, str]):
    kind, read, weight = layer
    for target in targets:
        (product,) = [y for y in listed(linear(form), target).layers if y.kind == kind]
        assert read == product.inputs[0].dtype
        stored = {t.dtype for t in product.constants} & {"int8", "fp8", "int4"}
        assert stored == ({weight} if weight else set())


@pytest.mark.parametrize(
    ("form", "kind", "targets", "why"),
    [
        ("fp8", "fp16", ("sm86",), "fp8_e4m3"),
        ("int4 with zeros", "fp16", ("sm86", "sm120"), "its parser refuses 1 node: .*zero point"),
        ("uint4", "fp16", ("sm86", "sm120"), "its parser refuses the model"),
        ("nbits", "fp16", ("sm86", "sm120"), "its parser refuses 1 node: .*MatMulNBits"),
        ("dynamic", "fp32", ("sm86", "sm120"), "its parser refuses 1 node: .*DynamicQuantizeLinear"),
        ("e8m0", "fp16", ("sm89", "sm120"), "its parser refuses"),
        ("int8 + int4 of 128", "fp16", ("sm86", "sm89", "sm120"), "the builder refused the network"),
        ("fp8 + int4 of 128", "fp16", ("sm86", "sm89", "sm120"), "the builder refused the network"),
    ],
)
def test_linear_layers_that_the_builder_refuses(form: str, kind: str, targets: tuple[str, ...], why: str):
    for target in targets:
        with pytest.raises(BuildError, match=why):
            listed(linear(form, kind), target)


@pytest.mark.parametrize(
    ("name", "why"), [("nvfp4", "fp4_e2m1"), ("nvfp4_weights", "fp4_e2m1"), ("mxfp8", "fp8_e4m3")]
)
def test_block_formats_that_a_target_lacks(name: str, why: str):
    """What the others make of them: ``test_block_formats``."""
    with pytest.raises(BuildError, match=why):
        listed(load(trt_nets.NETS[name]()[0]), "sm86")
