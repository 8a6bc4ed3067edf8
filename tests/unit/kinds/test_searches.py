"""Searches and what a study keeps of them, by hand: batches, forms, calibrators' ratio, labels, doubts, figures."""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import math
import time
import types
from pathlib import Path

import numpy as np
import onnx
import pytest

from rtlab.analyses.batches import BatchTime
from rtlab.analyses.repair import panel as repair_panel
from rtlab.analyses.samples.spread import compute_spread
from rtlab.core.budget import Budget, WorkContext
from rtlab.core.buildlog import Entry, Operator, TacticTime
from rtlab.core.data import CalibrationData
from rtlab.core.model import load
from rtlab.core.progress import Silent
from rtlab.core.protocols import BuildRequest
from rtlab.core.variant import Variant
from rtlab.errors import Cancelled, RunError, VariantError
from rtlab.experiments import peaks, ranking, running, sweep
from rtlab.experiments.experiment import minimize, run_experiment
from rtlab.samples.architectures import Writer
from rtlab.study import accuracy, fusion, recorded, tuning
from rtlab.testing import ReferenceBackend, tiny_model

BOX = types.SimpleNamespace


def numbered(count: int) -> CalibrationData:
    """Sample i is full of i."""
    return CalibrationData(
        {"x": np.arange(count, dtype=np.float32)[:, None, None, None] * np.ones((3, 8, 8), "f4")}
    )


@pytest.mark.parametrize(("size", "samples"), [(2, [0, 1]), (3, [0, 1, 2]), (7, [0, 1, 2, 0, 1, 2, 0])])
def test_samples_come_again_where_a_batch_needs_more(size, samples) -> None:
    batch = sweep._make_batch(numbered(3), tiny_model(), size)["x"]
    assert batch[:, 0, 0, 0].tolist() == samples
    assert batch.flags.c_contiguous


@pytest.mark.parametrize(
    ("given", "sizes"),
    [([4, 1, 4, 2], (1, 2, 4)), (3, (3,)), ([], None), ("12", None), ([0], None), ([1.5], None)],
)
def test_batch_sizes_are_whole_numbers_each_once_in_rising_order(given, sizes) -> None:
    if sizes is None:
        with pytest.raises(VariantError):
            sweep._validate_sizes(given, "Cannot")
    else:
        assert sweep._validate_sizes(given, "Cannot") == sizes


@pytest.mark.parametrize(("broken", "rows", "runs"), [(None, [1, 2, 4], 15), (4, [1, 2], 10), (2, [1], 5)])
def test_a_batch_that_cannot_be_run_ends_a_sweep(broken, rows, runs) -> None:
    def profile(engine, batch, progress, *, runs):
        assert (engine, runs) == ("engine", 5)
        if len(batch["x"]) == broken:
            raise RunError("Cannot run: no. Stop.")
        return BOX(total=np.full(runs, 2.0 * len(batch["x"])), device="d", processor="p")

    search = sweep.BatchSweep("v", "engine", tiny_model(), numbered(3), (1, 2, 4), runs=5)
    context = WorkContext(BOX(source="s", profile=profile))
    found = run_experiment(search, context)
    assert [(r.batch, r.median, r.times.count) for r in found.rows] == [(b, 2.0 * b, 5) for b in rows]
    assert (context.runs, f"Batch {broken} " in found.note, bool(found.note)) == (
        runs,
        bool(broken),
        bool(broken),
    )
    assert (found.variant, found.source, found.device, found.processor) == ("v", "s", "d", "p")


def test_an_engine_is_swept_that_ran_here_with_any_batch() -> None:
    prepared = BOX(model=BOX(dynamic_batch=True, written_batch=0))
    facts = BOX(name="v", measured="engine", recorded=False, prepared=prepared)
    found = sweep.BatchSweep.of(facts, numbered(3), sweep.BATCHES, "onnxruntime")
    assert (found.name, found.engine, found.model, found.runs) == ("v", "engine", prepared.model, 20)
    assert found.batches == tuple(2**i for i in range(7))
    for change in (
        {"measured": None}, {"recorded": True}, {"prepared": BOX(model=BOX(dynamic_batch=False, written_batch=0))},
        {"prepared": BOX(model=BOX(dynamic_batch=True, written_batch=1))},
    ):  # fmt: skip
        with pytest.raises(VariantError):
            sweep.BatchSweep.of(BOX(**{**vars(facts), **change}), numbered(3), (1,), None)


