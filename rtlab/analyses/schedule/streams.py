"""When each step of an engine runs on its stream, what it waits for, and what more than one stream is worth."""

from __future__ import annotations

import dataclasses
import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Literal

from rtlab.analyses.timing.times import SharedTime, Timing
from rtlab.core.engine import Engine, Layer
from rtlab.core.schema import Origin
from rtlab.relation.dataflow import work
from rtlab.relation.writers import Writers

#: Steps that only order the streams.
SYNC = frozenset({"signal", "wait"})


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

    ``step`` waits for ``on``: a wait and its signal, told by the engine with their ``event``, or a layer and the last
    layer of the other stream that it reads from, inferred. ``layer`` is the work behind the wait and ``source`` the
    work before the signal, empty where there is none. The stream stands still for ``idle_time``; of several waits of
    one step each has what it adds.
    """

    step: str
    on: str
    layer: str
    source: str
    event: int | None
    idle_time: float
    inferred: bool


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
    before. ``origin`` is that of the durations, empty where every layer counts 1. ``notes`` tell what is not known.
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
        streams = _format_count(len(self.streams), "stream", "streams")
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


def unit_durations(engine: Engine) -> dict[str, float]:
    """A length of 1 for every layer that does something, by layer id."""
    return {y.id: 1.0 for y in engine.layers if not _idle(y)}


def split_shared_times(times: Timing, shared: Mapping[str, SharedTime]) -> dict[str, float]:
    """Times of another engine's layers, each divided evenly among the layers that share it, in ms by layer id.

    Args:
        times: Of the engine that ran.
        shared: What ``timing.on_layers`` made of them.
    """
    sharing = Counter(i for share in shared.values() for i in share.layers)
    medians = {t.layer: t.median for t in times.layers}
    return {layer: sum(medians[i] / sharing[i] for i in share.layers) for layer, share in shared.items()}


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
    lengths = [
        float(t) if (t := durations.get(y.id)) is not None and math.isfinite(t) and t >= 0 else None
        for y in layers
    ]
    writers = Writers(engine)
    reads = [writers.before(i) for i in range(len(layers))]
    has_events = any(y.kind in SYNC for y in layers)
    others = _find_signals(layers) if has_events else _infer_predecessors(layers, reads)
    previous = _previous(layers)

    ends: list[float] = []
    starts: list[float] = []
    latest_of: list[int] = []
    for i, length in enumerate(lengths):
        before = [p for p in (previous[i], *others[i]) if p >= 0]
        last = max(before, key=ends.__getitem__, default=-1)
        latest_of.append(last)
        starts.append(ends[last] if last >= 0 else 0.0)
        ends.append(starts[i] + (length or 0.0))
    makespan = max(ends, default=0.0)

    latest = [makespan] * len(layers)
    for i in range(len(layers) - 1, -1, -1):
        begin = latest[i] - (lengths[i] or 0.0)
        for p in (*others[i], previous[i]):
            if p >= 0:
                latest[p] = min(latest[p], begin)

    path: list[int] = []
    at = max(range(len(layers)), key=ends.__getitem__, default=-1)
    while at >= 0:
        path.append(at)
        at = latest_of[at]
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
            sync=y.kind in SYNC,
        )
        for i, y in enumerate(layers)
    )
    ordered = _find_ordered_reads(layers, reads, others)
    return Schedule(
        steps=steps,
        waits=_waits(layers, others, previous, ends, inferred=not has_events),
        streams=_streams(layers, lengths),
        path=tuple(layers[i].id for i in reversed(path)),
        makespan=makespan,
        serial=math.fsum(t or 0.0 for y, t in zip(layers, lengths, strict=True) if y.kind not in SYNC),
        chain=_chain(lengths, ordered),
        origin=origin,
        notes=(
            *_note_untimed_layers(layers, lengths),
            *(
                _note_unordered_reads(layers, reads, ordered, others)
                if has_events
                else _note_inferred_waits(others)
            ),
            *_jumps(layers),
        ),
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


def _find_ordered_reads(
    layers: Sequence[Layer], reads: Sequence[tuple[int, ...]], others: Sequence[tuple[int, ...]]
) -> list[tuple[int, ...]]:
    """Of each step those of ``reads`` that surely have ended when it begins.

    Vector clocks tell: how far each stream is known to have come.
    """
    clocks: defaultdict[int, dict[int, int]] = defaultdict(dict)
    clock_by_step: dict[int, dict[int, int]] = {}
    waited = {p for on in others for p in on}
    ordered_reads = []
    for i, layer in enumerate(layers):
        clock = clocks[layer.stream]
        for p in others[i]:
            for stream, position in clock_by_step[p].items():
                clock[stream] = max(clock.get(stream, -1), position)
        ordered_reads.append(tuple(p for p in reads[i] if clock.get(layers[p].stream, -1) >= p))
        clock[layer.stream] = i
        if i in waited:
            clock_by_step[i] = dict(clock)
    return ordered_reads


def _idle(layer: Layer) -> bool:
    """Whether a step runs nothing on the GPU that takes time of its own."""
    return work(layer) in {"none", "control"}


def _subtract(upper: float, lower: float) -> float:
    """Their difference; none where they differ by how sums are rounded."""
    return 0.0 if math.isclose(upper, lower, rel_tol=1e-9) else upper - lower


def _previous(layers: Sequence[Layer]) -> list[int]:
    """The step before each on its stream, -1 for the first."""
    last: dict[int, int] = {}
    predecessors = []
    for i, layer in enumerate(layers):
        predecessors.append(last.get(layer.stream, -1))
        last[layer.stream] = i
    return predecessors


def _chain(lengths: Sequence[float | None], reads: Sequence[Sequence[int]]) -> float:
    ends: list[float] = []
    for length, sources in zip(lengths, reads, strict=True):
        ends.append(max((ends[p] for p in sources), default=0.0) + (length or 0.0))
    return max(ends, default=0.0)


def _waits(
    layers: Sequence[Layer],
    others: Sequence[tuple[int, ...]],
    previous: Sequence[int],
    ends: Sequence[float],
    *,
    inferred: bool,
) -> tuple[Wait, ...]:
    next_layers = _find_next_layers(layers)
    before: list[str] = []
    for i, layer in enumerate(layers):
        earlier = before[previous[i]] if previous[i] >= 0 else ""
        before.append(earlier if layer.kind in SYNC else layer.id)
    waits = []
    for i, on in enumerate(others):
        reached = ends[previous[i]] if previous[i] >= 0 else 0.0
        for p in on:
            idle_time = max(0.0, ends[p] - reached)
            reached = max(reached, ends[p])
            waits.append(
                Wait(
                    layers[i].id,
                    layers[p].id,
                    next_layers[i],
                    before[p],
                    layers[i].event,
                    idle_time,
                    inferred,
                )
            )
    return tuple(waits)


def _find_next_layers(layers: Sequence[Layer]) -> list[str]:
    """The first layer from each step on that does work on its stream; empty where none is left."""
    following: dict[int, str] = {}
    next_layers = [""] * len(layers)
    for i in range(len(layers) - 1, -1, -1):
        if layers[i].kind not in SYNC:
            following[layers[i].stream] = layers[i].id
        next_layers[i] = following.get(layers[i].stream, "")
    return next_layers


def _streams(layers: Sequence[Layer], lengths: Sequence[float | None]) -> tuple[Stream, ...]:
    of: defaultdict[int, list[int]] = defaultdict(list)
    for i, layer in enumerate(layers):
        of[layer.stream].append(i)
    streams = []
    for stream, steps in sorted(of.items()):
        sync = sum(layers[i].kind in SYNC for i in steps)
        streams.append(Stream(stream, len(steps) - sync, sync, math.fsum(lengths[i] or 0.0 for i in steps)))
    return tuple(streams)


def _format_count(count: int, one: str, many: str) -> str:
    return f"{count:,} {one if count == 1 else many}"


def _note_untimed_layers(layers: Sequence[Layer], lengths: Sequence[float | None]) -> Iterator[str]:
    working = [(y, t) for y, t in zip(layers, lengths, strict=True) if not _idle(y)]
    if missing := [y for y, t in working if t is None]:
        every = _format_count(len(working), "layer has", "layers have")
        yield f'{len(missing):,} of {every} no time, such as "{missing[0].name}": they take none here.'
    if zero := sum(t == 0 for _, t in working):
        yield f"{_format_count(zero, 'layer has a time', 'layers have times')} of 0 and no width."


def _note_unordered_reads(
    layers: Sequence[Layer],
    reads: Sequence[tuple[int, ...]],
    ordered: Sequence[tuple[int, ...]],
    others: Sequence[tuple[int, ...]],
) -> Iterator[str]:
    if unmatched_waits := [y for y, on in zip(layers, others, strict=True) if y.kind == "wait" and not on]:
        yield (
            f"{_format_count(len(unmatched_waits), 'wait has', 'waits have')} no signal of the same event before, "
            f'such as "{unmatched_waits[0].name}": nothing is waited for there.'
        )
    pairs = (
        (p, i)
        for i, (all_, ordered_reads) in enumerate(zip(reads, ordered, strict=True))
        for p in set(all_) - {*ordered_reads}
    )
    if loose := sorted(pairs):
        writer, reader = (layers[p] for p in loose[0])
        yield (
            f"Nothing that the engine reports orders {_format_count(len(loose), 'reading', 'readings')} behind the "
            f'writing: "{reader.name}" on stream {reader.stream} reads what "{writer.name}" on stream '
            f"{writer.stream} writes. They may overlap here."
        )


def _note_inferred_waits(others: Sequence[tuple[int, ...]]) -> Iterator[str]:
    if any(others):
        yield (
            "The engine names its streams but no events. Who waits for whom is inferred from the tensors that pass "
            "between streams; waits that only guard memory used again are not known."
        )


def _jumps(layers: Sequence[Layer]) -> Iterator[str]:
    if any(y.kind in {"jmp", "cjmp"} for y in layers):
        yield "The engine has branches or loops: each of their layers is counted once, whether it runs or not."
