"""Choices between two that are both good, both bad, or equal: which sign, which end, which of two sides."""

from __future__ import annotations

import dataclasses
import datetime
import math
import re
import types
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

import rtlab
from nets import graph
from rtlab.analyses import check
from rtlab.analyses.accuracy import Accuracy, ValueDelta
from rtlab.analyses.batches import BatchTime, Sweep
from rtlab.analyses.channels import ChannelDelta, ChannelErrors
from rtlab.analyses.check import check_score
from rtlab.analyses.check.record import CheckRecord, RecordedEngine, RecordedScore
from rtlab.analyses.diagnosis.causes import propose_cure
from rtlab.analyses.difference import Difference, Overlap, Side, compute_difference
from rtlab.analyses.samples.spread import Spread
from rtlab.analyses.score import find_flipped_samples
from rtlab.analyses.variants.variations import get_add_arguments
from rtlab.core.bootstrap import Interval
from rtlab.core.budget import WorkContext
from rtlab.core.engine import Engine, Layer, Tensor
from rtlab.core.facts import Score, VariantResult
from rtlab.core.finding import Finding
from rtlab.core.metrics import Tally
from rtlab.core.model import Model, make_empty_model
from rtlab.core.task import Predictions
from rtlab.core.variant import Calibrator, Target, Variant
from rtlab.experiments.benchmark import FEWEST, Benchmark, _summarize
from rtlab.experiments.ranking import CalibratorRanking, _sqnr
from rtlab.experiments.repairing import _Candidate, _RepairState
from rtlab.experiments.running import difference
from rtlab.relation.mapping import Mapping, Pair

FLOAT = TensorProto.FLOAT


def score(value: float, *, higher: bool = True) -> Score:
    return Score("s", value, "%", 100, "", higher)


def repairing(before: float, plain: float, tried: list[tuple[str, float, int]], higher: bool) -> _RepairState:
    """A search that has tried variants, each told by a name, its score, and how many nodes it keeps high."""
    made = _RepairState.__new__(_RepairState)
    facts = types.SimpleNamespace(variant=Variant.of("int8", scales="own"))
    made.search = types.SimpleNamespace(facts=facts, max_drop=1.0)  # type: ignore[assignment]
    made.baseline = _Candidate(facts.variant)
    made.plain, made.before = [score(plain, higher=higher)] * 2, score(before, higher=higher)
    made.scored_candidates = [
        (_Candidate(Variant.of("int8", scales=name), (), tuple("abc"[:high])), score(value, higher=higher))
        for name, value, high in tried
    ]
    return made


@pytest.mark.parametrize(
    ("tried", "best"),
    [
        ([("a", 89.5, 0), ("b", 89.9, 0), ("c", 89.2, 0)], "b"),  # all good: the best score
        ([("a", 89.9, 2), ("b", 89.1, 1)], "b"),  # both good: fewer nodes kept high
        ([("a", 89.1, 1), ("b", 89.9, 2), ("c", 80.0, 0)], "a"),  # cheaper and not good enough does not count
        ([("a", 80.0, 0), ("b", 85.0, 2)], "b"),  # none good: the best score, whatever it costs
        ([("a", 85.0, 2), ("b", 85.0, 1)], "b"),
        ([("a", 60.0, 0)], "own"),
        ([("a", 89.0, 0), ("b", 89.0 - 1e-6, 0)], "a"),  # a drop of exactly what is allowed is good
    ],
)
@pytest.mark.parametrize("higher", [True, False])
def test_of_several_repairs_the_cheapest_good_one_is_taken_and_of_these_the_best(tried, best, higher) -> None:
    sign = 1 if higher else -1
    found = repairing(sign * 70, sign * 90, [(n, sign * v, h) for n, v, h in tried], higher)
    assert found._select_best()[0].variant.scales == best
    free = [(n, v) for n, v, h in tried if not h and v > 70]
    expected = max(free, key=lambda t: t[1])[0] if free else "own"
    assert found._select_base()[0].scales == expected


def finding(rule: str, value: str) -> Finding:
    return Finding(f"{rule} {value}", rule, "", ("n",), "", "", "", fixable=False, value=value)


