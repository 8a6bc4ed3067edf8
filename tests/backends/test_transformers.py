"""Transformers through NVIDIA's own builder: attention in one layer where rtlab quantizes it, and in FP16 elsewhere."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from decoders import Decoder, operators
from rtlab import backends
from rtlab.core.engine import Engine
from rtlab.core.progress import Silent
from rtlab.core.protocols import BuildRequest
from rtlab.core.scale import Scale
from rtlab.core.variant import Variant
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


@pytest.mark.parametrize("kind", [np.float16, np.float32])
def test_an_export_in_fp16_is_quantized_as_one_in_fp32(kind: type):
    engine = built(dataclasses.replace(SMALL, kind=kind).make(), "int8")
    products = [y for y in engine.layers if y.kind == "gemm"]
    assert (
        len(products) == 9
    )  # q, k and v in one and gate and up in one, output and down: of two layers; the head
    assert {"int8"} == {y.inputs[0].dtype for y in products}
    assert [{"int8"}, {"int8"}] == attention(engine)


@pytest.mark.parametrize("opset", [23, 24, 25])
@pytest.mark.parametrize("precision", ["fp32", "tf32", "fp16", "bf16", "int8", "fp8", "int4", "fp4"])
def test_operators_of_opset_23_build_in_every_precision(precision: str, opset: int):
    model = operators(opset)
    engine = built(model, precision, "sm120")
    # None in FP32, which parts attention.
    assert (precision not in {"fp32", "tf32"}) == len(attention(engine))
    if precision not in {"fp32", "tf32"}:
        assert any(t.dtype in {"fp16", precision} for y in engine.layers for t in y.inputs)
