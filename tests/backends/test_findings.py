"""What each misplaced or missing pair costs, by building the fault and its repair with TensorRT-RTX.

The sentences of ``Finding.cost`` rest on these builds: where one fails with another version, the sentence is wrong.
"""

from __future__ import annotations

import dataclasses

import pytest

import rtlab
from one_precision import int8
from qdq import FAULTS, Net, quantize_static, repair, two_convolutions
from rtlab import backends, quantize, samples
from rtlab.analyses.calibration.pairs import trace_pairs
from rtlab.core.engine import Engine
from rtlab.core.model import Model
from rtlab.core.progress import Silent
from rtlab.core.protocols import BuildRequest, Limits
from rtlab.core.scale import Scale
from rtlab.core.variant import Variant
from rtlab.errors import BuildError
from rtlab.quantize.findings import check
from rtlab.relation.relate import relate

here = backends.get("tensorrt-rtx").availability()
pytestmark = pytest.mark.skipif(not here.ok, reason=here.reason)

_PRODUCTS = {"correlation", "gemm", "runtime_fusion"}


@pytest.mark.slow
@pytest.mark.parametrize("own", [True, False])
def test_a_transposed_convolution_is_computed_in_fp32_and_no_finding_asks_for_its_pairs(own: bool) -> None:
    net = Net()
    weight = net.constant("w", net.rng.standard_normal((16, 16, 2, 2)))
    value, kernel = net.conv(net.pair("x", "p0"), "c0"), weight
    if own:
        value, kernel = net.pair(value, "p1"), net.pair(weight, "pw")
    value = net.op("ConvTranspose", [value, kernel], "up", strides=[2, 2])
    study = rtlab.Study(net.model(net.conv(net.pair(value, "p2"), "c1")))
    study.add("plain", target="sm86", backend="tensorrt-rtx")
    study.run(budget_s=0)
    (layer,) = (y for y in study["plain"].engine.layers if y.kind == "deconv")
    assert layer.precision == "fp32"
    (wide,) = (f for f in study.findings("plain") if "up" in f.nodes)
    assert "TensorRT-RTX computes ConvTranspose in floating point" in wide.fix
    assert not any("Put " in f.fix for f in study.findings("plain") if {"up", "p2_q"} & {*f.nodes})


def build(model: Model) -> Engine:
    request = BuildRequest(model, Variant.of("fp32", target="sm86"), Limits())
    return backends.get("tensorrt-rtx").build(request, Silent())


@dataclasses.dataclass(frozen=True)
class Steps:
    """How many steps, how many products in INT8 and in FP32, and how many constants all steps read."""

    all: int
    int8: int
    fp32: int
    constants: int


def steps(model: Model) -> Steps:
    layers = build(model).layers
    products = [layer for layer in layers if layer.kind in _PRODUCTS]
    # An INT8 kernel reads both factors in INT8; a product that dequantizes inside still multiplies in FP32.
    int8 = sum(
        layer.kind != "runtime_fusion" and any(t.dtype == "int8" for t in layer.inputs) for layer in products
    )
    return Steps(len(layers), int8, len(products) - int8, sum(len(layer.constants) for layer in layers))


#: What the fault has and the repaired model has not: (steps, INT8 products, FP32 products).
COSTS = {
    "pair before Relu, none behind": (1, -1, 1),
    "weight in FP32": (0, -1, 1),
    "transposed weight in FP32": (-1, -1, 1),
    "activation in FP32, scale known": (1, -1, 1),
    "activation in FP32 behind MaxPool": (1, -1, 1),
    "one factor in FP32": (0, -1, 1),
    "concat of two scales": (1, -1, 1),
    "scale of shape (1,)": (1, -1, 1),
    "scale per channel": (1, -1, 1),
    "one column": (2, 1, 0),
}
#: As many steps of the same kinds, but more arithmetic: the scales that the extra quantization reads.
ROUNDINGS = (
    "pair before Relu", "pair before BatchNormalization", "pair before Add", "concat of two scales, pair behind",
    "before LayerNormalization", "before Softmax",
    "between Add and Relu", "on the output", "INT8 BatchNormalization",
)  # fmt: skip
#: No difference at all, which their sentences say.
FREE = ("pair per reader", "chain", "chain through a view", "before Shape", "residual in FP32, scale known")
REFUSED = (
    "INT32 bias", "UINT8 around 128", "INT8 with zero point", "UINT8 weight", "UINT8 weight off centre",
    "INT8 weight with zero point",
)  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("fault", COSTS)
def test_the_fault_costs_steps_or_an_int8_kernel(fault: str) -> None:
    model = FAULTS[fault][0]()
    broken, mended = steps(model), steps(repair(model))
    assert COSTS[fault] == (broken.all - mended.all, broken.int8 - mended.int8, broken.fp32 - mended.fp32)
    (finding,) = check(model)
    assert "FP32" in finding.cost


