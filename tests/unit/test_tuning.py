"""Tuning with times that the test chooses, and results that ONNX Runtime computes."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
import onnx
import pytest
from onnx import helper

import rtlab
from nets import graph
from rtlab.backends.bench import BoundSession, OrtBench
from rtlab.core.budget import Budget, WorkContext
from rtlab.core.progress import Silent
from rtlab.errors import BuildError, Cancelled, VariantError
from rtlab.experiments.benchmark import FEWEST, LEAST, Benchmark
from rtlab.experiments.experiment import run_experiment
from rtlab.experiments.running import difference
from rtlab.experiments.tuning import CpuTuning
from rtlab.formulations import Formulation, create_weighted_node, find_tunable_nodes, list_formulations
from rtlab.formulations.table import compute_transforms
from rtlab.formulations.trial import TunedModel
from stopping import Stopping

Times = Callable[[str, int], float]


def tune(model: rtlab.Model, batch, *, bench, progress=None, budget_s=60.0, **choices) -> TunedModel:
    """What is found with a bench of the test's own."""
    return run_experiment(
        CpuTuning(model, batch, **choices), WorkContext(bench, progress, Budget(seconds=budget_s))
    )


class Scripted(OrtBench):
    """Real sessions whose times are told by formulation and threads; a whole model costs what its layers cost."""

    def __init__(self, times: Times) -> None:
        super().__init__()
        self.device, self.threads = "a device", 2
        self.times, self.asked = times, []

    def open(self, model: bytes, batch, threads: int) -> Timed:
        return Timed(self, model, batch, threads)


class Timed(BoundSession):
    def __init__(self, bench: Scripted, model: bytes, batch, threads: int) -> None:
        super().__init__(model, batch, threads, Silent())
        nodes = [n.name for n in onnx.load_from_string(model).graph.node]
        # Names are made of node and formulation, or of the formulation alone.
        words = [n.split("/")[-2] if "/" in n else "direct" for n in nodes if n]
        self.bench, self.threads = bench, threads
        self.names = sorted({w for w in words if w != "direct"}) or ["direct"]

    def time(self, repeats: int = 1) -> float:
        self.bench.asked.append((*self.names, self.threads))
        return sum(self.bench.times(n, self.threads) for n in self.names)


