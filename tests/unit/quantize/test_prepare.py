from __future__ import annotations

import numpy as np
import pytest
from onnx import helper

from observed import collect
from rtlab.core.data import CalibrationData
from rtlab.core.model import Model
from rtlab.core.ranges import Ranges
from rtlab.core.variant import CALIBRATORS, Calibrator, Variant
from rtlab.errors import CalibrationError
from rtlab.quantize import prepare, quantizable


@pytest.fixture
def ranges(tiny_model, run) -> Ranges:
    names = quantizable(tiny_model)
    data = CalibrationData.random(tiny_model, samples=8)
    return collect(names, data.batches(tiny_model, 4), lambda b: run(tiny_model, b, names))


def test_fp32_is_the_model_itself(tiny_model: Model):
    ready = prepare(tiny_model, Variant.of("fp32"))
    assert ready.model is tiny_model
    assert ready.emulation is tiny_model


@pytest.mark.parametrize("calibrator", CALIBRATORS)
def test_int8_is_one_graph_for_compiler_and_cpu(
    tiny_model: Model, ranges: Ranges, run, calibrator: Calibrator
):
    ready = prepare(tiny_model, Variant.of("int8", calibrator=calibrator), ranges)
    assert ready.model is ready.emulation
    assert set(quantizable(tiny_model)) == set(ready.scales)
    x = CalibrationData.random(tiny_model, samples=4, seed=1).arrays["x"]
    want, got = run(tiny_model, {"x": x})["y"], run(ready.model, {"x": x})["y"]
    assert 0 < np.abs(want - got).max() < 0.25 * np.abs(want).max()


def _on_grid(x: np.ndarray, axis: tuple[int, ...] | None = None) -> np.ndarray:
    """Rounded to 127 steps on either side of zero, the last one the largest number along the axes; in float64."""
    x = x.astype(np.float64)
    step = np.abs(x).max(axis=axis, keepdims=True) / 127
    return np.rint(x / step).clip(-127, 127) * step


@pytest.mark.parametrize(("size", "dead"), [(1.0, 1.0), (1e-6, 1.0), (1e-9, 1.0), (1.0, 1e-9), (1e-3, 1e-6)])
@pytest.mark.parametrize("between", ["", "Relu"])
def test_int8_of_tiny_inputs_and_dead_channels_is_what_arithmetic_gives(
    make, run, size: float, dead: float, between: str
):
    """A bias of 1 beside scales whose product is 1e-12 is no integer of 32 bits; ONNX Runtime would write it as one."""
    rng = np.random.default_rng(0)
    w, w2 = rng.standard_normal((8, 3)).astype(np.float32), rng.standard_normal((4, 8)).astype(np.float32)
    w[3] *= dead
    b = rng.uniform(0.5, 2, 8).astype(np.float32)
    nodes = [
        helper.make_node("Conv", ["x", "w", "b"], ["c"], name="first"),
        *([helper.make_node(between, ["c"], ["r"], name="between")] if between else []),
        helper.make_node("Conv", ["r" if between else "c", "w2"], ["y"], name="second"),
    ]
    weights = {"w": w[..., None, None], "b": b, "w2": w2[..., None, None]}
    net = make(nodes, weights, {"x": [4, 3, 5, 5]}, {"y": [4, 4, 5, 5]})
    x = (size * rng.standard_normal((4, 3, 5, 5))).astype(np.float32)
    names = quantizable(net)
    seen = collect(names, [{"x": x}], lambda batch: run(net, batch, names))
    emulation = prepare(net, Variant.of("int8", calibrator="minmax"), seen).emulation
    got = run(emulation, {"x": x}, ["c", "y"])
    bias = b.astype(np.float64)[None, :, None, None]
    plain = np.einsum("oc,nchw->nohw", w.astype(np.float64), x.astype(np.float64)) + bias
    first = np.einsum("oc,nchw->nohw", _on_grid(w, (1,)), _on_grid(x)) + bias
    np.testing.assert_allclose(first, got["c"], rtol=1e-5, atol=1e-6)
    if between:
        plain, first = np.maximum(plain, 0), np.maximum(first, 0)
    # The scale is that of the fp32 model, which is not the largest number here.
    step = np.abs(plain).max() / 127
    held = np.rint(first / step).clip(-127, 127) * step
    second = np.einsum("oc,nchw->nohw", _on_grid(w2, (1,)), held)
    ideal = np.einsum("oc,nchw->nohw", w2.astype(np.float64), plain)

    def decibel(y: np.ndarray) -> float:
        return float(10 * np.log10((ideal**2).sum() / ((ideal - y) ** 2).sum()))

    # A number beside the middle of two steps may fall to either.
    assert decibel(second) == pytest.approx(decibel(got["y"]), abs=0.5)
    assert decibel(got["y"]) > 30


def test_a_model_with_nothing_to_quantize_is_unchanged_and_says_so(make):
    net = make("x[1]; r: y = Relu(x); y[1]")
    ready = prepare(net, Variant.of("int8"))
    assert ready.model is net
    assert ("no node has an INT8 form here: the model is unchanged",) == ready.notes


def test_int8_needs_ranges_and_says_so(tiny_model: Model):
    with pytest.raises(CalibrationError, match="4 activations need observed ranges"):
        prepare(tiny_model, Variant.of("int8"))


def test_a_dead_activation_is_noted(make, run):
    net = make(
        "x[1, 1, 2, 2]; a: c = Conv(x, w); relu: r = Relu(c); b: y = Conv(r, w); y[1, 1, 2, 2]",
        {"w": -np.ones((1, 1, 1, 1), np.float32)},
    )
    names = quantizable(net)
    feed = {"x": np.ones((1, 1, 2, 2), np.float32)}
    seen = collect(names, [feed], lambda b: run(net, b, names))
    ready = prepare(net, Variant.of("int8"), seen)
    assert ('value "r" was zero in all 4 elements: any scale represents it',) == ready.notes
    assert np.isfinite(run(ready.model, feed)["y"]).all()
