from __future__ import annotations

import pickle

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import helper

import trt_nets
from rtlab import Study
from rtlab.core.compiler_info import Maker
from rtlab.core.model import Model, load
from rtlab.core.prepared import Prepared
from rtlab.core.scale import Scale
from rtlab.core.variant import Precision, Variant
from rtlab.errors import CalibrationError, ModelError
from rtlab.quantize import prepare, quantizable
from rtlab.quantize.fp16_passes import round_to_tf32
from rtlab.quantize.weights import ScaleLayout, quantize_to_four_bits
from trt_nets import from_nvfp4, nvfp4

node = helper.make_node


def weight(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def half(x: np.ndarray) -> np.ndarray:
    with np.errstate(over="ignore"):
        return x.astype(np.float16).astype(np.float32)


def brain(x: np.ndarray) -> np.ndarray:
    return x.astype(ml_dtypes.bfloat16).astype(np.float32)


@pytest.fixture
def chain(make) -> Model:
    """Three products with an activation behind each; sums of one element, so that oracles are exact."""
    nodes, x = [], "x"
    for i in range(3):
        nodes += [
            node("MatMul", [x, f"w{i}"], [f"m{i}"], name=f"block{i}/MatMul"),
            node("Sigmoid", [f"m{i}"], [f"s{i}" if i < 2 else "y"], name=f"block{i}/Sigmoid"),
        ]
        x = f"s{i}"
    weights = {f"w{i}": np.diag(weight(32, seed=i)).astype(np.float32) for i in range(3)}
    return make(nodes, weights, {"x": [4, 32]}, {"y": [4, 32]})


def given(model: Model, amax: float = 4.0) -> dict[str, Scale]:
    return {v: Scale(amax) for v in quantizable(model)}


def ready(model: Model, precision: object, **options: object) -> Prepared:
    return prepare(model, Variant.of(precision, target="sm120"), scales=given(model), **options)


def types(model: Model, values: str) -> list[str]:
    return [model.values[v].dtype for v in values.split()]


def test_a_mix_computes_each_node_in_its_own_precision(chain: Model, run):
    mix = {"*": "fp16", "block0/MatMul": "int8", "block2/*": "bf16"}
    done = ready(chain, mix)
    x = weight(4, 32, seed=9)
    w0, w1, w2 = (chain.constants(f"block{i}/MatMul")[f"w{i}"].numpy() for i in range(3))

    step = half(np.float32(4) / np.float32(127))
    scale = half(np.abs(w0).max(axis=0) / np.float32(127))
    q0 = np.clip(np.rint(w0 / scale), -127, 127).astype(np.float32) * scale
    m0 = np.clip(np.rint(half(x) / step), -128, 127).astype(np.float32) * step @ q0
    got = run(done.emulation, {"x": x}, ["m0", "s0", "m1", "s1", "m2"])
    np.testing.assert_array_equal(got["m0"], half(m0))
    np.testing.assert_array_equal(half(got["s0"]), got["s0"])
    np.testing.assert_array_equal(half(got["s0"] @ half(w1)), got["m1"])
    np.testing.assert_array_equal(brain(brain(got["s1"]) @ brain(w2)), got["m2"])
    assert ["fp16", "fp16", "fp16", "fp16", "bf16"] == types(done.model, "m0 s0 m1 s1 m2")
    types16 = zip("012", ("fp16", "fp16", "bf16"), strict=True)
    expected = {f"block{i}/{op}": p for i, p in types16 for op in ("MatMul", "Sigmoid")}
    assert {**expected, "block0/MatMul": "int8"} == done.precisions
    assert 1 == len(done.notes)


def test_bf16_raises_the_opset_where_onnx_has_it_later(tiny_model: Model):
    """ONNX has BF16 convolutions from opset 22 on only."""
    done = ready(tiny_model, "bf16")
    assert 22 == done.model.opset
    assert {n.id for n in tiny_model.top} == set(done.precisions)
    assert ["bf16", "bf16"] == types(done.model, "stem pooled")
    assert 17 == ready(tiny_model, {"op:Gemm": "bf16"}).model.opset
    assert () == done.notes


def test_bf16_keeps_the_range_of_fp32(make, run):
    net = make("x[3]; square: y = Mul(x, x); y[3]")
    x = np.float32([300, 1.003, 1e-20])
    wide, narrow = (run(ready(net, p).emulation, {"x": x})["y"] for p in ("bf16", "fp16"))
    np.testing.assert_array_equal(brain(brain(x) * brain(x)), wide)
    assert [np.inf, 0] == [narrow[0], narrow[2]]


def test_weights_that_become_zero_are_counted(make):
    net = make("x[4]; n: y = Mul(x, w); y[4]", {"w": np.float32([1e-9, 0, 1, -2e-8])})
    assert any(n.startswith("2 of 4 constants") for n in ready(net, "fp16").notes)
    assert () == ready(net, "bf16").notes


def test_tf32_changes_no_graph_but_the_numbers(tiny_model: Model, run):
    done = ready(tiny_model, "tf32")
    assert done.model is tiny_model
    assert {"stem/Conv", "left/Conv", "right/Conv", "head/Gemm"} == set(done.precisions)
    x = weight(1, 3, 8, 8)
    stem = run(done.emulation, {"x": x}, ["stem"])["stem"]
    w = round_to_tf32(tiny_model.constants("stem/Conv")["stem_w"].numpy())
    padded = np.pad(round_to_tf32(x), [(0, 0), (0, 0), (1, 1), (1, 1)]).astype(np.float64)
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(2, 3))
    np.testing.assert_allclose(stem, np.einsum("nchwij,ocij->nohw", windows, w), rtol=1e-5, atol=1e-6)


