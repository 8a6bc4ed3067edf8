"""When each step of an engine runs on its stream, what it waits for, and what more than one stream is worth."""

from __future__ import annotations

import dataclasses
import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Literal

from rtlab.analyses import roofline, timing
from rtlab.core.engine import Engine, Layer
from rtlab.core.facts import VariantResult
from rtlab.core.peaks import Peaks
from rtlab.core.phrases import pluralize
from rtlab.core.schema import Origin
from rtlab.relation.dataflow import Writers, work

#: Steps that only order the streams.
_SYNC = frozenset({"signal", "wait"})


@dataclasses.dataclass(frozen=True)
class ScheduledStep:
    """One step of an engine, from ``start`` to ``end`` in the unit of its schedule.

    ``waits_on`` are ids of steps on other streams that end before it begins: signals, or where waits are inferred the
    layers whose tensors it reads. It could end later by ``slack`` without the whole ending later. ``critical`` says
    that it is on the one path that ``Schedule.path`` gives; other steps without slack are on paths as long.
    """

    layer: str
    stream: int
    start: float
    end: float
    waits_on: tuple[str, ...]
    slack: float
    critical: bool
    sync: bool

    @property
    def duration(self) -> float:
        """From start to end."""
        return self.end - self.start


@dataclasses.dataclass(frozen=True)
class Wait:
    """A stream that goes on only when another has come so far.

    ``step`` waits for ``on``: a wait and its signal, which the engine reports with their ``event``, or a layer and the
    last layer of the other stream that it reads from, inferred, without an event. ``layer`` is the work behind the
    wait and ``source`` the work before the signal, empty where there is none. The stream is idle for ``idle_time``; of
    several waits of one step each has what it adds.
    """

    step: str
    on: str
    layer: str
    source: str
    event: int | None
    idle_time: float


@dataclasses.dataclass(frozen=True)
class Stream:
    """One stream: its number, how many layers and how many signals and waits are on it, and how long it is busy."""

    id: int
    layers: int
    sync: int
    busy: float


@dataclasses.dataclass(frozen=True, eq=False)
class Schedule:
    """An engine run as soon as its streams allow, from 0 to ``makespan``.

    ``steps`` are in the engine's order. ``serial`` is the sum of all layers, which one stream would need, without
    signals and waits. ``chain`` is the longest way through layers that read each other's tensors, which no number of
    streams can beat. ``path`` holds the ids of the steps that together take the makespan, each waiting for the one
    before. ``origin`` is that of the durations, empty where every layer counts 1. ``notes`` say what is not known.
    """

    steps: tuple[ScheduledStep, ...]
    waits: tuple[Wait, ...]
    streams: tuple[Stream, ...]
    path: tuple[str, ...]
    makespan: float
    serial: float
    chain: float
    origin: Origin | Literal[""]
    notes: tuple[str, ...] = ()

    def __repr__(self) -> str:
        streams = pluralize(len(self.streams), "stream")
        return f"<Schedule {self.makespan:.4g} {self.unit} on {streams}, {self.origin or 'every layer counts 1'}>"

    @property
    def unit(self) -> Literal["ms", "steps"]:
        """What times are counted in."""
        return "ms" if self.origin else "steps"

    @property
    def time_saved(self) -> float:
        """How much earlier it ends than on one stream."""
        return _subtract(self.serial, self.makespan)

    @property
    def bound(self) -> float:
        """No schedule on as many streams ends before: the longest chain, or all work spread evenly."""
        return max(self.chain, self.serial / max(1, len(self.streams)))

    def idle(self, stream: Stream) -> float:
        """The share of the makespan in which nothing runs on a stream, from 0 to 1."""
        # Sums of the same times in another order may differ in their last bit.
        return max(0.0, 1 - stream.busy / self.makespan) if self.makespan else 0.0


