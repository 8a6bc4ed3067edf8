"""SmoothQuant: scale moves from activations into weights, and the model computes what it did, as ONNX Runtime says."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import helper

import rtlab
from rtlab.core.progress import Silent
from rtlab.core.variant import Variant
from rtlab.quantize import prepare, smooth, treating
from rtlab.session.observer import Observer, observe_peaks

node = helper.make_node


def attention(make: Any, how: str, rng: np.random.Generator, wild: float = 30.0) -> Any:
    """A normalization whose one channel is far larger, and three products that read it."""
    gamma = np.ones(8)
    gamma[3] = wild
    weights = {n: rng.normal(0, 0.3, (8, 6)) for n in ("q", "k", "v")}
    beta = rng.normal(0, 0.2, 8)
    norm = node("LayerNormalization", ["x", "g", "b"], ["l" if how == "view" else "n"], name="norm", axis=-1)
    factor = [node("Tanh", ["x"], ["t"], name="t"), node("Mul", ["g", "t"], ["m"], name="norm")]
    front = {
        "layer": ([norm], {"b": beta}),
        "layer without offset": ([node("LayerNormalization", ["x", "g"], ["n"], name="norm")], {}),
        "factor and offset": ([*factor, node("Add", ["m", "b"], ["n"], name="a")], {"b": beta}),
        "view": (
            [norm, node("Reshape", ["l", "shape"], ["n"], name="r")],
            {"b": beta, "shape": np.array([10, 8], np.int64)},
        ),
    }
    nodes, more = front[how]
    products = [node("MatMul", ["n", w], [f"y{w}"], name=w) for w in weights]
    rows: list[int | str] = [10] if how == "view" else [2, 5]
    held = {"g": gamma, **weights, **more}
    return make(
        [*nodes, *products],
        {k: v if v.dtype == np.int64 else v.astype(np.float32) for k, v in held.items()},
        {"x": [2, 5, 8]},
        {f"y{w}": [*rows, 6] for w in weights},
        opset=17,
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
    plain, axes = treating.uneven(model, variant)
    assert ["n"] == list(axes)
    peaks = observe_peaks(plain, axes, data, Silent())
    before = run(model, {"x": x}, ["n", "yq", "yk", "yv"])
    seen = np.abs(before["n"]).reshape(-1, 8).max(0)
    np.testing.assert_allclose(peaks["n"], seen, rtol=1e-6)
    made, notes = treating.treated(model, variant, peaks)
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
        plain, axes = treating.uneven(model, variant)
        made, _ = treating.treated(
            model, variant, observe_peaks(plain, axes, data, Silent()) if treatments else None
        )
        ready = prepare(made, variant, Observer(made).ranges(data, Silent()))
        was, now = (run(m, x, ["yq"])["yq"] for m in (model, ready.emulation))
        errors.append(float(np.square(was - now).sum()))
    assert errors[1] < errors[0] / 4


def test_a_value_that_no_product_reads_alone_keeps_its_scale(make) -> None:
    rng = np.random.default_rng(3)
    held = {"g": np.ones(8, np.float32), "q": rng.normal(0, 1, (8, 8)).astype(np.float32)}
    nodes = [
        node("LayerNormalization", ["x", "g"], ["n"], name="norm"),
        node("MatMul", ["n", "q"], ["y"], name="q"),
        node("Add", ["n", "y"], ["z"], name="sum"),
    ]
    assert () == smooth.plan(make(nodes, held, {"x": [4, 8]}, {"z": [4, 8]}))
