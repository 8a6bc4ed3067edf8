"""What a model itself has quantized, told apart from the model: bits, thresholds, and places that others know, too."""

from __future__ import annotations

import functools
import math

import numpy as np
import pytest
from onnxruntime.quantization import QuantType

import rtlab
from net_text import written
from qdq import quantize_static
from rtlab.backends.reference import get_evaluator
from rtlab.core.model import Model, wrap
from rtlab.core.variant import Precision
from rtlab.quantize import existing_qdq
from rtlab.quantize.quantizer_toggles import INPUT, build_switched_model
from tests.planted_faults import quantized


def _run(model: Model, feed: dict[str, np.ndarray]) -> np.ndarray:
    with get_evaluator().reading(model, tuple(model.outputs)) as run:
        return np.asarray(run(feed)[model.outputs[0]])


@functools.cache
def _outlier() -> tuple[rtlab.samples.Sample, Model]:
    """A trained network, and the same as a stranger's file has it: in INT8, by minmax."""
    sample = rtlab.samples.load("digits_outlier")
    proto, _ = quantized(sample.model, sample.calibration)
    return sample, wrap(proto, name="stranger")


def _study(model: Model, sample: rtlab.samples.Sample, task: rtlab.Task | None = None) -> rtlab.Study:
    """With the model as it is, run."""
    study = rtlab.Study(model, data=sample.calibration, task=task or sample.task)
    study.add("theirs", precision="int8", backend="onnxruntime")
    study.run(budget_s=math.inf)
    return study


