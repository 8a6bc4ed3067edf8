"""Quantization that a model brings along, on small graphs: what becomes of it, against arithmetic by NumPy."""

from __future__ import annotations

import types
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from onnx import TensorProto, helper

import nets
from nets import graph
from qdq import repair
from rtlab.core.model import Model
from rtlab.core.variant import Precision
from rtlab.quantize import existing_qdq, requantize
from rtlab.quantize.findings import check

X = np.array([[0.5, -1.25, 2.0, 3.5], [-4.0, 0.25, 1.0, -0.75]], np.float32)
W = np.arange(-6, 6, dtype=np.int8).reshape(4, 3)
node = helper.make_node


def model(nodes, held, shape, *, opset: int = 17, rank: int = 2) -> Model:
    ends = [("x", TensorProto.FLOAT, shape)], [("y", TensorProto.FLOAT, [f"d{i}" for i in range(rank)])]
    return graph(nodes, *ends, held, opset)


def run(source: Model, x: np.ndarray) -> np.ndarray:
    return nets.run(source.bytes(), {"x": x})[0]


def dynamic(op: str, *, zero: bool = True, scales: str = "xs ws") -> list[Any]:
    """As ``quantize_dynamic`` writes a product."""
    return [
        node("DynamicQuantizeLinear", ["x"], ["xq", "xs", "xz"], "start"),
        node(op, ["xq", "w", "xz", "wz"] if zero else ["xq", "w", "xz"], ["sum"], "it"),
        node("Cast", ["sum"], ["float"], "cast", to=TensorProto.FLOAT),
        node("Mul", scales.split(), ["s"], "scales"),
        node("Mul", ["float", "s"], ["y"], "end"),
    ]


@pytest.mark.parametrize("zero", [True, False])
@pytest.mark.parametrize("scales", ["xs ws", "ws xs"])
@pytest.mark.parametrize("channels", [0, 3])
def test_a_dynamic_product_becomes_one_with_stored_integers(zero: bool, scales: str, channels: int) -> None:
    scale = np.array([0.5, 0.25, 2.0], np.float32) if channels else np.float32(0.5)
    shift = np.array([1, -2, 3], np.int8) if channels else np.array(3, np.int8)
    held = {"w": W, "ws": scale, **({"wz": shift} if zero else {})}
    source = model(dynamic("MatMulInteger", zero=zero, scales=scales), held, [2, 4])
    (found,) = check(source)
    assert ("dynamic-integers", True, ("it",)) == (found.rule, found.fixable, found.nodes)
    fixed = repair(source)
    assert ["DequantizeLinear", "MatMul"] == [n.op for n in fixed.nodes]
    assert ["it", "it"] == [n.origin for n in fixed.nodes]
    true = X @ ((W.astype(np.float32) - (shift if zero else 0)) * scale)
    np.testing.assert_allclose(run(fixed, X), true, rtol=1e-6)
    # The model before it rounds activations to 1/255 of their range, 7.5.
    np.testing.assert_allclose(run(source, X), true, atol=7.5 / 255 / 2 * np.abs(W).max() * 4 * 2)


@pytest.mark.parametrize("channels", [0, 2])
def test_a_dynamic_convolution_keeps_its_attributes_and_its_channels(channels: int) -> None:
    w = np.arange(-4, 4, dtype=np.int8).reshape(2, 1, 2, 2)
    scale = np.array([0.5, 2.0], np.float32).reshape(2, 1, 1) if channels else np.float32(0.5)
    nodes = dynamic("ConvInteger", zero=False)
    nodes[1].attribute.append(helper.make_attribute("strides", [1, 2]))
    source = model(nodes, {"w": w, "ws": scale}, [1, 1, 2, 4], rank=4)
    windows = np.stack([X[:, :2], X[:, 2:]])
    per = np.broadcast_to(np.reshape(scale, (-1, 1, 1)), (2, 1, 1))
    true = np.einsum("chw,khw->ck", w[:, 0] * per, windows)[None, :, None]
    fixed = repair(source)
    assert [1, 2] == [*fixed.nodes[-1].attributes["strides"]]
    np.testing.assert_allclose(run(fixed, X[None, None]), true, rtol=1e-6)


@pytest.mark.parametrize(
    "change",
    [
        lambda ns: ns.__setitem__(1, node("MatMulInteger", ["xq", "xq2", "xz"], ["sum"], "it")),
        lambda ns: ns.append(node("Cast", ["sum"], ["z"], to=TensorProto.FLOAT)),
        lambda ns: ns.__setitem__(3, node("Add", ["xs", "ws"], ["s"], "scales")),
        lambda ns: ns.__setitem__(3, node("Mul", ["ws", "ws"], ["s"], "scales")),
        lambda ns: ns.__setitem__(4, node("Add", ["float", "s"], ["y"], "end")),
    ],
    ids=["weight", "two readers", "sum of scales", "other scales", "no product"],
)  # fmt: skip
def test_a_dynamic_product_of_another_form_is_left(change: Any) -> None:
    nodes = dynamic("MatMulInteger", zero=False)
    change(nodes)
    if "xq2" in nodes[1].input:
        more = [node("Transpose", ["xq"], ["xt"], "t"), node("Identity", ["xt"], ["xq2"], "i")]
        nodes[1:1] = more
    (found,) = check(model(nodes, {"w": W, "ws": np.float32(0.5)}, [2, 4]))
    assert ("dynamic-integers", False) == (found.rule, found.fixable)


