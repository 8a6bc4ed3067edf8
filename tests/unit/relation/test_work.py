"""What nodes compute and move, beside an independent counter, published counts and formulas by hand."""

from __future__ import annotations

import functools
import math

import numpy as np
import pytest
from onnx import TensorProto, helper

import shelf
from nets import graph_proto
from rtlab.core.model import Model, load, wrap
from rtlab.errors import ModelError
from rtlab.relation.work import NodeWork, count_parameters, works

FLOAT = TensorProto.FLOAT
SAMPLES = ("resnet50", "mobilenet_v2", "bert")


@functools.cache
def sample(name: str) -> Model:
    return shelf.load(name).model


def one(
    op: str,
    inputs: dict[str, tuple[int | str, ...]],
    weights: dict[str, tuple[int, ...]] | None = None,
    outputs: tuple[tuple[int | str, ...] | None, ...] = (None,),
    domain: str = "",
    opset: int = 17,
    order: tuple[str, ...] = (),
    **attributes: object,
) -> Model:
    """A model of one node named ``n``."""  # fmt: skip
    weights = weights or {}
    written = [(f"y{i}", FLOAT, s) for i, s in enumerate(outputs)]
    names = list(order or (*inputs, *weights))
    node = helper.make_node(op, names, [y for y, *_ in written], name="n", domain=domain, **attributes)
    held = {k: np.zeros(s, np.float32) for k, s in weights.items()}
    return wrap(
        graph_proto([node], [(k, FLOAT, s) for k, s in inputs.items()], written, held, opset), name="one"
    )


def done(*given, **more) -> NodeWork:
    return works(one(*given, **more))["n"]


@pytest.mark.parametrize("name", SAMPLES)
def test_every_node_has_the_multiply_accumulates_that_onnx_tool_counts(name: str) -> None:
    """Its own counter adds a bias as if it were one; that is taken off."""
    onnx_tool = pytest.importorskip("onnx_tool")
    model = sample(name)
    graph = onnx_tool.Model(model.static().proto(), {"constant_folding": False}).graph
    types = {"int64": np.int64, "int32": np.int32}
    dtypes = {i: types.get(model.values[i].dtype, np.float32) for i in model.inputs}
    graph.shape_infer({i: np.zeros(model.input_shape(i), dtype) for i, dtype in dtypes.items()})
    graph.profile()
    counted = works(model)
    compared = 0
    for id_, node in graph.nodemap.items():
        if node.op_type in {"Conv", "Gemm", "MatMul"}:
            out = math.prod(graph.tensormap[node.output[0]].get_shape())
            bias = out if node.op_type != "MatMul" and len(node.input) > 2 else 0
            assert node.macs[0] - bias == counted[id_].macs
            compared += 1
    assert compared > 30


def test_bert_has_the_count_of_the_formula() -> None:
    """Per layer four projections, two layers of four times the width, and two products of attention."""
    model = sample("bert")
    found = works(model)
    products = [w for n in model.top if (w := found[n.id]).macs]
    width = next(model.values[n.outputs[0]].shape[-1] for n in model.top if n.op == "LayerNormalization")
    length = model.input_shape(model.inputs[0])[1]
    layers = len(products) // 8
    every = sum(w.macs or 0 for w in found.values())
    assert layers * (12 * length * width**2 + 2 * length**2 * width) == every


def test_nothing_in_the_samples_is_left_uncounted() -> None:
    for name in (*SAMPLES, "digits_inception", "digits_qat", "digits_vit"):
        assert not [w.note for w in works(sample(name)).values() if w.flops is None]


def test_convolutions_count_groups_and_bias() -> None:
    found = done("Conv", {"x": (2, 8, 10, 10)}, {"w": (12, 4, 3, 3), "b": (12,)}, group=2)
    macs = 2 * 12 * 8 * 8 * 4 * 9
    assert (macs, 2 * macs + 2 * 12 * 8 * 8) == (found.macs, found.flops)
    assert 12 * 4 * 9 + 12 == found.parameters
    assert 4 * (2 * 8 * 100 + 12 * 36 + 12) == found.read
    assert 4 * 2 * 12 * 64 == found.written


SHAPES = {"q": (1, 8, 10, 16), "k": (1, 2, 20, 16), "v": (1, 2, 20, 32)}
FLAT = {"q": (1, 10, 128), "k": (1, 20, 32), "v": (1, 20, 64)}


