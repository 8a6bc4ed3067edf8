"""The placement check: each planted fault is found and nothing else, and its repair keeps its promise."""

from __future__ import annotations

import warnings

import numpy as np
import onnx
import pytest

import trt_nets
from qdq import FAULTS, Net, quantize_static, repair, two_convolutions, zero_point
from rtlab import samples
from rtlab.core.model import Model, load, wrap
from rtlab.quantize.findings import check
from sessions import opened

#: Faults that a session of ONNX Runtime can run; a scale that is none cannot be compared.
RUNS = [
    k
    for k in FAULTS
    if not k.startswith("scale ") or "(1,)" in k or k in {"scale per channel", "scales on input channels"}
]
FIXABLE = [
    k for k in FAULTS
    if k not in {"activation in FP32", "residual in FP32"} and ("scale " not in k or k in RUNS)
]  # fmt: skip


def run(model: Model, inputs: dict[str, np.ndarray]) -> list[np.ndarray]:
    """At level BASIC, which rounds as the graph says; EXTENDED fuses quantized kernels and rounds elsewhere."""
    return opened(model.bytes(), "ENABLE_BASIC").run(None, inputs)


def draw(model: Model) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(1)
    return {n: rng.standard_normal(model.input_shape(n)).astype(np.float32) * 2 for n in model.inputs}


def sqnr(reference: np.ndarray, other: np.ndarray) -> float:
    noise = float(((reference - other) ** 2).sum())
    return float("inf") if noise == 0 else float(10 * np.log10((reference**2).sum() / noise))


@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_gives_exactly_its_finding(fault: str) -> None:
    make, ids = FAULTS[fault]
    model = make()
    found = check(model)
    assert ids == tuple(f.id for f in found)
    for finding in found:
        assert finding.id.split(":")[0] == finding.rule
        assert set(finding.nodes) <= set(model.by_id)
        assert finding.nodes
        for sentence in (finding.title, finding.cost, finding.fix, finding.evidence):
            assert sentence.endswith(".")
            assert sentence[0].isupper() or sentence[0] == '"'


@pytest.mark.parametrize("fault", FAULTS)
def test_a_repaired_model_is_valid_and_has_nothing_left_to_repair(fault: str) -> None:
    model = FAULTS[fault][0]()
    before = model.bytes()
    mended = repair(model)
    onnx.checker.check_model(mended.proto(), full_check=True)
    assert [] == [f.id for f in check(mended) if f.fixable]
    assert [] == [f.id for f in check(mended) if f.id not in FAULTS[fault][1]]
    assert before == model.bytes()
    assert mended.bytes() == repair(mended).bytes()
    assert (model.inputs, model.outputs) == (mended.inputs, mended.outputs)
    ours = {n.id for n in model.nodes if n.op not in {"QuantizeLinear", "DequantizeLinear"}}
    assert ours <= {n.id for n in mended.nodes}
    assert {n.origin for n in mended.nodes if n.id not in model.by_id} <= set(model.by_id)


@pytest.mark.parametrize("fault", [k for k in FIXABLE if k in RUNS])
def test_a_fix_changes_the_numbers_no_more_than_it_says(fault: str) -> None:
    model = FAULTS[fault][0]()
    (finding,) = check(model)
    inputs = draw(model)
    for before, after in zip(run(model, inputs), run(repair(model), inputs), strict=True):
        if finding.exact:
            np.testing.assert_allclose(after, before, rtol=1e-5, atol=1e-5)
        else:
            assert sqnr(before, after) > 15


def test_one_finding_can_be_repaired_and_the_others_left() -> None:
    n = Net()
    v = n.op("Relu", [n.pair(n.conv(n.pair("x", "p0"), "c0"), "wrong")], "r0")
    v = n.conv(n.pair(v, "p1"), "c1", quantized=False)
    model = n.model(n.pair(v, "out"))
    found = check(model)
    assert {"before-activation:wrong_q", "weight-missing:c1", "output:out_q"} == {f.id for f in found}
    chosen = next(f for f in found if f.rule == "weight-missing")
    for given in (chosen, chosen.id):
        mended = repair(model, [given])
        assert {"before-activation:wrong_q", "output:out_q"} == {f.id for f in check(mended)}
    assert found == check(model)
    assert repair(model, []) is model


def test_a_relu_that_lived_in_an_unsigned_pair_comes_back_as_a_node() -> None:
    """ONNX Runtime drops a Relu whose pair cuts below zero; symmetric INT8 would let the negatives through."""
    model = zero_point(0, np.uint8)
    mended = repair(model)
    relu = next(n for n in mended.nodes if n.op == "Relu")
    assert "p0_q" == relu.origin
    inputs = draw(model)
    assert sqnr(run(model, inputs)[0], run(mended, inputs)[0]) > 30
    n = Net()
    v = n.pair(n.conv(n.pair("x", "p0"), "c0"), "wrong", zero=-128)
    model = n.model(n.op("Relu", [v], "r0"))
    mended = repair(model, [f for f in check(model) if f.rule == "before-activation"])
    assert "wrong_q/Relu" in mended.by_id


