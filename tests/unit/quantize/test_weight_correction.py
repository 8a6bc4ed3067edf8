"""Reconstruction and bias correction: against brute force on a handful of weights, against faults that were planted."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import rtlab
from rtlab.core.layer_inputs import LayerInput, LayerInputs
from rtlab.core.precision import NVFP4_RANGE
from rtlab.core.progress import Silent
from rtlab.core.scale import Scale
from rtlab.core.variant import Precision, Variant
from rtlab.quantize import gptq, prepare
from rtlab.quantize.input_statistics import InputCollector, InputStatsRequest, ProductForm, make_product_form
from rtlab.quantize.weight_correction import WeightCorrector


def compute_error(weight: np.ndarray, numbers: np.ndarray, second: np.ndarray) -> float:
    """The mean square error of what a layer writes: the trace of ``(W - Q) H (W - Q)ᵀ``."""
    return float(np.trace((weight - numbers) @ second @ (weight - numbers).T))


WHOLE = Precision.INT4.stored.round


def correlated(rng: np.random.Generator, count: int, size: int, mix: float = 0.9) -> np.ndarray:
    """Rows whose neighbours are alike."""
    x = rng.normal(0, 1, (count, size))
    for i in range(1, size):
        x[:, i] = mix * x[:, i - 1] + np.sqrt(1 - mix**2) * x[:, i]
    return x


def greedy(weight: np.ndarray, scale: np.ndarray, second: np.ndarray, damping: float) -> np.ndarray:
    """Column after column rounded, the rest solved anew by least squares each time: what the update stands for."""
    size = len(second)
    order = np.argsort(-np.diagonal(second), kind="stable")
    moments = second + damping * np.diagonal(second).mean() * np.eye(size)
    steps = np.empty_like(weight)
    for row in range(len(weight)):
        now = weight[row].copy()
        for at, column in enumerate(order):
            steps[row, column] = WHOLE(now[column] / scale[row, column])
            done, rest = order[: at + 1], order[at + 1 :]
            if rest.size:
                # Minimise (w - q) H (w - q)ᵀ over the columns that are left.
                off = weight[row, done] - steps[row, done] * scale[row, done]
                best = np.linalg.solve(moments[np.ix_(rest, rest)], moments[np.ix_(rest, done)] @ off)
                now[rest] = weight[row, rest] + best
    return steps


@pytest.mark.parametrize("size", [4, 5, 6, 130])
@pytest.mark.parametrize("damping", [0.01, 0.3])
def test_the_update_is_what_solving_for_the_rest_gives(size, damping) -> None:
    """Closed form against least squares, also over more columns than are rounded together."""
    rng = np.random.default_rng(size)
    x = correlated(rng, 4 * size, size) * rng.uniform(0.2, 3, size)
    second = x.T @ x / len(x)
    weight, scale = rng.normal(0, 1, (3, size)), rng.uniform(0.1, 0.3, (3, size))
    found = gptq._round_columns(weight, scale, gptq._factorize(second, damping), WHOLE)
    expected = greedy(weight, scale, second, damping)
    assert (found == expected).mean() >= (1.0 if size < 10 else 0.98)


@pytest.mark.parametrize("seed", range(6))
def test_no_rounding_of_five_weights_is_much_better(seed) -> None:
    """All roundings down and up are tried: the best of them bounds the error from below, the nearest from above."""
    rng = np.random.default_rng(seed)
    x = correlated(rng, 40, 5)
    second, weight, scale = x.T @ x / 40, rng.normal(0, 1, (1, 5)), np.full((1, 5), 0.3)
    below = np.floor(weight / scale)
    every = [np.clip(below + np.array(up), -7, 7) for up in itertools.product((0, 1), repeat=5)]
    best = min(compute_error(weight, e * scale, second) for e in every)
    nearest = compute_error(weight, WHOLE(weight / scale) * scale, second)
    found = gptq.reconstruct(weight, scale, second, WHOLE, 0.01) * scale
    # A weight may go further than to its two neighbours, and so be better than all of these.
    got = compute_error(weight, found, second)
    assert got <= nearest
    assert got <= best * 1.6 + 1e-12


def test_each_weight_is_the_best_given_the_others() -> None:
    rng = np.random.default_rng(1)
    x = correlated(rng, 60, 6)
    second, weight, scale = x.T @ x / 60, rng.normal(0, 1, (4, 6)), np.full((4, 6), 0.25)
    steps = gptq.reconstruct(weight, scale, second, WHOLE, 0.01)
    least = compute_error(weight, steps * scale, second)
    for row, column, to in itertools.product(range(4), range(6), range(-7, 8)):
        other = steps.copy()
        other[row, column] = to
        assert compute_error(weight, other * scale, second) >= least - 1e-9


@pytest.mark.parametrize("precision", [Precision.INT4, Precision.FP4, Precision.INT8, Precision.FP8])
def test_correlated_inputs_leave_something_to_win(precision) -> None:
    """6 dB where neighbours are alike; where no input tells of another one, nothing is to be had."""
    rng = np.random.default_rng(2)
    weight, nearest = rng.normal(0, 1, (16, 64)), precision.stored.round
    most = {"int4": 7, "fp4": 6, "int8": 127, "fp8": 448}[precision]
    scale = np.repeat(np.abs(weight).max(1, keepdims=True) / most, 64, 1)

    def gain(second: np.ndarray) -> float:
        rounded = nearest(weight / scale) * scale
        found = gptq.reconstruct(weight, scale, second, nearest, 0.01) * scale
        was, now = (compute_error(weight, y, second) for y in (rounded, found))
        return 10 * np.log10(was / now)

    x = correlated(rng, 2000, 64, 0.95)
    assert gain(x.T @ x / 2000) > 6
    assert abs(gain(np.eye(64))) < 1e-9


def test_a_scale_is_what_least_squares_gives() -> None:
    """Of one block: NumPy fits what the multiples write to what the weights write, sample by sample."""
    rng = np.random.default_rng(11)
    x, weight = correlated(rng, 200, 8), rng.normal(0, 1, (3, 8))
    steps = WHOLE(weight / 0.2)
    found = gptq._solve_scales(weight, np.full((3, 1), 0.2), steps, x.T @ x / 200)
    for row in range(3):
        (best,), *_ = np.linalg.lstsq((x @ steps[row])[:, None], x @ weight[row])
        assert found[row, 0] == pytest.approx(best)


@pytest.mark.parametrize(("size", "blocks", "least"), [(9, 1, 2.0), (64, 2, 0.5), (150, 3, 0.3)])
def test_scales_that_are_sought_by_the_output_keep_more_of_it(size, blocks, least) -> None:
    rng = np.random.default_rng(12)
    x = correlated(rng, 1200, size)
    second, weight = x.T @ x / 1200, rng.normal(0, 1, (2, 24, size))
    largest = np.abs(weight).reshape(2, 24, blocks, -1).max(3) / 7
    seconds = np.stack([second, second[::-1, ::-1]])
    scale, steps = gptq.fit_scales(weight, largest, seconds, WHOLE, store=lambda s: s, damping=0.01)
    assert (np.abs(steps) <= 7).all()
    assert (steps == np.rint(steps)).all()
    won = []
    for group in range(2):
        one = np.diagonal(seconds[group]).reshape(blocks, -1)
        rows = weight[group].reshape(24, blocks, -1)
        plain = gptq.search_scales(rows, largest[group], one, WHOLE, lambda s: s)
        plain = np.repeat(plain, size // blocks, axis=1)
        given = gptq.reconstruct(weight[group], plain, seconds[group], WHOLE, 0.01) * plain
        numbers = steps[group] * np.repeat(scale[group], size // blocks, axis=1)
        was, now = (gptq._compute_row_errors(weight[group], n, seconds[group]) for n in (given, numbers))
        won.append(10 * np.log10(was.sum() / now.sum()))
    assert min(won) > least, won


def test_the_codebook_of_fp4_is_its_own() -> None:
    every = Precision.FP4.stored.round(np.linspace(-9, 9, 2001))
    assert [0, 0.5, 1, 1.5, 2, 3, 4, 6] == sorted({abs(v) for v in every})


def conv(rng: np.random.Generator, make: Any, **how: Any) -> Any:
    weight = rng.normal(0, 0.3, (6, 4 // how.get("group", 1), 3, 2)).astype(np.float32)
    more = "".join(f", {k}={v!r}" for k, v in how.items())
    return make(f"x[3, 4, 9, 8]; conv: y = Conv(x, w{more}); y", {"w": weight})


WINDOWS = (
    {},
    {"strides": [2, 3], "pads": [1, 0, 2, 1]},
    {"dilations": [2, 2], "group": 2},
    {"auto_pad": "SAME_UPPER", "strides": [2, 2]},
    {"auto_pad": "SAME_LOWER"},
    {"auto_pad": "VALID", "group": 2, "strides": [1, 2]},
)  # fmt: skip


@pytest.mark.parametrize("how", WINDOWS)
def test_rows_times_weights_are_what_a_convolution_writes(how, make, run) -> None:
    rng = np.random.default_rng(3)
    model = conv(rng, make, **how)
    x = rng.normal(0, 1, (3, 4, 9, 8)).astype(np.float32)
    one = make_product_form(model, model.by_id["conv"])
    assert isinstance(one, ProductForm)
    weight = np.asarray(model.known["w"].numpy())
    rows = one.sample_rows(x, 10_000)
    y = run(model, {"x": x}, ["y"])["y"]
    made = np.einsum("grk,gok->gor", rows, one.to_rows(weight)).reshape(6, 3, -1)
    np.testing.assert_allclose(made.transpose(1, 0, 2).reshape(y.shape), y, rtol=1e-4, atol=1e-5)
    total, places = one.sum_positions(x)
    assert y.size // 6 == places
    mean = np.einsum("gk,gok->go", total / places, one.to_rows(weight)).ravel()
    np.testing.assert_allclose(mean, y.mean((0, 2, 3)), rtol=1e-4, atol=1e-6)
    np.testing.assert_array_equal(one.from_rows(one.to_rows(weight)), weight)
    few = one.sample_rows(x, 7)
    assert 0 < few.shape[1] <= 3 * 7


@pytest.mark.parametrize("turned", [False, True])
def test_a_matrix_is_read_either_way(turned, make, run) -> None:
    rng = np.random.default_rng(4)
    weight = rng.normal(0, 1, (5, 7) if turned else (7, 5)).astype(np.float32)
    model = make(f"x[6, 7]; gemm: y = Gemm(x, w, transB={int(turned)}); y[6, 5]", {"w": weight})
    one = make_product_form(model, model.by_id["gemm"])
    assert isinstance(one, ProductForm)
    x = rng.normal(0, 1, (6, 7)).astype(np.float32)
    y = run(model, {"x": x}, ["y"])["y"]
    np.testing.assert_allclose(one.sample_rows(x, 99)[0] @ one.to_rows(weight)[0].T, y, rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(one.from_rows(one.to_rows(weight)), weight)


def collected(
    model: Any, x: np.ndarray, *, scale: Scale | None, batch: int, second: bool = True
) -> LayerInputs:
    (first,) = [n for n in model.top if n.op in {"Conv", "Gemm", "MatMul"}][:1]
    collector = InputCollector([InputStatsRequest(make_product_form(model, first), scale, second)])
    parts = [{first.inputs[0]: x[i : i + batch]} for i in range(0, len(x), batch)]
    collector.run(parts, lambda _: {}, Silent(), lambda b: len(next(iter(b.values()))))
    return collector.build_layer_inputs({})


def test_batches_do_not_matter(make) -> None:
    """And the second moment is the mean of outer products, as NumPy computes it of all rows at once."""
    rng = np.random.default_rng(5)
    model = conv(rng, make, group=2)
    x = rng.normal(0.5, 1, (12, 4, 9, 8)).astype(np.float32)
    one, other = (collected(model, x, scale=Scale(2.0), batch=b).nodes["conv"] for b in (3, 12))
    np.testing.assert_allclose(one.second_moment, other.second_moment, rtol=1e-5)
    np.testing.assert_allclose(one.mean, other.mean)
    rounded = np.clip(np.rint(x / np.float32(2 / 127)), -128, 127) * np.float32(2 / 127)
    rows = make_product_form(model, model.by_id["conv"]).sample_rows(rounded, 10_000).astype(np.float64)
    np.testing.assert_allclose(one.second_moment, rows.transpose(0, 2, 1) @ rows / rows.shape[1], rtol=1e-4)
    np.testing.assert_allclose(one.rounded_mean, rows.mean(axis=1), rtol=1e-4)


@pytest.mark.parametrize("op", ["Conv", "Gemm", "MatMul"])
def test_a_planted_bias_is_taken_off_exactly(op, make, run) -> None:
    """All weights lie above a step, so that rounding moves each channel; the mean of the output is put right."""
    rng = np.random.default_rng(6)
    steps = rng.integers(1, 120, (4, 8))
    steps[:, 0] = 127
    stored = steps.astype(np.float32)
    stored[:, 1:] += 0.4
    stored *= 0.01
    shape, nodes, held = {
        "Conv": ([64, 8, 3, 3], "p: y = Conv(x, w)", stored.reshape(4, 8, 1, 1)),
        "Gemm": ([64, 8], "p: y = Gemm(x, w, b, transB=1, beta=2.0)", stored),
        "MatMul": ([64, 8], "p: a = MatMul(x, w); q: y = Add(b, a)", stored.T),
    }[op]
    data = {"w": held, **({} if op == "Conv" else {"b": rng.normal(0, 1, 4).astype(np.float32)})}
    model = make(f"x{shape}; {nodes}; y", data)
    # The input's mean is far from zero, and its largest numbers are clipped.
    x = rng.normal(1, 1, shape).astype(np.float32)
    seen = collected(model, x, scale=Scale(2.5), batch=16)
    given = {"x": Scale(2.5)}
    plain = prepare(model, Variant.of("int8"), scales=given)
    mended = prepare(model, Variant.of("int8", treatments=["correct"]), scales=given, inputs=seen)
    was, rounded, now = (run(m, {"x": x}, ["y"])["y"] for m in (model, plain.emulation, mended.emulation))
    others = tuple(i for i in range(was.ndim) if i != 1)
    assert np.abs((rounded - was).mean(others)).min() > 0.02
    np.testing.assert_allclose(now.mean(others), was.mean(others), atol=2e-5)
    assert any("taken off 1 bias" in n for n in mended.notes)


@pytest.mark.parametrize("precision", ["int4", "fp4", "int8"])
def test_what_is_reconstructed_is_what_is_stored(precision, make, run) -> None:
    rng = np.random.default_rng(8)
    x = correlated(rng, 400, 64).astype(np.float32)
    model = make(
        "x[n, 64]; p: y = MatMul(x, w); y[n, 32]",
        {"w": rng.normal(0, 1, (64, 32)).astype(np.float32)},
        shapes={"n": 400},
    )
    largest = {"int8": 127.0, "fp4": NVFP4_RANGE}.get(precision)
    eight = {"scales": {"x": Scale(float(np.abs(x).max()), largest=largest)}} if largest else {}
    seen = collected(model, x, scale=eight["scales"]["x"] if eight else None, batch=100)
    plain = prepare(model, Variant.of(precision), **eight)
    mended = prepare(model, Variant.of(precision, treatments=["reconstruct"]), **eight, inputs=seen)
    was, rounded, now = (run(m, {"x": x}, ["y"])["y"] for m in (model, plain.emulation, mended.emulation))
    before, after = (np.square(y - was).sum() for y in (rounded, now))
    # The input's own rounding is a part of the error, and stays.
    assert after < before * (1.0 if largest else 0.25)
    assert any("weights of 1 node reconstructed on 400 samples" in n for n in mended.notes)
    stored = [n for n in mended.model.top if n.op == "DequantizeLinear"]
    assert len(stored) == len([n for n in plain.model.top if n.op == "DequantizeLinear"])


def test_columns_of_one_block_hear_of_those_before_it() -> None:
    rng = np.random.default_rng(9)
    x = correlated(rng, 600, 150, 0.97)
    second, weight, scale = x.T @ x / 600, rng.normal(0, 1, (2, 150)), np.full((2, 150), 0.3)
    steps = WHOLE(weight / scale)
    found = gptq._refine_steps(weight, scale, second, WHOLE, steps)
    plain = steps.copy()
    for _ in range(gptq._SWEEPS):
        for i in range(150):
            slope = (weight - plain * scale) @ second[:, i]
            plain[:, i] = WHOLE(plain[:, i] + slope / second[i, i] / scale[:, i])
    assert (found == plain).mean() > 0.98


def test_scales_of_blocks_heed_what_is_read(make, run) -> None:
    rng = np.random.default_rng(10)
    weight = rng.normal(0, 0.1, (64, 16))
    weight[::32] = 0.6
    x = rng.normal(0, 1, (300, 64))
    x[:, ::32] *= 1e-3
    largest = np.abs(weight.T.reshape(16, 2, 32)).max(2) / 7
    blocks, moments = weight.T.reshape(16, 2, 32), np.square(x).mean(0).reshape(2, 32)
    found, alike = (
        gptq.search_scales(blocks, largest, m, WHOLE, lambda s: s) for m in (moments, np.ones((2, 32)))
    )
    assert found.mean() < 0.7 * alike.mean()
    model = make("x[300, 64]; p: y = MatMul(x, w); y[300, 16]", {"w": weight.astype(np.float32)})
    seen = collected(model, x.astype(np.float32), scale=None, batch=300)
    ready = prepare(model, Variant.of("int4", treatments=["reconstruct"]), inputs=seen)
    stored = next(n for n in ready.model.top if n.op == "DequantizeLinear")
    scale = np.asarray(ready.model.known[stored.inputs[1]].numpy()).T
    assert scale.mean() < 0.7 * alike.mean()
    numbers = np.asarray(ready.emulation.known[ready.emulation.by_id["p"].inputs[1]].numpy())
    second, spread = x.T @ x / 300, np.repeat(found, 32, axis=1)
    given = gptq.reconstruct(weight.T, spread, second, WHOLE, 0.01) * spread
    assert compute_error(weight.T, numbers.T, second) < 0.9 * compute_error(weight.T, given, second)


def test_a_shared_weight_is_rounded_for_all_that_its_readers_read() -> None:
    sample = rtlab.samples.load("digits_vit")
    variant = Variant.of("int4", treatments=["reconstruct"])
    ids = [n.id for n in sample.model.top if n.id.endswith(("query/MatMul", "key/MatMul"))][:2]
    rng = np.random.default_rng(11)
    parts = [rng.normal(0, 1 + i, (100 * (i + 1), 48)) for i in range(2)]
    reads = [LayerInput(p.mean(0)[None], p.mean(0)[None], (p.T @ p / len(p))[None], len(p)) for p in parts]
    inputs = LayerInputs(dict(zip(ids, reads, strict=True)), 2)
    mending = WeightCorrector(sample.model, variant, inputs, lambda: None)
    together = np.concatenate(parts)
    found = mending._pool_second_moments(ids)
    assert found is not None
    np.testing.assert_allclose(found[1][0], together.T @ together / len(together), rtol=1e-9)


def test_a_weight_that_has_room_for_few_rows_at_once_is_the_same(monkeypatch) -> None:
    rng = np.random.default_rng(13)
    x = correlated(rng, 300, 12)
    second, weight = x.T @ x / 300, rng.normal(0, 1, (7, 12))
    largest = np.abs(weight).max(1, keepdims=True) / 7
    whole = gptq.fit_scales(weight, largest, second, WHOLE, store=lambda s: s, damping=0.01)
    monkeypatch.setattr(gptq, "_AT_ONCE", 2 * 12 * 15)
    parts = gptq.fit_scales(weight, largest, second, WHOLE, store=lambda s: s, damping=0.01)
    for one, other in zip(whole, parts, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-9)
