from __future__ import annotations

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from one_precision import fp16
from rtlab.core.model import Model
from rtlab.core.node import ORIGIN
from rtlab.core.variant import Variant
from rtlab.quantize import prepare

node = helper.make_node


def as_half(x: np.ndarray) -> np.ndarray:
    with np.errstate(over="ignore"):
        return x.astype(np.float16).astype(np.float32)


def dtypes(model: Model) -> dict[str, str]:
    return {name: value.dtype for name, value in model.values.items()}


def test_emulation_equals_numpy_half_precision_to_the_bit(make, run):
    """NumPy rounds like IEEE hardware; the emulation is the CPU's only FP16, so it must agree exactly."""
    rng = np.random.default_rng(0)
    w, b = rng.standard_normal((4, 4)).astype(np.float32), rng.standard_normal(4).astype(np.float32)
    net = make(
        "x[4, 4]; mul: m = Mul(x, w); add: a = Add(m, b); relu: r = Relu(a); sqrt: y = Sqrt(r); y[4, 4]",
        {"w": w, "b": b},
    )
    x = (rng.standard_normal((4, 4)) * 10.0 ** rng.integers(-8, 4, (4, 4))).astype(np.float32)
    m = as_half(as_half(x) * as_half(w))
    a = as_half(m + as_half(b))
    r = np.maximum(a, 0)
    expected = {"m": m, "a": a, "r": r, "y": as_half(np.sqrt(r))}
    got = run(fp16(net).emulation, {"x": x}, list(expected))
    for name, array in expected.items():
        np.testing.assert_array_equal(array, got[name], err_msg=name)


def test_every_inserted_cast_names_its_source(make):
    net = make("x[3]; mul: m = Mul(x, w); exp: y = Exp(m); y[3]", {"w": np.float32([2])})
    for model in (fp16(net).typed, fp16(net).emulation):
        added = {n.id: n.origin for n in model.nodes if n.id not in net.by_id}
        assert added
        assert set(added.values()) <= {"mul", "exp"}
        assert all(name.startswith(origin) for name, origin in added.items())
        assert all(ORIGIN in n.metadata_props for n in model.ir.graph)


def test_scattering_that_adds_rounds_its_sums(make, run):
    net = make(
        "x[2]; add: y = ScatterND(x, at, more, reduction='add'); y[2]",
        {"at": np.int64([[0]]), "more": np.float32([2048])},
        opset=18,
    )
    assert [2048, 1] == list(run(fp16(net).emulation, {"x": np.float32([1, 1])})["y"])


def test_shape_arithmetic_stays_single(make, run):
    """FP16 holds whole numbers up to 2,048 only; a size of 2,049 would come out as 2,048."""
    net = make(
        "x[N]; shape: s = Shape(x); cast: f = Cast(s, to=1); mul: h = Mul(f, half); back: i = Cast(h, to=7); "
        "zeros: zeros = ConstantOfShape(i); size: z = Shape(zeros); out: y = Cast(z, to=1); y",
        {"half": np.float32([1.0])},
    )
    halves = fp16(net)
    x = np.zeros(2049, np.float32)
    for model in (halves.emulation, halves.typed):
        assert [2049] == list(run(model, {"x": x}, ["z"])["z"])
    assert ("5 nodes stay fp32: shape arithmetic (cast, mul, back, ...)",) == halves.notes


def test_resize_scales_stay_single(make):
    """ONNX allows no other type there, and TensorRT refuses one."""
    net = make(
        "x[1, 1, 2, 2]; up: y = Resize(x, _, scales, mode='nearest'); y[1, 1, 4, 4]",
        {"scales": np.float32([1, 1, 2, 2])},
    )
    typed = fp16(net).typed
    onnx.checker.check_model(typed.proto(), full_check=True)
    assert "fp32" == dtypes(typed)[typed.by_id["up"].inputs[2]]
    assert "fp16" == dtypes(typed)[typed.by_id["up"].inputs[0]]


def test_an_operator_without_an_fp16_form_stays_single_and_is_noted(make, run):
    """ONNX has no FP16 Range; its result is rounded where the next node reads it."""
    net = make(
        "x[2]; max: n = ReduceMax(x, keepdims=0); range: g = Range(zero, n, one); mul: y = Mul(g, third); y[k]",
        {"zero": np.float32(0), "one": np.float32(1), "third": np.float32([1 / 3])},
    )
    halves = fp16(net)
    assert ("1 node stays fp32: no FP16 form in ONNX (range)",) == halves.notes
    onnx.checker.check_model(halves.typed.proto(), full_check=True)
    got = run(halves.emulation, {"x": np.float32([4, 2])}, ["g", "y"])
    assert [0, 1, 2, 3] == list(got["g"])
    third = np.float32(np.float16(1 / 3))
    np.testing.assert_array_equal(as_half(np.float32([0, 1, 2, 3]) * third), got["y"])