def test_without_samples_there_is_no_batch() -> None:
    with pytest.raises(RunError, match="batch of 4"):
        sweep._make_batch(BOX(batches=lambda *_: iter(()), source="s"), tiny_model(), 4)


def test_the_layers_of_the_reference_share_the_time_of_a_run() -> None:
    value = onnx.helper.make_tensor_value_info
    for count in (1, 2):
        names = ["x", *("m" * (count - 1)), "y"]
        nodes = [onnx.helper.make_node("Relu", [a], [b]) for a, b in itertools.pairwise(names)]
        proto = onnx.helper.make_graph(nodes, "g", [value("x", 1, [1])], [value("y", 1, [1])])
        model = load(
            onnx.helper.make_model(proto, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=9)
        )
        backend = ReferenceBackend()
        engine = backend.build(BuildRequest(model, Variant.of("fp32", target="cpu")), Silent())
        profile = backend.profile(engine, {"x": np.zeros(1, "f4")}, Silent(), runs=2, warmup=0)
        assert len(profile.samples) == count
        for times in profile.samples.values():
            np.testing.assert_allclose(times * count, profile.total)


def test_a_first_batch_that_cannot_be_run_is_the_error() -> None:
    def profile(*_, **__):
        raise RunError("Cannot run: no. Stop.")

    search = sweep.BatchSweep("v", "engine", tiny_model(), numbered(3), (1, 2))
    with pytest.raises(RunError, match="no"):
        run_experiment(search, WorkContext(BOX(source="s", profile=profile)))


def test_a_rate_and_the_time_of_a_sample_follow_from_the_median() -> None:
    """4 samples in 8 ms; the quartiles of 6, 8 and 12 ms are 7 and 10."""
    row = BatchTime(4, compute_spread(np.array([6.0, 12.0, 8.0])))
    assert (row.rate, row.median, row.lower, row.upper) == (500, 8, 7, 10)