def build_schedule(facts: VariantResult, gpu: str | Peaks | None = None) -> Schedule:
    """When each layer runs on which stream, and what it waits for.

    Args:
        facts: The variant.
        gpu: Durations are estimated for it; by default the engine's own measured times, else every layer alike.

    Raises:
        VariantError: the processor is not known.
        ModelError: a dimension has no size.
    """
    engine = facts.engine
    if gpu is not None:
        estimated = roofline.compute_roofline(facts, gpu).milliseconds(engine)
        return compute_schedule(engine, estimated, origin="estimated")
    if measured_times := timing.get_milliseconds(facts):
        return compute_schedule(engine, measured_times, origin="measured")
    return compute_schedule(engine, unit_durations(engine), origin="")


def unit_durations(engine: Engine) -> dict[str, float]:
    """A length of 1 for every layer that does something, by layer id."""
    return {y.id: 1.0 for y in engine.layers if _is_working(y)}


def compute_schedule(
    engine: Engine, durations: Mapping[str, float], *, origin: Origin | Literal[""]
) -> Schedule:
    """Run every step as soon as its stream is free and what it waits for has ended.

    Steps of one stream keep their order. Between streams, a ``wait`` holds its stream until the last ``signal`` of its
    event before it. Where an engine on several streams names no events, a layer waits for the layers of other streams
    whose tensors it reads. Layers side by side do not slow each other down here, so that the makespan is the best case.

    Args:
        engine: Its layers are in the order in which they are issued.
        durations: In milliseconds by layer id, or all 1 with an empty ``origin``. A layer without a finite time of 0
            or more takes none, and ``Schedule.notes`` says so. Signals and waits are free unless they have one.
        origin: Of the durations.
    """
    layers = engine.layers
    times = {i: float(t) for i, t in durations.items() if math.isfinite(t) and t >= 0}
    lengths = [times.get(y.id, 0.0) for y in layers]
    writers = Writers(engine)
    reads = [writers.before(i) for i in range(len(layers))]
    has_events = any(y.kind in _SYNC for y in layers)
    others = _find_signals(layers) if has_events else _infer_predecessors(layers, reads)
    previous = _find_previous(layers)

    starts: list[float] = []
    ends: list[float] = []
    chain_ends: list[float] = []
    blockers: list[int] = []
    for i, length in enumerate(lengths):
        before = [p for p in (previous[i], *others[i]) if p >= 0]
        last = max(before, key=ends.__getitem__, default=-1)
        blockers.append(last)
        starts.append(ends[last] if last >= 0 else 0.0)
        ends.append(starts[i] + length)
        chain_ends.append(max((chain_ends[p] for p in reads[i]), default=0.0) + length)
    makespan = max(ends, default=0.0)

    latest = [makespan] * len(layers)
    for i in range(len(layers) - 1, -1, -1):
        for p in (*others[i], previous[i]):
            if p >= 0:
                latest[p] = min(latest[p], latest[i] - lengths[i])

    path: list[int] = []
    at = max(range(len(layers)), key=ends.__getitem__, default=-1)
    while at >= 0:
        path.append(at)
        at = blockers[at]
    on_path = set(path)
    steps = tuple(
        ScheduledStep(
            layer=y.id,
            stream=y.stream,
            start=starts[i],
            end=ends[i],
            waits_on=tuple(layers[p].id for p in others[i]),
            slack=max(0.0, _subtract(latest[i], ends[i])),
            critical=i in on_path,
            sync=y.kind in _SYNC,
        )
        for i, y in enumerate(layers)
    )
    return Schedule(
        steps=steps,
        waits=tuple(_list_waits(layers, others, previous, ends)),
        streams=_summarize_streams(layers, lengths),
        path=tuple(layers[i].id for i in reversed(path)),
        makespan=makespan,
        serial=math.fsum(t for y, t in zip(layers, lengths, strict=True) if y.kind not in _SYNC),
        # Where an event is missing from the file, a layer may begin before what it reads has ended.
        chain=min(makespan, max(chain_ends, default=0.0)),
        origin=origin,
        notes=tuple(_notes(layers, times, others, has_events=has_events)),
    )


