"""What NVIDIA's own builder makes of the prepared graphs."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import helper

from one_precision import fp16, int8
from rtlab.backends.tensorrt import TensorRTRTX
from rtlab.core.engine import Engine
from rtlab.core.model import Model
from rtlab.core.progress import Silent
from rtlab.core.protocols import BuildRequest
from rtlab.core.scale import Scale
from rtlab.core.variant import Variant
from rtlab.quantize import quantizable

_BACKEND = TensorRTRTX()
pytestmark = pytest.mark.skipif(not _BACKEND.availability().ok, reason=_BACKEND.availability().reason)

node = helper.make_node


@pytest.fixture
def inception(make) -> Model:
    """Inception with parallel branches, a pool, a Concat and a residual sum, and a classifier."""
    rng = np.random.default_rng(0)
    nodes, weights = [], {}

    def conv(x: str, name: str, channels: tuple[int, int], k: int) -> str:
        cin, cout = channels
        weights[f"{name}_w"] = (rng.standard_normal((cout, cin, k, k)) / (k * cin**0.5)).astype(np.float32)
        numbers = [f"{name}_{p}" for p in "gbmv"]
        weights.update({n: rng.uniform(0.5, 1, cout).astype(np.float32) for n in numbers})
        nodes.append(node("Conv", [x, f"{name}_w"], [f"{name}_c"], name=name, pads=[k // 2] * 4))
        nodes.append(node("BatchNormalization", [f"{name}_c", *numbers], [f"{name}_n"], name=f"{name}/bn"))
        nodes.append(node("Relu", [f"{name}_n"], [f"{name}_r"], name=f"{name}/relu"))
        return f"{name}_r"

    stem = conv("x", "stem", (3, 64), 3)
    one = conv(stem, "one", (64, 32), 1)
    three = conv(conv(stem, "reduce", (64, 16), 1), "three", (16, 16), 3)
    nodes.append(node("MaxPool", [stem], ["pooled"], name="pool", kernel_shape=[3, 3], pads=[1] * 4))
    proj = conv("pooled", "proj", (64, 16), 1)
    nodes += [
        node("Concat", [one, three, proj], ["cat"], name="cat", axis=1),
        node("Add", ["cat", stem], ["sum"], name="add"),
        node("Relu", ["sum"], ["act"], name="act"),
    ]
    last = conv("act", "last", (64, 64), 3)
    nodes += [
        node("GlobalAveragePool", [last], ["gap"], name="gap"),
        node("Flatten", ["gap"], ["flat"], name="flat"),
        node("Gemm", ["flat", "fc_w"], ["y"], name="fc"),
    ]
    weights["fc_w"] = rng.standard_normal((64, 10)).astype(np.float32)
    return make(nodes, weights, {"x": [1, 3, 32, 32]}, {"y": [1, 10]})


def compiled(model: Model, precision: str) -> Engine:
    return _BACKEND.build(BuildRequest(model, Variant.of(precision, target="sm86")), Silent())


def reads(engine: Engine, origin: str) -> set[str]:
    """Types that the step computing a node reads."""
    steps = [s for s in engine.layers if origin in s.origins and s.kind != "kgen"]
    return {t.dtype for s in steps for t in s.inputs}


def test_int8_becomes_int8_kernels(inception: Model):
    """Q/DQ in the wrong form compiles too, but to FP32 kernels behind a dequantization: slower than before."""
    engine = compiled(int8(inception, {v: Scale(4.0) for v in quantizable(inception)}), "int8")
    weighted = [n.id for n in inception.nodes if n.op in {"Conv", "Gemm"}]
    assert [{"int8"}] * len(weighted) == [reads(engine, n) for n in weighted]
    assert {"int8"} == reads(engine, "pool")


def test_int8_keeps_convolution_normalization_activation_and_the_next_pair_in_one_epilogue(inception: Model):
    engine = compiled(int8(inception, {v: Scale(4.0) for v in quantizable(inception)}), "int8")
    step = next(s for s in engine.layers if "three/bn" in s.origins)
    assert {"three/bn", "three/relu", "one/relu", "proj/relu", "cat"} <= set(step.origins)


def test_fp16_becomes_fp16_kernels(inception: Model):
    engine = compiled(fp16(inception).typed, "fp16")
    weighted = [n.id for n in inception.nodes if n.op == "Conv"]
    assert [{"fp16"}] * len(weighted) == [reads(engine, n) for n in weighted]
    assert ["fp32"] == [t.dtype for t in engine.inputs]
    assert ["fp32"] == [t.dtype for t in engine.outputs]


def test_fp16_of_what_stays_single_compiles(make):
    net = make(
        "x[1, 2, 4, 4]; up: up = Resize(x, _, scales, mode='nearest'); clip: c = Clip(up, low, high); "
        "mask: m = Mul(c, big); softmax: s = Softmax(m, axis=-1); norm: y = LayerNormalization(s, g, b); y",
        {
            "scales": np.float32([1, 1, 2, 2]),
            "low": np.float32(0),
            "high": np.float32(3.4e38),
            "big": np.float32([-1e9]),
            "g": np.ones(8, np.float32),
            "b": np.zeros(8, np.float32),
        },
    )
    engine = compiled(fp16(net).typed, "fp16")
    assert engine.layers


@pytest.mark.parametrize("form", ["int8", "fp16"])
def test_a_transformer_layer_compiles(make, form: str):
    rng = np.random.default_rng(0)
    weights = {f"w{p}": (rng.standard_normal((64, 64)) / 8).astype(np.float32) for p in "qkvo"}
    ones = {"g": np.ones(64, np.float32), "b": np.zeros(64, np.float32), "bias": np.zeros(64, np.float32)}
    net = make(
        "x[1, 16, 64]; norm: n = LayerNormalization(x, g, b, axis=-1); q: q = MatMul(n, wq); k: k = MatMul(n, wk); "
        "v: v = MatMul(n, wv); turn: kt = Transpose(k, perm=[0, 2, 1]); qk: qk = MatMul(q, kt); "
        "scale: scaled = Mul(qk, scale); softmax: p = Softmax(scaled, axis=-1); pv: pv = MatMul(p, v); "
        "out: o = MatMul(pv, wo); bias: ob = Add(o, bias); skip: y = Add(ob, x); y[1, 16, 64]",
        {**weights, **ones, "scale": np.float32([0.125])},
    )
    ready = int8(net, {v: Scale(4.0) for v in quantizable(net)}) if form == "int8" else fp16(net).typed
    engine = compiled(ready, form)
    for name in "qkv":
        assert form in reads(engine, name)
