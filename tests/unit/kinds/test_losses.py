"""Losses of two outputs, and effects that are joined or gone on with: by hand, and by SciPy."""

from __future__ import annotations

import dataclasses
import itertools

import numpy as np
import pytest
from onnx import TensorProto, helper
from scipy import special

import rtlab
from nets import graph
from rtlab import CalibrationData, Study, Task
from rtlab.analyses.sensitivity import Effects, reliability
from rtlab.backends.reference import get_evaluator
from rtlab.core.budget import Budget, WorkContext
from rtlab.core.scale import Scale
from rtlab.experiments.experiment import run_experiment
from rtlab.experiments.running import batch_size, fixed_batch, value_bytes
from rtlab.experiments.sensitivity import SensitivitySearch, _summarize
from rtlab.experiments.sensitivity.loss import MOST, SampleLoss
from rtlab.quantize import existing_qdq

RNG = np.random.default_rng(3)
SIZE, SAMPLES = 6, 20
WEIGHTS = {k: RNG.standard_normal((SIZE, n)).astype(np.float32) for k, n in (("p", SIZE), ("q", 2), ("r", 3))}
SCALES = {"x": 3.0, "a": 5.0}
DATA = RNG.standard_normal((SAMPLES, SIZE)).astype(np.float32)
#: Two outputs of unlike lengths, of three samples each.
EXACT = {"y": np.array([[3.0, 4.0], [0.0, 2.0], [1.0, 0.0]]), "z": np.array([[1.0], [2.0], [-2.0]])}
MADE = {"y": np.array([[3.0, 5.0], [1.0, 2.0], [1.0, 2.0]]), "z": np.array([[0.0], [2.0], [-1.0]])}


def test_each_output_is_divided_by_its_own_energy_and_by_the_number_of_outputs() -> None:
    loss = SampleLoss.of(EXACT, ("y", "z"), np.arange(3))
    assert loss.scales("y") == pytest.approx([2 * 25, 2 * 4, 2 * 1])
    assert loss.scales("z") == pytest.approx([2 * 1, 2 * 4, 2 * 4])
    # Halves of 1/25 + 1/1, of 1/4 + 0/4 and of 4/1 + 1/4.
    assert loss.each(MADE) == pytest.approx([0.52, 0.125, 2.125])


def test_an_output_without_energy_is_divided_by_the_mean_energy_of_the_samples() -> None:
    loss = SampleLoss.of({"y": np.array([[0.0, 0.0], [2.0, 2.0]])}, ("y",), np.arange(2))
    assert loss.scales("y") == pytest.approx([4.0, 8.0])
    assert SampleLoss.of({"y": np.zeros((2, 2))}, ("y",), np.arange(2)).scales("y") == pytest.approx(
        [1.0, 1.0]
    )


def test_outputs_that_do_not_tell_samples_apart_share_one_loss() -> None:
    loss = SampleLoss.of({"y": EXACT["y"], "z": np.array([1.0, 2.0])}, ("y", "z"), np.arange(3))
    assert loss.rows == 1
    # (1 + 1 + 4) / 30 of the first and (0 + 1) / 5 of the second, halved, for each of the three samples.
    assert loss.each({"y": MADE["y"], "z": np.array([1.0, 3.0])}) == pytest.approx([0.2] * 3)


def test_what_is_not_finite_or_far_off_loses_the_most() -> None:
    loss = SampleLoss.of({"y": np.ones((4, 1))}, ("y",), np.arange(4))
    made = loss.each({"y": np.array([[np.nan], [np.inf], [1e9], [2.0]])})
    assert made == pytest.approx([MOST, MOST, MOST, 1.0])


def class_task(labels: list[int]) -> Task:
    return Task(CalibrationData({"x": DATA}, "d"), np.array(labels), "top-1")


@pytest.mark.parametrize("probabilities", [False, True])
def test_class_scores_lose_the_divergence_of_their_probabilities(probabilities) -> None:
    # Logits whose exponential is infinite are as good as others.
    before, after = RNG.normal(size=(2, 3, 4)) * 3 + 800
    expected = special.rel_entr(special.softmax(before, axis=1), special.softmax(after, axis=1)).sum(axis=1)
    task = None if probabilities else class_task([9, 9, 3, 0, 1])
    if probabilities:
        before, after = special.softmax(before, axis=1), special.softmax(after, axis=1)
    loss = SampleLoss.of({"y": before}, ("y",), np.array([2, 4, 3]), task)
    assert loss.each({"y": after}) == pytest.approx(expected, rel=1e-6)
    assert "in nats" in loss.words
    if task is not None:
        # Labels are those of the samples with these numbers.
        assert loss.tally({"y": after}).amounts.tolist() == [*(after.argmax(axis=1) == [3, 1, 0])]