def test_tf32_is_one_switch_for_all_that_is_fp32(tiny_model: Model):
    """A node pinned to FP32 would not be FP32 in the engine, and the note says so."""
    done = ready(tiny_model, {"*": "tf32", "head/Gemm": "fp16", "stem/*": "fp32"})
    others = dict.fromkeys(("stem/Conv", "left/Conv", "right/Conv"), "tf32")
    assert {**others, "head/Gemm": "fp16"} == done.precisions
    assert any(n.startswith("1 node stays tf32") and "(stem/Conv)" in n for n in done.notes)


@pytest.mark.parametrize("precision", ["int4", "fp4"])
@pytest.mark.parametrize("base", ["fp32", "fp16", "bf16"])
def test_four_bit_weights_multiply_in_the_type_of_the_rest(chain: Model, run, precision: str, base: str):
    done = ready(chain, {"*": base, "op:MatMul": precision})
    assert {precision} == {p for n, p in done.precisions.items() if n.endswith("MatMul")}
    w = chain.constants("block0/MatMul")["w0"].numpy()
    stored = quantize_to_four_bits(w, ScaleLayout(0, 16), Precision(precision))
    scale, to = stored.scale, {"fp32": np.float32, "fp16": np.float16, "bf16": ml_dtypes.bfloat16}[base]
    if precision == "int4":
        scale = scale.astype(to)
    numbers = stored.values.astype(np.float32) * np.repeat(scale.astype(np.float32), 16, axis=0)
    numbers = numbers * (1 if stored.tensor_scale is None else stored.tensor_scale)
    numbers = numbers.astype(np.float32).astype(to).astype(np.float32)
    x = weight(4, 32, seed=9)
    read = x.astype(to).astype(np.float32)
    if precision == "fp4":
        # The activation is rounded too, with the scale of amax 4, before it is a number of 16 bits.
        whole = np.float32(np.float32(4) / np.float32(2688))
        read = from_nvfp4(*nvfp4(x, whole), whole).astype(to).astype(np.float32)
    expected = (read @ numbers).astype(to).astype(np.float32)
    got = run(done.emulation, {"x": x}, ["m0"])["m0"]
    np.testing.assert_allclose(got, expected, rtol=2e-6)
    # TensorRT dequantizes INT4 in the type of the product; FP4 has scales of scales, in FP32.
    types = {done.model.values[n.outputs[0]].dtype for n in done.model.top if n.op == "DequantizeLinear"}
    assert {base if precision == "int4" else "fp32"} == types
    stored_types = {t.data_type for t in done.model.proto().graph.initializer}
    assert (onnx.TensorProto.INT4 if precision == "int4" else onnx.TensorProto.FLOAT4E2M1) in stored_types


def test_fp4_without_ranges_is_refused_and_a_value_without_scale_stays(chain: Model):
    with pytest.raises(CalibrationError, match='"fp4": the scales of 3 activations need observed ranges'):
        prepare(chain, Variant.of("fp4", target="sm120"))
    done = prepare(chain, Variant.of("fp4", target="sm120"), scales={"s0": Scale(1.0)})
    assert {"block1/MatMul": "fp4"} == done.precisions
    assert "2 values have no scale in the given scales: their readers stay fp32 (x, s1)" in done.notes
    assert {"s0": 2688.0} == {v: s.largest for v, s in done.scales.items()}
    with pytest.raises(CalibrationError, match=r'value "s0": its threshold is 0\.0'):
        prepare(chain, Variant.of("fp4", target="sm120"), scales={"s0": Scale(0.0)})


