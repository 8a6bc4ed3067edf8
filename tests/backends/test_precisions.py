"""Every precision, and mixes of them, through NVIDIA's own builder."""

from __future__ import annotations

import importlib
from collections.abc import Callable

import hypothesis
import ml_dtypes
import numpy as np
import pytest
from onnx import TensorProto, helper

import strategies
from nets import graph
from qdq import chain, pair_on_the_output, quantized_attention, two_convolutions, weight_with_scale_of_one
from rtlab import backends
from rtlab.backends.workers import compiler
from rtlab.core.engine import Engine
from rtlab.core.model import Model
from rtlab.core.progress import Silent
from rtlab.core.protocols import BuildRequest
from rtlab.core.scale import Scale
from rtlab.core.variant import Precision, Target, Variant
from rtlab.quantize import prepare, quantizable

BACKEND = backends.get("tensorrt-rtx")
here = BACKEND.availability()
pytestmark = pytest.mark.skipif(not here.ok, reason=here.reason)

node = helper.make_node
TARGETS = ("sm86", "sm89", "sm120")


@pytest.fixture(scope="module")
def net() -> Model:
    """Two convolutions, two products of matrices and what stands between them."""
    rng = np.random.default_rng(0)
    shapes = {"w1": (32, 16, 3, 3), "w2": (32, 32, 3, 3), "w3": (32, 64), "w4": (64, 32)}
    weights = {k: (rng.standard_normal(s) / 8).astype(np.float32) for k, s in shapes.items()}
    weights["rows"] = np.array([2, 64, 32])
    nodes = [
        node("Conv", ["x", "w1"], ["c1"], name="first/Conv", pads=[1] * 4),
        node("Relu", ["c1"], ["r1"], name="first/Relu"),
        node("Conv", ["r1", "w2"], ["c2"], name="second/Conv", pads=[1] * 4),
        node("Transpose", ["c2"], ["t"], name="turn", perm=[0, 2, 3, 1]),
        node("Reshape", ["t", "rows"], ["f"], name="flat"),
        node("MatMul", ["f", "w3"], ["m1"], name="third/MatMul"),
        node("Tanh", ["m1"], ["g"], name="third/Tanh"),
        node("MatMul", ["g", "w4"], ["m2"], name="head/MatMul"),
        node("Softmax", ["m2"], ["y"], name="head/Softmax"),
    ]
    ends = ("x", TensorProto.FLOAT, [2, 16, 8, 8]), ("y", TensorProto.FLOAT, [2, 64, 32])
    return graph(nodes, [ends[0]], [ends[1]], weights)


def built(
    net: Model, precision: object, target: str, **options: object
) -> tuple[Engine, dict[str, Precision]]:
    variant = Variant.of(precision, target=target, **options)
    ready = prepare(net, variant, scales={v: Scale(4.0) for v in quantizable(net)})
    return BACKEND.build(BuildRequest(ready.model, variant, keep_plan=True), Silent()), dict(ready.precisions)


def computes(engine: Engine, node: str) -> set[str]:
    """Types of what the steps of a node read, weights included; kernels that only prepare weights count too."""
    steps = [s for s in engine.layers if any(o == node or o.startswith(f"{node}/") for o in s.origins)]
    assert steps, f"no step names {node}"
    return {t.dtype for s in steps for t in (*s.inputs, *s.constants)}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("precision", "target"),
    [(p, t) for p in Precision for t in TARGETS if Target(t).refusal(p) is None],
    ids=str,
)
def test_every_precision_compiles_for_every_target_that_has_it(net: Model, precision: Precision, target: str):
    engine, precisions = built(net, precision, target)
    wanted = {Precision.TF32: "fp32"}.get(precision, str(precision))
    eligible = {n for n in precisions if n.endswith(("MatMul", "Conv"))}
    expected = {n.id for n in net.top if n.op in {"Conv", "MatMul"}}
    expected -= {"first/Conv", "second/Conv"} if precision is Precision.FP4 else set()
    assert eligible == (set() if precision is Precision.FP32 else expected)
    for name in expected:
        assert wanted in computes(engine, name), name


