"""What answers about accuracy say, told by somebody else: definitions on values of runs, SciPy, one value rounded."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import onnx
import pytest
from scipy import special, stats

import published
import rtlab
import scenes
from answers import values
from rtlab.backends.reference import get_evaluator
from rtlab.core.budget import WorkContext
from rtlab.core.variant import Calibrator, Precision
from rtlab.experiments.experiment import run_experiment
from rtlab.experiments.sensitivity import SensitivitySearch
from rtlab.quantize.thresholds import ThresholdSearch

#: Decibels by which sums in another order, and numbers that lie between two steps of a grid, may differ.
NEAR = 0.3


def sqnr(x: np.ndarray, y: np.ndarray) -> float:
    x, y = x.astype(np.float64), y.astype(np.float64)
    noise = ((x - y) ** 2).sum()
    return 10 * math.log10((x**2).sum() / noise) if noise else math.inf


@scenes.of(("digits_outlier", "sentences", "two_outputs"))
@pytest.mark.parametrize("precision", ["int8", "fp16"])
def test_errors_are_those_of_the_values(subject: str, precision: str) -> None:
    study = scenes.study(subject)
    result = study[precision]
    data = (study.task.data if study.task else study.data).take(result.accuracy.samples)
    batches = list(data.batches(study.model))
    found = {d.value: d for d in result.accuracy.values}
    right, got = (values(m, found, batches) for m in (study.model, result.prepared.emulation))
    for value, error in found.items():
        x, y = right[value], got[value]
        assert x.size == error.elements, value
        # Beyond that the rounding of FP32 itself is what is compared.
        assert sqnr(x, y) == pytest.approx(error.sqnr, abs=NEAR) or min(sqnr(x, y), error.sqnr) > 100, value
        difference = np.abs(x.astype(np.float64) - y.astype(np.float64))
        assert difference.max() == pytest.approx(error.max_abs, rel=0.25, abs=1e-4), value


@scenes.of(("digits_outlier", "sentences"))
def test_a_score_and_what_flipped_are_those_of_the_outputs(subject: str) -> None:
    """Hits are counted of the arrays, and SciPy tells Wilson's interval and the test of a drop."""
    study = scenes.study(subject)
    score = study.ask("score", variant="int8", baseline="fp32").result
    batch = [dict(study.task.data.arrays)]
    hits = []
    for name in ("fp32", "int8"):
        model = study[name].prepared.emulation
        (logits,) = values(model, model.outputs[:1], batch).values()
        hits.append(logits.argmax(axis=1) == study.task.labels)
    before, after = hits
    interval = stats.binomtest(int(after.sum()), len(after)).proportion_ci(0.95, method="wilson")
    assert (100 * interval.low, 100 * interval.high) == pytest.approx(
        (score.interval.low, score.interval.high), abs=1e-3
    )
    assert 100 * (after.mean() - before.mean()) == pytest.approx(score.difference)
    for flip, which in (("lost", before & ~after), ("won", after & ~before)):
        assert np.flatnonzero(which).tolist() == [f.sample for f in score.flipped if f.flip == flip]


@scenes.of(("digits_outlier", "digits_gru", "sentences"))
def test_thresholds_are_those_of_the_values(subject: str) -> None:
    """A scale that is wrong by a factor of two costs an INT8 model a bit everywhere."""
    study = scenes.study(subject)
    quantized = study["int8"].prepared.scales
    ranges = study.calibration.observe().ranges
    batches = list(study.data.batches(study.model))
    made = values(study.model, [v for v in quantized if v not in study.model.inputs], batches)
    made |= {v: np.concatenate([b[v] for b in batches]) for v in quantized if v in study.model.inputs}
    for position, (value, scale) in enumerate(quantized.items()):
        right = np.abs(made[value].astype(np.float64)).ravel()
        search = ThresholdSearch(ranges.values[value], Precision.INT8)
        assert right.max() == pytest.approx(scale.amax, rel=1e-6), value
        assert right.max() / 127 == pytest.approx(scale.scale, rel=1e-6), value
        # A bin of the histogram is 1/128 of its lower edge wide.
        share = np.quantile(right, 0.9999, method="inverted_cdf")
        assert share == pytest.approx(search.compute_amax(Calibrator.of("percentile")), rel=0.02), value
        for method in ("entropy", "entropy2") if position < 2 else ():
            divergences = published.divergences(
                published.histogram(right, 2048, zeros=method == "entropy"), 128
            )
            at = round(search.compute_amax(Calibrator.of(method)) / right.max() * 2048) - 128
            # Where the minimum is flat candidates change places; what is reached is what counts.
            near = divergences[max(at - 1, 0) : at + 2]
            assert near.min() <= divergences.min() * 1.05 + 1e-12, (value, method)