@pytest.mark.slow
@pytest.mark.parametrize("fault", ROUNDINGS)
def test_the_fault_costs_arithmetic_inside_a_step(fault: str) -> None:
    model = FAULTS[fault][0]()
    broken, mended = steps(model), steps(repair(model))
    assert (mended.all, mended.int8, mended.fp32) == (broken.all, broken.int8, broken.fp32)
    assert broken.constants > mended.constants


@pytest.mark.slow
@pytest.mark.parametrize("fault", FREE)
def test_where_the_compiler_shows_no_difference_the_finding_says_so(fault: str) -> None:
    model = FAULTS[fault][0]()
    broken, mended = steps(model), steps(repair(model))
    assert (mended.all, mended.int8, mended.fp32) == (broken.all, broken.int8, broken.fp32)
    cost = check(model)[0].cost
    assert any(
        words in cost
        for words in ("showed no difference", "as many layers", "in a layer that is there anyway")
    )


@pytest.mark.slow
@pytest.mark.parametrize("fault", REFUSED)
def test_the_fault_keeps_the_model_from_building_and_its_repair_builds(fault: str) -> None:
    model = FAULTS[fault][0]()
    assert "does not build" in check(model)[0].cost
    with pytest.raises(BuildError, match="its parser refuses 1 node"):
        build(model)
    assert 1 == steps(repair(model)).int8


@pytest.mark.slow
def test_an_infinite_scale_and_a_uint8_activation_build_without_a_word() -> None:
    """The two faults that no build tells of: here the check is all there is."""
    for fault in ("scale infinite", "UINT8 from 0"):
        model = FAULTS[fault][0]()
        assert 1 == steps(model).int8
        assert "without a word" in check(model)[0].cost


@pytest.mark.slow
def test_a_residual_in_fp32_is_read_as_int8_once_repaired() -> None:
    """Four bytes per number or one: that is the cost which the sentence names."""
    model = FAULTS["residual in FP32, scale known"][0]()

    def read(m: Model) -> set[str]:
        engine = build(m)
        return {t.dtype for layer in engine.layers if "add" in layer.origins for t in layer.inputs}

    assert ({"fp32"}, {"fp32", "int8"}) == (read(model), read(repair(model)))


@pytest.mark.slow
@pytest.mark.parametrize("residual", [False, True])
def test_a_pair_before_an_activation_loses_a_fusion_where_the_weight_has_one_scale(residual: bool) -> None:
    """The claim that gives the rule its name: without the pair the activation joins the INT8 kernel."""

    def kernel(wrong: bool) -> tuple[str, ...]:
        n = Net()
        skip = n.pair("x", "p0")
        v = n.op("Conv", [skip, n.weight("c0", (16, 16, 3, 3), axis=None)], "c0", pads=[1] * 4)
        v = n.pair(v, "wrong") if wrong else v
        v = n.op("Relu", [n.op("Add", [v, skip], "add") if residual else v], "r0")
        model = n.model(n.conv(n.pair(v, "p1"), "c1"))
        assert (("before-activation:wrong_q",) if wrong else ()) == tuple(f.id for f in check(model))
        engine = build(model)
        return next(x.origins for x in engine.layers if "c0" in x.origins and x.kind == "correlation")

    joined = {"r0", "add"} if residual else {"r0"}
    assert joined & set(kernel(wrong=True)) == set()
    assert joined <= set(kernel(wrong=False))