@pytest.mark.parametrize(
    ("macs", "op", "inputs", "weights", "attributes"),
    [
        # What each input is added to; depths by the transposition; both products over heads.
        (6 * 25 * 4 * 9, "ConvTranspose", {"x": (1, 6, 5, 5)}, {"w": (6, 4, 3, 3)}, {"strides": [2, 2]}),
        (3 * 5 * 7, "Gemm", {"a": (7, 3)}, {"b": (5, 7)}, {"transA": 1, "transB": 1}),
        (3 * 5 * 7, "Gemm", {"a": (3, 7)}, {"b": (7, 5)}, {}),
        (8 * 10 * 20 * (16 + 32), "Attention", SHAPES, {}, {"opset": 23}),
        (8 * 10 * 20 * (16 + 32), "Attention", FLAT, {}, {"opset": 23, "q_num_heads": 8, "kv_num_heads": 2}),
    ],
)
def test_products_are_counted_by_hand(macs: int, op: str, inputs, weights, attributes) -> None:
    assert macs == done(op, inputs, weights, **attributes).macs


def test_einsum_with_dots_and_a_lone_term() -> None:
    stacked = done("Einsum", {"a": (2, 3, 4, 5), "b": (2, 3, 5, 6)}, equation="...ij,...jk->...ik")
    assert 2 * 3 * 4 * 5 * 6 == stacked.macs
    lone = done("Einsum", {"a": (4, 5)}, equation="ij->i")
    assert (0, 20) == (lone.macs, lone.flops)
    outer = done("Einsum", {"a": (4,), "b": (5,)}, equation="i,j->ij")
    assert (0, 20) == (outer.macs, outer.flops)
    thin = done("Einsum", {"a": (3, 1), "b": (1, 4)}, equation="ij,jk->ik")
    assert (3 * 1 * 4, 2 * 3 * 1 * 4) == (thin.macs, thin.flops)


@pytest.mark.parametrize(("op", "gates"), [("RNN", 1), ("GRU", 3), ("LSTM", 4)])
def test_a_recurrence_counts_its_gates_at_every_step(op: str, gates: int) -> None:
    weights = {"w": (2, gates * 6, 5), "r": (2, gates * 6, 6)}
    found = done(op, {"x": (7, 3, 5)}, weights, ((7, 2, 3, 6),), hidden_size=6, direction="bidirectional")
    assert 7 * 3 * 2 * gates * 6 * (5 + 6) == found.macs
    assert 2 * gates * 6 * (5 + 6) == found.parameters


@pytest.mark.parametrize(
    ("op", "shapes", "scales", "attributes", "flops"),
    [
        ("Sum", [(2, 3)] * 3, (), {}, 12), ("Mean", [(2, 3)] * 3, (), {}, 18), ("Max", [(2, 3)], (), {}, 0),
        # Two taps along each of two axes, multiplied and added; four of a cubic one.
        ("Resize", [(1, 1, 2, 3)], (2, 2), {"mode": "linear"}, 24 * 8),
        ("Resize", [(1, 1, 2, 3)], (2, 2), {"mode": "cubic"}, 24 * 32),
        ("Resize", [(1, 1, 2, 3)], (1, 2), {"mode": "cubic"}, 12 * 8),
        ("Resize", [(1, 1, 2, 3)], (2, 2), {"mode": "nearest"}, 0),
        ("LRN", [(1, 2, 3, 1)], (), {"size": 3}, 6 * 8),
    ],
)  # fmt: skip
def test_the_work_of_a_node_is_counted_by_hand(op, shapes, scales, attributes, flops: int) -> None:
    values = [(f"x{i}", FLOAT, s) for i, s in enumerate(shapes)]
    held = {"f": np.float32([1, 1, *scales])} if scales else {}
    y = [int(a * b) for a, b in zip(shapes[0], [1, 1, *scales] if scales else [1] * 4, strict=False)]
    reads = [*(n for n, *_ in values), *(["", "f"] if scales else [])]
    node = helper.make_node(op, reads, ["y"], "n", **attributes)
    found = works(load(graph_proto([node], values, [("y", FLOAT, y)], held)))["n"]
    assert (0, flops, 4 * math.prod(y)) == (found.macs, found.flops, found.written)


def test_views_move_nothing_and_lookups_read_what_they_take() -> None:
    assert NodeWork(0, 0, 0, 0, 0) == done("Flatten", {"x": (2, 3, 4)})
    table = one("Gather", {"i": (3,)}, {"t": (1000, 8)}, order=("t", "i"))
    assert 3 * 8 * 4 + 3 * 4 == works(table)["n"].read
    assert 8000 == works(table)["n"].parameters


