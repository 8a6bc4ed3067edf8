"""Where a precision loses accuracy: the error of every value that both models have, of samples in INT8 and FP16.

ONNX Runtime runs the model and what stands for the variant here once more, with every value handed out, and the errors
are computed of the arrays by their definitions.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest

import rtlab

NAMES = ("digits_lstm", "digits_outlier", "digits_vit", "fp16_overflow", "sentences")
SAMPLES = 16
#: Decibels by which sums in another order, and numbers that lie between two steps of a grid, may differ.
NEAR = 0.3


def values(model: Any, names: list[str], batches: list[Any]) -> dict[str, np.ndarray]:
    """Values of a model, of all batches behind each other."""
    proto = model.proto()
    proto.graph.output.extend(
        onnx.helper.make_empty_tensor_value_info(n) for n in names if n not in model.outputs
    )
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(
        proto.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    types = {
        i.name: np.dtype(i.type[7:-1].replace("float", "float32").replace("float3216", "float16"))
        for i in session.get_inputs()
    }
    runs = [session.run(names, {k: np.asarray(v, types[k]) for k, v in b.items()}) for b in batches]
    return {n: np.concatenate([np.asarray(r[i]).ravel() for r in runs]) for i, n in enumerate(names)}


def sqnr(x: np.ndarray, y: np.ndarray) -> float:
    """Decibels from signal to error, of the elements themselves."""
    x, y = x.astype(np.float64), y.astype(np.float64)
    if not np.isfinite(y).all():
        return -math.inf
    noise = ((x - y) ** 2).sum()
    return 10 * math.log10((x**2).sum() / noise) if noise else math.inf


def _decibels(told: float) -> str:
    return f"{min(told, 99.9):.1f} dB" if told > -math.inf else "not finite"


@pytest.mark.parametrize("name", [pytest.param(n, marks=pytest.mark.xdist_group(n)) for n in NAMES])
@pytest.mark.parametrize("precision", ["int8", "fp16"])
def test_errors_of_a_sample_are_those_of_its_values(name: str, precision: str, golden: Any) -> None:
    """The layer that loses the accuracy is found by these numbers."""
    sample = rtlab.samples.load(name)
    data = sample.calibration.take(SAMPLES)
    study = rtlab.Study(sample.model, data=data, stride=1)
    calibrator = {"calibrator": "minmax"} if precision == "int8" else {}
    study.add("v", precision=precision, backend="onnxruntime", target="cpu", **calibrator)
    study.run(budget_s=60)
    result = study["v"]
    found = {d.value: d for d in result.accuracy.values}
    batches = list(data.batches(sample.model))
    assert SAMPLES == result.accuracy.samples
    names = list(found)
    right, got = values(sample.model, names, batches), values(result.prepared.emulation, names, batches)
    lines = []
    for value, told in found.items():
        x, y = right[value], got[value]
        assert x.size == told.elements, value
        assert told.overflowed == (~np.isfinite(y.astype(np.float32))).sum(), value
        if told.overflowed:
            assert -math.inf == told.sqnr, value
        else:
            wanted = sqnr(x, y)
            # Beyond that the rounding of FP32 itself is what is compared.
            assert wanted == pytest.approx(told.sqnr, abs=NEAR) or min(wanted, told.sqnr) > 100, value
            error = np.abs(x.astype(np.float64) - y.astype(np.float64))
            assert error.max() == pytest.approx(told.max_abs, rel=0.25, abs=1e-4), value
            zeros = int(((y == 0) & (x != 0)).sum())
            assert zeros == pytest.approx(told.underflowed, abs=max(3, 0.02 * zeros)), value
        # What the value's node adds by itself; property tests hold it against a model that rounds there alone.
        own = "" if told.own_sqnr is None else f", own {_decibels(told.own_sqnr)}"
        lines.append(f"{value}: {_decibels(told.sqnr)}{own}")
    golden(f"accuracy/{name}-{precision}.txt", {f"# {SAMPLES} samples": lines}, within=0.02)
