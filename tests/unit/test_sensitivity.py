"""Who is guilty, by arithmetic by hand and by errors that were planted."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper
from scipy import special

import rtlab
from nets import graph
from rtlab import CalibrationData, Study, Task
from rtlab.analyses.sensitivity import Sensitivity, reliability, spearman
from rtlab.backends.reference import get_evaluator
from rtlab.core.budget import Budget, WorkContext
from rtlab.core.model import Model
from rtlab.core.scale import Scale
from rtlab.errors import CalibrationError, Cancelled, ModelError, RunError, VariantError
from rtlab.experiments.experiment import run_experiment
from rtlab.experiments.sensitivity import SensitivitySearch
from stopping import Stopping

SIZE = 16
#: The weights of each product, and by value what its largest quantized number stands for: that of "b" clips.
RNG = np.random.default_rng(7)
WEIGHTS = {k: (RNG.standard_normal((SIZE, SIZE)) / 4).astype(np.float32) for k in "pqr"}
SCALES = {"x": 4.0, "a": 4.0, "b": 0.4}
DATA = RNG.standard_normal((24, SIZE)).astype(np.float32)


def net(output: int = TensorProto.FLOAT, *tail: object) -> Model:
    nodes = [
        helper.make_node("MatMul", ["x", "p"], ["a"], "one"),
        helper.make_node("MatMul", ["a", "q"], ["b"], "two"),
        helper.make_node("MatMul", ["b", "r"], ["y"], "three"),
    ]
    ends = [("x", TensorProto.FLOAT, ["N", SIZE])]
    shape = ["N"] if output == TensorProto.INT64 else [SIZE]
    out = ("z", output, shape) if tail else ("y", TensorProto.FLOAT, ["N", SIZE])
    return graph([*nodes, *tail], ends, [out], WEIGHTS)


def study(model: Model | None = None, data: np.ndarray = DATA, **more: object) -> Study:
    made = Study(model or net(), data=CalibrationData({"x": data}, "samples of a test"), **more)
    made.add("int8", scales={k: Scale(v) for k, v in SCALES.items()}, backend="onnxruntime")
    return made


def rounded(x: np.ndarray, amax: float | np.ndarray) -> np.ndarray:
    step = np.asarray(amax, np.float32) / np.float32(127)
    return (np.clip(np.rint(x / step), -128, 127) * step).astype(np.float32)


def computed(x: np.ndarray, on: set[str]) -> np.ndarray:
    """The outputs with some of the products quantized."""
    value = x
    for name, weight, read in zip(("one", "two", "three"), "pqr", "xab", strict=True):
        w = WEIGHTS[weight]
        if name in on:
            value, w = rounded(value, SCALES[read]), rounded(w, np.abs(w).max(axis=0))
        value = value @ w
    return value


def lost(on: set[str], samples: int) -> float:
    z, exact = (computed(DATA[:samples], s).astype(np.float64) for s in (on, set()))
    return float((((z - exact) ** 2).sum(axis=1) / (exact**2).sum(axis=1)).mean())


NODES = {"one", "two", "three"}


def test_only_this_one_quantized_is_what_it_harms_alone() -> None:
    found = study().accuracy.sensitivity("int8", verify=None)
    assert "three" == found.ranking[0].node
    assert NODES == {g.node for g in found.ranking}
    for row in found.ranking:
        assert row.verified == pytest.approx(lost({row.node}, found.samples), rel=1e-4)
        assert row.low < row.effect < row.high
    assert found.total == pytest.approx(lost(NODES, found.samples), rel=1e-4)


def test_only_this_one_released_is_what_is_won_back_alone() -> None:
    found = study().accuracy.sensitivity("int8", asks="released", verify=None)
    assert "three" == found.ranking[0].node
    for row in found.ranking:
        won = lost(NODES, found.samples) - lost(NODES - {row.node}, found.samples)
        assert row.verified == pytest.approx(won, rel=1e-3, abs=1e-6)


def test_of_a_node_each_place_that_rounds_is_told_apart() -> None:
    """The threshold of what the third product reads is far too small; its weights are as good as the others'."""
    found = study().accuracy.sensitivity("int8", by="quantizer", verify=None)
    effects = {g.quantizer: g.effect for g in found.ranking}
    assert "three/input0" == found.ranking[0].quantizer
    assert effects["three/weight1"] < 0.01 * effects["three/input0"]
    assert 6 == len(effects)


LABELS = computed(DATA, set()).argmax(axis=1)