def _find_signals(layers: Sequence[Layer]) -> list[tuple[int, ...]]:
    """Of each step the signal that it waits for: the last of its event before it, empty where there is none."""
    last: dict[int, int] = {}
    signals: list[tuple[int, ...]] = []
    for i, layer in enumerate(layers):
        on: tuple[int, ...] = ()
        if layer.kind == "signal" and layer.event is not None:
            last[layer.event] = i
        elif layer.kind == "wait" and layer.event in last:
            on = (last[layer.event],)
        signals.append(on)
    return signals


def _infer_predecessors(layers: Sequence[Layer], reads: Sequence[tuple[int, ...]]) -> list[tuple[int, ...]]:
    """Of each step the last layer of every other stream that writes what it reads."""
    predecessors = []
    for layer, sources in zip(layers, reads, strict=True):
        # Positions rise, so the last of each stream stays.
        on = {layers[p].stream: p for p in sources if layers[p].stream != layer.stream}
        predecessors.append(tuple(sorted(on.values())))
    return predecessors


def _is_working(layer: Layer) -> bool:
    """Whether a step runs something on the GPU that takes time of its own."""
    return work(layer) not in {"none", "control"}


def _subtract(upper: float, lower: float) -> float:
    """Their difference; none where they differ by how sums are rounded."""
    return 0.0 if math.isclose(upper, lower, rel_tol=1e-9) else upper - lower


def _find_previous(layers: Sequence[Layer]) -> list[int]:
    """The step before each on its stream, -1 for the first."""
    last: dict[int, int] = {}
    predecessors = []
    for i, layer in enumerate(layers):
        predecessors.append(last.get(layer.stream, -1))
        last[layer.stream] = i
    return predecessors


def _list_waits(
    layers: Sequence[Layer],
    others: Sequence[tuple[int, ...]],
    previous: Sequence[int],
    ends: Sequence[float],
) -> Iterator[Wait]:
    # Of each step the first layer from it on, and the last up to it, that do work on its stream.
    following, preceding = [""] * len(layers), [""] * len(layers)
    for found, order in ((following, range(len(layers) - 1, -1, -1)), (preceding, range(len(layers)))):
        working: dict[int, str] = {}
        for i in order:
            if layers[i].kind not in _SYNC:
                working[layers[i].stream] = layers[i].id
            found[i] = working.get(layers[i].stream, "")
    for i, on in enumerate(others):
        reached = ends[previous[i]] if previous[i] >= 0 else 0.0
        for p in on:
            idle_time = max(0.0, ends[p] - reached)
            reached = max(reached, ends[p])
            yield Wait(layers[i].id, layers[p].id, following[i], preceding[p], layers[i].event, idle_time)


def _summarize_streams(layers: Sequence[Layer], lengths: Sequence[float]) -> tuple[Stream, ...]:
    steps_by_stream: defaultdict[int, list[int]] = defaultdict(list)
    for i, layer in enumerate(layers):
        steps_by_stream[layer.stream].append(i)
    streams = []
    for stream, steps in sorted(steps_by_stream.items()):
        sync = sum(layers[i].kind in _SYNC for i in steps)
        streams.append(Stream(stream, len(steps) - sync, sync, math.fsum(lengths[i] for i in steps)))
    return tuple(streams)


def _notes(
    layers: Sequence[Layer],
    times: Mapping[str, float],
    others: Sequence[tuple[int, ...]],
    *,
    has_events: bool,
) -> Iterator[str]:
    working = [y for y in layers if _is_working(y)]
    if missing := [y for y in working if y.id not in times]:
        every = pluralize(len(working), "layer has", "layers have")
        yield f'{len(missing)} of {every} no time, such as "{missing[0].name}": they take none here.'
    if unmatched := [y for y, on in zip(layers, others, strict=True) if y.kind == "wait" and not on]:
        yield (
            f"{pluralize(len(unmatched), 'wait has', 'waits have')} no signal of the same event before, such as "
            f'"{unmatched[0].name}": nothing is waited for there.'
        )
    if not has_events and any(others):
        yield (
            "The engine names its streams but no events. Who waits for whom is inferred from the tensors that pass "
            "between streams; waits that only guard memory used again are not known."
        )
    if any(y.kind in {"jmp", "cjmp"} for y in layers):
        yield "The engine has branches or loops: each of their layers is counted once, whether it runs or not."