@pytest.mark.parametrize("only", ["builds", "runs", "seconds"])
def test_an_allowance_is_used_up_once_something_was_found(monkeypatch, only) -> None:
    now = [5.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    context = WorkContext(None, budget=Budget(**{"seconds": math.inf, only: 3}))

    def spend(n: int) -> None:
        now[0] += n
        context.count(builds=n, runs=n)

    spend(2)
    context.has_result = True
    assert not context.is_exhausted
    spend(1)
    assert (context.is_exhausted, context.is_timed_out, context.stopped()) == (True, *[only == "seconds"] * 2)
    assert [*context.iterate([1, 2], "it")] == []
    context.has_result = False
    assert (context.is_exhausted, [*context.iterate([1, 2], "it")]) == (False, [1, 2])


@pytest.mark.parametrize(
    ("partial", "cancelled", "records", "found"),
    [
        (True, True, 1, 0),
        (True, True, 0, None),
        (False, True, 1, None),
        (False, False, 2, 1),
        (True, False, 1, 0),
    ],
)
def test_a_cancel_leaves_a_partial_record_and_else_is_raised(partial, cancelled, records, found) -> None:
    reporter, kept = Silent(), []

    def steps(context):
        yield from range(records)
        if cancelled:
            reporter.cancel()
        raise Cancelled("Stopped.")

    search = BOX(partial=partial, steps=steps)
    if found is None:
        with pytest.raises(Cancelled):
            run_experiment(search, WorkContext(None, reporter), kept.append)
    else:
        assert run_experiment(search, WorkContext(None, reporter), kept.append) == found
    assert kept == [*range(records)]


def test_a_processor_is_as_fast_as_its_fastest_run(monkeypatch) -> None:
    """2 n³ operations in 1 ms, and twice the bytes of n numbers in FP32 in 2 ms."""
    times = {"MatMul": [3.0, 1.0], "MatMulInteger": [0.5, 4.0], "Relu": [2.0, 9.0]}
    released = []

    def build(request, _):
        (op,) = (n.op for n in request.model.top)
        onnx.checker.check_model(request.model.proto(), full_check=True)
        return BOX(op=op, layers=[BOX(id="copy"), BOX(id=op), BOX(id="untimed")])

    def profile(engine, inputs, _, *, runs, warmup):
        assert (runs, warmup) == (5, 2)
        assert inputs["x"].shape == ((100,) if engine.op == "Relu" else (8, 8))
        assert (inputs["x"].min() < 0) == (engine.op == "Relu")
        return BOX(samples={"copy": np.array([0.1, 0.1]), engine.op: np.array(times[engine.op])})

    tool = BOX(source="s", build=build, profile=profile, release=released.append)
    context = WorkContext(tool)
    found = run_experiment(peaks.CpuPeaks(product=8, moved=100), context)
    assert found.cores == pytest.approx({"fp32": 2 * 8**3 / 1e-3, "int8": 2 * 8**3 / 0.5e-3})
    assert found.bandwidth == pytest.approx(2 * 400 / 2e-3)
    assert (found.origin, len(released), context.builds, context.runs) == ("measured", 3, 3, 21)


@pytest.mark.parametrize(
    ("reference", "variant", "decibel"),
    [
        ([[3.0, 4.0]], [[3.0, 4.5]], 20.0), ([[3.0, 4.0]], [[3.0, 4.0]], math.inf),
        ([[3.0, math.nan]], [[3.0, 4.0]], -math.inf),
    ],
)  # fmt: skip
def test_calibrators_are_compared_by_decibel_over_all_batches(reference, variant, decibel) -> None:
    """25 / 0.25 is 20 dB."""
    parts = [[np.array(r)] for r in (reference, variant)]
    assert ranking._sqnr(*parts) == pytest.approx(decibel)
    if math.isfinite(decibel):
        both = [[p[0], np.zeros((2, 3))] for p in parts]
        assert ranking._sqnr(*both) == pytest.approx(decibel)


@pytest.mark.parametrize(
    ("total", "size"), [(1, 64), (131072, 64), (131073, 63), (4 << 20, 2), (9 << 20, 1), (0, 64)]
)
def test_a_batch_holds_eight_mebibytes_of_values_and_at_most_64_samples(monkeypatch, total, size) -> None:
    monkeypatch.setattr(running, "value_bytes", lambda *_: {"a": total // 2, "b": total - total // 2})
    assert running.batch_size(tiny_model(), ["a", "b"]) == size
    assert running.batch_size(tiny_model(batch=2), ["a", "b"]) == 1
    assert [running.fixed_batch(tiny_model(batch=b)) for b in (1, 2, "N")] == [1, 2, 1]


def test_a_value_of_unknown_size_counts_as_the_largest(monkeypatch) -> None:
    """In FP32 the input has 3 * 64 numbers, and what the stem writes 8 * 64."""
    model = tiny_model()
    known = {"x": (1, 3, 8, 8), "stem": (1, 8, 8, 8)}
    monkeypatch.setattr(running, "sizes_of", lambda *_: BOX(get=known.get))
    assert running.value_bytes(model, ["x", "left", "stem", "x", "none"]) == {
        "x": 768,
        "left": 2048,
        "stem": 2048,
    }
    assert running.value_bytes(model, ["left"]) == {"left": 8 << 20}


@pytest.mark.parametrize(
    ("needed", "budget", "size"),
    [({3}, 99, 1), ({2, 5}, 99, 2), ({0, 1, 6, 7}, 99, 4), (set(range(8)), 99, 8), ({3}, 0, 8)],
)
def test_the_fewest_nodes_are_found_by_halves(needed, budget, size) -> None:
    units = [f"n{i}" for i in range(8)]
    context = WorkContext(None, budget=Budget(builds=budget))
    context.has_result = True
    holds = lambda part: needed <= {int(n[1:]) for n in part}  # noqa: E731
    found = minimize(units, holds, context, "")
    assert len(found) == size
    assert holds(found)


@pytest.mark.parametrize(
    ("matched", "layers", "nodes", "begin"),
    [(0, 20, 1, "No layer"), (2, 20, 1, "Only 2 of 20"), (3, 20, 1, ""), (0, 0, 1, ""), (0, 20, 0, "")],
)
def test_an_engine_of_which_a_tenth_of_the_layers_has_a_node_may_be_of_another_model(
    monkeypatch, matched, layers, nodes, begin
) -> None:
    pairs = [BOX(layer=i) for i in range(matched)] * 2
    monkeypatch.setattr(recorded, "map_nodes", lambda _: BOX(pairs=pairs))
    facts = BOX(source=BOX(nodes=[0] * nodes, name="m"), engine=BOX(layers=[0] * layers))
    told = recorded._other_model(facts)
    assert told.startswith(begin)
    assert bool(told) == bool(begin)


def test_a_repair_is_drawn_where_two_times_are_known_with_the_level_that_is_enough() -> None:
    """fp32 has 98; two points may be lost, so that 96 is the level."""
    point = lambda score, ms, enough: BOX(  # noqa: E731
        score=score, drop=98 - score, milliseconds=ms, enough=enough, what=f"w{score}"
    )
    points = (point(90, 1.0, False), point(97, None, True), point(96.5, 2.0, True))
    repair = BOX(points=points, max_drop=2.0, unit="%", metric="top-1")
    (figure,) = repair_panel._curve(repair)
    (points,), (level,) = figure["data"], figure["layout"]["shapes"]
    assert (level["y0"], level["y1"]) == (96, 96)
    assert (points["x"], points["y"], points["text"]) == ([1.0, 2.0], [90, 96.5], ["w90", "w96.5"])
    assert points["marker"]["symbol"] == ["x", "circle"]
    repair.points = (point(90, 1.0, False), point(97, None, True), point(96.5, 1.0, True))
    assert repair_panel._curve(repair) == []


def listed(*tactics: tuple[str, float]) -> tuple[TacticTime, ...]:
    return tuple(TacticTime(tactic, f"name of {tactic}", ms) for tactic, ms in tactics)


def test_a_tactic_costs_what_it_takes_longer_than_the_fastest() -> None:
    timed = listed(("0x1f", 1.0), ("32", 1.25), ("0x21", 3.0))
    for remembered, cost in (("0x1f", 0.0), ("0x20", 0.25), ("33", 2.0), ("0x99", None), (None, None)):
        holds = None if remembered is None else TacticTime(remembered, "", 0.0)
        assert tuning.LayerTactics("y", (), timed, holds).cost == cost


@pytest.mark.parametrize("cache", [None, Path("cache")])
def test_tactics_are_those_of_the_logs_then_with_what_the_cache_holds(monkeypatch, cache) -> None:
    """The first log is the variant's: of others only those count that the cache holds, each once."""
    timed = listed(("0x1f", 1.0), ("0x20", 2.0))
    mine, plain, other, gone = (
        Operator(n, k, (n,), timed) for n, k in (("a", "A"), ("b", ""), ("c", "C"), ("d", "D"))
    )
    logs = {"one": (mine, plain), "two": (dataclasses.replace(mine, name="again"), other, gone)}
    asked, records = [], []

    def remembered(path, keys, _):
        asked.append((path, keys))
        return {"A": Entry("A", 0x20, 5.0), "C": Entry("C", 0x77, 6.0)}

    contest = lambda layer, operator: BOX(  # noqa: E731
        layer=layer, operator=operator, candidates=[BOX(tactic=t) for t in timed]
    )
    monkeypatch.setattr(tuning, "find_contests", lambda _: [contest("plugin", ""), contest("a", "a")])
    monkeypatch.setattr(tuning, "get_build_log", lambda facts: facts)
    context = WorkContext(BOX(operators=logs.get, remembered=remembered))
    found = run_experiment(tuning.TacticListing(BOX(), ("one", "two"), cache), context, records.append)
    assert [y.layer for y in records[0]] == ["a", "b", "plugin"]
    assert {(y.remembered, y.key) for y in records[0]} == {(None, "")}
    assert (len(records), context.builds, asked) == (
        (1, 0, []) if cache is None else (2, 1, [(cache, ("A", "C", "D"))])
    )
    if cache is not None:
        assert [(y.layer, y.key, y.remembered and (y.remembered.tactic, y.remembered.name)) for y in found] == [
            ("a", "A", ("0x20", "name of 0x20")), ("b", "", None), ("c", "C", ("0x77", "")), ("plugin", "", None),
        ]  # fmt: skip
        assert [y.cost for y in found] == [1.0, None, None, None]


def test_a_node_is_renamed_by_the_first_rule_that_fits_all_of_its_name() -> None:
    """The second rule fits what the first one makes, and the third a part of a name only."""
    net = Writer("net")
    x = net.node("Relu", ["x"], "a")
    y = net.node("Add", [x, net.weight("/b/weight", np.zeros(1, "f4"))], "b")
    net.node("Relu", [y], "cc")
    net.rename({r"a/(.*)": r"b/\1", r"b/.*": "c", "c": "d"})
    assert [(n.name, [*n.input], [*n.output]) for n in net.nodes] == [
        ("b/Relu", ["x"], ["b/Relu"]), ("c", ["b/Relu", "b.weight"], ["c"]), ("cc/Relu", ["c"], ["cc/Relu"])
    ]  # fmt: skip
    model = net.model({"x": ("N", 2)}, {"y": ("c", ("N", 2))})
    assert [(n.op, [*n.outputs]) for n in model.top][1] == ("Add", ["y"])
    assert (model.opset, model.ir.ir_version, model.inputs, model.outputs) == (17, 8, ("x",), ("y",))


@pytest.mark.parametrize(
    ("verdict", "builds", "recalled", "kept"),
    [("forced", 1, False, True), ("unknown", 1, False, False), ("forced", 0, False, False), ("forced", 1, True, False)],
)  # fmt: skip
def test_an_answer_is_kept_that_was_found_out_here(
    monkeypatch, tmp_path, verdict, builds, recalled, kept
) -> None:
    monkeypatch.setenv("RTLAB_RECORDS", str(tmp_path / "in"))
    answer = BOX(verdict=verdict, builds=builds, recalled=recalled)
    written = BOX(text=lambda: "text", about=("a",))
    for field in ("digest", "variant", "options", "backend", "version", "target"):
        setattr(written, field, field)
    monkeypatch.setattr(fusion, "create_record", lambda *_: written)
    fusion.save_answer(BOX(), answer)
    files = [*tmp_path.rglob("*.json")]
    assert [f.read_text() for f in files] == ["text"] * kept
    key = "digest\0variant\0options\0backend\0version\0target\0a"
    assert {f.stem for f in files} <= {hashlib.sha256(key.encode()).hexdigest()[:32]}


@pytest.mark.parametrize(
    ("change", "seconds", "each"),
    [
        ({}, 6.0, 2.0), ({}, math.inf, None), ({}, 0.0, ()), ({"measured": None}, 6.0, ()),
        ({"recorded": True}, 6.0, ()), ({"estimate": 1.0}, 6.0, ()),
    ],
)  # fmt: skip
def test_sessions_are_timed_each_for_its_part_where_no_time_is_estimated(
    monkeypatch, change, seconds, each
) -> None:
    asked = []

    def profile(engine, batch, progress, *, runs, seconds):
        asked.append(seconds)
        return BOX(total=np.array([1.0, 9.0, 2.0]) * len(asked))

    facts = BOX(measured=BOX(backend="b"), recorded=False, prepared=BOX(model=tiny_model()), estimate=None)
    facts = BOX(**{**vars(facts), **change})
    monkeypatch.setattr(accuracy, "get_runner", lambda _: BOX(profile=profile))
    monkeypatch.setattr(accuracy, "ROUNDS", 3)
    monkeypatch.setattr(accuracy.roofline, "estimate_timing", lambda facts: BOX(estimated=facts.estimate))
    found = accuracy.time_rounds(facts, numbered(2), seconds, Silent())
    assert found == (() if each == () else (2.0, 4.0, 6.0))
    assert asked == ([] if each == () else [each] * 3)