@pytest.mark.parametrize(
    ("op", "learned", "inputs"),
    [
        ("QuantizeLinear", "w", "w scale zero"), ("DequantizeLinear", "w", "w scale zero"),
        ("BatchNormalization", "scale bias", "x scale bias mean variance"),
        # Exporters write bounds and fill values of one element where a scalar belongs.
        ("Clip", "w", "w least most"), ("Pad", "w", "w pads fill axes"), ("Resize", "w", "w region scales sizes"),
        ("QLinearConv", "w b", "x x_scale x_zero w w_scale w_zero y_scale y_zero b"),
        ("QLinearMatMul", "w", "x x_scale x_zero w w_scale w_zero y_scale y_zero"), ("Conv", "w b", "x w b"),
    ],
)  # fmt: skip
def test_scales_bounds_and_statistics_are_no_parameters(op: str, learned: str, inputs: str) -> None:
    """Each input has a power of two of elements, so that a sum says which were counted."""
    sizes = {name: 2**i for i, name in enumerate(inputs.split())}
    given = {"x": (sizes["x"],)} if "x" in sizes else {}
    constants = {k: (n,) for k, n in sizes.items() if k not in given}
    found = count_parameters(one(op, given, constants, order=tuple(sizes)))
    assert sum(sizes[k] for k in learned.split()) == found


@pytest.mark.parametrize(
    ("op", "inputs"),
    [
        ("QLinearConv", "x x_scale x_zero w w_scale w_zero y_scale y_zero b"),
        ("DequantizeLinear", "b b_scale"),
    ],
)
def test_a_bias_of_32_bits_is_learned_and_sizes_of_32_bits_are_not(op: str, inputs: str) -> None:
    """By hand: eight numbers of a bias; the weight has 4 x 3 x 1 x 1, scales and zero points count for nothing."""
    names = inputs.split()
    held = {n: np.ones(8 if n == "b" else 1, np.int32) for n in names if n != "x"}
    held |= {"w": np.ones((4, 3, 1, 1), np.int8)} if "w" in names else {}
    given = [("x", TensorProto.UINT8, [1, 3, 5, 5])] if "x" in names else []
    nodes = [helper.make_node(op, names, ["y"]), helper.make_node("Reshape", ["y", "shape"], ["z"])]
    made = graph_proto(nodes, given, [("z", FLOAT, None)], {**held, "shape": np.array([-1, 2], np.int32)})
    assert 8 + (12 if "w" in names else 0) == count_parameters(wrap(made, name="g"))


def test_quantization_has_no_multiply_accumulates_but_bytes() -> None:
    model = sample("digits_qat")
    found = [works(model)[n.id] for n in model.top if n.op in {"QuantizeLinear", "DequantizeLinear"}]
    assert {0} == {w.macs for w in found}
    assert all(w.read and w.written for w in found)


def test_an_unknown_operator_is_said_to_be_unknown() -> None:
    found = done("Mystery", {"x": (2, 3)}, domain="nobody", outputs=((2, 3),))
    assert (None, None, 24, 24) == (found.macs, found.flops, found.read, found.written)
    assert "Mystery" in found.note
    found = done("Relu", {"x": (2, 3)}, outputs=(None,), domain="nobody")
    assert (None, None, True) == (found.flops, found.written, bool(found.note))


def test_bodies_are_counted_at_their_own_places() -> None:
    model = load("sample_models/control_flow.onnx")
    found = works(model)
    owner = next(n for n in model.nodes if n.op == "If")
    assert 0 == found[owner.id].flops
    assert found[owner.id].note
    assert any(found[n.id].flops for n in model.nodes if n.scope == (owner.id,))


def test_a_weight_that_two_nodes_share_is_one() -> None:
    nodes = [helper.make_node("Add", ["x", "w"], ["t"]), helper.make_node("Mul", ["t", "w"], ["y"])]
    ends = [("x", FLOAT, (4, 3))], [("y", FLOAT, (4, 3))]
    assert 3 == count_parameters(
        wrap(graph_proto(nodes, *ends, {"w": np.zeros(3, np.float32)}), name="shared")
    )


