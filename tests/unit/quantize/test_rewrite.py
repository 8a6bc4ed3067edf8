from __future__ import annotations

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from one_precision import int8, quantize
from rtlab.core.model import Model
from rtlab.core.node import ORIGIN
from rtlab.core.scale import Scale
from rtlab.core.variant import Precision
from rtlab.quantize.placement import plan, quantizable
from rtlab.quantize.rewrite import quantize_weight, share_scales

node = helper.make_node


def power_of_two_weight(rng: np.random.Generator, shape: tuple[int, ...], axis: int) -> np.ndarray:
    """Weights whose channel scales are powers of two, so that FP32 sums of their products are exact."""
    whole = rng.integers(-126, 127, shape)
    first = [0] * len(shape)
    w = np.moveaxis(whole, axis, 0).copy()
    w[(slice(None), *first[1:])] = 127
    steps = 2.0 ** rng.integers(-9, -4, shape[axis])
    w = w * steps.reshape([-1, *[1] * (len(shape) - 1)]) + 0.0
    # Between two steps, so that rounding has something to do, but never past 127.
    w[w < 0] += 0.25 * steps.min()
    return np.ascontiguousarray(np.moveaxis(w, 0, axis)).astype(np.float32)


def quantized(x: np.ndarray, scale: float) -> np.ndarray:
    return np.clip(np.rint(x / np.float32(scale)), -128, 127).astype(np.int64)