def test_weights_are_quantized_per_channel_within_half_a_step() -> None:
    for fault in ("weight in FP32", "transposed weight in FP32"):
        model = FAULTS[fault][0]()
        (node,) = check(model)[0].nodes[:1]
        mended = repair(model)
        dq = next(n for n in mended.nodes if n.origin == node and n.op == "DequantizeLinear")
        assert 0 == dq.attributes["axis"]
        values, scale, zero = (t.numpy() for t in mended.constants(dq.id).values())
        every = [t for i in model.by_id for t in model.constants(i).values()]
        weight = next(t.numpy() for t in every if t.name == f"{node}_w")
        spread = scale.reshape([-1, *[1] * (weight.ndim - 1)])
        assert (weight.shape[0],) == scale.shape == zero.shape
        assert (np.dtype(np.int8), 0) == (zero.dtype, np.abs(zero).max())
        assert np.abs(values * spread - weight).max() <= spread.max() / 2 * 1.0001


def test_scales_that_meet_share_the_largest() -> None:
    for fault in ("concat of two scales", "concat of two scales, pair behind"):
        mended = repair(FAULTS[fault][0]())
        pairs = [n.id for n in mended.nodes if n.op == "QuantizeLinear" and n.id != "p0_q"]
        held = [t.numpy() for p in pairs for t in mended.constants(p).values()]
        scales = [round(float(a), 6) for a in held if a.dtype == np.float32]
        assert {0.07} == {*scales} or not scales


def test_the_output_keeps_its_name_when_its_pair_goes() -> None:
    model = FAULTS["on the output"][0]()
    assert ("wrong_dq_out",) == repair(model).outputs
    assert [] == [n.id for n in repair(model).nodes if n.id.startswith("wrong")]
    n = Net()
    through = n.model(n.pair("x", "p0"))
    mended = repair(through)
    assert (("x",), ("p0_dq_out",)) == (mended.inputs, mended.outputs)
    assert ["Identity"] == [m.op for m in mended.nodes]
    assert draw(mended)["x"].tolist() == run(mended, draw(mended))[0].tolist()


@pytest.mark.slow
def test_onnx_runtimes_own_output_is_repaired_to_what_tensorrt_takes(tmp_path) -> None:
    sample = samples.load("digits_inception")
    for name, options in {"default": {}, "channel": {"per_channel": True}}.items():
        folder = tmp_path / name
        folder.mkdir()
        model = quantize_static(sample, folder, **options)
        found = check(model)
        assert {"zero-point", "parameter", "before-activation", "output"} <= {f.rule for f in found}
        assert all(f.fixable for f in found)
        mended = repair(model)
        assert () == check(mended)
        data = sample.task.data.arrays["image"]
        before, after = (sample.task.score(run(m, {"image": data})[0]) for m in (model, mended))
        assert after >= before - 0.5


def test_a_body_that_reads_a_pair_keeps_it() -> None:
    n = Net()
    v = n.pair("x", "p0")
    relu = onnx.helper.make_node("Relu", [v], ["inner"], name="in_body")
    end = onnx.helper.make_tensor_value_info("inner", onnx.TensorProto.FLOAT, [1, 16, 8, 8])
    body = onnx.helper.make_graph([relu], "body", [], [end])
    out = n.op("If", [n.constant("yes", True, np.bool_)], "if0", then_branch=body, else_branch=body)
    model = n.model(out)
    assert () == check(model)
    assert "p0_dq" in repair(model).by_id


@pytest.mark.parametrize(("opset", "fixable"), [(17, True), (10, False)])
def test_a_weight_can_be_quantized_where_its_channels_can(opset, fixable) -> None:
    n = Net(opset=opset)
    weight = n.weight("c0", (16, 16, 3, 3), quantized=False)
    (finding,) = check(n.model(n.op("Conv", [n.pair("x", "p0"), weight], "c0", pads=[1] * 4)))
    assert ("weight-missing", fixable) == (finding.rule, finding.fixable)


def test_a_scale_and_a_zero_point_of_one_element_both_become_scalars() -> None:
    """TensorRT takes a zero point of the shape of its scale."""
    n = Net()
    s, z = n.constant("s1", [0.05]), n.constant("z1", [0], np.int8)
    q = n.op("QuantizeLinear", ["x", s, z], "q", axis=0)
    model = n.model(n.conv(n.op("DequantizeLinear", [q, s, z], "dq", axis=0), "c0"))
    assert {"scale-shape"} == {f.rule for f in check(model)}
    mended = repair(model)
    pair = [m for m in mended.ir.graph if m.name in {"q", "dq"}]
    assert [((), ()), ((), ())] == [tuple(tuple(v.const_value.shape) for v in m.inputs[1:]) for m in pair]
    assert () == check(mended)