@pytest.mark.parametrize("higher", [True, False])
def test_calibrators_are_ranked_by_their_score_then_by_their_ratio(higher, monkeypatch) -> None:
    """Noise of 0.1, 0.2 and 0.05 beside ones; two calibrators have the same score."""
    sign = 1 if higher else -1
    told = {"minmax": (80.0, 0.1), "mse": (85.0, 0.2), "entropy": (85.0, 0.05), None: (90.0, 0.0)}
    made = lambda _, v, __: types.SimpleNamespace(emulation=v.calibrator.method)  # noqa: E731
    monkeypatch.setattr("rtlab.experiments.ranking.prepare", made)

    def run(self: object, rig: object, model: Any) -> tuple[list[np.ndarray], int, Score]:
        return [np.ones(2) + told[model][1]], 7, score(sign * told[model][0], higher=higher)

    monkeypatch.setattr(CalibratorRanking, "_run", run)
    chosen = [Calibrator.of(c) for c in told if c]
    asked = CalibratorRanking(None, None, None, calibrators=chosen)  # type: ignore[arg-type]
    *_, found = asked.steps(WorkContext(types.SimpleNamespace(source="here")))
    assert [str(r.calibrator) for r in found] == ["entropy", "mse", "minmax"]
    assert [r.delta for r in found] == [-5 * sign, -5 * sign, -10 * sign]
    assert [r.sqnr for r in found] == pytest.approx([-20 * math.log10(n) for n in (0.05, 0.2, 0.1)])


@pytest.mark.parametrize(
    ("rule", "choice", "own", "expected"),
    [
        ("long-tail", {}, (), {"calibrator": "percentile"}),
        ("clipping", {"calibrator": "mse"}, (), {"calibrator": "minmax"}),
        ("clipping", {"precision": "fp32"}, ("n",),
         {"calibrator": "mse", "rewrites": ["release n"], "precision": {"n": "int8"}}),
        ("unequal-channels", {"weights": "tensor"}, (), {"weights": "channel"}),
        ("unequal-channels", {}, (), {"treatments": ["equalize"]}), ("unequal-channels", {}, ("n",), None),
        ("unequal-channels", {"treatments": ["smooth"]}, (), None), ("something-else", {}, (), None),
        ("fp16-overflow", {"precision": "fp16"}, (), {"precision": {"n": "fp32", "m": "fp32"}}),
        ("delicate-operator", {}, ("m",), {"precision": {"n": "fp32", "m": "fp32"}, "rewrites": ["release m"]}),
    ],
)  # fmt: skip
def test_a_cause_changes_what_helps_against_it_and_nothing_else(rule, choice, own, expected) -> None:
    variant = Variant.of(**{"precision": "int8", "calibrator": "minmax"} | choice)
    cause = dataclasses.replace(finding(rule, "v"), nodes=("n", "m"))
    found, before = propose_cure(cause, "v", variant, own), get_add_arguments(variant)
    if expected is None:
        assert found is None
        return
    precision = {**before["precision"], **expected.pop("precision", {})}
    assert found.choice.keys() == before.keys()
    for key, value in ({**before, "precision": precision} | expected).items():
        assert str(found.choice[key]) == str(value) if key == "calibrator" else found.choice[key] == value


def delta(name: Any, sqnr: float, own: float | None = None) -> Any:
    if isinstance(name, int):
        return ChannelDelta(name, 1.0, 0.0, 0.0, sqnr, own, None, 0, 0)
    return ValueDelta(name, name, 0.0, 0.0, 1.0, sqnr, 1, 0, own_sqnr=own)


def test_the_worst_values_and_channels_have_the_lowest_ratio() -> None:
    told = ("a", 30, 9), ("b", -5, None), ("c", math.inf, math.inf), ("d", 12, 3)
    found = Accuracy("", 1, tuple(delta(*t) for t in told))
    assert [v.value for v in found.worst(3)] == ["b", "d", "a"]
    assert [v.value for v in found.guilty(3)] == ["d", "a"]
    channels = tuple(delta(i, s) for i, s in enumerate((30.0, -math.inf, 12.0)))
    assert [c.channel for c in ChannelErrors("", "v", "n", 1, None, 1, "", channels).worst(2)] == [1, 2]


def test_the_ratio_of_two_batches_is_that_of_all_their_elements() -> None:
    rng = np.random.default_rng(1)
    x, y = (rng.normal(size=(5, 3)) for _ in range(2))
    whole = 10 * np.log10((x**2).sum() / ((x - y) ** 2).sum())
    assert _sqnr([x[:2], x[2:]], [y[:2], y[2:]]) == pytest.approx(whole)
    odd = (x, x), (0 * x, y), (x, y * np.nan)
    assert [_sqnr([a], [b]) for a, b in odd] == [math.inf, -math.inf, -math.inf]


class Ready:
    """A model that gives these outputs."""

    def __init__(self, **outputs: list[float]) -> None:
        self._outputs = {k: np.array(v) for k, v in outputs.items()}

    def outputs(self) -> dict[str, np.ndarray]:
        return self._outputs

    def time(self, repeats: int = 1) -> float:
        return 1.0