def test_rows_of_positive_logits_are_no_probabilities() -> None:
    before = np.array([[2.0, 1.0], [0.5, 4.0]])
    loss = SampleLoss.of({"y": before}, ("y",), np.arange(2), class_task([0, 1]))
    p, q = special.softmax(before, axis=1), special.softmax(before[:, ::-1], axis=1)
    assert loss.each({"y": before[:, ::-1]}) == pytest.approx(special.rel_entr(p, q).sum(axis=1))


def test_one_of_two_outputs_may_be_class_scores() -> None:
    """Of 1, 1 and 3 the second row's probabilities are 1/2 and 1/2, then 1/5 and 4/5: the divergence is ln(5/4)."""
    exact = {"y": np.log([[1.0, 3.0], [1.0, 1.0]]), "z": np.array([[2.0], [1.0]])}
    made = {"y": np.log([[1.0, 3.0], [1.0, 4.0]]), "z": np.array([[2.0], [3.0]])}
    loss = SampleLoss.of(exact, ("y", "z"), np.arange(2), class_task([0, 1]))
    assert loss.each(made) == pytest.approx([0, (np.log(5 / 4) + 4) / 2])


def test_seeds_have_the_curvature_of_the_loss() -> None:
    """The mean of (u . d)² over all signs is half of d' H d, and u without signs half of the slope."""
    z, q = np.array([[1.0, 0.2, -1.0]]), np.array([[0.3, 0.5, -0.2]])
    signs = np.array(list(itertools.product([-1.0, 1.0], repeat=3)))[:, None]
    error = np.array([[0.3, -0.2, 0.4]])
    for task, name in ((class_task([0]), "classes"), (None, "numbers")):
        loss = SampleLoss.of({"y": z}, ("y",), np.arange(1), task)

        def cost(x: np.ndarray, loss: SampleLoss = loss) -> float:
            return float(loss.each({"y": x})[0])

        step = 1e-3 * error
        slope = (cost(q + step) - cost(q - step)) / 2e-3
        bend = (cost(q + step) + cost(q - step) - 2 * cost(q)) / 1e-6
        seeds = [loss.seed("y", s, {"y": q}, released=True) for s in signs]
        assert np.mean([(u * error).sum() ** 2 for u in seeds]) == pytest.approx(bend / 2, rel=1e-4), name
        half = loss.seed("y", None, {"y": q}, released=True)
        assert 2 * (half * error).sum() == pytest.approx(slope, rel=1e-4), name


def test_between_two_sure_classes_an_estimate_still_sees_the_way() -> None:
    """Either end is flat; half way the probabilities are 1/2 and 1/2, of curvature 1/4 along their difference."""
    loss = SampleLoss.of({"y": np.array([[60.0, 0.0]])}, ("y",), np.arange(1), class_task([0]))
    quantized = {"y": np.array([[0.0, 60.0]])}
    seeds = [
        loss.seed("y", np.array([s]), quantized, released=False)
        for s in itertools.product([-1.0, 1.0], repeat=2)
    ]
    error = np.array([[-60.0, 60.0]])
    assert np.mean([(u * error).sum() ** 2 for u in seeds]) == pytest.approx(120**2 / 4 / 2)


def effects(
    measured: np.ndarray, estimated: np.ndarray | None = None, probes: int = 0, **more: object
) -> Effects:
    places = tuple(f"p{i}" for i in range(len(measured)))
    guess = np.zeros((len(places), 0)) if estimated is None else estimated
    return Effects(places, guess, measured, np.arange(measured.shape[1], dtype=float), probes, **more)


def test_what_was_measured_stands_where_a_place_has_no_estimate() -> None:
    guess = np.array([[1.0, 2.0, 3.0], [np.nan] * 3])
    true = np.array([[9.0, 9.0], [4.0, 5.0]])
    known = effects(true, guess, probes=1).combined_effects
    assert known[0].tolist() == [1, 2, 3]
    assert known[1, :2].tolist() == [4, 5]
    assert np.isnan(known[1, 2])
    assert effects(true, probes=0).combined_effects.tolist() == true.tolist()


def test_a_ranking_costs_what_estimates_or_runs_took_and_is_as_reliable_as_its_whole_rows() -> None:
    table = RNG.normal(size=(5, 8)) + np.arange(5)[:, None]
    partial = table.copy()
    partial[4, 3:] = np.nan
    asked = SensitivitySearch("v", None, None, CalibrationData({"x": DATA}, "d"))  # type: ignore[arg-type]
    nodes = {f"p{i}": f"n{i}" for i in range(5)}
    run = _summarize(asked, effects(partial, work=(6.0, 3.0, 2.0)), nodes, ran="r", seconds=1.0)
    estimated = effects(table, work=(6.0, 3.0, 2.0))
    estimated = dataclasses.replace(estimated, estimated=table, measured=table[:, :0], probes=4)
    guess = _summarize(asked, estimated, nodes, ran="r", seconds=1.0)
    assert (run.cost_x_plain, guess.cost_x_plain) == (1.5, 3.0)
    assert run.reliability == pytest.approx(reliability(table[:4]))
    assert guess.reliability == pytest.approx(reliability(table))
    assert [g.effect for g in run.ranking if g.node == "n4"] == pytest.approx([table[4, :3].mean()])