def divergence(on: set[str]) -> np.ndarray:
    p, q = (special.softmax(computed(DATA, s).astype(np.float64), axis=1) for s in (set(), on))
    return special.rel_entr(p, q).sum(axis=1)


def test_where_classes_are_counted_an_effect_is_the_divergence_and_the_metric_stands_beside() -> None:
    found = study().accuracy.sensitivity("int8", labels=LABELS, verify=None, budget_s=float("inf"))
    assert "in nats" in found.loss
    assert found.total == pytest.approx(divergence(NODES).mean(), rel=1e-3)
    for row in found.ranking:
        assert row.effect == pytest.approx(divergence({row.node}).mean(), rel=1e-3, abs=1e-9)
        hits = computed(DATA, {row.node}).argmax(axis=1) == LABELS
        assert row.score_effect == pytest.approx(100 * (1 - hits.mean()))
    # Without labels those of fp32 count, which these are; a task that has them says the same.
    for task in (
        Task(CalibrationData({"x": DATA}, "held out")),
        Task(CalibrationData({"x": DATA}, "d"), LABELS),
    ):
        same = study(task=task).accuracy.sensitivity("int8", verify=None)
        assert [r.score_effect for r in same.ranking] == [r.score_effect for r in found.ranking]
        assert same.ranking[0].effect == pytest.approx(found.ranking[0].effect)


def test_samples_are_drawn_by_chance_from_a_file_that_is_sorted() -> None:
    """The first half of 200 samples has no error: 64 of them in order would say that nothing is lost."""
    data = np.zeros((200, SIZE), np.float32)
    data[100:] = RNG.standard_normal((100, SIZE))
    labels = computed(data, set()).argmax(axis=1)
    model, search = study(data=data), {"labels": labels, "verify": None, "again": True}
    found = model.accuracy.sensitivity("int8", **search)
    order = np.random.default_rng(0).permutation(200)[: found.samples]
    p, q = (special.softmax(computed(data[order], s).astype(np.float64), axis=1) for s in (set(), NODES))
    assert found.effects.losses == pytest.approx(special.rel_entr(p, q).sum(axis=1), rel=1e-2, abs=1e-6)
    assert found.samples in {32, 128, 200}


def test_more_samples_are_taken_until_the_ranking_is_reliable_and_asking_again_goes_on() -> None:
    made = study()
    first = made.accuracy.sensitivity("int8", budget_s=0.0, verify=None)
    assert 1 <= len(first.ranking)
    second = made.accuracy.sensitivity("int8", verify=None)
    assert second.samples >= first.samples
    assert second.reliability >= 0.9 or second.samples == len(DATA)
    assert second is made.state.sensitivities["int8"]["only", "node"]
    assert second.effects.measured[:, : first.samples] == pytest.approx(
        np.nan_to_num(first.effects.measured, nan=second.effects.measured[:, : first.samples])
    )


def test_what_cannot_be_ranked_is_refused() -> None:
    chosen = net(TensorProto.INT64, helper.make_node("ArgMax", ["y"], ["z"], "choice", axis=1, keepdims=0))
    broken = DATA.copy()
    broken[2] = 3e38
    for made, given, kind, words in (
        (study(chosen), {}, ModelError, "floating-point"),
        (study(data=broken), {}, RunError, "NaN or infinity"),
        (study(), {"labels": [0, 1, 2]}, CalibrationError, "3 labels for 24"),
        (study(), {"labels": np.full(24, 99)}, CalibrationError, "0 to 15"),
        (study(), {"asks": "both"}, VariantError, '"released"'),
    ):
        with pytest.raises(kind, match=words):
            made.accuracy.sensitivity("int8", **given)


def test_outputs_that_do_not_tell_samples_apart_run_one_sample_at_a_time() -> None:
    """The mean over the batch is the model's own mean; of one sample it is that sample's."""
    mean = helper.make_node("ReduceMean", ["y"], ["z"], "mean", axes=[0], keepdims=0)
    models = (net(), net(TensorProto.FLOAT, mean))
    one, other = (study(m).accuracy.sensitivity("int8", budget_s=float("inf"), verify=None) for m in models)
    assert one.samples == other.samples
    for row in one.ranking:
        same = next(g for g in other.ranking if g.node == row.node)
        assert same.effect == pytest.approx(row.effect, rel=1e-4)


