from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import helper

from rtlab.core.variant import Precision
from rtlab.quantize.placement import plan, quantizable

node = helper.make_node
RNG = np.random.default_rng(0)


def weight(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def conv(name: str, x: str, y: str, w: str, **attributes: object) -> onnx.NodeProto:
    return node("Conv", [x, w], [y], name=name, **attributes)


def test_inputs_of_weighted_nodes_are_quantized_and_outputs_are_not(make):
    """Quantized outputs break TensorRT's fusion of the activation; the next node's input is enough."""
    net = make(
        "x[1, 3, 8, 8]; c1: a = Conv(x, w1); r: r = Relu(a); c2: y = Conv(r, w2); y[1, 2, 8, 8]",
        {"w1": weight(4, 3, 1, 1), "w2": weight(2, 4, 1, 1)},
    )
    decided = plan(net)
    assert {"x": (("c1", 0),), "r": (("c2", 0),)} == decided.activations
    assert {("w1", 0): (("c1", 1),), ("w2", 0): (("c2", 1),)} == decided.weights


def test_a_value_with_several_quantized_readers_has_one_pair(make):
    net = make(
        "x[1, 3, 8, 8]; a: ya = Conv(x, wa); b: yb = Conv(x, wb); add: y = Add(ya, yb); y[1, 4, 8, 8]",
        {"wa": weight(4, 3, 1, 1), "wb": weight(4, 3, 1, 1)},
    )
    assert (("a", 0), ("b", 0)) == plan(net).activations["x"]


@pytest.mark.parametrize(
    ("op", "shape", "x", "y", "attributes", "axis"),
    [
        ("Conv", (4, 3, 1, 1), [1, 3, 5, 5], [1, 4, 5, 5], {}, 0),
        ("ConvTranspose", (3, 4, 1, 1), [1, 3, 5, 5], [1, 4, 5, 5], {}, 1),
        ("Gemm", (3, 4), [1, 3], [1, 4], {}, 1),
        ("Gemm", (4, 3), [1, 3], [1, 4], {"transB": 1}, 0),
        ("MatMul", (3, 4), [2, 3], [2, 4], {}, 1),
        ("MatMul", (5, 3, 4), [5, 2, 3], [5, 2, 4], {}, 2),
    ],
)
def test_weights_have_scales_along_their_output_channels(make, op, shape, x, y, attributes, axis):
    """A scale along any other axis cannot be moved out of the sum, so no INT8 kernel exists for it."""
    at = node(op, ["x", "w"], ["y"], name="n", **attributes)
    net = make([f"x{x}", at, f"y{y}"], {"w": weight(*shape)})
    assert [("w", axis)] == list(plan(net).weights)


def test_products_of_two_activations_are_left(make):
    net = make(
        "x[6, 8]; q: q = MatMul(x, wq); k: k = MatMul(x, wk); t: kt = Transpose(k, perm=[1, 0]); "
        "qk: s = MatMul(q, kt); softmax: p = Softmax(s); pv: y = MatMul(p, x); y[6, 8]",
        {"wq": weight(8, 8), "wk": weight(8, 8)},
    )
    assert {"x": (("q", 0), ("k", 0))} == plan(net).activations


def residual(make, *, shortcut: bool, main_first: bool = True):
    nodes = [
        conv("c1", "x", "a", "w1"),
        node("Relu", ["a"], ["r"], name="r"),
        conv("c2", "r", "b", "w2"),
        node("BatchNormalization", ["b", "g", "g", "g", "g"], ["n"], name="bn"),
        *([conv("c3", "x", "s", "w3")] if shortcut else []),
        node("Add", ["n", "s" if shortcut else "x"][:: 1 if main_first else -1], ["z"], name="add"),
        node("Relu", ["z"], ["y"], name="out"),
    ]
    weights = {f"w{i}": weight(3, 3, 1, 1) for i in (1, 2, 3)[: 3 if shortcut else 2]}
    return make(nodes, {**weights, "g": np.ones(3, np.float32)}, {"x": [1, 3, 8, 8]}, {"y": [1, 3, 8, 8]})


@pytest.mark.parametrize("main_first", [True, False])
def test_a_residual_add_reads_the_branch_that_is_not_the_convolution_in_int8(make, main_first: bool):
    decided = plan(residual(make, shortcut=False, main_first=main_first))
    assert (("c1", 0), ("add", 1 if main_first else 0)) == decided.activations["x"]
    assert {"x", "r"} == set(decided.activations)


@pytest.mark.parametrize("main_first", [True, False])
def test_of_two_convolutions_the_shortcut_is_the_residual(make, main_first: bool):
    decided = plan(residual(make, shortcut=True, main_first=main_first))
    assert (("add", 1 if main_first else 0),) == decided.activations["s"]
    assert "n" not in decided.activations


def inception(make):
    shapes = [(4, 3, 1, 1), (4, 4, 1, 1), (4, 4, 3, 3), (4, 4, 1, 1), (4, 12, 1, 1), (8, 16, 1, 1), (8, 5)]
    return make(
        "x[N, 3, 8, 8]; stem: s = Conv(x, w0); relu: r = Relu(s); one: a = Conv(r, w1); "
        "three: b = Conv(r, w2, pads=[1, 1, 1, 1]); "
        "pool: m = MaxPool(r, kernel_shape=[3, 3], pads=[1, 1, 1, 1]); proj: c = Conv(m, w3); "
        "cat: cat = Concat(a, b, c, axis=1); next: d = Conv(cat, w4); dense: dense = Concat(d, cat, axis=1); "
        "last: e = Conv(dense, w5); gap: g = GlobalAveragePool(e); flat: f = Flatten(g); fc: y = Gemm(f, w6); y[N, 5]",
        {f"w{i}": weight(*shape) for i, shape in enumerate(shapes)},
    )


def test_pools_between_quantized_nodes_are_quantized(make):
    decided = plan(inception(make))
    assert ("pool", 0) in decided.activations["r"]
    assert (("gap", 0),) == decided.activations["e"]


@pytest.mark.parametrize("shown", [False, True])
def test_a_pool_whose_output_is_the_models_too_is_left(make, shown: bool):
    net = make(
        [
            conv("c1", "x", "a", "w1"),
            node("MaxPool", ["a"], ["m"], name="pool", kernel_shape=[2, 2]),
            conv("c2", "m", "y", "w2"),
        ],
        {"w1": weight(3, 3, 1, 1), "w2": weight(2, 3, 1, 1)},
        {"x": [1, 3, 8, 8]},
        {"y": [1, 2, "h", "w"]} | ({"m": [1, 3, "h", "w"]} if shown else {}),
    )
    assert (("pool", 0) not in plan(net).activations.get("a", ())) == shown


def test_inputs_of_a_concat_and_a_maximum_share_a_scale(make):
    decided = plan(inception(make))
    assert {frozenset({"cat", "dense"}), frozenset({"r", "m"})} == {frozenset(g) for g in decided.groups}
    assert (("next", 0), ("dense", 1)) == decided.activations["cat"]


def test_a_sum_after_a_concat_of_convolutions_reads_the_other_side_in_int8(make):
    net = make(
        "x[1, 3, 8, 8]; stem: s = Conv(x, w0); relu: r = Relu(s); a: ya = Conv(r, w1); ra: ra = Relu(ya); "
        "b: yb = Conv(r, w2); cat: cat = Concat(ra, yb, axis=1); add: y = Add(cat, r); y",
        {"w0": weight(8, 3, 1, 1), "w1": weight(4, 8, 1, 1), "w2": weight(4, 8, 1, 1)},
    )
    assert (("a", 0), ("b", 0), ("add", 1)) == plan(net).activations["r"]


def test_a_part_of_the_model_needs_no_value_that_the_whole_does_not(make):
    """Ranges are collected once, for the whole; a pin must not ask for another pass over the data."""
    rng = np.random.default_rng(0)
    net = make(
        "x[1, 2, 3, 3]; short: short = Conv(x, v); a: a = Conv(x, v); long: long = Conv(a, v); "
        "add: y = Add(long, short); y[1, 2, 3, 3]",
        {"v": rng.standard_normal((2, 2, 1, 1)).astype(np.float32)},
    )
    assert {"x", "a", "short"} == set(quantizable(net))
    # The one convolution left would stay in the sum's kernel, and the other branch be quantized instead.
    part = plan(net, {"short", "add"})
    assert {"x": (("short", 0),)} == part.activations
    assert {"short"} == part.nodes


def test_fp8_quantizes_products_alone(make):
    w = np.ones((2, 2, 1, 1), np.float32)
    net = make(
        "x[1, 2, 3, 3]; a: a = Conv(x, v); pool: p = MaxPool(a, kernel_shape=[1, 1]); "
        "b: b = Conv(p, v); add: y = Add(b, p); y[1, 2, 3, 3]",
        {"v": w},
    )
    assert {"a", "b", "add", "pool"} == plan(net).nodes
    assert {"a", "b"} == plan(net, {n.id for n in net.top}, Precision.FP8).nodes


def test_nodes_in_bodies_are_left(make):
    end = helper.make_tensor_value_info("o", 1, [1, 4, 8, 8])
    body = helper.make_graph([conv("inner", "x", "o", "w")], "b", [], [end])
    net = make(
        [
            node("If", ["flag"], ["i"], name="if", then_branch=body, else_branch=body),
            conv("outer", "i", "y", "v"),
        ],
        {"flag": np.array(True), "w": weight(4, 3, 1, 1), "v": weight(4, 4, 1, 1)},
        {"x": [1, 3, 8, 8]},
        {"y": [1, 4, 8, 8]},
    )
    assert ("i",) == quantizable(net)
    assert {("v", 0)} == set(plan(net).weights)


LEFT = {
    "an add without a convolution": ("x[1, 3]; r: r = Relu(x); add: y = Add(r, x); y[1, 3]", {}),
    "a bias, which is added to the wide accumulator": (
        "x[1, 3, 8, 8]; c: a = Conv(x, w); add: y = Add(a, b); y[1, 3, 8, 8]",
        {"w": (3, 3, 1, 1), "b": (1, 3, 1, 1)},
    ),
    "an add that broadcasts, which TensorRT does not fuse": (
        "x[1, 3, 8, 8]; s[1, 3, 1, 1]; c: a = Conv(x, w); add: y = Add(a, s); y[1, 3, 8, 8]",
        {"w": (3, 3, 1, 1)},
    ),
    "a pool before a node that stays FP32": (
        "x[1, 3, 8, 8]; c: a = Conv(x, w); pool: m = MaxPool(a, kernel_shape=[2, 2]); s: y = Sigmoid(m); y[1, 3, h, w]",
        {"w": (3, 3, 1, 1)},
    ),
    "a weight that is an input": ("x[1, 3, 8, 8]; v[4, 3, 1, 1]; c: y = Conv(x, v); y[1, 4, 8, 8]", {}),
    # Products with a vector are bound by memory.
    "one column": ("x[7, 3]; n: y = MatMul(x, w); y[7, 1]", {"w": (3, 1)}),
    "times a vector": ("x[7, 3]; n: y = MatMul(x, w); y[7]", {"w": (3,)}),
    "a vector": ("x[3]; n: y = MatMul(x, w); y[4]", {"w": (3, 4)}),
}


@pytest.mark.parametrize(("net", "weights"), LEFT.values(), ids=LEFT)
def test_what_wins_nothing_is_left(make, net, weights):
    made = make(net, {n: weight(*shape) for n, shape in weights.items()})
    assert (("x",) if "c: a" in net else ()) == quantizable(made)


def test_a_product_with_one_row_is_quantized_as_one_with_more(make):
    """A decoder's step: TensorRT-RTX 1.7 has the same layers for one row as for two, with a quarter of the weights."""
    for rows in (1, 2):
        net = make(f"x[1, {rows}, 3]; n: y = MatMul(x, w); y[1, {rows}, 4]", {"w": weight(3, 4)})
        assert ("x",) == quantizable(net)


def test_what_is_quantized_already_is_left(make):
    net = make(
        "x[1, 3, 8, 8]; q: q = QuantizeLinear(x, s, z); d: d = DequantizeLinear(q, s, z); c: y = Conv(d, w); y",
        {"s": np.float32(0.1), "z": np.int8(0), "w": weight(4, 3, 1, 1)},
    )
    assert () == quantizable(net)