def test_what_runs_fp4_in_float_says_so(chain: Model):
    """A GPU that has it multiplies in four bits; the CPU does not."""
    for target, count in (("cpu", 1), ("sm120", 0)):
        done = prepare(chain, Variant.of("fp4", target=target), scales=given(chain))
        assert count == sum("run in float here" in n for n in done.notes)


@pytest.mark.parametrize(
    ("name", "precision"),
    [
        ("fp8", "fp8"),
        ("int4", "int4"),
        ("int4_pair", "int4"),
        ("nvfp4", "fp4"),
        ("nvfp4_weights", "fp4"),
        ("mxfp8", "fp8"),
    ],
)
def test_what_modelopt_has_quantized_is_recognised_and_its_scales_stay(name: str, precision: str):
    """Behind a Transpose and in TensorRT's domain too; a scale of scales has no FP16 form, which would round it."""
    model = load(trt_nets.NETS[name]()[0])
    assert precision == prepare(model, Variant.of("fp32")).precisions["product"]
    done = prepare(model, Variant.of("fp16", target="sm120"))
    assert precision == done.precisions["product"]
    scales = [v for v in done.model.values if v in {"x_s", "w_s"} and name.startswith("nvfp4")]
    assert {"fp32"} >= {done.model.values[v].dtype for v in scales}


def twice_read(make) -> Model:
    """One value and one weight, multiplied by two nodes."""
    return make(
        "x[3, 32]; a: a = MatMul(x, w); b: b = MatMul(x, w); add: y = Add(a, b); y[3, 4]",
        {"w": weight(32, 4)},
    )


