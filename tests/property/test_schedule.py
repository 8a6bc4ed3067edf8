"""The schedule of random engines, beside a simulator of streams and a search of all paths."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math

import hypothesis.strategies as st
import pytest
from hypothesis import given

from rtlab.analyses.schedule.streams import Schedule, compute_schedule, unit_durations
from rtlab.backends.compiler_info import TENSORRT_RTX
from rtlab.core.engine import Engine, Layer, Tensor
from rtlab.core.variant import Target

EXACT = 1 / 64  # durations are multiples of it, so that sums of floats are exact in any order


def of(layers: list[Layer]) -> Engine:
    return Engine("tensorrt-rtx", "1.7", Target("sm86"), tuple(layers), maker=TENSORRT_RTX)


@st.composite
def engines(draw: st.DrawFn, *, events: bool | None = None) -> tuple[Engine, dict[str, float]]:
    """Layers on up to four streams that read one another's tensors, with the events that order them, or without any.

    Some events order what needs no order, some waits come twice, and some steps take no time.
    """
    told = draw(st.booleans()) if events is None else events
    layers: list[Layer] = []
    wrote: list[tuple[str, int]] = []
    signals = itertools.count()
    fresh: dict[int, int] = {}

    def put(
        kind: str, stream: int, *, reads: tuple[str, ...] = (), writes: str = "", event: int | None = None
    ) -> None:
        i = len(layers)
        layers.append(
            Layer(
                f"{i}:{kind}", f"{kind}{i}", kind, i,
                tuple(Tensor(r) for r in reads), (Tensor(writes),) if writes else (), stream=stream, event=event,
            )
        )  # fmt: skip

    for _ in range(draw(st.integers(1, 9))):
        stream = draw(st.integers(0, 3))
        reads = draw(st.lists(st.sampled_from(wrote), max_size=3, unique=True)) if wrote else []
        if told:
            spare = draw(st.lists(st.sampled_from(wrote), max_size=1)) if wrote else []
            for source in sorted({s for _, s in [*reads, *spare]} - {stream}):
                event = fresh.get(source) if draw(st.booleans()) else None
                if event is None:
                    event = next(signals) % 3  # an event is used again when it has been waited for
                    fresh = {s: e for s, e in fresh.items() if e != event}
                    put("signal", source, event=event)
                    fresh[source] = event
                put("wait", stream, event=event)
        fresh.pop(stream, None)  # what is written now no earlier signal tells
        name = f"t{len(layers)}"
        put("kgen", stream, reads=tuple(n for n, _ in reads), writes=name)
        wrote.append((name, stream))
    times = {
        y.id: EXACT * draw(st.integers(0, 200))
        for y in layers
        if y.kind == "kgen" or draw(st.integers(0, 9)) == 0
    }
    return of(layers), times


def planned() -> st.SearchStrategy[tuple[Engine, dict[str, float], Schedule]]:
    return engines().map(lambda drawn: (*drawn, compute_schedule(*drawn, origin="measured")))


def needs(engine: Engine) -> list[set[int]]:
    """What each step waits for, by definition: its stream, its event, or without events its tensors."""
    told = any(y.kind == "wait" for y in engine.layers)
    found = []
    for i, y in enumerate(engine.layers):
        earlier = list(enumerate(engine.layers[:i]))
        before = {p for p, z in earlier if z.stream == y.stream}
        if y.kind == "wait":
            before |= {max(p for p, z in earlier if z.kind == "signal" and z.event == y.event)}
        if not told:
            read = {t.name for t in y.inputs}
            before |= {p for p, z in earlier if read & {t.name for t in z.outputs}}
        found.append(before)
    return found


def simulated(engine: Engine, times: dict[str, float]) -> list[tuple[float, float]]:
    """Start and end of each step: streams as queues, and a clock that goes from one end of a step to the next."""
    waiting = needs(engine)
    queues: dict[int, list[int]] = {}
    for i, y in enumerate(engine.layers):
        queues.setdefault(y.stream, []).append(i)
    ran: dict[int, tuple[float, float]] = {}
    now = 0.0
    while any(queues.values()):
        started = True
        while started:  # a step that takes no time lets others begin at the same moment
            started = False
            for queue in queues.values():
                head = queue[0] if queue else -1
                if head >= 0 and all(p in ran and ran[p][1] <= now for p in waiting[head]):
                    queue.pop(0)
                    ran[head] = (now, now + times.get(engine.layers[head].id, 0.0))
                    started = True
        now = min((end for _, end in ran.values() if end > now), default=math.inf)
    return [ran[i] for i in range(len(engine.layers))]


def longest(engine: Engine, times: dict[str, float], before: list[set[int]]) -> float:
    """The longest of all paths, by search."""

    @functools.cache
    def until(i: int) -> float:
        return times.get(engine.layers[i].id, 0.0) + max((until(p) for p in before[i]), default=0.0)

    return max(map(until, range(len(engine.layers))))


@given(planned())
def test_steps_start_and_end_as_in_a_simulation_of_the_streams(drawn) -> None:
    engine, times, plan = drawn
    assert simulated(engine, times) == [(s.start, s.end) for s in plan.steps]


@given(planned())
def test_the_makespan_is_the_longest_path_and_the_critical_path_is_one_of_that_length(drawn) -> None:
    engine, times, plan = drawn
    assert longest(engine, times, needs(engine)) == plan.makespan
    assert plan.makespan == sum(times.get(i, 0.0) for i in plan.path)
    at = {s.layer: s for s in plan.steps}
    assert all(at[a].end == at[b].start for a, b in itertools.pairwise(plan.path))
    assert set(plan.path) == {s.layer for s in plan.steps if s.critical}


@given(planned())
def test_no_two_steps_of_a_stream_overlap_and_nothing_starts_before_what_it_reads_is_written(drawn) -> None:
    engine, _times, plan = drawn
    for stream in plan.streams:
        mine = [s for s in plan.steps if s.stream == stream.id]
        assert all(a.end <= b.start for a, b in itertools.pairwise(mine))
    at = {s.layer: s for s in plan.steps}
    writer = {t.name: y.id for y in engine.layers for t in y.outputs}
    for y in engine.layers:
        assert all(at[writer[t.name]].end <= at[y.id].start for t in y.inputs)


@given(planned())
def test_the_makespan_lies_between_its_bounds(drawn) -> None:
    engine, times, plan = drawn
    layers = {y.id for y in engine.layers if y.kind == "kgen"}
    sync = sum(t for i, t in times.items() if i not in layers)
    assert plan.serial == sum(t for i, t in times.items() if i in layers)
    assert plan.bound <= plan.makespan <= plan.serial + sync
    assert plan.chain <= plan.bound
    assert plan.makespan >= max(s.busy for s in plan.streams)
    assert all(0 <= plan.idle(s) <= 1 for s in plan.streams)


@given(planned(), st.data())
def test_a_step_delayed_by_its_slack_delays_nothing_and_by_more_delays_the_whole(drawn, data) -> None:
    engine, times, plan = drawn
    step = data.draw(st.sampled_from(plan.steps))
    for more, later in ((step.slack, 0.0), (step.slack + EXACT, EXACT)):
        slow = {**times, step.layer: times.get(step.layer, 0.0) + more}
        assert plan.makespan + later == compute_schedule(engine, slow, origin="measured").makespan


@given(planned())
def test_waits_account_for_all_the_time_that_streams_stand_still_before_their_last_step(drawn) -> None:
    _engine, _times, plan = drawn
    for stream in plan.streams:
        mine = [s for s in plan.steps if s.stream == stream.id]
        held = sum(w.idle_time for w in plan.waits if w.step in {s.layer for s in mine})
        assert mine[-1].end == stream.busy + held


@given(engines(events=True))
def test_one_stream_takes_the_sum_and_buys_nothing(drawn) -> None:
    engine, times = drawn
    one = of([dataclasses.replace(y, stream=0) for y in engine.layers if y.kind == "kgen"])
    times = {i: t for i, t in times.items() if i in {y.id for y in one.layers}}
    plan = compute_schedule(one, times, origin="measured")
    assert plan.serial == plan.makespan
    assert (0.0, ()) == (plan.time_saved, plan.waits)


@given(planned(), st.floats(0.001, 1000))
def test_other_units_of_time_change_nothing_but_the_numbers(drawn, factor) -> None:
    engine, times, plan = drawn
    scaled = compute_schedule(engine, {i: t * factor for i, t in times.items()}, origin="measured")

    def numbers(found: Schedule, by: float) -> list[float]:
        return [by * t for s in found.steps for t in (s.start, s.end)] + [
            by * found.time_saved,
            by * found.chain,
        ]

    assert numbers(plan, factor) == pytest.approx(numbers(scaled, 1), rel=1e-9, abs=1e-9 * factor)


@given(engines())
def test_unit_lengths_count_layers(drawn) -> None:
    engine, _ = drawn
    plan = compute_schedule(engine, unit_durations(engine), origin="")
    assert sum(y.kind == "kgen" for y in engine.layers) == plan.serial
    assert "steps" == plan.unit
