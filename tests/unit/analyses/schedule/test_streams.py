"""Schedules of engines small enough to work out by hand, and of those of the corpus."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path

import pytest

import engines
from rtlab.analyses.schedule.streams import Schedule, compute_schedule, unit_durations
from rtlab.backends.compiler_info import TENSORRT_RTX
from rtlab.core.engine import Engine, Layer, Tensor
from rtlab.core.variant import Target


def layer(name: str, stream: int, reads="", writes="", *, kind="kgen", event: int | None = None) -> Layer:
    ends = (tuple(map(Tensor, names.split())) for names in (reads, writes))
    return Layer(name, name, kind, 0, *ends, stream=stream, event=event)


def engine(*layers: Layer) -> Engine:
    return Engine("tensorrt-rtx", "1.7", Target("sm86"), layers, maker=TENSORRT_RTX)


#: stem, then left (2 layers) on stream 0 beside right on stream 1, then join.
FORK = engine(
    layer("stem", 0, "x", "a"), layer("go", 0, kind="signal", event=1), layer("left1", 0, "a", "b"),
    layer("held", 1, kind="wait", event=1), layer("right", 1, "a", "c"), layer("done", 1, kind="signal", event=2),
    layer("left2", 0, "b", "d"), layer("joined", 0, kind="wait", event=2), layer("join", 0, "c d", "y"),
)  # fmt: skip
TIMES = {"stem": 1.0, "left1": 2.0, "left2": 1.0, "right": 5.0, "join": 0.5}


def fork(**times: float) -> Schedule:
    return compute_schedule(FORK, TIMES | times, origin="measured")


def test_branches_run_side_by_side_and_the_longer_is_the_critical_path() -> None:
    plan = fork()
    when = {s.layer: (s.start, s.end) for s in plan.steps if not s.sync}
    assert {"stem": (0, 1), "left1": (1, 3), "left2": (3, 4), "right": (1, 6), "join": (6, 6.5)} == when
    assert ("stem", "go", "held", "right", "done", "joined", "join") == plan.path
    assert (6.5, 9.5, 3.0) == (plan.makespan, plan.serial, plan.time_saved)
    assert {"left1": 2.0, "left2": 2.0} == {s.layer: s.slack for s in plan.steps if s.slack}


def test_a_wait_tells_who_waits_for_whom_and_how_long() -> None:
    held, joined = fork().waits
    assert ("held", "go", "right", "stem", 1, 1.0) == dataclasses.astuple(held)
    assert ("joined", "done", "join", "right", 2, 2.0) == dataclasses.astuple(joined)


def test_streams_tell_what_is_on_them_and_how_long_nothing_runs() -> None:
    plan = fork()
    assert [(0, 4, 2, 4.5), (1, 1, 2, 5.0)] == [dataclasses.astuple(s) for s in plan.streams]
    assert [1 - 4.5 / 6.5, 1 - 5 / 6.5] == [plan.idle(s) for s in plan.streams]


def test_the_bound_is_the_longest_chain_of_tensors_or_all_work_spread_out() -> None:
    assert 6.5 == fork().chain == fork().bound
    found = engine(layer("a", 0, "x", "b"), layer("c", 0, "x", "d"), layer("e", 1, "x", "f"))
    plan = compute_schedule(found, {"a": 2.0, "c": 2.0, "e": 1.0}, origin="measured")
    assert (2.0, 2.5, 4.0) == (plan.chain, plan.bound, plan.makespan)


def test_events_that_cost_time_are_part_of_the_streams_and_not_of_the_serial_sum() -> None:
    plan = fork(go=0.25, held=0.25)
    assert (7.0, 9.5) == (plan.makespan, plan.serial)


def test_without_events_waits_are_inferred_from_tensors_and_said_to_be() -> None:
    bare = engine(*(y for y in FORK.layers if y.kind == "kgen"))
    plan = compute_schedule(bare, TIMES, origin="measured")
    assert 6.5 == plan.makespan
    waits = [("right", "stem", None), ("join", "right", None)]
    assert waits == [(w.step, w.on, w.event) for w in plan.waits]


def test_of_several_layers_that_a_layer_waits_for_each_holds_it_by_what_it_adds() -> None:
    found = engine(layer("a", 0, "x", "p"), layer("b", 1, "x", "q"), layer("c", 2, "p q", "y"))
    plan = compute_schedule(found, {"a": 1.0, "b": 3.0, "c": 1.0}, origin="measured")
    assert [("a", 1.0), ("b", 2.0)] == [(w.on, w.idle_time) for w in plan.waits]


def test_writers_of_parts_of_one_tensor_are_all_waited_for() -> None:
    half, whole = Tensor("y", "fp16", (1, 2)), Tensor("y", "fp16", (1, 4))
    parts = [dataclasses.replace(layer(n, s, "x"), outputs=(half,)) for n, s in (("a", 0), ("b", 1))]
    found = engine(*parts, dataclasses.replace(layer("c", 2), inputs=(whole,)))
    plan = compute_schedule(found, {"a": 1.0, "b": 3.0, "c": 1.0}, origin="measured")
    assert ("a", "b") == plan.steps[2].waits_on


def test_a_signal_is_that_of_the_last_use_of_its_event() -> None:
    found = engine(
        layer("a", 0, writes="p"), layer("s1", 0, kind="signal", event=7), layer("b", 0, writes="q"),
        layer("s2", 0, kind="signal", event=7), layer("w", 1, kind="wait", event=7), layer("c", 1, "q"),
    )  # fmt: skip
    plan = compute_schedule(found, {"a": 1.0, "b": 1.0, "c": 1.0}, origin="measured")
    assert ("s2",) == plan.steps[4].waits_on
    assert 3.0 == plan.makespan


@pytest.mark.parametrize("event", [None, 9])
def test_a_wait_without_signal_waits_for_nothing_and_is_told(event) -> None:
    lost = [dataclasses.replace(y, event=event) if y.id == "held" else y for y in FORK.layers]
    plan = compute_schedule(engine(*lost), TIMES, origin="measured")
    assert 0.0 == next(s.start for s in plan.steps if s.layer == "right")
    assert (5.5, 5.5) == (plan.chain, plan.makespan)  # no chain is longer than the whole
    (note,) = plan.notes
    assert "1 wait has no signal" in note


@pytest.mark.parametrize("bad", [math.nan, math.inf, -1.0, None])
def test_a_layer_without_a_time_takes_none_and_is_told(bad) -> None:
    times = TIMES | {"right": bad} if bad is not None else {k: t for k, t in TIMES.items() if k != "right"}
    plan = compute_schedule(FORK, times, origin="measured")
    assert (4.5, 4.5) == (plan.makespan, plan.serial)
    (note,) = plan.notes
    assert "1 of 5 layers" in note


def test_layers_that_run_nothing_have_no_unit_length() -> None:
    found = engine(*FORK.layers, layer("nothing", 0, kind="NoOp"))
    assert {"stem", "left1", "left2", "right", "join"} == set(unit_durations(found))
    plan = compute_schedule(found, unit_durations(found), origin="")
    assert (4.0, "steps", ()) == (plan.makespan, plan.unit, plan.notes)


@engines.each
def test_an_engine_takes_as_long_as_its_layers_but_for_what_a_second_stream_takes(folder: Path) -> None:
    """By hand: the projection of the residual network, 11 µs, runs beside a copy and a convolution that take 18."""
    found, times = engines.read(folder)
    plan = compute_schedule(found, {t.layer: t.median for t in times.layers}, origin="measured")
    bought = 0.011 if folder == engines.RESIDUAL else 0.0
    assert (2 if bought else 1) == len(plan.streams)
    assert math.isclose(times.summed - bought, plan.makespan, rel_tol=1e-9)
    assert math.isclose(bought, plan.time_saved, abs_tol=1e-12)