@pytest.mark.parametrize("node", ["m = Div(x, big)", "m = Mul(x, big)", "m = Sub(big, x)", "m = Sub(x, low)"])
def test_a_node_that_computes_with_a_constant_beyond_half_precision_stays_single(make, run, node):
    big = {"big": np.float32([1e6]), "low": np.float32([-1e6])}
    net = make(f"x[2]; it: {node}; add: y = Add(m, x); y[2]; m[2]", big)
    halves, feed = fp16(net), {"x": np.float32([0, 1000])}
    assert ("1 node stays fp32: a constant beyond 65,504 (it)",) == halves.notes
    np.testing.assert_array_equal(run(net, feed, ["m"])["m"], run(halves.emulation, feed, ["m"])["m"])


LOWEST = np.finfo(np.float32).min


HIDE, TURN = "hide: hide = Equal(keep, zero); ", "turn: turned = Sub(one, keep); "
WHERE = "mask: m = Where(hide, low, x)"
CUT = {"table": np.full((9, 9), LOWEST), "begin": np.array([0, 0]), "end": np.array([3, 4])}
ABOVE = {"table": np.float32([[0, 0, 1e9, 1e9], [0, 0, 0, 0], [1e9, 1e9, 1e9, 1e9]])}
#: Ways in which people write a huge mask over scores "x"; "keep" is 1 where a token counts.
MASKS = {
    "where": (HIDE + WHERE, {"low": LOWEST}, "mask"),
    "product": (TURN + "mul: added = Mul(turned, low); mask: m = Add(x, added)", {"low": LOWEST}, "mul"),
    "filled at run time": (
        f"{HIDE}shape: s = Shape(x); fill: low = ConstantOfShape(s, value=[{LOWEST}]); {WHERE}",
        {},
        "mask",
    ),
    "a table taken away": ("mask: m = Sub(x, table)", ABOVE, "mask"),
    "added twice": (
        f"{HIDE}select: once = Where(hide, low, x); {TURN}mul: added = Mul(turned, huge); mask: m = Add(once, added)",
        {"low": np.float32(-1e9), "huge": np.float32(-1e9)},
        "select, mul",
    ),
    "a table that is cut": (f"{HIDE}slice: low = Slice(table, begin, end); {WHERE}", CUT, "slice"),
}


@pytest.mark.parametrize("way", MASKS)
def test_a_row_that_is_all_padding_stays_finite(make, run, way):
    nodes, weights, where = MASKS[way]
    net = make(
        f"x[3, 4]; keep[3, 4]; {nodes}; softmax: y = Softmax(m, axis=-1); y[3, 4]",
        {"zero": np.float32(0), "one": np.float32(1), **weights},
    )
    # Of scores below -16 the largest number of FP16 makes infinities when it is taken away.
    feed = {
        "x": np.random.default_rng(0).uniform(-60, -40, (3, 4)).astype(np.float32),
        "keep": np.float32([[1, 1, 0, 0], [1, 1, 1, 1], [0, 0, 0, 0]]),
    }
    halves = fp16(net)
    cut, twice = way == "a table that is cut", way == "added twice"
    one = "1 constant beyond 65,504 becomes" if cut else "1 mask beyond 65,504 becomes a quarter of"
    many = "2 masks beyond 65,504 become a quarter of" if twice else one
    assert f"{many} the largest number of FP16 ({where})" in halves.notes
    masked = run(halves.emulation, feed, ["m"])["m"]
    assert (-65504 if cut else -2 * 16376 if twice else -16376) == pytest.approx(masked.min(), abs=64)
    want = run(net, feed)["y"]
    for form in (halves.emulation, halves.typed):
        got = run(form, feed)["y"]
        # Scores near -50 are multiples of 1/32.
        np.testing.assert_allclose(want[:2], got[:2], atol=1 / 64)
        np.testing.assert_allclose(1, got.sum(axis=1), atol=2e-3)


def test_infinite_masks_stay_infinite_and_order_stays(make, run):
    table = np.float32([-np.inf, LOWEST, -60000, -20000, -1])
    net = make("x[5]; add: y = Add(x, table); y[5]", {"table": table})
    halves = fp16(net)
    for form in (halves.emulation, halves.typed):
        got = run(form, {"x": np.zeros(5, np.float32)})["y"]
        assert [-np.inf, -16376, -16376, -16376, -1] == list(got)


def test_bounds_saturate(make, run):
    weights = {"low": LOWEST, "high": np.float32(1e6)}
    halves = fp16(make("x[3]; clip: y = Clip(x, low, high); y[3]", weights))
    assert ("2 constants beyond 65,504 become the largest number of FP16 (clip)",) == halves.notes
    for form in (halves.emulation, halves.typed):
        assert [-65504, 3, 65504] == list(run(form, {"x": np.float32([-1e6, 3, 70000])})["y"])