@pytest.mark.parametrize(("width", "size"), [(1 << 17, 8), (1 << 10, 64), (1 << 22, 1)])
def test_a_batch_holds_as_many_samples_as_fit_into_eight_mebibytes(width: int, size: int) -> None:
    """Two values of FP32: of 2^17 numbers each a sample takes a mebibyte."""
    nodes = [helper.make_node("Relu", ["x"], ["h"], "a"), helper.make_node("Neg", ["h"], ["y"], "b")]
    for batch, most in (("N", size), (2, 1)):
        ends = [[(n, TensorProto.FLOAT, [batch, width])] for n in "xy"]
        model = graph(nodes, *ends, {})
        assert batch_size(model, ("h", "y", "h")) == most
        every = 4 * width * (batch if batch == 2 else 1)
        assert value_bytes(model, ("h", "x")) == {"h": every, "x": every}
        assert fixed_batch(model) == (batch if batch == 2 else 1)


@pytest.fixture(scope="module")
def study() -> Study:
    """One product, and two behind it that each write an output; the second is ten times the first."""
    weights = {**WEIGHTS, "r": 10 * WEIGHTS["r"]}
    nodes = [
        helper.make_node("MatMul", [x, w], [y], name)
        for x, w, y, name in (("x", "p", "a", "one"), ("a", "q", "y", "two"), ("a", "r", "z", "three"))
    ]
    ends = [("y", TensorProto.FLOAT, ["N", 2]), ("z", TensorProto.FLOAT, ["N", 3])]
    model = graph(nodes, [("x", TensorProto.FLOAT, ["N", SIZE])], ends, weights)
    made = rtlab.Study(model, data=CalibrationData({"x": DATA}, "samples of a test"))
    made.add("int8", scales={k: Scale(v) for k, v in SCALES.items()}, backend="onnxruntime")
    return made


def rounded(x: np.ndarray, amax: float | np.ndarray) -> np.ndarray:
    step = np.asarray(amax, np.float32) / np.float32(127)
    return np.clip(np.rint(x / step), -128, 127) * step


def lost(on: set[str]) -> np.ndarray:
    """What each sample loses with these products in INT8: the mean over both outputs."""

    def run(chosen: set[str]) -> list[np.ndarray]:
        def product(name: str, x: np.ndarray, w: np.ndarray, amax: float) -> np.ndarray:
            return rounded(x, amax) @ rounded(w, np.abs(w).max(axis=0)) if name in chosen else x @ w

        a = product("one", DATA, WEIGHTS["p"], SCALES["x"])
        return [
            product("two", a, WEIGHTS["q"], SCALES["a"]), product("three", a, 10 * WEIGHTS["r"], SCALES["a"])
        ]  # fmt: skip

    pairs = zip(run(on), run(set()), strict=True)
    return np.mean([((a - b) ** 2).sum(axis=1) / (b**2).sum(axis=1) for a, b in pairs], axis=0)


@pytest.mark.parametrize("asks", ["only", "released"])
def test_a_ranking_over_two_outputs_takes_each_alike(study: Study, asks: str) -> None:
    found = study.accuracy.sensitivity("int8", asks=asks, verify=None, again=True, budget_s=float("inf"))
    every = {"one", "two", "three"}
    first = slice(0, found.samples)
    for row in found.ranking:
        alone = lost({row.node}) if asks == "only" else lost(every) - lost(every - {row.node})
        assert row.verified == pytest.approx(alone[first].mean(), rel=2e-3, abs=1e-7)
    assert found.total == pytest.approx(lost(every)[first].mean(), rel=1e-3)


def test_estimates_over_two_outputs_follow_what_runs_measure(study: Study) -> None:
    """The graph is linear, so that the mean of an estimate over probes and samples is the measured effect."""
    ready = study.calibration.prepare("int8")
    source, emulation = existing_qdq.separate_existing_qdq(study.model, ready.emulate())
    for asks, by in (("only", "quantizer"), ("released", "node")):
        search = SensitivitySearch("int8", source, emulation, study.data, asks, by, probes=16, verify=6)
        found = run_experiment(search, WorkContext(get_evaluator(), budget=Budget(60.0)))
        assert found.probes == 16
        for row in found.ranking:
            assert row.origin == "estimated"
            assert row.effect == pytest.approx(row.verified, rel=0.3)


def test_a_ranking_that_goes_on_counts_each_sample_once(study: Study) -> None:
    first = study.accuracy.sensitivity("int8", verify=None, budget_s=0.0, again=True)
    again = study.accuracy.sensitivity("int8", verify=None, budget_s=float("inf"))
    assert first.effects is not None
    assert again.effects is not None
    known = first.effects.samples
    assert again.effects.measured.shape[1] == len(again.effects.losses) == again.samples <= SAMPLES
    assert again.samples >= known
    assert again.effects.losses == pytest.approx(lost({"one", "two", "three"})[: again.samples], rel=1e-3)
