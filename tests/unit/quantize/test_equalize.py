"""Scale moves between neighbours, and the model computes what it did, as ONNX Runtime says of both."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import rtlab
from rtlab.core.calibrators import percentile
from rtlab.core.variant import Variant
from rtlab.quantize import apply_transforms, prepare
from rtlab.quantize.scale_migration import Constants, find_links

rng = np.random.default_rng(5)


def equalized(model: Any) -> Any:
    return apply_transforms.apply_transforms(model, Variant.of("int8", treatments=["equalize"]))[0]


def weight(model: Any, id_: str, position: int = 1) -> np.ndarray:
    return np.asarray(model.known[model.by_id[id_].inputs[position]].numpy())


def test_two_layers_get_the_mean_of_their_ranges(make, run) -> None:
    """By hand: channel 0 is written with at most 8 and read with 2, so s = 2 and both become 4; channel 1 likewise."""
    one = np.array([[8.0, 1.0], [-4.0, 0.25]], np.float32)
    two = np.array([[-2.0, 1.0], [0.5, 0.25]], np.float32)
    made = make(
        "x[n, 2]; one: a = Gemm(x, one, c); relu: b = Relu(a); two: y = MatMul(b, two); y[n, 2]",
        {"one": one, "two": two, "c": np.array([2.0, -2.0], np.float32)},
    )
    after = equalized(made)
    # r1 = (8, 1), r2 = (2, 0.5): s = (2, sqrt(2)).
    s = np.sqrt([4.0, 2.0])
    np.testing.assert_allclose(weight(after, "one"), one / s, rtol=1e-6)
    np.testing.assert_allclose(weight(after, "two"), two * s[:, None], rtol=1e-6)
    np.testing.assert_allclose(weight(after, "one", 2), np.array([2, -2]) / s, rtol=1e-6)
    np.testing.assert_allclose(*both(run, made, after, 5, 2), rtol=1e-5, atol=1e-6)


def chain(make, middle: str, weights: dict[str, np.ndarray], channels: int = 6) -> Any:
    """Conv, something, and a depthwise and a pointwise convolution behind it."""
    spread = np.logspace(-1, 1, channels)
    held = {
        "w": rng.normal(0, 0.3, (channels, 3, 3, 3)) * spread[:, None, None, None],
        "c": rng.normal(0, 0.3, channels),
        "d": rng.normal(0, 0.3, (channels, 1, 3, 3)),
        "p": rng.normal(0, 0.3, (4, channels, 1, 1)),
        **weights,
    }
    return make(
        f"x[2, 3, 9, 9]; conv: a = Conv(x, w, c); {middle}; depth: e = Conv(b, d, group={channels}); "
        "leaky: f = LeakyRelu(e, alpha=0.2); point: y = Conv(f, p); y[2, 4, None, None]",
        {k: v.astype(np.float32) for k, v in held.items()},
    )


MIDDLE = {
    "relu": ("m: b = Relu(a)", {}),
    "slopes": ("m: b = PRelu(a, s)", {"s": rng.uniform(-0.5, 0.5, (6, 1, 1))}),
    "pool": ("r: r = Relu(a); m: b = MaxPool(r, kernel_shape=[2, 2])", {}),
    "normal": (
        "n: n = BatchNormalization(a, g, h, u, v, epsilon=0.3); m: b = Relu(n)",
        {**{n: rng.normal(0, 1, 6) for n in "ghu"}, "v": rng.uniform(0.1, 2, 6)},
    ),
    "offset and factor": (
        "k: k = Add(a, o); l: l = Mul(q, k); m: b = Relu(l)",
        {"o": rng.normal(0, 1, (6, 1, 1)), "q": rng.normal(0, 1, (1, 6, 1, 1))},
    ),
    "one offset for all": ("k: k = Add(o, a); m: b = Relu(k)", {"o": np.array(0.7)}),
}


def both(run, made: Any, after: Any, *shape: int) -> tuple[np.ndarray, np.ndarray]:
    """What two models write of one input."""
    x = rng.normal(0, 1, shape).astype(np.float32)
    return tuple(run(m, {"x": x}, ["y"])["y"] for m in (made, after))


@pytest.mark.parametrize("middle", MIDDLE)
def test_outputs_stay_whatever_keeps_multiples_between(middle, make, run) -> None:
    made = chain(make, *MIDDLE[middle])
    assert ["conv", "depth"] == [link.first for link in find_links(made)]
    after = equalized(made)
    x = rng.normal(0, 1, (2, 3, 9, 9)).astype(np.float32)
    was, now = (run(m, {"x": x}, ["y", "b"]) for m in (made, after))
    np.testing.assert_allclose(now["y"], was["y"], rtol=2e-4, atol=2e-6 * np.abs(was["y"]).max())
    # Something moved, and by one number for each channel.
    was, now = (np.abs(v["b"]).max((0, 2, 3)) for v in (was, now))
    assert np.abs(np.log(was[was > 0] / now[was > 0])).max() > 0.1


def test_a_chain_ends_with_equal_ranges(make) -> None:
    """The paper's fixed point: each channel is written and read with the same largest weight."""
    after = equalized(chain(make, *MIDDLE["relu"]))
    conv, depth, point = (np.abs(weight(after, n)) for n in ("conv", "depth", "point"))
    np.testing.assert_allclose(depth.max((1, 2, 3)), conv.max((1, 2, 3)), rtol=1e-2)
    np.testing.assert_allclose(point.max((0, 2, 3)), depth.max((1, 2, 3)), rtol=1e-2)