@pytest.mark.parametrize("far", ["y", "z"])
def test_a_tuned_model_is_judged_by_the_output_that_differs_most(far: str) -> None:
    plain, other = {"y": [1.0, -4.0], "z": [2.0, 0.0]}, {"y": [1.0, -4.0], "z": [2.0, 0.0]}
    other[far] = [other[far][0] - 0.1, other[far][1]]
    opened = lambda content, *_: Ready(**(plain if content == b"p" else other))  # noqa: E731
    benchmark = Benchmark(WorkContext(types.SimpleNamespace(open=opened)), (1,))
    (made,) = benchmark.compare_models({}, b"p", {1: (("n",), b"t")}, 0.0)
    assert made.error == pytest.approx(0.1 / {"y": 4, "z": 2}[far])
    assert (made.runs, made.ok) == (FEWEST, False)
    timed = [(None, times) for times in ([4.0, 1.0, 10.0, 2.0], [1.0, 1.0])]
    found = _summarize(1, ("n",), 1.0, timed)
    assert (found.default, found.default_quartiles, found.tuned) == (3.0, (1.75, 5.5), 1.0)
    assert (found.runs, found.ok) == (4, False)


def test_a_difference_is_relative_to_the_largest_magnitude_of_what_is_wanted() -> None:
    wanted = np.array([1.0, -8.0])
    assert [difference(wanted + np.array(off), wanted) for off in ([0, -2], [2, 0])] == [0.25, 0.25]
    assert difference(np.array([0.5]), np.zeros(1)) == 0.5
    for made in (np.array([[1.0, -8.0]]), np.array([1.0, np.nan])):
        assert difference(made, wanted) == math.inf
    assert [difference(np.array([2]), np.array([n])) for n in (2, 3)] == [0, math.inf]


def test_a_sweep_tells_rates_by_the_second_and_the_smallest_batch_that_reaches_nine_tenths() -> None:
    times = {1: 2.0, 2: 2.2, 4: 4.1, 8: 16.0}
    rows = tuple(BatchTime(b, Spread(9, t, t - 0.5, t, t + 0.5, t, (), 0.0)) for b, t in times.items())
    found = Sweep("v", "", "", "CPU", datetime.datetime.now(datetime.timezone.utc), rows)
    assert [r.rate for r in rows] == pytest.approx([500, 2000 / 2.2, 4000 / 4.1, 500])
    assert (found.best.batch, found.knee.batch) == (4, 2)
    assert (rows[0].lower, rows[0].median, rows[0].upper, rows[0].times.count) == (1.5, 2.0, 2.5, 9)


def layer(name: str, kind: str = "Convolution", dtype: str = "fp32", **more: Any) -> Layer:
    ends = ((Tensor(f"{name}.{end}", dtype, (1, 8, 4, 4)),) for end in ("in", "out"))
    given = {"attributes": {"Kernel": [3, 3]} if kind == "Convolution" else {}} | more
    return Layer(name, name, kind, 0, *ends, **given)


def engine(*made: Layer) -> Engine:
    numbered = tuple(dataclasses.replace(y, index=i) for i, y in enumerate(made))
    return Engine("tensorrt", "10", Target("sm86"), numbered)


def convs(count: int) -> Model:
    nodes = [helper.make_node("Relu", [f"v{i}"], [f"v{i + 1}"], f"n{i}") for i in range(count)]
    return graph(nodes, [("v0", FLOAT, [1, 4])], [(f"v{count}", FLOAT, [1, 4])], {})


def compared(first: Engine, second: Engine) -> Difference:
    """By nodes of a model: each layer runs the node that it is named for."""
    sides = []
    for built in (first, second):
        pairs = tuple(Pair(y.name, y.id, "declared") for y in built.layers if y.name.startswith("n"))
        sides.append(Side("s", built, Mapping(pairs, ())))
    return compute_difference(*sides, convs(3))


def test_a_region_in_one_engine_forbids_missing_the_others_layers_and_not_its_own() -> None:
    """The first has three convolutions, of which the second runs two in layers and hides what it likes in a region."""
    three, region = [layer(f"n{i}") for i in range(3)], layer("r", "Myelin")
    one_sided = compared(engine(*three), engine(*three[:2], region))
    assert (one_sided.overlap.paired_counts, one_sided.overlap.total_counts) == ((2, 2), (3, 2))
    assert (one_sided.overlap.comparable, one_sided.overlap.share) == ((False, True), 1.0)
    turned = compared(engine(*three[:2], region), engine(*three))
    assert (turned.overlap.comparable, turned.overlap.total_counts, turned.overlap.share) == (
        (True, False),
        (2, 3),
        1.0,
    )
    plain = compared(engine(*three), engine(*three[:2]))
    assert (plain.overlap.comparable, plain.overlap.share) == ((True, True), 2 / 3)
    both = compared(engine(*three, region), engine(*three[:2], layer("s", "Myelin")))
    assert (both.overlap.comparable, both.overlap.share, both.overlap.is_enough) == (
        (False, False),
        None,
        True,
    )
    lowest = Overlap((3, 1), (4, 4))
    assert (lowest.share, lowest.is_enough, str(lowest)) == (0.25, False, "3 of 4 and 1 of 4")