def test_odd_quantization_is_reported_or_left_and_never_raises() -> None:
    n = Net(opset=10)
    v = n.op("Conv", [n.pair("x", "p0"), n.weight("c0", (16, 16, 3, 3), axis=None)], "c0", pads=[1] * 4)
    assert () == check(n.model(v))

    n = Net()
    z = n.constant("z", 0, np.int8)
    q = n.op("QuantizeLinear", ["x", n.constant("s", 0.05), z], "q")
    uneven = n.model(n.conv(n.op("DequantizeLinear", [q, n.constant("t", 0.1), z], "dq"), "c0"))
    assert () == check(uneven)
    assert [m.id for m in uneven.nodes] == [m.id for m in repair(uneven).nodes]

    n = Net()
    q = n.op("QuantizeLinear", ["x", n.constant("s", 0.05), n.constant("z", 0, np.int8)], "q")
    q = n.op("MaxPool", [q], "mp", kernel_shape=[2, 2], strides=[2, 2])
    assert () == check(n.model(n.conv(n.op("DequantizeLinear", [q, "s", "z"], "dq"), "c0")))

    n = Net()
    n.op("QuantizeLinear", ["x", n.constant("s", 0.05), n.constant("z", 0, np.int8)], "alone")
    assert () == check(n.model(n.conv("x", "c0", quantized=False)))

    n = Net()
    s = n.op("Abs", [n.constant("s", 0.05)], "abs")
    q = n.op("QuantizeLinear", ["x", s, n.constant("z", 0, np.int8)], "q")
    assert () == check(n.model(n.conv(n.op("DequantizeLinear", [q, s, "z"], "dq"), "c0")))


def test_a_missing_scale_is_no_reason_to_fall_over() -> None:
    """The checker passes an empty input name in places, and so must this."""
    proto = two_convolutions().proto()
    node = next(n for n in proto.graph.node if n.name == "p1_dq")
    node.input[1] = ""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = wrap(proto, name="broken")
    assert isinstance(check(model), tuple)
    repair(model)


def test_blocked_int4_weights_alone_are_no_fault() -> None:
    n = Net(opset=21)
    n.shape = [1, 8, 16]
    packed = onnx.helper.make_tensor("w", onnx.TensorProto.INT4, [16, 32], bytes(256), raw=True)
    n.weights.append(packed)
    w = n.op("DequantizeLinear", ["w", n.constant("s", np.full((2, 32), 0.1))], "wdq", axis=0, block_size=8)
    model = n.model(n.op("MatMul", ["x", w], "m0"))
    assert () == check(model)


#: The Relu that stands in for the UINT8 clamp ends the run of INT8 operators, so that the pool's pair only rounds.
UINT8_AFTER_A_POOL = """
<ir_version: 9, opset_import: ["": 17]>
g (float[8,3,4,4] x) => (float[8,2] y)
<float s = {0.1}, int8 i = {0}, uint8 u = {0}, float[2,3,1,1] w = {1,1,1,1,1,1}, float b = {1},
 float[2,2] v = {1,1,1,1}>
{
 xq = QuantizeLinear(x, s, i)
 xd = DequantizeLinear(xq, s, i)
 wq = QuantizeLinear(w, s, i)
 wd = DequantizeLinear(wq, s, i)
 c = Conv(xd, wd)
 a = Add(c, b)
 aq = QuantizeLinear(a, s, i)
 ad = DequantizeLinear(aq, s, i)
 p = GlobalAveragePool(ad)
 pq = QuantizeLinear(p, s, u)
 pd = DequantizeLinear(pq, s, u)
 f = Flatten(pd)
 fq = QuantizeLinear(f, s, i)
 fd = DequantizeLinear(fq, s, i)
 vq = QuantizeLinear(v, s, i)
 vd = DequantizeLinear(vq, s, i)
 y = MatMul(fd, vd)
}
"""


def test_a_pair_that_another_repair_makes_useless_goes_too() -> None:
    model = wrap(onnx.parser.parse_model(UINT8_AFTER_A_POOL), name="pool")
    assert ["zero-point:#9"] == [f.id for f in check(model)]
    repaired = repair(model)
    assert () == check(repaired)
    (pool,) = (n for n in repaired.top if n.op == "GlobalAveragePool")
    assert "Add" == next(n.op for n in repaired.top if pool.inputs[0] in n.outputs)


@pytest.mark.parametrize("name", trt_nets.NETS)
def test_what_tensorrt_s_own_operators_quantize_is_no_fault(name: str) -> None:
    """They compute scales as they run, which of ONNX's own pairs is one."""
    assert () == check(load(trt_nets.NETS[name]()[0]))
