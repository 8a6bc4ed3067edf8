from __future__ import annotations

import itertools

import ml_dtypes
import numpy as np
import pytest
from onnx import helper

from rtlab.core.model import Model
from rtlab.core.precision import NVFP4_RANGE
from rtlab.core.scale import Scale
from rtlab.core.variant import Precision
from rtlab.quantize import passes
from rtlab.quantize.weights import (
    FourBitPlan,
    ScaleLayout,
    choose_int4_block,
    dequantize_weights,
    plan,
    quantize_to_four_bits,
    round_block_scale,
    store_weights,
)
from trt_nets import from_nvfp4, nvfp4

node = helper.make_node
INT4, FP4 = Precision.INT4, Precision.FP4
#: Every number of E2M1.
E2M1 = np.array(sorted({s * n for s in (-1, 1) for n in (0, 0.5, 1, 1.5, 2, 3, 4, 6)}))


def weight(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def product(make, w: np.ndarray, op: str = "MatMul", **attributes: object):
    rows, columns = w.shape[::-1] if attributes.get("transB") else w.shape
    return make(
        [f"x[3, {rows}]", node(op, ["x", "w"], ["y"], name="n", **attributes), f"y[3, {columns}]"], {"w": w}
    )


def int4_oracle(w: np.ndarray, block: int) -> np.ndarray:
    """Element by element, along the first axis."""
    out = np.empty_like(w)
    for start in range(0, w.shape[0], block):
        for column in range(w.shape[1]):
            part = w[start : start + block, column]
            scale = np.float32(np.abs(part).max()) / np.float32(7)
            for i, x in enumerate(part):
                q = min(7, max(-7, round(float(np.float32(x / scale)))))
                out[start + i, column] = np.float32(q) * scale
    return out


def test_int4_equals_an_oracle_to_the_bit():
    """Blocks of 128 along the axis that is summed over, symmetric, to nearest."""
    w = weight(256, 5)
    np.testing.assert_array_equal(
        int4_oracle(w, 128), quantize_to_four_bits(w, ScaleLayout(0, 128), INT4).dequantize()
    )
    transposed = quantize_to_four_bits(np.ascontiguousarray(w.T), ScaleLayout(1, 128), INT4).dequantize()
    np.testing.assert_array_equal(int4_oracle(w, 128).T, transposed)


def test_fp4_equals_an_oracle_to_the_bit():
    """NVFP4: E2M1 numbers, an E4M3 scale for each sixteen, one FP32 scale for all."""
    powers = np.random.default_rng(1).integers(-3, 3, (64, 3)).astype(np.float32)
    w = weight(64, 3) * np.float32(10.0) ** powers
    whole = np.float32(np.abs(w).max()) / np.float32(6 * 448)
    expected = np.empty_like(w)
    for start in range(0, 64, 16):
        for column in range(3):
            part = w[start : start + 16, column]
            relative = np.float32(np.abs(part).max()) / (np.float32(6) * whole)
            relative = max(relative, np.float32(2**-9))
            scale = np.float32(np.float32(relative.astype(ml_dtypes.float8_e4m3fn)) * whole)
            for i, x in enumerate(part):
                error = np.abs(E2M1 - float(np.float32(x / scale)))
                expected[start + i, column] = np.float32(E2M1[int(np.argmin(error))]) * scale
    np.testing.assert_array_equal(expected, quantize_to_four_bits(w, ScaleLayout(0, 16), FP4).dequantize())


def test_the_scale_of_a_small_block_of_fp4_is_below_one():
    """By hand: the largest of all is 6 x 448, so the whole has the scale 1, and a block up to 3 has 3 / 6 = 0.5."""
    w = np.zeros((32, 1), np.float32)
    w[0], w[16:20] = 6 * 448, [[3], [0.25], [-0.5], [1.5]]
    stored = quantize_to_four_bits(w, ScaleLayout(0, 16), FP4)
    assert 1 == stored.tensor_scale
    assert [448, 0.5] == stored.scale.astype(np.float32).ravel().tolist()
    assert [6, 0.5, -1, 3] == stored.values[16:20].astype(np.float32).ravel().tolist()
    np.testing.assert_array_equal(w, stored.dequantize())


def test_no_scale_of_a_block_is_zero():
    """As ModelOpt stores them: a parser that asks for positive scales takes them."""
    got = round_block_scale(np.float32([0, 1e-9, 2**-9, 2**-8, 1, 448, 500]))
    assert got.astype(np.float32).tolist() == [1, 2**-9, 2**-9, 2**-8, 1, 448, 448]


def test_activations_are_rounded_in_blocks_along_their_last_axis(make, run):
    """By NumPy from the specification; a value that two products read is rounded once."""
    w, x = weight(32, 4), weight(3, 32, seed=7)
    net = make(
        "x[3, 32]; a: a = MatMul(x, w); b: b = MatMul(x, v); add: y = Add(a, b); y[3, 4]",
        {"w": w, "v": w + 1},
    )
    decided = plan(net, {"a", "b"}, FP4)
    assert {"x": ("a", "b")} == decided.activations
    amax = float(np.abs(x).max())
    scales = {"x": Scale(amax, largest=NVFP4_RANGE)}
    whole = np.float32(np.float32(amax) / np.float32(2688))
    graph = passes.run(
        net, [passes.raise_opset(23, "for a test"), store_weights(decided, FP4, scales=scales)]
    )
    quantizers = [n for n in graph.top if n.op == "TRT_FP4DynamicQuantize"]
    assert [("trt", "a", ("fp4", (3, 32)), ("fp8", (3, 2)))] == [
        (n.domain, n.origin, *((graph.values[v].dtype, graph.values[v].shape) for v in n.outputs))
        for n in quantizers
    ]
    assert {"axis": -1, "block_size": 16, "scale_type": 17} == quantizers[0].attributes
    assert 1 == graph.ir.graph.opset_imports["trt"]
    rounded = from_nvfp4(*nvfp4(x, whole), whole)
    reads = graph.by_id["b"].inputs[0]
    got = run(graph, {"x": x}, [reads, "y"])
    np.testing.assert_array_equal(rounded, got[reads])
    stored = [quantize_to_four_bits(m, ScaleLayout(0, 16), FP4).dequantize() for m in (w, w + 1)]
    np.testing.assert_allclose(got["y"], rounded @ stored[0] + rounded @ stored[1], rtol=1e-5, atol=1e-4)
    emulated = passes.run(net, [dequantize_weights(decided, FP4, {}, scales=scales)])
    np.testing.assert_array_equal(got["y"], run(emulated, {"x": x})["y"])


def typed(net: Model, decided: FourBitPlan) -> Model:
    """The model with weights stored in INT4."""
    return passes.run(
        net, [passes.raise_opset(INT4.stored.opset, "for a test"), store_weights(decided, INT4)]
    )


@pytest.mark.slow
def test_cpu_and_emulation_agree_on_int4_to_the_bit(make, run):
    net = product(make, weight(48, 10))
    decided = plan(net, {"n"}, INT4)
    graph = typed(net, decided)
    emulated = passes.run(net, [dequantize_weights(decided, INT4, {})])
    value = graph.by_id["n"].inputs[1]
    x = np.ones((3, 48), np.float32)
    expected = quantize_to_four_bits(weight(48, 10), ScaleLayout(0, 24), INT4).dequantize()
    np.testing.assert_array_equal(expected, run(graph, {"x": x}, [value])[value])
    np.testing.assert_array_equal(run(graph, {"x": x})["y"], run(emulated, {"x": x})["y"])


def test_cpu_and_oracle_agree_on_int4_convolutions(make, run):
    """Convolutions have a scale per output channel, since TensorRT-RTX takes no blocks there."""
    w = weight(4, 3, 3, 3)
    net = make("x[1, 3, 5, 5]; n: y = Conv(x, w); y[1, 4, 3, 3]", {"w": w})
    decided = plan(net, {"n"}, INT4)
    graph = typed(net, decided)
    value = graph.by_id["n"].inputs[1]
    scale = np.abs(w).reshape(4, -1).max(axis=1).reshape(4, 1, 1, 1) / np.float32(7)
    got = run(graph, {"x": np.ones((1, 3, 5, 5), np.float32)}, [value])[value]
    np.testing.assert_array_equal(np.rint(w / scale) * scale, got)


def test_a_scale_in_fp16_is_rounded_before_it_multiplies(make, run):
    w = np.float32([[1e-9] * 2, [1] * 2]).repeat(16, axis=0)
    net = product(make, w)
    decided = plan(net, {"n"}, INT4)
    assert ScaleLayout(0, 16) == next(iter(decided.weights))[1]
    ready = passes.run(net, [dequantize_weights(decided, INT4, {"n": Precision.FP16})])
    got = run(ready, {"x": np.eye(3, 32, dtype=np.float32)})["y"]
    assert not got.any()
    wide = passes.run(net, [dequantize_weights(decided, INT4, {})])
    assert run(wide, {"x": np.eye(3, 32, dtype=np.float32)})["y"].all()


@pytest.mark.parametrize(
    ("size", "block"), [(256, 128), (768, 128), (128, 64), (100, 50), (131, 131), (14, 14), (26, 13)]
)
def test_blocks_are_at_most_128_and_at_least_two_of_them(size: int, block: int):
    """One block alone is dequantized by a kernel of its own: the compiler fuses only two and more."""
    assert block == choose_int4_block(size)


@pytest.mark.parametrize(
    ("op", "attributes", "shape", "precision", "reason"),
    [
        ("MatMul", {}, (7, 5), INT4, "odd number"),
        ("MatMul", {}, (40, 4), FP4, "blocks of 16"),
        ("Gemm", {"transB": 1}, (4, 40), FP4, "blocks of 16"),
        ("MatMul", {}, (32, 1), FP4, "a product with a vector"),
    ],
)
def test_a_weight_that_the_compiler_refuses_is_kept_with_the_reason(
    make, op, attributes, shape, precision, reason
):
    decided = plan(product(make, weight(*shape), op, **attributes), {"n"}, precision)
    ((why, nodes),) = decided.skipped_nodes.items()
    assert reason in why
    assert ("n",) == nodes
    assert {} == decided.weights


def test_the_summed_axis_of_a_transposed_gemm_is_the_second(make):
    decided = plan(product(make, weight(8, 64), "Gemm", transB=1), {"n"}, FP4)
    assert [("w", ScaleLayout(1, 16))] == list(decided.weights)


def test_zero_and_tiny_weights_have_finite_numbers():
    w = np.zeros((32, 2), np.float32)
    w[16:, 1] = 1e-45
    w[0, 0] = 3
    for precision, array in itertools.product((INT4, FP4), (w, np.zeros((32, 2), np.float32))):
        assert np.isfinite(quantize_to_four_bits(array, ScaleLayout(0, 16), precision).dequantize()).all()


def test_local_functions_survive_a_raised_opset(make):
    neg, opsets = node("Neg", ["a"], ["b"]), [helper.make_opsetid("", 13)]
    own = helper.make_function("own", "Up", ["a"], ["b"], [neg], opsets)
    up = node("Up", ["x"], ["u"], name="u", domain="own")
    text = "n: y = MatMul(u, w); y[3, 2]"
    net = make(["x[3, 32]", up, text], {"w": weight(32, 2)}, opset=13, functions=[own])
    graph = typed(net, plan(net, {"n"}, INT4))
    assert (21, ["Up"]) == (graph.opset, [f.name for f in graph.proto().functions])