@pytest.mark.slow
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(
    "mix",
    [
        {"*": "int8", "head/*": "fp16"},
        {"*": "fp16", "op:Conv": "int8"},
        {"*": "bf16", "op:MatMul": "int4", "first/*": "fp16"},
        {"*": "tf32", "op:Conv": "int8", "head/*": "fp16"},
    ],
    ids=str,
)
def test_mixes_compile_and_each_node_is_in_its_own_type(net: Model, mix: dict[str, str], target: str):
    engine, precisions = built(net, mix, target)
    for name in ("first/Conv", "second/Conv", "third/MatMul", "head/MatMul"):
        wanted = str(precisions.get(name, "fp32")).replace("tf32", "fp32")
        assert wanted in computes(engine, name), name
    assert ("fp32", "fp32") == (engine.inputs[0].dtype, engine.outputs[0].dtype)


@pytest.mark.slow
@hypothesis.given(strategies.mixes())
def test_every_mix_of_every_model_compiles(case: tuple[Model, Variant]):
    model, variant = case
    ready = prepare(model, variant, scales={v: Scale(3.0) for v in quantizable(model)})
    assert BACKEND.build(BuildRequest(ready.model, variant), Silent()).layers


@pytest.mark.parametrize("target", ["sm89", "sm120"])
def test_a_mix_with_fp8_compiles(net: Model, target: str):
    engine, _ = built(net, {"*": "fp16", "op:Conv": "fp8", "op:MatMul": "int4"}, target)
    assert "fp8" in computes(engine, "second/Conv")
    assert {"fp16", "int4"} <= computes(engine, "third/MatMul")


@pytest.mark.parametrize("precision", ["int8", "fp8"])
def test_one_scale_per_weight_tensor_compiles(net: Model, precision: str):
    engine, _ = built(net, precision, "sm89", weights="tensor")
    assert precision in computes(engine, "second/Conv")


def test_int4_is_dequantized_inside_the_product(net: Model):
    """With blocks the product itself reads four bits; otherwise a kernel would write all weights out first."""
    engine, _ = built(net, {"*": "fp16", "op:MatMul": "int4"}, "sm86")
    fused = [s for s in engine.layers if "int4" in {t.dtype for t in s.constants} and s.inputs]
    assert {"third/MatMul", "head/MatMul"} <= {o for s in fused for o in s.origins}


def test_fp32_means_fp32(net: Model):
    """TensorRT computes FP32 products in TF32 unless told not to; the two variants must be two engines."""
    fp32, again, tf32 = (built(net, p, "sm86")[0] for p in ("fp32", "fp32", "tf32"))
    assert fp32.plan == again.plan
    assert fp32.plan != tf32.plan


@pytest.mark.parametrize("on", [False, True])
def test_flags_of_the_builder_follow_the_variant(on: bool):
    """On the binding's own configuration, which starts with TF32 set."""
    trt = importlib.import_module("tensorrt_rtx")
    config = trt.Builder(trt.Logger(trt.Logger.ERROR)).create_builder_config()
    compiler.configure(trt, config, compiler.BuildSpec("tensorrt_rtx", b"", 86, "", tf32=on, sparse=on), [])
    assert (on, on) == (
        config.get_flag(trt.BuilderFlag.TF32),
        config.get_flag(trt.BuilderFlag.SPARSE_WEIGHTS),
    )
    assert trt.ComputeCapability.SM86 == config.get_compute_capability(0)


@pytest.mark.slow
@pytest.mark.parametrize("half", ["fp16", "bf16"])
@pytest.mark.parametrize("make", [weight_with_scale_of_one, two_convolutions, pair_on_the_output, chain])
def test_pairs_of_a_model_build_in_16_bits_as_in_fp32(make: Callable[[], Model], half: str):
    net = make()
    assert len(built(net, half, "sm86")[0].layers) <= len(built(net, "fp32", "sm86")[0].layers)


@pytest.mark.slow
@pytest.mark.parametrize(("dtype", "target"), [(np.int8, "sm86"), (ml_dtypes.float8_e4m3fn, "sm89")])
@pytest.mark.parametrize("half", ["fp16", "bf16"])
def test_a_model_with_pairs_of_its_own_has_no_more_layers_in_16_bits(dtype: type, target: str, half: str):
    net = quantized_attention(dtype)
    as_exported, _ = built(net, "fp32", target)
    narrow, precisions = built(net, half, target)
    assert len(narrow.layers) <= len(as_exported.layers)
    (attention,) = [s for s in narrow.layers if "_mha" in s.tactic]
    assert {"scores", "shares", "mixed"} <= {*attention.origins}
    assert precisions["scores"] == ("int8" if dtype is np.int8 else "fp8")