@pytest.mark.slow
@pytest.mark.parametrize("channel", [False, True])
def test_onnx_runtimes_output_builds_once_repaired_with_more_fused(channel: bool, tmp_path) -> None:
    """As it comes, TensorRT refuses it; beside a repair of only that, the whole repair saves arithmetic.

    With one scale per weight the residual sum joins its convolution's kernel, for which the other branch is
    dequantized in a step of its own.
    """
    model = quantize_static(samples.load("digits_inception"), tmp_path, per_channel=channel)
    with pytest.raises(BuildError, match="its parser refuses"):
        build(model)
    barely = model
    while blocking := [f for f in check(barely) if "does not build" in f.cost]:
        barely = repair(barely, blocking)
    mended = repair(model)
    before, after = steps(barely), steps(mended)
    assert (13, 0) == (after.int8, after.fp32)
    assert (after.int8, after.fp32) == (before.int8, before.fp32)
    assert after.all <= before.all + (not channel)
    assert after.constants < before.constants

    def joined(m: Model) -> bool:
        return any(x.kind == "correlation" and "/residual/Add" in x.origins for x in build(m).layers)

    assert (False, not channel) == (joined(barely), joined(mended))


@pytest.mark.slow
@pytest.mark.parametrize("channel", [False, True])
def test_operators_on_integers_are_refused_with_their_repair_and_build_once_repaired(
    channel, tmp_path
) -> None:
    sample = samples.load("digits_inception")
    model = quantize_static(sample, tmp_path, form="QOperator", per_channel=channel)
    study = rtlab.Study(model)
    study.add("as it is", precision="fp32", target="sm86", backend="tensorrt-rtx")
    with pytest.raises(
        BuildError, match=r"study\.calibration\.fix_qdq\(\) writes the quantization in another form\."
    ):
        study.run(budget_s=0)
    mended = repair(model)
    assert sum(n.op == "Conv" for n in mended.nodes) <= steps(mended).int8


@pytest.mark.slow
def test_pairs_tell_what_the_compiler_absorbed() -> None:

    def verdicts(model: Model) -> dict[str, str]:
        engine = build(model)
        found = trace_pairs(model, relate(model, model, engine), engine)
        assert {layer for p in found for layer in p.layers} <= {layer.id for layer in engine.layers}
        return {p.q or p.dq: p.verdict for p in found}

    good = {"p0_q": "own layer", "c0_wdq": "absorbed", "p1_q": "absorbed", "c1_wdq": "absorbed"}
    assert good == verdicts(two_convolutions())
    assert {**good, "wrong_q": "round trip"} == verdicts(FAULTS["pair before Relu"][0]())
    assert "own layer" == verdicts(FAULTS["activation in FP32"][0]())["c0_wdq"]
    assert "own layer" == verdicts(FAULTS["weight in FP32"][0]())["p1_q"]
    twins = verdicts(FAULTS["pair per reader"][0]())
    assert twins["p0_q"] == twins["p1_q"]


def test_what_rtlab_quantizes_itself_is_absorbed() -> None:
    """The same question to our own placement: only the input's pair has a step of its own, or one that must."""
    sample = samples.load("digits_inception")
    scales = {v: Scale(4.0) for v in quantize.quantizable(sample.model)}
    model = int8(sample.model, scales)
    engine = build(model)
    found = trace_pairs(model, relate(model, model, engine), engine)
    assert {"absorbed"} == {p.verdict for p in found if p.weight}
    idle = [p.dq for p in found if p.verdict in {"unknown", "round trip"}]
    # TensorRT-RTX 1.7 averages in FP32, so a pool's pair only rounds there.
    assert {"GlobalAveragePool"} >= {n.op for i in idle for n in model.consumers[model.by_id[i].outputs[0]]}


@pytest.mark.parametrize("fault", ["scale 0", "scale NaN", "scale below 0"])
def test_a_scale_that_is_none_is_refused(fault: str) -> None:
    """The finding names the tensor before the parser names a node."""
    with pytest.raises(BuildError, match="Scale coefficients must all be positive"):
        build(FAULTS[fault][0]())