def test_a_weight_in_two_precisions_is_stored_twice_and_stays(make, run):
    net = twice_read(make)
    done = ready(net, {"a": "int4", "b": "fp16"})
    x = weight(3, 32, seed=1)
    got = run(done.emulation, {"x": x}, ["a", "b"])
    stored = quantize_to_four_bits(weight(32, 4), ScaleLayout(0, 16), Precision.INT4).dequantize()
    np.testing.assert_allclose(got["a"], x @ stored, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(got["b"], half(half(x) @ half(weight(32, 4))), rtol=2e-3, atol=2e-3)


def test_int8_and_fp8_of_one_value_are_two_pairs(make):
    net = twice_read(make)
    done = ready(net, {"a": "int8", "b": "fp8"})
    assert {"a": "int8", "b": "fp8"} == done.precisions
    pairs = [n for n in done.model.top if n.op == "QuantizeLinear"]
    assert ["int8", "fp8"] == [done.model.values[n.outputs[0]].dtype for n in pairs]
    assert {"x": 127.0} == {v: s.largest for v, s in done.scales.items()}


def test_what_has_no_form_falls_back_to_the_precision_of_the_rest(make):
    net = make(
        "x[8, 8]; q: q = MatMul(x, w); qk: qk = MatMul(q, x); softmax: y = Softmax(qk); y[8, 8]",
        {"w": weight(8, 8)},
    )
    done = ready(net, {"*": "fp16", "op:MatMul": "int8"})
    assert {"q": "int8", "qk": "fp16", "softmax": "fp16"} == done.precisions
    assert any(n.startswith("1 node stays fp16") and "(qk)" in n for n in done.notes)
    assert {"q": "int8"} == ready(net, "int8").precisions


def test_values_without_a_given_scale_are_counted_and_their_readers_stay(tiny_model: Model):
    scales = {v: s for v, s in given(tiny_model).items() if v != "act"}
    done = prepare(tiny_model, Variant.of("int8", scales="old.cache"), scales=scales)
    assert {"stem/Conv", "head/Gemm"} == {n for n in done.precisions if n.endswith(("Conv", "Gemm"))}
    assert "1 value has no scale in old.cache: their readers stay fp32 (act)" in done.notes
    assert "act" not in done.scales


@pytest.mark.parametrize("precision", ["int8", "fp8", "int4", "fp4"])
def test_a_weight_with_nan_is_refused_in_every_precision_with_a_scale(make, precision: str):
    net = make("x[3, 16]; n: y = MatMul(x, w); y[3, 2]", {"w": np.full((16, 2), np.nan, np.float32)})
    with pytest.raises(ModelError, match='"w" of node "n"'):
        ready(net, precision)


def test_an_old_opset_is_raised_and_values_keep_their_names(make, run):
    """The converter replaces Upsample by Resize and forgets both names; accuracy needs them."""
    net = make(
        "x[1, 1, 3, 16]; up: u = Upsample(x, sizes, mode='nearest'); n: y = MatMul(u, w); y[1, 1, 3, 4]",
        {"sizes": np.float32([1, 1, 1, 2]), "w": weight(32, 4)},
        opset=9,
    )
    done = ready(net, "fp4")
    assert (23, "up") == (done.model.opset, done.model.producers["u"].origin)
    assert 11 == done.model.proto().ir_version
    x = weight(1, 1, 3, 16)
    np.testing.assert_array_equal(x.repeat(2, axis=3), run(done.emulation, {"x": x}, ["u"])["u"])


@pytest.mark.parametrize("amax", [0.0, -1.0, 1e39, float("inf"), float("nan")])
def test_a_scale_that_float32_cannot_hold_is_refused(tiny_model: Model, amax: float):
    scales = {**given(tiny_model), "x": Scale(amax)}
    with pytest.raises(CalibrationError, match='value "x": its threshold'):
        prepare(tiny_model, Variant.of("int8", scales="c"), scales=scales)


def test_an_lstm_of_which_only_the_last_state_is_wanted_can_be_mixed(make):
    lstm = node("LSTM", ["p", "w", "r"], ["", "h"], name="lstm", hidden_size=4)
    shapes = {"m": (8, 6), "w": (1, 16, 6), "r": (1, 16, 4), "v": (4, 8)}
    weights = {n: weight(*s, seed=i) for i, (n, s) in enumerate(shapes.items())} | {"axis": np.array([0])}
    net = make(
        [
            "x[5, 2, 8]; product: p = MatMul(x, m)",
            lstm,
            "squeeze: s = Squeeze(h, axis); head: y = MatMul(s, v); y[2, 8]",
        ],
        weights,
    )
    study = Study(net)
    study.add("mixed", precision={"*": "fp16", "op:MatMul": "int8"}, target="cpu")
    done = study.calibration.prepare("mixed")
    assert {"product": "int8", "lstm": "fp16", "squeeze": "fp16", "head": "int8"} == {
        name: str(precision) for name, precision in done.precisions.items()
    }
    study.run()
    lstm = next(n for n in study["mixed"].prepared.model.nodes if n.op == "LSTM")
    assert ("", "fp16") == (lstm.outputs[0], study["mixed"].prepared.model.values[lstm.outputs[1]].dtype)
    assert study["mixed"].accuracy.worst(1)[0].sqnr > 20
    # As it was exported, nobody asks for precisions: the types of the source count.
    assert {} == ready(net, "fp32").precisions


@pytest.mark.parametrize("asked", [False, True], ids=["before", "after"])
def test_an_emulation_travels_to_another_process_as_it_is(chain: Model, asked: bool):
    found = ready(chain, {"*": "fp16", "block1/*": "int8"})
    expected = ready(chain, {"*": "fp16", "block1/*": "int8"}).emulation.bytes()
    if asked:
        _ = found.emulation
    arrived = pickle.loads(pickle.dumps(found))
    assert expected == arrived.emulation.bytes() == found.emulation.bytes()
    assert arrived.emulation is arrived.emulation


def test_a_transposed_convolution_has_no_fp8_kernel(make):
    """TensorRT-RTX compiles it to an FP32 kernel behind a dequantization, slower than before."""
    net = make("x[1, 4, 4, 4]; up: y = ConvTranspose(x, w); y[1, 4, 5, 5]", {"w": weight(4, 4, 2, 2)})
    done = ready(net, "fp8")
    assert done.model is net
    assert "1 node stays fp32: TensorRT-RTX has no FP8 kernel for ConvTranspose (up)" in done.notes


def test_what_a_compiler_computes_in_floating_point_only_gets_no_pairs(make):
    net = make(
        "x[1, 4, 4, 4]; up: u = ConvTranspose(x, w); conv: y = Conv(u, w); y", {"w": weight(4, 4, 2, 2)}
    )
    variant, scales = Variant.of("int8"), {v: Scale(4.0) for v in quantizable(net)}
    for maker, pairs in ((Maker("Some", float_ops=frozenset({"ConvTranspose"})), 1), (None, 2)):
        done = prepare(net, variant, scales=scales, maker=maker)
        assert sum(n.op == "QuantizeLinear" for n in done.model.top) == pairs
        note = "1 node stays fp32: Some has no INT8 kernel for ConvTranspose (up)"
        assert (note in done.notes) is (maker is not None)
        assert ("up" in done.precisions) is (maker is None)


def test_a_convolution_on_a_quantized_input_keeps_its_weight(make):
    """TensorRT-RTX 1.7 refuses the whole network for one INT4 convolution behind a DequantizeLinear."""
    net = make(
        "x[1, 4, 8, 8]; q: q = QuantizeLinear(x, s, z); d: d = DequantizeLinear(q, s, z); conv: y = Conv(d, w); y",
        {"s": np.array(0.1, np.float32), "z": np.array(0, np.int8), "w": weight(4, 4, 1, 1)},
    )
    assert any("compiles no INT4 Conv on a quantized input (conv)" in n for n in ready(net, "int4").notes)