def conv(x: np.ndarray, w: np.ndarray) -> np.ndarray:
    """Convolution of integers, padded to the same size, in 64 bits: the arithmetic an INT8 kernel does."""
    k = w.shape[2]
    padded = np.pad(x, [(0, 0), (0, 0), (k // 2, k // 2), (k // 2, k // 2)])
    windows = np.lib.stride_tricks.sliding_window_view(padded, (k, k), axis=(2, 3))
    return np.einsum("nchwij,ocij->nohw", windows, w)


@pytest.mark.slow
def test_int8_arithmetic_is_exactly_that_of_integers(make, run):
    rng = np.random.default_rng(7)
    w1, w2 = power_of_two_weight(rng, (6, 3, 3, 3), 0), power_of_two_weight(rng, (6, 5), 1)
    bias = (rng.integers(-64, 64, 6) / 64).astype(np.float32)
    net = make(
        "x[N, 3, 8, 8]; conv: c = Conv(x, w1, bias, pads=[1, 1, 1, 1]); relu: r = Relu(c); "
        "pool: m = GlobalMaxPool(r); flat: f = Flatten(m); fc: y = Gemm(f, w2); y[N, 5]",
        {"w1": w1, "w2": w2, "bias": bias},
    )
    steps = {"x": 2.0**-5, "r": 2.0**-4, "f": 2.0**-4}
    assert set(steps) == set(quantizable(net))
    ready = int8(net, {v: Scale(127 * s) for v, s in steps.items()})
    x = rng.standard_normal((4, 3, 8, 8)).astype(np.float32) * 2
    x[0, 0, 0, :2] = 1000, -1000  # saturates on both sides

    q1, s1 = quantize_weight(w1, 0)
    q2, s2 = quantize_weight(w2, 1)
    sums = conv(quantized(x, steps["x"]), q1.astype(np.int64))
    c = sums * (steps["x"] * s1.astype(np.float64))[:, None, None] + bias.astype(np.float64)[:, None, None]
    m = quantized(np.maximum(c, 0).astype(np.float32), steps["r"]).max(axis=(2, 3)) * steps["r"]
    f = quantized(m.astype(np.float32), steps["f"])
    y = f @ q2.astype(np.int64) * (steps["f"] * s2.astype(np.float64))

    got = run(ready, {"x": x}, ["c", "y"])
    np.testing.assert_array_equal(c.astype(np.float32), got["c"])
    np.testing.assert_array_equal(y.astype(np.float32), got["y"])


@pytest.mark.slow
def test_pairs_round_half_to_even_and_saturate(make, run):
    """The rule of ONNX and of TensorRT; rounding away from zero would shift every half step."""
    net = make("x[1, 1, 1, 8]; conv: y = Conv(x, w); y[1, 1, 1, 8]", {"w": np.ones((1, 1, 1, 1), np.float32)})
    ready = int8(net, {"x": Scale(127.0)})
    x = np.float32([0.5, 1.5, -0.5, -2.5, 126.5, 127.5, -128.4, -500]).reshape(1, 1, 1, 8)
    expected = np.float32([0, 2, 0, -2, 126, 127, -128, -128])
    np.testing.assert_allclose(expected, run(ready, {"x": x})["y"].reshape(-1), rtol=1e-6)


@pytest.mark.parametrize(
    ("op", "shape", "axis"),
    [("Conv", (4, 3, 2, 2), 0), ("ConvTranspose", (3, 4, 2, 2), 1), ("MatMul", (3, 4), 1)],
)
def test_weights_are_symmetric_per_channel_and_never_minus_128(op: str, shape: tuple[int, ...], axis: int):
    """-128 has no positive twin, and one scale for all channels drowns the small ones."""
    rng = np.random.default_rng(0)
    w = rng.standard_normal(shape).astype(np.float32)
    along = [-1 if i == axis else 1 for i in range(w.ndim)]
    w *= 10.0 ** rng.integers(-4, 4, shape[axis]).astype(np.float32).reshape(along)
    q, scale = quantize_weight(w, axis)
    assert (-127, shape[axis]) == (max(-127, int(q.min())), len(scale)), op
    back = q * scale.reshape(along)
    others = tuple(i for i in range(w.ndim) if i != axis)
    assert (np.abs(q).max(axis=others) == 127).all()
    assert (np.abs(back - w).max(axis=others) <= scale * 0.5001).all()


def small(make) -> Model:
    rng = np.random.default_rng(0)
    return make(
        "x[N, 3, 4, 4]; c1: a = Conv(x, w); c2: b = Conv(a, w); add: y = Add(b, a); y[N, 3, 4, 4]",
        {"w": rng.standard_normal((3, 3, 1, 1)).astype(np.float32)},
    )


def test_every_inserted_node_names_its_source_and_every_source_node_survives(make):
    net = small(make)
    ready = int8(net, {"x": Scale(1.0), "a": Scale(2.0)})
    added = {n.id: n.origin for n in ready.nodes if n.id not in net.by_id}
    pairs = {f"{n}/input/{op}": n for n in ("c1", "c2") for op in ("QuantizeLinear", "DequantizeLinear")}
    assert {**pairs, "c1/weight/DequantizeLinear": "c1"} == added
    assert [n.id for n in net.nodes] == [n.id for n in ready.nodes if n.id in net.by_id]
    assert all(ORIGIN in n.metadata_props for n in ready.ir.graph)


def test_a_shared_weight_is_stored_once(make):
    ready = int8(small(make), {"x": Scale(1.0), "a": Scale(2.0)})
    stored = [t for t in ready.proto().graph.initializer if t.data_type == onnx.TensorProto.INT8 and t.dims]
    assert [[3, 3, 1, 1]] == [list(t.dims) for t in stored]
    assert "w" not in {t.name for t in ready.proto().graph.initializer}


def test_scales_are_scalars_in_the_graph(make):
    """TensorRT compiles no INT8 kernel for a per-tensor scale of shape (1,)."""
    proto = int8(small(make), {"x": Scale(1.0), "a": Scale(2.0)}).proto()
    shapes = {t.name: list(t.dims) for t in proto.graph.initializer}
    for q in (n for n in proto.graph.node if n.op_type == "QuantizeLinear"):
        assert [[], []] == [shapes[name] for name in q.input[1:]]


def joined(make) -> Model:
    """A Concat of a value and of what a convolution makes of it."""
    ones = {"w": np.ones((2, 2, 1, 1), np.float32), "v": np.ones((1, 4, 1, 1), np.float32)}
    return make(
        "x[1, 2, 3, 3]; a: a = Conv(x, w); b: b = Conv(a, w); cat: cat = Concat(a, b, axis=1); "
        "c: y = Conv(cat, v); y[1, 1, 3, 3]",
        ones,
    )


def test_joined_values_get_the_largest_of_their_scales(make):
    net = joined(make)
    shared = share_scales(plan(net), {"x": Scale(1.0), "a": Scale(2.0), "cat": Scale(5.0)})
    assert {"x": 1.0, "a": 5.0, "cat": 5.0} == {k: v.amax for k, v in shared.items()}


def test_a_dead_value_does_not_set_the_scale_it_shares(make):
    net = joined(make)
    shared = share_scales(plan(net), {"x": Scale(1.0), "a": Scale(1.0, "zero"), "cat": Scale(0.01)})
    assert {"a": 0.01, "cat": 0.01} == {k: shared[k].amax for k in ("a", "cat")}


def test_gemm_keeps_its_alpha_beta_and_transpositions(make, run):
    rng = np.random.default_rng(0)
    w, b = rng.standard_normal((5, 7)).astype(np.float32), rng.standard_normal(5).astype(np.float32)
    net = make("x[7, 3]; g: y = Gemm(x, w, b, transA=1, transB=1, alpha=0.5, beta=2.0); y", {"w": w, "b": b})
    x = rng.standard_normal((7, 3)).astype(np.float32)
    ready = int8(net, {"x": Scale(float(np.abs(x).max()))})
    want, got = run(net, {"x": x})["y"], run(ready, {"x": x})["y"]
    assert np.abs(want - got).max() < 0.05 * np.abs(want).max()
    assert not np.array_equal(want, got)


@pytest.mark.slow
def test_weights_that_are_read_elsewhere_too_stay_as_they_are(make, run):
    w = np.random.default_rng(0).standard_normal((3, 3, 1, 1)).astype(np.float32)
    net = make("x[3, 3, 2, 2]; c: c = Conv(x, w); m: y = Mul(c, w); y[3, 3, 2, 2]; w[3, 3, 1, 1]", {"w": w})
    got = run(int8(net, {"x": Scale(1.0)}), {"x": np.ones((3, 3, 2, 2), np.float32)}, ["w"])
    np.testing.assert_array_equal(w, got["w"])


def fp8(x: np.ndarray, scale: float) -> np.ndarray:
    """E4M3 with saturation, as numbers: the quotient in FP32, rounded to nearest even by ml_dtypes."""
    steps = np.clip((x / np.float32(scale)).astype(np.float32), -448, 448)
    return steps.astype(ml_dtypes.float8_e4m3fn).astype(np.float64)


def test_fp8_arithmetic_is_exactly_that_of_e4m3_numbers(make, run):
    rng = np.random.default_rng(3)
    # Numbers from 8 to 31 times powers of two: their products and sums have no more than 24 bits.
    w1 = (rng.integers(8, 32, (4, 3, 3, 3)) * rng.choice([-1, 1], (4, 3, 3, 3))).astype(np.float32)
    w1[:, 0, 0, 0] = 448 / 2.0 ** np.arange(4)
    w2 = rng.integers(8, 32, (4, 5)).astype(np.float32)
    w2[0] = 448
    net = make(
        "x[N, 3, 8, 8]; conv: c = Conv(x, w1, pads=[1, 1, 1, 1]); pool: m = GlobalMaxPool(c); "
        "flat: f = Flatten(m); fc: y = Gemm(f, w2); y[N, 5]",
        {"w1": w1, "w2": w2},
    )
    decided = plan(net, {"conv", "fc"}, Precision.FP8)
    steps = {"x": 1.0, "f": 512.0}
    ready = quantize(net, decided, {v: Scale(448 * s) for v, s in steps.items()}, precision=Precision.FP8)
    x = (rng.integers(16, 62, (2, 3, 8, 8)) / 2 * rng.choice([-1, 1], (2, 3, 8, 8))).astype(np.float32)
    x[0, 0, 0, :2] = 1000, -1000  # saturates on both sides

    scale = 2.0 ** -np.arange(4.0)[:, None, None]
    q1 = fp8(w1 / scale[..., None].astype(np.float32), 1.0)
    c = conv(fp8(x, 1.0), q1) * scale
    f = c.max(axis=(2, 3)).astype(np.float32)
    y = (fp8(f, 512.0) * 512.0) @ fp8(w2, 1.0)
    got = run(ready, {"x": x}, ["c", "y"])
    np.testing.assert_array_equal(c.astype(np.float32), got["c"])
    np.testing.assert_array_equal(y.astype(np.float32), got["y"])


@pytest.mark.slow
def test_fp8_rounds_every_kind_of_number_as_ml_dtypes_does(make, run):
    rng = np.random.default_rng(0)
    x = np.concatenate([
        (rng.standard_normal(200_000) * 2.0 ** rng.integers(-14, 10, 200_000)).astype(np.float32),
        np.arange(-480, 480, 0.25, dtype=np.float32),
        np.arange(-64, 64, dtype=np.float32) * np.float32(2.0**-11),
    ])  # fmt: skip
    net = make("x[N, 1]; n: y = MatMul(x, w); y[N, 2]", {"w": np.full((1, 2), 448, np.float32)})
    ready = quantize(net, plan(net, {"n"}, Precision.FP8), {"x": Scale(448.0)}, precision=Precision.FP8)
    expected = (fp8(x, 1.0) * 448).astype(np.float32)
    np.testing.assert_array_equal(expected, run(ready, {"x": x[:, None]})["y"][:, 0])


@pytest.mark.parametrize("precision", [Precision.INT8, Precision.FP8])
def test_one_scale_per_weight_tensor_is_a_scalar(make, precision: Precision):
    net = small(make)
    ready = quantize(net, plan(net, {"c1", "c2"}, precision), {"x": Scale(1.0), "a": Scale(2.0)},
                     precision=precision, weights="tensor")  # fmt: skip
    scale = ready.by_id["c1/weight/DequantizeLinear"].inputs[1]
    assert () == ready.values[scale].shape
    q, s = quantize_weight(np.float32([[1, -2], [4, 0.5]]), None, precision)
    assert np.float32(4) / np.float32(127 if precision is Precision.INT8 else 448) == s
    assert (127 if precision is Precision.INT8 else 448) == q[1, 0]


def test_a_channel_of_zeros_has_a_scale():
    q, scale = quantize_weight(np.float32([[0, 0], [1, -2], [1e-45, 0]]), 0)
    assert np.isfinite(scale).all()
    assert (scale > 0).all()
    assert [0, 0] == list(q[0])


@pytest.mark.parametrize("how", ["Constant", "Identity"])
def test_weights_behind_constant_and_identity_are_int8(make, run, how: str):
    w = np.random.default_rng(0).standard_normal((3, 3, 1, 1)).astype(np.float32)
    constant = node("Constant", [], ["w"], name="feed", value=numpy_helper.from_array(w))
    first, weights = (constant, {}) if how == "Constant" else ("feed: w = Identity(v)", {"v": w})
    net = make(["x[1, 3, 2, 2]", first, "c: y = Conv(x, w); y[1, 3, 2, 2]"], weights)
    ready = int8(net, {"x": Scale(1.0)})
    assert "feed" in ready.by_id
    assert ready.by_id["c"].inputs[1] == ready.by_id["c/weight/DequantizeLinear"].outputs[0]
    x = np.ones((1, 3, 2, 2), np.float32)
    assert np.abs(run(net, {"x": x})["y"] - run(ready, {"x": x})["y"]).max() < 0.05
