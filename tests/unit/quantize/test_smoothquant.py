"""SmoothQuant: scale moves from activations into weights, and the model computes what it did, as ONNX Runtime says."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import rtlab
from rtlab.core.progress import Silent
from rtlab.core.variant import Variant
from rtlab.quantize import apply_transforms, prepare, smoothquant
from rtlab.study.observations import Observer, observe_peaks


def attention(make: Any, how: str, rng: np.random.Generator, wild: float = 30.0) -> Any:
    """A normalization whose one channel is far larger, and three products that read it."""
    gamma = np.ones(8)
    gamma[3] = wild
    weights = {n: rng.normal(0, 0.3, (8, 6)) for n in ("q", "k", "v")}
    products = "; ".join(f"{w}: y{w} = MatMul(n, {w})" for w in weights)
    factor = "t: t = Tanh(x); norm: m = Mul(g, t); a: n = Add(m, b)"
    front = {
        "layer": "norm: n = LayerNormalization(x, g, b, axis=-1)",
        "layer without offset": "norm: n = LayerNormalization(x, g)",
        "factor and offset": factor,
        "view": "norm: l = LayerNormalization(x, g, b, axis=-1); r: n = Reshape(l, shape)",
    }[how]
    held = {n: v.astype(np.float32) for n, v in {"g": gamma, "b": rng.normal(0, 0.2, 8), **weights}.items()}
    return make(
        f"x[2, 5, 8]; {front}; {products}; yq; yk; yv", {**held, "shape": np.array([10, 8], np.int64)}
    )


WAYS = ("layer", "layer without offset", "factor and offset", "view")


@pytest.mark.slow(but=r"0\.5")
@pytest.mark.parametrize("alpha", [0.0, 0.5, 0.8, 1.0])
@pytest.mark.parametrize("how", WAYS)
def test_outputs_stay_and_channels_become_even(how, alpha, make, run) -> None:
    rng = np.random.default_rng(1)
    model = attention(make, how, rng)
    x = rng.normal(0, 1, (2, 5, 8)).astype(np.float32)
    data = rtlab.CalibrationData.of({"x": x})
    variant = Variant.of("int8", treatments=[f"smooth({alpha})"])
    plain, axes = apply_transforms.plan_smoothing_observation(model, variant)
    assert ["n"] == list(axes)
    peaks = observe_peaks(plain, axes, data, Silent())
    before = run(model, {"x": x}, ["n", "yq", "yk", "yv"])
    seen = np.abs(before["n"]).reshape(-1, 8).max(0)
    np.testing.assert_allclose(peaks["n"], seen, rtol=1e-6)
    made, notes = apply_transforms.apply_transforms(model, variant, peaks)
    assert (f"1 normalization smoothed with alpha {alpha:g}",) == notes
    after = run(made, {"x": x}, ["n", "yq", "yk", "yv"])
    for name in ("yq", "yk", "yv"):
        np.testing.assert_allclose(after[name], before[name], rtol=1e-4, atol=1e-4)
    # The published scale, by hand.
    weight = np.max([np.abs(model.known[w].numpy()).max(1) for w in "qkv"], axis=0)
    scale = seen**alpha / weight ** (1 - alpha)
    np.testing.assert_allclose(np.abs(after["n"]).reshape(-1, 8).max(0), seen / scale, rtol=1e-5)


@pytest.mark.slow
def test_int8_keeps_more_of_the_output_when_smoothed(make, run) -> None:
    rng = np.random.default_rng(2)
    model = attention(make, "layer", rng, wild=100.0)
    data = rtlab.CalibrationData.of({"x": rng.normal(0, 1, (64, 5, 8)).astype(np.float32)})
    x = next(data.batches(model, 2))
    errors = []
    for treatments in ((), ("smooth",)):
        variant = Variant.of("int8", calibrator="minmax", treatments=treatments)
        plain, axes = apply_transforms.plan_smoothing_observation(model, variant)
        peaks = observe_peaks(plain, axes, data, Silent()) if treatments else None
        made, _ = apply_transforms.apply_transforms(model, variant, peaks)
        ready = prepare(made, variant, Observer(made).ranges(data, Silent()))
        was, now = (run(m, x, ["yq"])["yq"] for m in (model, ready.emulation))
        errors.append(float(np.square(was - now).sum()))
    assert errors[1] < errors[0] / 4


def test_a_value_that_no_product_reads_alone_keeps_its_scale(make) -> None:
    rng = np.random.default_rng(3)
    held = {"g": np.ones(8, np.float32), "q": rng.normal(0, 1, (8, 8)).astype(np.float32)}
    text = "x[4, 8]; norm: n = LayerNormalization(x, g); q: y = MatMul(n, q); sum: z = Add(n, y); z[4, 8]"
    assert () == smoothquant.plan(make(text, held))


def test_each_link_is_smoothed_with_the_setting_of_the_last_treatment_for_it(make) -> None:
    weights = {n: np.ones((4, 4), np.float32) for n in ("v", "w", "z")} | {"g": np.ones(4, np.float32)}
    model = make(
        "x[2, 4]; a: n = LayerNormalization(x, g); one: h = MatMul(n, v); b: m = LayerNormalization(h, g); "
        "two: i = MatMul(m, w); c: o = LayerNormalization(i, g); three: y = MatMul(o, z); y[2, 4]",
        weights,
    )
    treatments = Variant.of("int8", treatments=["smooth(0.5)", "smooth(0.75) b", "smooth(0.25) c"]).treatments
    plan = apply_transforms._plan_smoothing(model, treatments)
    assert [(["a"], 0.5), (["b"], 0.75), (["c"], 0.25)] == [
        ([y.first for y in links], a) for links, a in plan
    ]
