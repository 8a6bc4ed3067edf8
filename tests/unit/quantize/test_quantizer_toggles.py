"""One graph with a switch for each place that rounds, by arithmetic by hand."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from net_text import written
from promises import promises  # noqa: F401 - watches every pass
from rtlab.core.model import Model
from rtlab.core.scale import Scale
from rtlab.core.variant import Variant
from rtlab.quantize import prepare
from rtlab.quantize.quantizer_toggles import INPUT, SwitchedModel, build_switched_model
from trt_nets import from_nvfp4, nvfp4

X = np.array([[0.3, -1.7, 2.2], [0.9, 0.05, -0.6]], np.float32)
W = np.array([[0.11, -0.52], [0.93, 0.27], [-0.38, 0.64]], np.float32)
V = np.array([[1.3, -0.4], [0.2, 0.7]], np.float32)
U = np.array([[0.6, 1.1], [-0.9, 0.35]], np.float32)
#: By value what the largest quantized number stands for.
AMAX = {"x": 3.0, "h": 4.0}


@pytest.fixture
def model() -> Model:
    """Three products, the first of which is read by both others, and the sum of these."""
    return written(
        "x[2, 3]; one: h = MatMul(x, w); two: g = MatMul(h, v); three: f = MatMul(h, u); sum: y = Add(g, f); y",
        w=W,
        v=V,
        u=U,
    )


def made(model: Model, precision: str) -> SwitchedModel:
    scales = {k: Scale(v) for k, v in AMAX.items()}
    return build_switched_model(
        model, prepare(model, Variant.of(precision, target="sm89"), scales=scales).emulation
    )


def rounded(x: np.ndarray, amax: float | np.ndarray) -> np.ndarray:
    step = np.asarray(amax, np.float32) / np.float32(127)
    return (np.clip(np.rint(x / step), -127, 127) * step).astype(np.float32)


def by_hand(on: set[str]) -> np.ndarray:
    x = rounded(X, AMAX["x"]) if "one/input0" in on else X
    w = rounded(W, np.abs(W).max(axis=0)) if "one/weight1" in on else W
    h = x @ w
    v = rounded(V, np.abs(V).max(axis=0)) if "two/weight1" in on else V
    u = rounded(U, np.abs(U).max(axis=0)) if "three/weight1" in on else U
    short = rounded(h, AMAX["h"])
    return (short if "two/input0" in on else h) @ v + (short if "three/input0" in on else h) @ u


IDS = ("one/input0", "one/weight1", "two/input0", "two/weight1", "three/input0", "three/weight1")


@pytest.mark.slow(but="on0|on3|on8")
@pytest.mark.parametrize("on", [(), *((i,) for i in IDS), IDS[:2], IDS[2:], IDS])
def test_a_switch_rounds_its_own_edge_and_no_other(model: Model, on: tuple[str, ...], run) -> None:
    """Two readers of one value have a switch each, although one pair rounds it for both."""
    one = made(model, "int8")
    assert IDS == tuple(q.id for q in one.quantizers)
    assert [("one", "input", 0, "x"), ("one", "weight", 1, "w"), ("two", "input", 0, "h")] == [
        (q.node, q.part, q.position, q.value) for q in one.quantizers[:3]
    ]
    got = run(one.model, {"x": X, INPUT: one.make_vector(on)}, ["y"])["y"]
    np.testing.assert_allclose(got, by_hand({*on}), rtol=0, atol=1e-6)


def test_factors_in_fp4_have_a_switch_each(run) -> None:
    """An activation in blocks is rounded by an operator of TensorRT's domain, and the weight is a constant."""
    rng = np.random.default_rng(2)
    x, w = (rng.standard_normal(shape).astype(np.float32) for shape in ((3, 32), (32, 2)))
    net = written("x[3, 32]; one: y = MatMul(x, w); y", w=w)
    ready = prepare(net, Variant.of("fp4", target="sm120"), scales={"x": Scale(4.0)})
    one = build_switched_model(net, ready.emulation)
    assert ("one/input0", "one/weight1") == tuple(q.id for q in one.quantizers)
    whole = np.float32(np.float32(4) / np.float32(2688))
    near = from_nvfp4(*nvfp4(x, whole), whole)
    for switches, expected in (((), x), (("one/input0",), near)):
        got = run(one.model, {"x": x, INPUT: one.make_vector(switches)}, ["y"])["y"]
        np.testing.assert_allclose(got, expected @ w, rtol=1e-5, atol=1e-5)


@pytest.mark.slow
def test_of_16_bits_what_a_node_writes_has_a_switch(model: Model, run) -> None:
    one = made(model, "bf16")
    assert {"one/output0", "two/output0", "sum/output0"} < {q.id for q in one.quantizers}
    plain = X @ W @ V + X @ W @ U
    for switch, value in (("sum/output0", plain), ("two/output0", X @ W @ V)):
        got = run(one.model, {"x": X, INPUT: one.make_vector([switch])}, ["y"])["y"]
        short = value.astype(ml_dtypes.bfloat16).astype(np.float32)
        np.testing.assert_allclose(got, short + (0 if value is plain else X @ W @ U), atol=1e-6)


@pytest.mark.slow
def test_the_bound_of_a_clip_that_16_bits_cannot_hold_is_the_source_s_without_its_switch(run) -> None:
    model = written(
        "x[3]; shape: s = Shape(x); fill: m = ConstantOfShape(s, value=[-1e9]); max: y = Max(x, m); y[3]"
    )
    one = made(model, "fp16")
    assert "fill/output0" in {q.id for q in one.quantizers}
    x = np.array([-1e6, 0.5, 2.0], np.float32)
    for on, least in ((["fill/output0"], -65504.0), ([], -1e6)):
        assert [least, 0.5, 2.0] == run(one.model, {"x": x, INPUT: one.make_vector(on)}, ["y"])["y"].tolist()


def test_a_node_stands_for_all_of_its_switches(model: Model) -> None:
    one = made(model, "int8")
    assert [False, False, True, True, False, False] == one.make_vector(["two"]).tolist()
    assert [True, True, False, True, True, True] == one.make_inverse_vector([one.quantizers[2]]).tolist()


def test_what_one_node_rounds_after_another_has_a_switch_of_its_own(model: Model) -> None:
    ready = prepare(model, Variant.of({"*": "bf16", "two": "fp16"}, target="sm89"))
    ids = {q.id for q in build_switched_model(model, ready.emulation).quantizers}
    assert {"one/output0", "two/input0"} <= ids


def test_both_models_stay_as_they_were(model: Model) -> None:
    emulation = prepare(model, Variant.of("fp16")).emulation
    before = model.bytes(), emulation.bytes()
    build_switched_model(model, emulation)
    assert before == (model.bytes(), emulation.bytes())