LAYER = "add the mean up, subtract, square, add up, divide, scale, shift"
STEPS = {
    "LayerNormalization": LAYER, "InstanceNormalization": LAYER, "GroupNormalization": LAYER,
    "SkipLayerNormalization": f"add the other, {LAYER}",
    "SimplifiedLayerNormalization": "square, add up, divide, scale",
    "RMSNormalization": "square, add up, divide, scale",
    "SkipSimplifiedLayerNormalization": "add the other, square, add up, divide, scale",
    "MeanVarianceNormalization": "add the mean up, subtract, square, add up, divide",
    "LpNormalization": "square, add up, divide", "Softmax": "find the largest, subtract, exp, add up, divide",
    "LogSoftmax": "find the largest, subtract, exp, add up, log, subtract",
    "Sigmoid": "exp, add one, divide", "Swish": "exp, add one, divide, multiply",
    "HardSwish": "add, least, divide, multiply", "Gelu": "divide, erf, add one, multiply, halve",
    "BiasGelu": "add the bias, divide, erf, add one, multiply, halve", "Clip": "least, most",
    "LeakyRelu": "compare, multiply", "BatchNormalization": "multiply, add", "QuantizeLinear": "divide, round",
    "Relu": "compare",
}  # fmt: skip


@pytest.mark.parametrize("op", STEPS)
def test_steps_of_an_element_are_those_of_the_definition(op: str) -> None:
    """Each word is one operation on every element of 2×8 numbers."""
    domain = "com.microsoft" if op.startswith(("Skip", "Simplified", "BiasGelu", "Swish")) else ""
    found = done(op, {"x": (2, 8)}, outputs=((2, 8),), domain=domain)
    assert len(STEPS[op].split(", ")) * 16 == found.flops


def test_a_batch_takes_the_place_of_the_first_size_alone() -> None:
    """Four rows of five, where the shape that was given has six."""
    model = one("Relu", {"x": ("N", "length")})
    assert 6 * 5 == works(model, shapes={"x": (6, 5)})["n"].flops
    assert 4 * 5 == works(model, batch=4, shapes={"x": (6, 5)})["n"].flops


@pytest.mark.parametrize(("mask", "steps"), [(False, 6), (True, 7)])
def test_attention_takes_six_steps_a_pair_beside_its_products_and_a_mask_one_more(mask, steps) -> None:
    """Two heads, 3 queries of 4 numbers on 5 keys, values of 6: the scale, five of the softmax, and the mask's sum."""
    inputs = {"q": (1, 2, 3, 4), "k": (1, 2, 5, 4), "v": (1, 2, 5, 6)} | ({"m": (3, 5)} if mask else {})
    found = done("Attention", inputs, outputs=((1, 2, 3, 6),), opset=23)
    pairs = 2 * 3 * 5
    assert (pairs * (4 + 6), 2 * pairs * (4 + 6) + steps * pairs) == (found.macs, found.flops)


def test_work_grows_with_the_batch_and_weights_do_not() -> None:
    model = sample("resnet50")
    first, eighth = works(model), works(model, batch=8)
    assert {8 * (w.macs or 0) for w in first.values()} == {w.macs or 0 for w in eighth.values()}
    assert [w.parameters for w in first.values()] == [w.parameters for w in eighth.values()]


def test_a_fixed_batch_is_not_changed() -> None:
    with pytest.raises(ModelError, match="batch 8"):
        works(one("Relu", {"x": (2, 3)}), batch=8)
    with pytest.raises(ModelError, match="at least 1"):
        works(one("Relu", {"x": ("N", 3)}), batch=0)


@pytest.mark.parametrize(("op", "w", "r"), [("LSTM", (16, 4), (1, 16, 4)), ("GRU", (1, 12, 4), (12,))])
def test_the_work_of_a_node_whose_shapes_do_not_fit_is_unknown(op: str, w, r) -> None:
    """ONNX's checker lets them pass, and no operator takes them."""
    found = done(op, {"x": (2, 3, 4)}, {"w": w, "r": r}, ((2, 1, 3, 4),), opset=22, hidden_size=4)
    assert (None, None, math.prod(w) + math.prod(r)) == (found.macs, found.flops, found.parameters)


def test_a_type_that_onnx_has_not_is_refused_in_words() -> None:
    """The checker compares a type with what is inferred, and infers nothing behind operators of others."""
    node = helper.make_node("Other", ["x"], ["y"], domain="other")
    proto = graph_proto([node], [("x", FLOAT, [2])], [("y", FLOAT, [2])], {}, 22)
    proto.graph.output[0].type.tensor_type.elem_type = 255
    with pytest.raises(ModelError) as refused:
        load(proto)
    assert "Nobody foresaw" not in str(refused.value)