@pytest.fixture(scope="module", params=["UINT8", "INT8 by channel", "UINT16"])
def exported(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Model:
    """As ONNX Runtime's quantizer writes it: a Relu left to the pair behind it, stored weights and biases."""
    kind, _, by_channel = request.param.partition(" ")
    types = {"UINT8": QuantType.QUInt8, "INT8": QuantType.QInt8, "UINT16": QuantType.QUInt16}
    sample = rtlab.samples.load("digits_inception")
    how = {"activation_type": types[kind], "weight_type": QuantType.QInt8, "per_channel": bool(by_channel)}
    return quantize_static(sample, tmp_path_factory.mktemp("exported"), **how)


@pytest.mark.parametrize("name", ["digits_qat", "digits_qat_misplaced"])
def test_switches_give_the_model_and_the_model_without_pairs(name: str) -> None:
    _switches(rtlab.samples.load(name).model)


def _switches(model: Model) -> None:
    source, emulation = existing_qdq.separate_existing_qdq(model, model)
    made = build_switched_model(source, emulation)
    assert len(made.quantizers) >= 20
    rng = np.random.default_rng(0)
    shape = [1 if not isinstance(d, int) else d for d in model.input_shape(model.inputs[0])]
    feed = {model.inputs[0]: rng.uniform(0, 16, (8, *shape[1:])).astype(np.float32)}
    every = np.ones(len(made.quantizers), bool)
    assert np.array_equal(_run(made.model, {**feed, INPUT: every}), _run(model, feed))
    off, bare = _run(made.model, {**feed, INPUT: ~every}), _run(source, feed)
    # What ONNX Runtime fuses in one of the graphs alone adds in another order.
    assert np.abs(off - bare).max() <= 1e-5 * np.abs(bare).max()


def test_a_relu_that_was_left_to_a_pair_is_there_without_the_pair(exported: Model) -> None:
    sample = rtlab.samples.load("digits_inception")
    source, _ = existing_qdq.separate_existing_qdq(exported, exported)
    feed = {sample.model.inputs[0]: sample.task.data.arrays[sample.model.inputs[0]][:64]}
    exact, bare, rounded = (_run(m, feed) for m in (sample.model, source, exported))
    assert not [n for n in source.top if n.op == "QuantizeLinear"]
    assert np.isfinite(rounded).all()
    # Weights stay as they were stored; without the Relus it would be another network.
    assert np.linalg.norm(bare - exact) < 0.1 * np.linalg.norm(exact)


@pytest.mark.slow
@pytest.mark.parametrize("exported", ["INT8 by channel"], indirect=True)
def test_an_exported_model_is_compared_explained_and_repaired(exported: Model) -> None:
    sample = rtlab.samples.load("digits_inception")
    study = _study(exported, sample)
    compared = study["theirs"].accuracy
    assert compared is not None
    concats = {o for n in sample.model.top if n.op == "Concat" for o in n.outputs}
    assert {v.value for v in compared.values} >= concats
    told = study.accuracy.diagnose("theirs")
    pairs = [n.id for n in exported.top if n.op == "QuantizeLinear"]
    assert {"before-activation"} <= {f.rule for f in told.findings}
    assert all(set(f.nodes) & {*pairs} for f in told.findings if f.rule == "before-activation")
    # Asked for more than it can be, so that all that costs nothing is tried: pairs put right, then scales anew.
    repair = study.accuracy.repair("theirs", budget_s=math.inf, max_drop=-2, runs=3)
    assert repair.runs == 3
    assert any("of Q/DQ put" in p.what for p in repair.points)
    assert any("Quantized anew" in p.what for p in repair.points)


def test_pairs_tell_where_they_cut_off() -> None:
    """By hand: INT8 of scale 0.5 cuts off at 63.5, UINT8 of that scale and zero point 128 at 64, of 0 at 127.5."""
    for zero, amax in ((np.int8(0), 63.5), (np.uint8(128), 64.0), (np.uint8(0), 127.5)):
        model = written(
            "x[N, 4]; Q: q = QuantizeLinear(x, s, z); DQ: d = DequantizeLinear(q, s, z); product: y = MatMul(d, w); y",
            s=np.float32(0.5),
            z=zero,
            w=np.ones((4, 3), np.float32),
        )
        (found,) = existing_qdq.ExistingQuantization.of(model).pairs.items()
        assert found == (
            "product/input0",
            existing_qdq.ExistingPair("Q", Precision.INT8, amax, channels=False),
        )


@pytest.mark.slow
def test_scales_found_anew_are_those_of_the_model_before_it_was_quantized() -> None:
    sample, stranger = _outlier()
    choice = {"precision": "int8", "calibrator": "percentile(99.9)"}
    before = rtlab.Study(sample.model, data=sample.calibration).calibration.prepare("x", **choice)
    study = rtlab.Study(stranger, data=sample.calibration)
    release = [f"release {n}" for n in existing_qdq.find_quantized_nodes(stranger)]
    anew = study.calibration.prepare("x", **choice, rewrites=release)
    was, now = ({v: s.amax for v, s in p.scales.items()} for p in (before, anew))
    assert was == pytest.approx(now, rel=0.05)


@pytest.mark.slow
def test_a_strangers_quantized_model_is_explained_and_repaired() -> None:
    """digits_outlier by minmax loses 27 points; its depthwise convolutions do, and another scale is the cure."""
    sample, stranger = _outlier()
    study = _study(stranger, sample)
    right = _run(stranger, dict(sample.task.data.arrays)).argmax(axis=1) == sample.task.labels
    assert study["theirs"].score.value == pytest.approx(100 * right.mean())
    told = study.accuracy.diagnose("theirs")
    assert {"outlier-channels"} == {f.rule for f in told.findings}
    assert {f"/blocks/{i}/depthwise/Conv" for i in range(1, 6)} == {f.nodes[0] for f in told.findings}
    repair = study.accuracy.repair("theirs", budget_s=math.inf)
    assert repair.enough
    assert not repair.kept_high
    assert repair.runs <= 12
    study.run(budget_s=math.inf)
    assert study["theirs repaired"].score.value > 97
    # The reference of what it lost is the network before, which nobody gave.
    (bare,) = study.vary("theirs", "pairs")
    study.run(budget_s=math.inf)
    plain = _run(sample.model, dict(sample.task.data.arrays)).argmax(axis=1) == sample.task.labels
    assert study[bare].score.value == pytest.approx(100 * plain.mean(), abs=0.5)


@pytest.mark.slow
def test_a_misplaced_pair_is_put_right_as_a_choice() -> None:
    sample = rtlab.samples.load("digits_qat_misplaced")
    study = _study(sample.model, sample)
    told = study.accuracy.diagnose("theirs")
    places = {f.nodes[0] for f in told.findings} | {f.nodes[1] for f in told.findings}
    # The sample's script puts a pair in front of each Relu, and one on the output.
    assert {"logits_QuantizeLinear", "/stem/Conv_output_0_QuantizeLinear"} <= places
    name = study.calibration.transform("theirs")
    (mended,) = study.state.variants[name].rewrites
    assert mended.kind == "mend"
    made = study.calibration.prepare(name)
    assert mended.node not in {n.id for n in made.model.top if n.op == "QuantizeLinear"} or not [
        f for f in rtlab.Study(made.model, data=sample.calibration).findings() if f.nodes[0] == mended.node
    ]


@pytest.mark.slow
def test_labels_of_a_quantized_model_are_those_without_its_pairs() -> None:
    sample, stranger = _outlier()
    study = _study(stranger, sample, rtlab.Task(sample.task.data))
    feed = dict(sample.task.data.arrays)
    source, _ = existing_qdq.separate_existing_qdq(stranger, stranger)
    agree = _run(stranger, feed).argmax(axis=1) == _run(source, feed).argmax(axis=1)
    assert study["theirs"].score.value == pytest.approx(100 * agree.mean())
    assert study["theirs"].score.value < 80


def test_own_errors_of_a_quantized_model_are_those_of_its_pairs() -> None:
    sample, stranger = _outlier()
    study = rtlab.Study(stranger, data=sample.calibration, task=sample.task)
    study.add("theirs", backend="onnxruntime")
    study.run(budget_s=math.inf)
    found = study["theirs"].accuracy
    feed = {k: v[:32] for k, v in sample.task.data.arrays.items()}
    exact, rounded = (
        _run(m, feed).astype(np.float64)
        for m in (existing_qdq.separate_existing_qdq(stranger, stranger)[0], stranger)
    )
    delta = next(d for d in found.values if d.value == stranger.outputs[0])
    decibel = 10 * np.log10((exact**2).sum() / ((exact - rounded) ** 2).sum())
    assert delta.sqnr == pytest.approx(decibel, abs=1e-3)


def test_switches_of_an_exported_model_give_both(exported: Model) -> None:
    _switches(exported)
