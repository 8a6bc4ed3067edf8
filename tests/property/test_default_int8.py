"""The default INT8 never ruins a model, whatever people feed it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np
import onnx
import onnxruntime
import pytest

from activations import FAMILIES, drawn
from observed import collect
from rtlab.core.data import CalibrationData
from rtlab.core.model import Model
from rtlab.core.ranges import Ranges
from rtlab.core.variant import FIXED, Calibrator, Variant
from rtlab.quantize import prepare, quantizable
from small_nets import ACTIVATIONS, SATURATING, small_net

NETS, EACH = 200, 25
#: The default and what it chooses from: one that it may not choose is no measure of its choice.
COMPARED = (Calibrator.AUTO, *FIXED)
#: Much of what these hold lies in few numbers.
HEAVY = (
    "student", "lognormal", "laplace", "bimodal", "outlier channel", "integers 0..16", "bytes", "sparse", "gated",
)  # fmt: skip


def session(data: bytes) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
    options.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(
        data,
        options,
        providers=["CPUExecutionProvider"],
        # It rounds biases to INT32, which overflows beside tiny inputs; TensorRT keeps them in FP32.
        disabled_optimizers=["WeightBiasQuantization"],
    )


def observed(model: Model, x: np.ndarray) -> Ranges:
    names = quantizable(model)
    inner = [v for v in names if v not in model.inputs]
    proto = onnx.load_from_string(model.bytes())
    proto.graph.output.extend(onnx.ValueInfoProto(name=v) for v in inner if v not in model.outputs)
    running = session(proto.SerializeToString())
    batches = CalibrationData({"x": x}).batches(model, len(x))
    return collect(
        names, batches, lambda b: dict(zip(inner, running.run(inner, dict(b)), strict=True)) if inner else {}
    )


def decibel(reference: np.ndarray, found: np.ndarray) -> float:
    """SQNR; what no 8-bit product reaches counts as 60 dB."""
    reference = reference.astype(np.float64)
    noise = np.square(reference - found).sum()
    return min(float(10 * np.log10(np.square(reference).sum() / noise)) if noise > 0 else np.inf, 60.0)


def qualities(
    seed: int, families: Sequence[str] = tuple(FAMILIES), activations: Sequence[str] = ACTIVATIONS
) -> dict[str, float]:
    """The SQNR of the output, by calibrator, on samples that calibration did not see."""
    family = families[seed % len(families)]
    model, shape = small_net(seed, activations)
    calibration, held_out = drawn(family, 2 * seed, shape), drawn(family, 2 * seed + 1, shape)
    if family == "constant":
        held_out = calibration  # another constant is another model's input
    ranges = observed(model, calibration)
    reference = session(model.bytes()).run(None, {"x": held_out})[0]
    found = {}
    for calibrator in COMPARED:
        ready = prepare(model, Variant.of("int8", calibrator=calibrator), ranges).emulation
        found[str(calibrator)] = decibel(reference, session(ready.bytes()).run(None, {"x": held_out})[0])
    return found


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, NETS, EACH))
def test_the_default_is_within_6_db_of_the_best_calibrator(first: int):
    for seed in range(first, first + EACH):
        found = qualities(seed)
        assert found["auto"] >= max(found.values()) - 6, (seed, found)


@pytest.mark.slow
def test_none_that_the_default_chooses_from_comes_nearer_where_heavy_tails_meet_functions_that_saturate():
    """A tail is dear to a product and nothing to the Tanh behind it, so what a tensor loses tells less here.

    No rule for one tensor at a time knows what stands behind it: 2 of these 100 nets lose 6.9 and 8.4 dB, as 0.5 % of
    other nets do. None that it chooses from does better, and none of them is ruined by it.
    """
    lost: Counter[str] = Counter()
    for seed in range(100):
        found = qualities(seed, HEAVY, SATURATING)
        best = max(found.values())
        assert found["auto"] >= best - 9, (seed, found)
        lost.update(name for name, quality in found.items() if quality < best - 6)
    assert lost["auto"] <= 2
    assert all(lost[str(c)] >= lost["auto"] for c in COMPARED), lost