def record(findings: dict[str, str], made: Engine, pairs: tuple[Pair, ...]) -> CheckRecord:
    held = RecordedEngine.from_engine(made, Mapping(pairs, ()))
    day = datetime.datetime(2026, 1, 2, tzinfo=datetime.timezone.utc)
    return CheckRecord("m", "", "v", "", held, None, None, None, findings, {}, day)


def test_two_new_findings_and_one_gone_are_not_one_new_and_two_gone() -> None:
    then = record({"a": "A.", "b": "B."}, engine(), ())
    now = record({"a": "A.", "c": "C.", "d": "D."}, engine(), ())
    row, back = check.check_findings(then, now, ("findings",)), check.check_findings(now, then, ())
    assert (row.changes, row.value, row.verdict) == (("C.", "D."), 2.0, "broken")
    assert re.findall(r"\d+", row.found) == ["3", "2", "1"]
    assert (back.changes, back.verdict, re.findall(r"\d+", back.found)) == (("B.",), "told", ["2", "1", "2"])


def test_what_split_and_what_is_wider_is_told_of_then_to_now() -> None:
    """Two groups split into two and three layers and one is joined; two are wider and one is narrower."""

    def built(parts: tuple[int, ...], types: tuple[str, ...]) -> tuple[Engine, tuple[Pair, ...]]:
        made = [layer(f"n{n}.{k}", dtype=types[n]) for n, count in enumerate(parts) for k in range(count)]
        return engine(*made), tuple(Pair(y.name[:2], y.id, "declared") for y in made)

    then = record({}, *built((1, 1, 2), ("int8", "fp16", "fp32")))
    now = record({}, *built((2, 3, 1), ("fp32", "bf16", "int8")))
    found = compute_difference(then.to_side("then"), now.to_side("now"), convs(3))
    split, wider = (
        check.check_fusion(then, now, found, ("fusion",)),
        check.check_precision(then, now, found, ()),
    )
    assert [re.findall(r"\d+", c) for c in split.changes] == [["0", "1", "2"], ["1", "1", "3"]]
    assert (split.value, split.bound, split.verdict) == (2.0, 0.0, "broken")
    assert re.findall(r"\d+", split.found) == ["4", "6", "2"]
    types_ = re.compile(r"[a-z]+[0-9]+")
    assert [types_.findall(c) for c in wider.changes] == [["n0", "int8", "fp32"], ["n1", "fp16", "bf16"]]
    turned = compute_difference(now.to_side("then"), then.to_side("now"), convs(3))
    assert [re.findall(r"\d+", c) for c in check.check_fusion(now, then, turned, ()).changes] == [
        ["2", "1", "2"]
    ]
    (narrower,) = check.check_precision(now, then, turned, ()).changes
    assert types_.findall(narrower) == ["n2", "int8", "fp32"]


@pytest.mark.parametrize(
    ("low", "high", "overlap"),
    [(1, 3, True), (2, 3, True), (2.1, 3, False), (-1, 0, True), (-1, -0.1, False)],
)
def test_intervals_of_two_scores_overlap_where_neither_ends_before_the_other_begins(
    low: float, high: float, overlap: bool
) -> None:
    then = RecordedScore("s", 1.0, "%", True, 4, Interval(low, high, ""), "")
    now = Score("s", 3.0, "%", 4, "", tally=Tally(3.0))
    object.__setattr__(now, "interval", Interval(0.0, 2.0, ""))
    row = check_score(then, now)
    assert (row.value, bool(row.reason), row.unit) == (2.0, overlap, "points")


def test_samples_that_became_worse_come_first_and_of_these_the_most() -> None:
    def facts(values: list[float]) -> Any:
        amounts = np.array(values)
        held = Predictions()
        held.add({"y": amounts[:, None]}, len(amounts))
        tally = Tally(0.0, amounts, np.ones(len(amounts)), higher=False)
        told = Score("mse", 0.0, "", 4, "", False, held, tally)
        return VariantResult("v", Variant.of(), make_empty_model(), None, engine(), score=told)  # type: ignore[arg-type]

    data = rtlab.CalibrationData({"x": np.zeros((4, 1), np.float32)}, "d")
    task = rtlab.Task(data, np.zeros((4, 1), np.float32), "mse")
    found = find_flipped_samples(facts([1.0, 3.0, 2.0, 0.5]), facts([2.0, 2.5, 0.0, 0.5]), task)
    assert [(f.sample, f.change) for f in found] == [(2, 2.0), (1, 0.5), (0, -1.0)]
    assert [f.flip for f in found] == ["worse", "worse", "better"]
