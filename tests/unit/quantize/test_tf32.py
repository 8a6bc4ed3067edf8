from __future__ import annotations

import numpy as np
import pytest
from onnx import helper

from rtlab.quantize.fp16_passes import find_tf32_products, round_to_tf32, truncate
from rtlab.quantize.passes import run as apply

node = helper.make_node


def oracle(x: np.ndarray) -> np.ndarray:
    """Eleven significant bits, ties to even, in arithmetic of 53 bits instead of on the bits of the number."""
    mantissa, exponent = np.frexp(x.astype(np.float64))
    return np.ldexp(np.rint(mantissa * 2**11) / 2**11, exponent).astype(np.float32)


def spread(count: int) -> np.ndarray:
    rng = np.random.default_rng(0)
    return (rng.standard_normal(count) * 10.0 ** rng.integers(-30, 30, count)).astype(np.float32)


def test_rounding_keeps_eleven_significant_bits_and_ties_go_to_even():
    """The definition of TF32, over sixty powers of ten."""
    x = spread(200_000)
    np.testing.assert_array_equal(oracle(x), round_to_tf32(x))
    ties = np.float32([1 + 2**-11, 1 + 3 * 2**-11, -1 - 2**-11])
    assert [1, 1 + 2**-9, -1] == list(round_to_tf32(ties))


def test_infinity_and_nan_stay():
    got = round_to_tf32(np.float32([np.inf, -np.inf, np.nan, -np.nan, 0, -0.0]))
    np.testing.assert_array_equal(np.float32([np.inf, -np.inf, np.nan, np.nan, 0, 0]), got)
    nan = np.array([0x7FFFFFFF, 0xFFFFFFFF], np.uint32).view(np.float32)
    assert np.isnan(round_to_tf32(nan)).all()


@pytest.mark.slow
@pytest.mark.parametrize("op", ["MatMul", "Gemm"])
def test_a_product_of_the_emulation_is_that_of_rounded_factors(make, run, op: str):
    """Both factors are rounded, sums are not: that is what a tensor core does."""
    rng = np.random.default_rng(1)
    x, w = rng.standard_normal((4, 8)).astype(np.float32), rng.standard_normal((8, 1)).astype(np.float32)
    net = make([node(op, ["x", "w"], ["y"], name="n")], {"w": w}, {"x": [4, 8]}, {"y": [4, 1]})
    got = run(apply(net, [truncate(["n"])]), {"x": x})["y"]
    exact = oracle(x).astype(np.float64) @ oracle(w).astype(np.float64)
    np.testing.assert_allclose(got, exact, rtol=1e-6, atol=1e-6)
    assert np.abs(got - x.astype(np.float64) @ w.astype(np.float64)).max() > 1e-5


@pytest.mark.slow
def test_activations_beyond_any_product_pass(make, run):
    net = make("x[6, 1]; n: y = MatMul(x, w); y[6, 1]", {"w": np.ones((1, 1), np.float32)})
    x = np.float32([3e38, -3e38, np.inf, -np.inf, 2.0**114, 2.0**-126]).reshape(6, 1)
    np.testing.assert_array_equal(x, run(apply(net, [truncate(["n"])]), {"x": x})["y"])


def test_a_value_is_rounded_once_for_all_its_readers(make):
    w = np.ones((2, 2), np.float32)
    net = make("x[2, 2]; a: a = MatMul(x, w); b: b = MatMul(x, w); y: y = Add(a, b); y[2, 2]", {"w": w})
    ready = apply(net, [truncate(find_tf32_products(net))])
    assert ("a", "b") == find_tf32_products(net)
    assert 6 == len(ready.nodes) - len(net.nodes)
    assert {"a"} == {n.origin for n in ready.nodes if n.id not in net.by_id}