@pytest.mark.xdist_group("two_outputs")
def test_the_guilty_are_those_whose_rounding_alone_changes_the_outputs() -> None:
    """Q and DQ by hand where one node reads, the mean of samples and outputs.

    Of the map it is the energy of the error by that of the output, of the probabilities the divergence.
    """
    study = scenes.sample("two_outputs")
    ready = study.calibration.prepare("int8", precision="int8", calibrator="minmax")
    search = SensitivitySearch(
        "int8", study.model, ready.emulation, study.data, by="quantizer", verify=None, reach=2
    )
    found = {g.quantizer: g.effect for g in run_experiment(search, WorkContext(get_evaluator())).ranking}
    batches = list(study.data.batches(study.model))
    right = values(study.model, study.model.outputs, batches)
    places = [("stem", 0), ("mix", 0), ("head", 0), ("classes", 0), ("mean", 0)]
    by_hand = {}
    for node, position in places:
        value = study.model.by_id[node].inputs[position]
        if f"{node}/input{position}" in found:
            got = values(rtlab.load(rounded_at(node, position, ready.scales[value].scale)), right, batches)
            divergence = special.rel_entr(right["share"], got["share"]).sum(axis=1)
            parts = [energy(got["map"] - right["map"]) / energy(right["map"]), divergence]
            by_hand[f"{node}/input{position}"] = float(np.mean(parts))
    assert len(by_hand) >= 3
    assert {k: pytest.approx(found[k], rel=0.02) for k in by_hand} == by_hand


def energy(found: np.ndarray) -> np.ndarray:
    return (found.reshape(len(found), -1).astype(float) ** 2).sum(axis=1)


def rounded_at(node: str, position: int, scale: float) -> onnx.ModelProto:
    proto = scenes.two_outputs()
    graph = proto.graph
    scales = [
        onnx.numpy_helper.from_array(np.array(v), n) for n, v in (("s", np.float32(scale)), ("z", np.int8(0)))
    ]
    graph.initializer.extend(scales)
    at, home = next((i, n) for i, n in enumerate(graph.node) if n.name == node)
    pair = [
        onnx.helper.make_node("QuantizeLinear", [home.input[position], "s", "z"], ["q"]),
        onnx.helper.make_node("DequantizeLinear", ["q", "s", "z"], ["dq"]),
    ]
    home.input[position] = "dq"
    rest = [*graph.node[:at], *pair, *graph.node[at:]]
    del graph.node[:]
    graph.node.extend(rest)
    return proto


@pytest.mark.xdist_group("digits_outlier")
def test_channels_lose_what_numpy_says() -> None:
    study = scenes.on_cpu("digits_outlier")
    value = "/blocks/3/pointwise/Relu_output_0"
    found = study.accuracy.channels("int8", value)
    batches = list(study.task.data.batches(study.model))
    ready = study["int8"].prepared
    right, got = (values(m, [value], batches)[value] for m in (study.model, ready.emulation))
    for channel in found.channels:
        x, y = right[:, channel.channel], got[:, channel.channel]
        assert sqnr(x, y) == pytest.approx(channel.sqnr, abs=NEAR)
        assert np.abs(x).max() == pytest.approx(channel.amax, rel=1e-5)


@pytest.mark.xdist_group("digits_gru")
def test_a_check_breaks_where_the_drop_is_over_the_limit() -> None:
    """By hand: the share of fp32 less that of int8, and half a point to either side."""
    study = scenes.on_cpu("digits_gru")
    with scenes.timeless():
        drop = study["fp32"].score.value - study["int8"].score.value
        for limit, broken in ((drop + 0.5, False), (drop - 0.5, drop > 0.5)):
            found = study.accuracy.check("int8", max_drop=max(limit, 0.0))
            assert broken == ("accuracy" in found.broken)


@pytest.mark.xdist_group("two_outputs")
def test_a_recipe_makes_the_same_variant_again() -> None:
    sample = scenes.study("digits_gru")
    told = sample.ask("recipe", variant="int8").result.python.replace("study.run()", "")
    made: dict[str, Any] = {}
    exec(told, made)  # noqa: S102 - it is rtlab's own answer
    assert sample.state.variants["int8"] == made["study"].state.variants["int8"]
    assert sample.data.count == made["study"].data.count