def _stored(net: onnx.ModelProto, kind: int) -> list[float]:
    """Every number of a type that a model holds."""
    held = [t for t in net.graph.initializer if t.data_type == kind]
    held += [a.t for n in net.graph.node for a in n.attribute if a.HasField("t") and a.t.data_type == kind]
    return [float(v) for t in held for v in np.ravel(numpy_helper.to_array(t))]


def test_infinities_stay_and_finite_numbers_stay_finite_in_what_is_built(make, run):
    """Whoever wrote infinity meant it; the largest float of 32 bits rounds to infinity in BF16 too."""
    table = np.float32([-np.inf, np.inf, LOWEST, 1e6, -1e6, 65519, 65520, 1, 0])
    net = make("x[9]; max: y = Max(x, table); y[9]", {"table": table}, opset=17)
    held = [-np.inf, np.inf, -65504, 65504, -65504, 65504, 65504, 1, 0]
    halves = fp16(net)
    assert held == _stored(halves.typed.proto(), onnx.TensorProto.FLOAT16)
    x = np.full(9, -np.inf, np.float32)
    np.testing.assert_array_equal(np.float32(held), run(halves.emulation, {"x": x})["y"])
    np.testing.assert_array_equal(np.float32(held), run(halves.typed, {"x": x})["y"])
    ready = prepare(net, Variant.of("bf16"))
    got = _stored(ready.model.proto(), onnx.TensorProto.BFLOAT16)
    assert [-np.inf, np.inf] == [v for v in got if not np.isfinite(v)]
    assert float(ml_dtypes.finfo(ml_dtypes.bfloat16).min) == min(v for v in got if np.isfinite(v))
    assert "1 constant beyond 3.39e38 becomes the largest number of BF16 (max)" in ready.notes


def test_a_body_reads_outer_values_in_single_precision(make, run):
    out = helper.make_tensor_value_info("o", onnx.TensorProto.FLOAT, [2])
    then = helper.make_graph([node("Mul", ["e", "w"], ["o"], name="in_then")], "then", [], [out])
    other = helper.make_graph([node("Neg", ["e"], ["o"], name="in_else")], "else", [], [out])
    branch = node("If", ["flag"], ["i"], name="if", then_branch=then, else_branch=other)
    net = make(
        [
            "x[2]; before: e = Mul(x, w); max: top = ReduceMax(x, keepdims=0); greater: flag = Greater(top, zero)",
            branch,
            "after: y = Add(i, e); y[2]",
        ],
        {"w": np.float32([1.1, 2.2]), "zero": np.float32(0)},
    )
    halves = fp16(net)
    onnx.checker.check_model(halves.typed.proto(), full_check=True)
    x = np.float32([0.3, 0.7])
    w = np.float32([1.1, 2.2])
    e = as_half(as_half(x) * as_half(w))
    i = e * w  # inside the body nothing is rounded, its weight neither
    got = run(halves.emulation, {"x": x}, ["e", "i", "y"])
    np.testing.assert_array_equal(e, got["e"])
    np.testing.assert_array_equal(i, got["i"])
    np.testing.assert_array_equal(as_half(as_half(i) + e), got["y"])
    assert {"in_then", "in_else"} <= set(halves.typed.by_id)
    assert run(halves.typed, {"x": x})["y"] == pytest.approx(got["y"], rel=2e-3)


def test_an_input_beyond_half_precision_overflows_where_it_is_read(make, run):
    net = make("x[2]; relu: y = Relu(x); y[2]")
    got = run(fp16(net).emulation, {"x": np.float32([70000, 1 / 3])}, ["x", "y"])
    assert [70000, np.float32(1 / 3)] == list(got["x"])
    assert [np.inf, np.float32(np.float16(1 / 3))] == list(got["y"])


def test_moving_values_rounds_nothing_again(make):
    net = make(
        "x[3, 2]; exp: e = Exp(x); relu: r = Relu(e); turn: t = Transpose(r, perm=[1, 0]); "
        "cat: y = Concat(t, t, axis=0); y[4, 3]"
    )
    added = [n.id for n in fp16(net).emulation.nodes if n.id not in net.by_id]
    assert [f"exp/{end}/{to}/Cast" for end in ("input", "output") for to in ("fp16", "fp32")] == added


