"""Quantizing a decoder one of whose channels is far larger than the others, as those of language models are."""

from __future__ import annotations

import math

import ml_dtypes
import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper

import rtlab
from decoders import Decoder, operators
from observed import collect
from rtlab.backends.onnxruntime import OnnxRuntime
from rtlab.core.compiler_info import Maker
from rtlab.core.progress import Silent
from rtlab.core.protocols import BuildRequest
from rtlab.core.scale import Scale
from rtlab.core.task import Task
from rtlab.core.variant import Variant
from rtlab.quantize.compose import prepare
from rtlab.quantize.placement import plan, quantizable


def run(model, ids, names=("logits",), source="ids") -> dict[str, np.ndarray]:
    """ONNX Runtime at the level that keeps every pair."""
    proto = model.proto()
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
    outputs = {v.name for v in proto.graph.output}
    proto.graph.output.extend(helper.make_empty_tensor_value_info(n) for n in names if n not in outputs)
    session = onnxruntime.InferenceSession(proto.SerializeToString(), options, ["CPUExecutionProvider"])
    return dict(zip(names, session.run(list(names), {source: ids}), strict=True))


def ratio(model, prepared, ids) -> float:
    """The signal-to-noise ratio of the outputs in decibels."""
    exact, rounded = (run(m, ids)["logits"].astype(np.float64) for m in (model, prepared))
    if not np.isfinite(rounded).all():
        return -math.inf
    return 10 * np.log10((exact**2).sum() / ((exact - rounded) ** 2).sum())


@pytest.mark.parametrize(("calibrator", "least"), [("minmax", 21), ("auto", 22)])
def test_a_channel_of_outliers_in_the_residual_stream_costs_no_accuracy(calibrator: str, least: float):
    """The stream is 0.8 dB (minmax) or 3.1 dB (auto) where the sums behind products read it in INT8."""
    sizes = Decoder(outlier=200)
    model, ids = sizes.make(), sizes.ids(8)
    names = quantizable(model)
    ranges = collect(names, [{"ids": ids}], lambda batch: run(model, batch["ids"], names))
    ready = prepare(model, Variant.of("int8", calibrator=calibrator), ranges)
    assert ratio(model, ready.model, ids) > least
    assert not any(n.op == "Add" for n in model.top if n.id in plan(model).nodes)


@pytest.mark.slow
def test_a_repair_that_is_to_come_closer_tries_smoothing():
    sizes = Decoder(layers=2, outlier=200)
    model = sizes.make()
    data = rtlab.CalibrationData.of({"ids": sizes.ids(32)}, model=model)
    study = rtlab.Study(model, data=data, task=Task(data))
    study.add("int8", calibrator="minmax", backend="onnxruntime")
    study.run(["int8"], compare=False)
    tried = study.accuracy.repair("int8", 0.02, budget_s=math.inf).points
    assert any("Channels smoothed" in p.what for p in tried)


@pytest.mark.parametrize("precision", ["int8", "fp8", "int4"])
def test_an_export_in_fp16_is_quantized_in_its_own_type(precision: str):
    """To about the error that the same precision has in an export in FP32, see above."""
    sizes = Decoder(layers=1, kind=np.float16)
    model, ids = sizes.make(), sizes.ids(8)
    names = quantizable(model)
    ranges = collect(names, [{"ids": ids}], lambda batch: run(model, batch["ids"], names))
    ready = prepare(model, Variant.of(precision, target="sm89"), ranges)
    scales = {n.inputs[1] for n in ready.model.top if n.op == "DequantizeLinear"}
    assert {"fp16"} == {ready.model.values[s].dtype for s in scales}
    assert ratio(model, ready.model, ids) > (12 if precision == "int4" else 20)
    assert 8 == sum(p == precision for p in ready.precisions.values())


def test_an_export_in_bf16_is_quantized_in_its_own_type():
    """ONNX Runtime has no BF16 on the CPU; ONNX checks the types."""
    model = Decoder(layers=1, kind=ml_dtypes.bfloat16).make()
    scales = {v: Scale(2.0) for v in quantizable(model)}
    for precision in ("int8", "fp8", "int4", "fp4"):
        ready = prepare(model, Variant.of(precision, target="sm120"), scales=scales)
        onnx.checker.check_model(ready.model.proto(), full_check=True)
        assert 8 == sum(p == precision for p in ready.precisions.values())


def test_squares_are_averaged_in_fp32_where_nobody_asked_for_fp16():
    """Outliers are in the thousands, and the mean of their squares is beyond 65,504, the largest number of FP16."""
    sizes = Decoder(layers=1, outlier=5000)
    model, ids = sizes.make(), sizes.ids(8)
    names = quantizable(model)
    ranges = collect(names, [{"ids": ids}], lambda batch: run(model, batch["ids"], names))
    for precision, is_lost in (("int8", False), ({"*": "fp16", "op:MatMul": "int8"}, True)):
        maker = Maker("Some", half_attention=True)
        ready = prepare(model, Variant.of(precision, calibrator="minmax"), ranges, maker=maker)
        assert bool(ratio(model, ready.emulation, ids) > 20) is not is_lost


@pytest.mark.parametrize("opset", [23, 25])
@pytest.mark.parametrize(
    ("precision", "least"), [("fp16", 60), ("bf16", 45), ("int8", 35), ("fp8", 30), ("int4", 22), ("fp4", 22)]
)
def test_operators_of_opset_23_have_every_precision(opset: int, precision: str, least: float):
    model = operators(opset)
    x = np.random.default_rng(1).standard_normal((1, 32, 64), np.float32)
    ready = prepare(
        model, Variant.of(precision, target="sm120"), scales={v: Scale(4.0) for v in quantizable(model)}
    )
    # The backend writes FP4's dynamic operators with standard ones.
    runner = OnnxRuntime()
    request = BuildRequest(ready.emulation, Variant.of("fp32"), level="basic")
    rounded = runner.outputs(runner.build(request, Silent()), {"x": x}, ("y",))["y"].astype(np.float64)
    exact = run(model, x, ["y"], "x")["y"].astype(np.float64)
    assert 10 * np.log10((exact**2).sum() / ((exact - rounded) ** 2).sum()) > least