def test_scales_of_channels_need_opset_13() -> None:
    for count, opset, fixable in ((3, 12, False), (3, 13, True), (1, 12, True)):
        held = {"w": W, "ws": np.full(count, 0.5, np.float32)}
        (found,) = check(model(dynamic("MatMulInteger", zero=False), held, [2, 4], opset=opset))
        assert fixable is found.fixable


def test_what_moves_integers_moves_floats_between_pairs() -> None:
    """A transposition and a concatenation between quantization and a product on integers: the same numbers exactly."""
    nodes = [
        node("QuantizeLinear", ["x", "xs", "xz"], ["q"], "start"),
        node("Concat", ["q", "q"], ["both"], "join", axis=0),
        node("Transpose", ["both"], ["t"], "turn"),
        node("QLinearMatMul", ["w", "ws", "wz", "t", "xs", "xz", "ys", "yz"], ["yq"], "it"),
        node("DequantizeLinear", ["yq", "ys", "yz"], ["y"], "end"),
    ]
    zero = np.array(0, np.int8)
    held = {
        "xs": np.float32(0.25), "xz": np.array(3, np.int8), "w": W.T.copy(), "ws": np.float32(0.5), "wz": zero,
    }  # fmt: skip
    source = model(nodes, {**held, "ys": np.float32(0.5), "yz": zero}, [2, 4])
    assert [("integer-operators", True)] == [(f.rule, f.fixable) for f in check(source)]
    fixed = repair(source, ["integer-operators"])
    true = (0.5 * W.T) @ np.concatenate([X, X]).T
    np.testing.assert_array_equal(run(source, X), np.round(true / 0.5) * 0.5)
    np.testing.assert_array_equal(run(fixed, X), run(source, X))
    producers = {v: n for n in fixed.nodes for v in n.outputs}
    for moved, pairs in (("join", 2), ("turn", 1)):
        (one,) = [n for n in fixed.nodes if n.id == moved]
        assert ["DequantizeLinear"] * pairs == [producers[v].op for v in one.inputs]
        assert ["QuantizeLinear"] == [n.op for n in fixed.consumers[one.outputs[0]]]


def test_parts_of_stored_integers_are_taken_of_floats() -> None:
    nodes = [
        node("Transpose", ["w"], ["t"], "turn"),
        node("DequantizeLinear", ["t", "ws", "wz"], ["d"], "late"),
        node("MatMul", ["x", "d"], ["y"], "it"),
    ]
    source = model(nodes, {"w": W.T.copy(), "ws": np.float32(0.5), "wz": np.array(2, np.int8)}, [2, 4])
    (found,) = check(source)
    assert ("late-dequantization", True, True) == (found.rule, found.fixable, found.exact)
    assert {"turn", "late"} == {*found.nodes}
    fixed = repair(source)
    assert ["DequantizeLinear", "Transpose", "MatMul"] == [n.op for n in fixed.nodes]
    np.testing.assert_allclose(run(fixed, X), X @ ((W - 2.0) * 0.5).astype(np.float32), rtol=1e-6)


def paired(scale: Any, zero: Any, *, axis: int | None = None, opset: int = 19) -> Model:
    """A pair in front of a product with stored integers, and one on the output."""
    given = {} if axis is None else {"axis": axis}
    nodes = [
        node("QuantizeLinear", ["x", "s", "z"], ["q"], "in/Q", **given),
        node("DequantizeLinear", ["q", "s", "z"], ["d"], "in/DQ", **given),
        node("DequantizeLinear", ["w", "ws", "wz"], ["wd"], "w/DQ", axis=1),
        node("MatMul", ["d", "wd"], ["p"], "it"),
        node("QuantizeLinear", ["p", "ps", "pz"], ["pq"], "out/Q"),
        node("DequantizeLinear", ["pq", "ps", "pz"], ["y"], "out/DQ"),
    ]
    held = {
        "s": scale, "z": zero, "w": W, "ws": np.array([0.5, 1, 2], np.float32), "wz": np.zeros(3, np.int8),
    }  # fmt: skip
    return model(nodes, {**held, "ps": np.float32(0.5), "pz": np.array(0, np.int8)}, [2, 4], opset=opset)