def test_a_mask_hides_and_bounds_with_one_constant(make, run):
    net = make(
        "x[2]; bound: b = Max(x, low); hide: hide = Greater(x, zero); mask: y = Where(hide, low, b); y[2]",
        {"low": LOWEST, "zero": np.float32(0)},
    )
    halves = fp16(net)
    assert (
        "1 constant beyond 65,504 becomes the largest number of FP16 (bound)",
        "1 mask beyond 65,504 becomes a quarter of the largest number of FP16 (mask)",
    ) == halves.notes
    for form in (halves.emulation, halves.typed):
        assert [-60000, -16376] == list(run(form, {"x": np.float32([-60000, 1])})["y"])


def test_a_filler_of_padding_saturates(make, run):
    net = make("x[2]; pad: y = Pad(x, pads, low); y[4]", {"pads": np.array([1, 1]), "low": LOWEST})
    halves = fp16(net)
    assert ("1 constant beyond 65,504 becomes the largest number of FP16 (pad)",) == halves.notes
    feed = {"x": np.float32([1, 2])}
    assert [-65504, 1, 2, -65504] == list(run(halves.emulation, feed)["y"])
    assert [-65504, 1, 2, -65504] == list(run(halves.typed, feed)["y"])


def test_a_fill_that_is_read_in_single_precision_too_stays_as_it_is(make, run):
    net = make(
        f"x[2]; shape: s = Shape(x); fill: low = ConstantOfShape(s, value=[{LOWEST}]); max: m = Max(low, x); "
        "add: y = Add(low, m); low[2]; y[2]"
    )
    assert [LOWEST] * 2 == list(run(fp16(net).emulation, {"x": np.float32([1, 2])})["low"])


def test_constants_fed_by_nodes_are_rounded(make, run):
    net = make(f"x[2]; const: c = Constant(value=[{1 / 3}]); same: d = Identity(c); mul: y = Mul(x, d); y[2]")
    halves = fp16(net)
    onnx.checker.check_model(halves.typed.proto(), full_check=True)
    got = run(halves.emulation, {"x": np.float32([1, 2])})["y"]
    np.testing.assert_array_equal(as_half(np.float32([1, 2]) * as_half(np.float32(1 / 3))), got)


def test_an_input_that_is_an_output_survives(make, run):
    net = make("x[1]; h[1]; relu: y = Relu(x); y[1]; h[1]")
    halves = fp16(net)
    for model in (halves.typed, halves.emulation):
        got = run(model, {"x": np.float32([1]), "h": np.float32([1 / 3])}, ["h", "y"])
        assert [np.float32(1 / 3)] == list(got["h"])


def test_pairs_of_a_model_take_scales_of_16_bits_and_no_casts_stand_round_them(make, run):
    scale, kernel_scale = np.float32(0.1), np.float32(0.013)
    rng = np.random.default_rng(0)
    w = rng.integers(-127, 128, (4, 4)).astype(np.int8)
    net = make(
        "x[4, 4]; relu: r = Relu(x); q: i = QuantizeLinear(r, s, z); d: h = DequantizeLinear(i, s, z);"
        "k: v = DequantizeLinear(w, t); mul: m = MatMul(h, v); tanh: y = Tanh(m); y[4, 4]",
        {"s": scale, "z": np.int8(0), "t": kernel_scale, "w": w},
        opset=17,
    )
    ready = prepare(net, Variant.of("fp16"))
    typed, emulation = ready.model, ready.emulation
    assert [n.op for n in typed.top if n.op not in {n.op for n in net.top}] == ["Cast", "Cast"]
    assert {dtypes(typed)[typed.by_id[n].inputs[1]] for n in "qdk"} == {"fp16"}
    assert {dtypes(typed)[v] for v in "rhvm"} == {"fp16"}
    x = rng.standard_normal((4, 4)).astype(np.float32) * 4
    integers = np.clip(np.rint(as_half(np.maximum(x, 0)) / as_half(scale)), -128, 127)
    h, v = as_half(integers * as_half(scale)), as_half(w * as_half(kernel_scale))
    got = run(emulation, {"x": x}, ["h", "v", "m"])
    np.testing.assert_array_equal(h, got["h"])
    np.testing.assert_array_equal(v, got["v"])
    np.testing.assert_allclose(h @ v, got["m"], rtol=2**-11)


@pytest.mark.parametrize(("precision", "stays"), [("fp16", True), ("bf16", False)])
def test_a_scale_that_16_bits_do_not_hold_stays_single_with_what_reads_its_pair(make, precision, stays):
    net = make(
        "x[4]; q: i = QuantizeLinear(x, s, z); d: h = DequantizeLinear(i, s, z); neg: y = Neg(h); y[4]",
        {"s": np.float32(1.3e-6), "z": np.int8(0)},
        opset=21,
    )
    ready = prepare(net, Variant.of(precision))
    assert (set(dtypes(ready.model).values()) == {"fp32", "int8"}) is stays
    assert any("a scale too small for FP16 (q)" in n for n in ready.notes) is stays