def test_a_value_that_somebody_else_reads_keeps_its_scale(make) -> None:
    held = {"w": rng.normal(0, 1, (4, 4)).astype(np.float32)}
    nodes = "x[3, 4]; one: a = MatMul(x, w); two: y = MatMul(a, w)"
    assert 1 == len([*find_links(make(f"{nodes}; y[3, 4]", held))])
    for more in ("soft: z = Softmax(a); y[3, 4]; z[3, 4]", "y[3, 4]; a[3, 4]"):
        assert [] == [*find_links(make(f"{nodes}; {more}", held))]


def test_a_flattened_map_is_read_by_a_matrix(make, run) -> None:
    w = rng.normal(0, 1, (3, 2, 2, 2)) * np.array([0.1, 1, 10])[:, None, None, None]
    made = make(
        "x[2, 2, 4, 4]; conv: a = Conv(x, w); relu: b = Relu(a); flat: f = Flatten(b); "
        "gemm: y = Gemm(f, g, transB=1); y[2, 5]",
        {"w": w.astype(np.float32), "g": rng.normal(0, 1, (5, 27)).astype(np.float32)},
    )
    after = equalized(made)
    np.testing.assert_allclose(*both(run, made, after, 2, 2, 4, 4), rtol=1e-4, atol=1e-5)
    conv, gemm = np.abs(weight(after, "conv")).max((1, 2, 3)), np.abs(weight(after, "gemm"))
    np.testing.assert_allclose(gemm.reshape(5, 3, 9).max((0, 2)), conv, rtol=1e-2)


def test_a_shared_weight_is_scaled_where_it_is_read(make, run) -> None:
    held = {"w": (rng.normal(0, 1, (4, 4)) * np.array([0.01, 1, 1, 9])).astype(np.float32)}
    made = make("x[3, 4]; one: a = MatMul(x, w); relu: b = Relu(a); two: y = MatMul(b, w); y[3, 4]", held)
    after = equalized(made)
    np.testing.assert_allclose(*both(run, made, after, 3, 4), rtol=1e-4, atol=1e-5)
    assert not np.array_equal(weight(after, "one"), weight(after, "two"))


def test_no_channel_of_small_weights_gets_a_large_bias(make) -> None:
    one = np.array([[1.0, 1e-9], [1.0, 1e-9]], np.float32)
    made = make(
        "x[1, 2]; one: a = Gemm(x, one, c); two: y = Gemm(a, two); y[1, 2]",
        {"one": one, "two": np.eye(2, dtype=np.float32), "c": np.array([0.1, 0.5], np.float32)},
    )
    assert np.abs(weight(equalized(made), "one", 2)).max() <= 1.0


def test_the_scale_of_a_link_is_the_published_one(make) -> None:
    made = chain(make, *MIDDLE["relu"])
    first = next(iter(find_links(made)))
    r1 = np.abs(weight(made, "conv")).max((1, 2, 3)).astype(np.float64)
    r2 = np.abs(weight(made, "depth")).max((1, 2, 3)).astype(np.float64)
    np.testing.assert_allclose(
        apply_transforms.compute_scale_factors(Constants(made), first), np.sqrt(r1 * r2) / r2
    )


def test_single_values_have_their_own_calibrator() -> None:
    sample = rtlab.samples.load("digits_outlier")
    study = rtlab.Study(sample.model, data=sample.calibration.take(64))
    ranges = study.calibration.observe().ranges
    stem = sample.model.by_id["/stem/Conv"].inputs[0]
    last = sample.model.by_id["/blocks/0/depthwise/Conv"].inputs[0]
    chosen = {"/stem/Conv": "percentile(99)", last: "percentile(98)"}
    ready = prepare(sample.model, Variant.of("int8", calibrator="minmax", calibrators=chosen), ranges)
    assert percentile(ranges.values[stem], p=99) == ready.scales[stem].amax
    assert percentile(ranges.values[last], p=98) == ready.scales[last].amax
    others = {v: s.amax for v, s in ready.scales.items() if v not in {stem, last}}
    usual = prepare(sample.model, Variant.of("int8", calibrator="minmax"), ranges).scales
    assert others == {v: usual[v].amax for v in others}
    assert any("percentile(99) for 1 value, percentile(98) for 1" in n for n in ready.notes)
    # Of two that fit, the last counts.
    two = Variant.of("int8", calibrator="minmax", calibrators={stem: "percentile(97)", "*": "minmax"})
    assert usual[stem].amax == prepare(sample.model, two, ranges).scales[stem].amax


@pytest.mark.parametrize("op", ["Sigmoid", "Clip", "Abs"])
def test_scale_stays_before_what_changes_with_it(op, make) -> None:
    """Abs keeps multiples too, but is not known to; a scale that stays is no error."""
    assert ["depth"] == [link.first for link in find_links(chain(make, f"m: b = {op}(a)", {}))]


@pytest.mark.slow
def test_an_equalized_variant_is_calibrated_on_its_own_activations() -> None:
    sample = rtlab.samples.load("digits_outlier")
    study = rtlab.Study(sample.model, data=sample.calibration.take(64))
    study.add("int8", precision="int8", calibrator="minmax", treatments=["equalize"], target="cpu")
    study.run()
    facts = study.state.results["int8"]
    inner = sample.model.by_id["/blocks/0/pointwise/Conv"].inputs[0]
    assert facts.ranges.values[inner].amax != study.calibration.observe().ranges.values[inner].amax
    assert facts.prepared.scales[inner].amax == facts.ranges.values[inner].amax
    assert any("13 products equalized" in n for n in facts.prepared.notes)
    assert facts.prepared.reference is not None