@pytest.mark.parametrize(
    ("scale", "zero", "precision", "amax"),
    [
        (np.float32(0.1), np.array(0, np.int8), "int8", 12.7),
        (np.float32(0.1), np.array(33, np.uint8), "int8", 22.2),
        (np.float32(0.1), np.array(200, np.uint8), "int8", 20.0),
        (np.float32(0.1), np.array(-28, np.int8), "int8", 15.5),
        (np.float32(0.05), np.array(0, ml_dtypes.float8_e4m3fn), "fp8", 22.4),
    ],
    ids=["symmetric", "few below", "many below", "shifted", "fp8"],
)
def test_the_threshold_of_an_own_pair_is_its_scale_times_its_largest_integer(
    scale, zero, precision, amax
) -> None:
    found = existing_qdq.ExistingQuantization.of(paired(scale, zero)).pairs
    assert {"it/input0", "it/output0"} == {*found}
    one = found["it/input0"]
    assert ("in/Q", Precision(precision), False) == (one.pair, one.precision, one.channels)
    assert amax == pytest.approx(one.amax)
    assert ("out/Q", pytest.approx(63.5)) == (found["it/output0"].pair, found["it/output0"].amax)


def test_an_own_pair_with_a_scale_for_each_channel_has_no_one_threshold() -> None:
    found = existing_qdq.ExistingQuantization.of(
        paired(np.array([0.1, 0.2], np.float32), np.zeros(2, np.int8), axis=0)
    )
    assert (None, True) == (found.pairs["it/input0"].amax, found.pairs["it/input0"].channels)
    # A pair on an output rounds for nothing.
    assert {"output"} <= {f.rule for f in found.iter_issues("it/output0")}
    assert [] == [*found.iter_issues("nobody")]


def test_released_nodes_compute_on_what_enters_pairs_and_on_what_integers_stand_for() -> None:
    source = paired(np.float32(0.6), np.array(0, np.int8))
    weight = W * np.array([0.5, 1, 2], np.float32)
    assert existing_qdq.has_rounding_pairs(source)
    assert ("it",) == existing_qdq.find_quantized_nodes(source)
    freed = existing_qdq.release_all_nodes(source)
    np.testing.assert_allclose(run(freed, X), X @ weight, rtol=1e-6)
    assert ["MatMul"] == [n.op for n in freed.nodes]
    rounded = np.round(X / 0.6) * 0.6
    np.testing.assert_allclose(run(source, X), np.round(rounded @ weight / 0.5) * 0.5, atol=1e-5)
    bare, emulation = existing_qdq.separate_existing_qdq(source, source)
    np.testing.assert_allclose(run(bare, X), X @ weight, rtol=1e-6)
    np.testing.assert_allclose(run(emulation, X), run(source, X))
    assert not existing_qdq.has_rounding_pairs(bare)
    assert (bare, source) == existing_qdq.separate_existing_qdq(bare, source)


def test_a_node_whose_output_alone_is_rounded_is_released_too() -> None:
    """By hand: 2 x is rounded to steps of 0.5, and released it is not."""
    nodes = [
        helper.make_node("Add", ["x", "x"], ["v"], name="twice"),
        helper.make_node("QuantizeLinear", ["v", "s", "z"], ["q"], name="q"),
        helper.make_node("DequantizeLinear", ["q", "s", "z"], ["out"], name="dq"),
    ]
    weights = {"s": np.float32(0.5), "z": np.int8(0)}
    source = graph(nodes, [("x", 1, (2, 3))], [("out", 1, (2, 3))], weights)
    x = np.float32([[0.1, 0.2, 0.3], [-0.1, 1.0, 2.2]])
    np.testing.assert_allclose(run(source, x), [[0, 0.5, 0.5], [0, 2, 4.5]])
    assert ("twice",) == existing_qdq.find_quantized_nodes(source)
    np.testing.assert_allclose(run(existing_qdq.release_all_nodes(source), x), 2 * x)


@pytest.mark.parametrize(("zero", "relus"), [(0, 1), (1, 0)])
def test_a_pair_that_cuts_off_what_is_below_zero_has_its_relu_spelled(zero: int, relus: int) -> None:
    """UINT8 with the zero point 0 holds nothing below zero; with another one it holds one step of it."""
    source = paired(np.float32(0.6), np.array(zero, np.uint8))
    bare, _ = existing_qdq.separate_existing_qdq(source, source)
    assert relus == sum(n.op == "Relu" for n in bare.nodes)
    weight = W * np.array([0.5, 1, 2], np.float32)
    np.testing.assert_allclose(run(bare, X), (np.maximum(X, 0) if relus else X) @ weight, rtol=1e-6)


@pytest.mark.parametrize(
    ("numbers", "axis", "shape", "broadcast"),
    [
        ([1, 2, 3], 1, (2, 3, 4), (1, 3, 1)), ([1, 2], 0, (2, 3), (2, 1)), ([1, 2, 3], None, (2, 3), (3,)),
        ([1, 2, 3], 1, None, (3,)), ([7], 1, (2, 1), ()), ([7], None, (2, 1), ()), (None, 0, (2, 3), ()),
    ],
)  # fmt: skip
def test_scales_of_channels_lie_along_their_axis_and_one_is_a_scalar(numbers, axis, shape, broadcast) -> None:
    pair = types.SimpleNamespace(axis=axis, source=types.SimpleNamespace(shape=shape))
    made = requantize.broadcast_parameters(pair, None if numbers is None else np.array(numbers))
    assert (broadcast, numbers or [0]) == (made.shape, made.ravel().tolist())