@pytest.mark.parametrize("asks", ["only", "released"])
@pytest.mark.parametrize("by", ["node", "quantizer"])
def test_an_estimate_stands_beside_what_was_verified(asks: str, by: str) -> None:
    """The net is linear, so that an estimate with enough probes is the truth; only the clipping is not."""
    search = searched(asks, by, probes=64)
    assert search.probes == 64
    for row in search.ranking:
        assert "estimated" == row.origin
        assert row.verified is not None
        assert row.effect == pytest.approx(row.verified, rel=0.25, abs=5e-3 * search.total)


def searched(asks: str, by: str, model: Model | None = None, **more: object) -> Sensitivity:
    made = study(model)
    ready = made.calibration.prepare("int8")
    search = SensitivitySearch("int8", made.model, ready.emulation, made.data, asks, by, **more)
    # So little time that running all places is not affordable, and yet all that is begun is done.
    rig = WorkContext(get_evaluator(), None, Budget(runs=10_000))
    rig.budget = Budget(1e-9) if asks == "released" else rig.budget
    steps = []
    for step in search.steps(rig):
        rig.budget = Budget()
        steps.append(step)
    return steps[-1]


def test_places_behind_an_operator_without_a_rule_are_run() -> None:
    """The rounding of the second product is before Round, which has no gradient; the third's is not."""
    nodes = [
        helper.make_node("MatMul", ["x", "p"], ["a"], "one"),
        helper.make_node("MatMul", ["a", "q"], ["h"], "two"),
        helper.make_node("Mul", ["h", "ten"], ["i"], "up"),
        helper.make_node("Round", ["i"], ["j"], "round"),
        helper.make_node("Div", ["j", "ten"], ["b"], "down"),
        helper.make_node("MatMul", ["b", "r"], ["y"], "three"),
    ]
    ends = [("x", TensorProto.FLOAT, ["N", SIZE])], [("y", TensorProto.FLOAT, ["N", SIZE])]
    found = study(graph(nodes, *ends, {**WEIGHTS, "ten": np.float32(1000)})).accuracy.sensitivity("int8")
    assert {"three": "estimated", "one": "measured", "two": "measured"} == {
        g.node: g.origin for g in found.ranking
    }
    assert any("there is no rule" in note for note in found.notes)
    assert all(g.verified is not None for g in found.ranking)


@pytest.mark.slow(but="mobilenet")
@pytest.mark.parametrize(
    ("name", "precision"), [("digits_mobilenet", "int8"), ("digits_vit", "fp16"), ("sentences", "bf16")]
)
def test_the_estimate_of_a_sample_ranks_as_its_runs_do(name: str, precision: str) -> None:
    sample = rtlab.samples.load(name)
    made = Study(sample.model, data=sample.calibration)
    made.add(precision, **({"target": "sm120"} if precision == "bf16" else {"backend": "onnxruntime"}))
    given = (
        precision,
        made.model,
        made.calibration.prepare(precision).emulation,
        sample.calibration.take(32),
    )
    tables = []
    for verify in (0, None):
        search = SensitivitySearch(*given, by="quantizer", verify=verify, reach=2)
        tables.append(
            run_experiment(search, WorkContext(get_evaluator())).effects.combined_effects.mean(axis=1)
        )
    assert spearman(*tables) > 0.93
    assert len({*np.argsort(-tables[0])[:8]} & {*np.argsort(-tables[1])[:5]}) >= 4


def test_spearman_is_pearson_s_of_ranks() -> None:
    one, two = np.array([1.0, 5, 2, 2, 9]), np.array([0.1, 0.4, 0.3, 0.2, 0.5])
    # Ranks 1 4 2.5 2.5 5 and 1 4 3 2 5.
    assert spearman(one, two) == pytest.approx(9.5 / np.sqrt(9.5 * 10))
    assert spearman(one, -one) == pytest.approx(-1)
    assert np.isnan(spearman(one[:2], two[:2]))


def test_the_reliability_is_that_of_the_whole_and_not_of_its_halves() -> None:
    """Places of known effect with noise: rankings on samples of the same number agree as is said."""
    rng = np.random.default_rng(1)
    true = rng.standard_normal(200)[:, None]
    seen, other = (true + 6 * rng.standard_normal((200, 64)) for _ in range(2))
    assert reliability(seen) == pytest.approx(spearman(seen.mean(axis=1), other.mean(axis=1)), abs=0.08)
    assert reliability(seen[:, :3]) is None


def test_what_was_found_before_a_cancel_is_kept() -> None:
    found = study().accuracy.sensitivity("int8", progress=Stopping(1), verify=None)
    assert 1 == len(found.ranking)
    assert any("1 of 3 places" in note for note in found.notes)
    with pytest.raises(Cancelled):
        study().accuracy.sensitivity("int8", progress=Stopping())