def normal(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def network(opset: int = 17) -> rtlab.Model:
    """Two alike convolutions with other weights, a third, and a product."""
    nodes = [
        helper.make_node("Conv", ["x", "a"], ["1"], name="one", pads=[1] * 4),
        helper.make_node("Relu", ["1"], ["2"], name="relu"),
        helper.make_node("Conv", ["2", "b"], ["3"], name="two", pads=[1] * 4),
        helper.make_node("Conv", ["3", "c"], ["4"], name="three"),
        helper.make_node("Flatten", ["4"], ["5"], name="flat"),
        helper.make_node("Gemm", ["5", "d", "e"], ["y"], name="four"),
    ]
    shapes = {"a": (4, 4, 3, 3), "b": (4, 4, 3, 3), "c": (2, 4, 1, 1), "d": (128, 5), "e": (5,)}
    weights = {k: normal(i, *shape) for i, (k, shape) in enumerate(shapes.items())}
    return graph(nodes, [("x", 1, ["N", 4, 8, 8])], [("y", 1, ["N", 5])], weights, opset)


BATCH = {"x": normal(9, 1, 4, 8, 8)}


def even(name: str, threads: int) -> float:
    return {"direct": 1.0, "Winograd 2×2": 0.5, "GEMM": 0.4}.get(name, 2.0) / threads


def test_the_fastest_formulation_with_any_number_of_threads_wins() -> None:
    bench = Scripted(even)
    found = tune(network(), BATCH, bench=bench)
    assert ["one", "two", "three", "four"] == [y.node for y in found.layers]
    assert [("Winograd 2×2", 2), ("Winograd 2×2", 2), ("GEMM", 2), ("direct", 2)] == [
        (y.winner.formulation, y.winner.threads) for y in found.layers
    ]
    assert ["", "one", "", ""] == [y.like for y in found.layers]
    one, two, three, four = found.layers
    assert [2.0, 2.0, 2.5, 1.0] == pytest.approx([y.gain for y in found.layers])
    assert [2.0, 2.0, 2.5, None] == [y.margin and pytest.approx(y.margin) for y in found.layers]
    assert [True, True, True, False] == [y.is_clear for y in found.layers]
    # With other weights it was neither timed nor computed.
    assert (two.winner.median, two.winner.error) == (one.winner.median, None)
    assert ("direct", 2) == (four.default.formulation, four.default.threads)
    assert all(LEAST <= t.runs for y in found.layers for t in y.trials if t.ok and not t.note)
    assert (True, "a device") == (found.complete, found.device)
    assert three.best(1).median == pytest.approx(0.4)


def test_the_whole_model_is_compared_with_the_winners_in_it() -> None:
    found = tune(network(), BATCH, bench=Scripted(even))
    assert [(1, ("one", "two", "three")), (2, ("one", "two", "three"))] == [
        (w.threads, w.changed) for w in found.model_trials
    ]
    # One time for each kind of formulation that is in it, as the script counts.
    assert [(1.0, 0.9), (0.5, 0.45)] == [pytest.approx((w.default, w.tuned)) for w in found.model_trials]
    assert all(w.ok and 0 < w.error < 1e-4 for w in found.model_trials)
    assert 2 == found.best.threads == found.default.threads
    bench = Scripted(lambda n, t: even(n, t) + 0.3)
    slow = tune(network(), BATCH, bench=bench, candidates=["Winograd 2×2"], threads=(1,))
    assert pytest.approx((1.3, 0.8)) == (slow.default.default, slow.default.tuned)


def test_overlapping_times_change_nothing_in_the_model() -> None:
    rng = np.random.default_rng(0)
    bench = Scripted(lambda name, threads: rng.uniform(1, 2) - (0.15 if name == "im2col" else 0))
    found = tune(network(), BATCH, bench=bench, candidates=["im2col"], threads=(1,))
    assert "im2col" in {y.winner.formulation for y in found.layers}
    assert not any(y.is_clear for y in found.layers)
    (whole,) = found.model_trials
    assert ((), 0.0) == (whole.changed, whole.error)
    assert whole.default == whole.tuned


def test_the_hopeless_are_not_timed_further() -> None:
    """Nine times the fastest in three runs; the direct one is timed whatever it takes."""
    bench = Scripted(lambda name, threads: {"Winograd 2×2": 1.0, "direct": 9.0}.get(name, 9.0))
    one = tune(network(), BATCH, bench=bench, threads=(1,)).layers[0]
    by_name = {t.formulation: t for t in one.trials}
    assert (3, True) == (by_name["im2col"].runs, by_name["im2col"].ok)
    assert "over 4 times" in by_name["im2col"].note
    assert LEAST <= by_name["direct"].runs


@pytest.mark.parametrize("scale", [1.01, np.nan, np.inf])
def test_a_wrong_winograd_matrix_is_refused(scale: float, monkeypatch) -> None:
    """One number of the matrices off by a hundredth: fast and wrong."""
    before, *rest = compute_transforms(2)
    before = before.copy()
    before[5, 5] *= scale

    def build(of, graph) -> str:
        with monkeypatch.context() as patch:
            patch.setattr("rtlab.formulations.table.compute_transforms", lambda _: (before, *rest))
            return right.build(of, graph)

    model = network()
    first = create_weighted_node(model, find_tunable_nodes(model)[0], (1, 4, 8, 8))
    right = next(f for f in list_formulations(first) if f.name == "Winograd 2×2")
    wrong = Formulation("wrong", "", 2e-4, right.fits, build)
    race = Benchmark(WorkContext(Scripted(lambda name, threads: 0.1 if name == "wrong" else 1.0)), (1,))
    trials = {
        t.formulation: t
        for t in race.time_layer(first, BATCH["x"], [list_formulations(first)[0], wrong, right], 1.0)
    }
    assert (False, None) == (trials["wrong"].ok, trials["wrong"].median)
    assert trials["wrong"].note.endswith("0.0002")
    assert trials["Winograd 2×2"].ok


def test_a_formulation_that_does_not_open_is_shown_with_its_reason() -> None:
    class Refusing(Scripted):
        def open(self, model: bytes, batch, threads: int) -> Timed:
            opened = super().open(model, batch, threads)
            if "im2col" in opened.names:
                raise BuildError("no kernel")
            return opened

    found = tune(network(), BATCH, bench=Refusing(even), threads=(1,)).layers[0]
    trial = next(t for t in found.trials if t.formulation == "im2col")
    assert (False, "no kernel", None) == (trial.ok, trial.note, trial.error)
    assert "Winograd 2×2" == found.winner.formulation


def test_cancelling_keeps_what_was_tuned() -> None:
    found = tune(network(), BATCH, bench=Scripted(even), progress=Stopping(1))
    assert (["one", "two"], (), False) == ([y.node for y in found.layers], found.model_trials, found.complete)
    assert [True] == [n.startswith("1 of 3 ") for n in found.notes]
    with pytest.raises(Cancelled, match="Stopped tuning"):
        tune(network(), BATCH, bench=Scripted(even), progress=Stopping(0))


def test_no_further_layer_is_tuned_once_the_builds_are_used_up() -> None:
    rig = WorkContext(Scripted(even), budget=Budget(seconds=60, builds=1))
    kept: list[TunedModel] = []
    found = run_experiment(CpuTuning(network(), BATCH, candidates=["im2col"], threads=(1,)), rig, kept.append)
    assert ["one", "two"] == [y.node for y in found.layers] == [y.node for y in kept[0].layers]
    assert ((), False) == (kept[0].model_trials, kept[0].complete)
    assert any(n.startswith("1 of 3 ") for n in found.notes)
    assert 2 + len(found.model_trials) == rig.builds
    assert rig.runs >= 2 * LEAST


def test_the_budget_ends_the_tuning_after_at_least_one_layer() -> None:
    """Of it the direct form is timed with all threads, and the whole model with as many as are usual."""
    found = tune(network(), BATCH, bench=Scripted(even), budget_s=1e-6)
    assert ["one", "two"] == [y.node for y in found.layers]
    assert not found.complete
    assert 2 == len(found.notes)
    assert found.notes[0].startswith("1 of 3 ")
    assert [(2, FEWEST)] == [(w.threads, w.runs) for w in found.model_trials]
    direct = [t for t in found.layers[0].trials if t.formulation == "direct"]
    other = [t for t in found.layers[0].trials if t.formulation != "direct"]
    assert [(1, LEAST), (2, LEAST)] == [(t.threads, t.runs) for t in direct]
    assert {(False, True)} == {(t.ok, bool(t.note)) for t in other}


def test_a_whole_model_that_cannot_be_composed_leaves_its_layers_tuned() -> None:
    """Formulations need operators of version 11; a layer by itself is always of a newer one."""
    found = tune(network(9), BATCH, bench=Scripted(even))
    assert (4, (), False) == (len(found.layers), found.model_trials, found.complete)


@pytest.mark.parametrize(
    ("option", "given"),
    [
        *(("threads", n) for n in ((0,), (1.5,), (2000,), "12", [None])),
        *(("budget_s", s) for s in ("soon", None, 0, float("nan"))),
        *(("candidates", c) for c in (["winograd"], "im2col", [None])),
    ],
)
def test_what_cannot_be_is_refused(option: str, given: object) -> None:
    with pytest.raises(VariantError):
        tune(network(), BATCH, bench=Scripted(even), **{option: given})


def test_only_the_candidates_asked_for_are_tried_beside_the_direct_one() -> None:
    found = tune(network(), BATCH, bench=Scripted(even), candidates=["im2col"], threads=(1,))
    assert [{"direct", "im2col"}] * 2 + [{"direct"}] * 2 == [
        {t.formulation for t in y.trials} for y in found.layers
    ]


def test_differences_are_relative_to_the_greatest_value() -> None:
    a = np.array([1.0, 4.0], np.float32)
    assert 0.25 == difference(a + np.float32([0, 1]), a)
    assert float("inf") == difference(a[:1], a)
    assert float("inf") == difference(a * np.float32(np.nan), a)
    assert [0.0, float("inf")] == [difference(np.array([1, k]), np.array([1, 2])) for k in (2, 3)]


def test_candidates_that_do_not_fit_are_dropped_the_slowest_first() -> None:
    first = create_weighted_node(network(), find_tunable_nodes(network())[0], (1, 4, 8, 8))
    seconds = {"direct": 300.0, "im2col": 200.0, "Winograd 2×2": 100.0}
    race = Benchmark(WorkContext(Scripted(lambda name, threads: seconds.get(name, 250.0))), (1,))
    trials = race.time_layer(first, BATCH["x"], list_formulations(first), 1.0, time.monotonic() + 5.0)
    kept = {t.formulation for t in trials if not t.note}
    assert {"direct", "Winograd 2×2"} == kept
    assert {"not timed further: timed out"} == {t.note for t in trials if t.ok} - {""}
