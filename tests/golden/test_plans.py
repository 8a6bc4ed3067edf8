"""Where the tensors of every engine could lie, and when its layers run.

Of engines on one stream that write each tensor once, lifetimes and bytes at each step are found here from the list of
layers alone. For every engine: what lives at a time has addresses of its own, and no step begins before what it waits
for. What else a table holds was read by eyes.
"""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import pytest

import scenes
from rtlab.errors import VariantError

SIZES = {"fp32": 4, "fp16": 2, "int8": 1, "fp8": 1, "int32": 4, "int64": 8, "bool": 1, "uint8": 1, "bf16": 2}
ALIGN = 256


def plain(engine: Any) -> bool:
    """Whether one step after the other writes new tensors of known sizes, side by side in memory."""
    written = Counter(t.name for y in engine.layers for t in y.outputs)
    return (
        engine.backend == "tensorrt-rtx"
        and 1 == len({y.stream for y in engine.layers})
        and {1} == {*written.values()}
        and not any(y.kind in {"NoOp", "jmp", "cjmp", "signal", "wait"} for y in engine.layers)
        and all(
            t.shape is not None and t.dtype in SIZES and "wide" not in t.format
            for y in engine.layers
            for t in y.outputs
        )
    )


def spans(engine: Any) -> dict[str, tuple[int, int, int]]:
    """By the name of a tensor in the engine's own memory: its first step, its last step, its bytes."""
    outside = {t.name for t in (*engine.inputs, *engine.outputs)}
    found: dict[str, tuple[int, int, int]] = {}
    for at, layer in enumerate(engine.layers):
        for t in layer.outputs:
            if t.name not in outside:
                found[t.name] = (at, at, math.prod(t.shape) * SIZES[t.dtype])
    for at, layer in enumerate(engine.layers):
        for t in layer.inputs:
            if t.name in found:
                first, last, size = found[t.name]
                found[t.name] = (first, max(last, at), max(size, math.prod(t.shape) * SIZES[t.dtype]))
    return found


def rounded(size: int) -> int:
    return -(-size // ALIGN) * ALIGN


def check_plan(engine: Any, plan: Any) -> None:
    """Nothing lies where something else still is, and the sums are those of the tensors."""
    placed = plan.allocations
    assert plan.peak == max((a.offset + rounded(a.nbytes) for a in placed), default=0)
    assert plan.naive == sum(rounded(a.nbytes) for a in placed)
    assert plan.bound <= plan.peak <= plan.naive
    for a, life in zip(placed, plan.lives, strict=True):
        assert 0 == a.offset % ALIGN
        for b, other in zip(placed, plan.lives, strict=True):
            if a is not b and not life.frees(other) and not other.frees(life):
                apart = a.offset + a.nbytes <= b.offset or b.offset + b.nbytes <= a.offset
                assert apart, (a.value, b.value)
    if plain(engine):
        right = spans(engine)
        assert right == {a.value: (a.first, a.last, a.nbytes) for a in placed}
        alive = [
            sum(rounded(size) for first, last, size in right.values() if first <= at <= last)
            for at in range(len(engine.layers))
        ]
        assert alive == plan.alive.tolist()
        assert plan.bound == max(alive)


def check_schedule(engine: Any, found: Any) -> None:
    """Every step begins when the last one that it waits for has ended, and the longest way takes the whole."""
    steps = {s.layer: s for s in found.steps}
    ends: dict[int, float] = {}
    events: dict[Any, float] = {}
    for layer in engine.layers:
        step = steps[layer.id]
        ready = [ends.get(layer.stream, 0.0), *(steps[w].end for w in step.waits_on)]
        if layer.kind == "wait" and layer.event in events:
            ready.append(events[layer.event])
        assert max(ready) == pytest.approx(step.start), layer.name
        ends[layer.stream] = step.end
        if layer.kind == "signal":
            events[layer.event] = step.end
    assert found.makespan == pytest.approx(max(ends.values(), default=0.0))
    assert found.serial == pytest.approx(sum(s.duration for s in found.steps if not s.sync))
    assert found.chain <= found.makespan + 1e-9
    assert found.makespan <= found.serial + 1e-9
    assert sum(steps[i].duration for i in found.path) == pytest.approx(found.makespan)
    for step in found.steps:
        assert step.slack >= 0.0
        assert not step.critical or 0.0 == pytest.approx(step.slack)


def memory(engine: Any, plan: Any) -> list[str]:
    """The sums, and a line for every tensor: bytes, first and last layer, address."""
    sums = {
        "peak": plan.peak, "bound": plan.bound, "in place": plan.in_place, "naive": plan.naive, "weights": plan.weights,
        "reported": plan.reported, "scratch": plan.scratch, "inputs": plan.caller("input"),
        "outputs": plan.caller("output"), "without size": len(plan.unsized),
    }  # fmt: skip
    return [
        "  ".join(f"{k} {'?' if v is None else v}" for k, v in sums.items()),
        *(f"{a.nbytes:9} B  layers {a.first + 1}-{a.last + 1}  at {a.offset}" for a in plan.allocations),
    ]


def streams(engine: Any, found: Any) -> list[str]:
    """The sums, and where there are several streams a line for every step."""
    sums = {"makespan": found.makespan, "serial": found.serial, "chain": found.chain}
    told = [
        f"streams {len(found.streams)}  {'  '.join(f'{k} {v:.6g}' for k, v in sums.items())}  {found.unit}"
    ]
    number = {y.id: y.index + 1 for y in engine.layers}
    if len(found.streams) > 1:
        told += [
            f"{number[s.layer]:4} stream {s.stream}  {s.start:.6g}-{s.end:.6g}"
            f"{'  critical' if s.critical else f'  slack {s.slack:.6g}'}"
            + (f"  waits on {' '.join(str(number[w]) for w in s.waits_on)}" if s.waits_on else "")
            for s in found.steps
        ]
    return told + [f"note: {n}" for n in found.notes]


def planned(result: Any) -> list[str]:
    """The table of one engine's memory, checked; the words where it cannot be planned."""
    try:
        plan = result.memory()
    except VariantError as error:
        return [str(error)]
    check_plan(result.engine, plan)
    return memory(result.engine, plan)


def timed(result: Any) -> list[str]:
    """The table of one engine's streams, checked."""
    found = result.schedule()
    check_schedule(result.engine, found)
    return streams(result.engine, found)


@scenes.samples
def test_memory_and_streams_of_a_sample(name: str, golden: Any) -> None:
    """Which tensors are alive at the peak is the answer to why the model does not fit."""
    found = dict(scenes.results(name))
    golden(f"memory/{name}.txt", {head: planned(r) if r else [] for head, r in found.items()})
    golden(f"schedule/{name}.txt", {head: timed(r) if r else [] for head, r in found.items()})


@scenes.recorded
def test_memory_and_streams_of_a_recorded_engine(folder: Any, golden: Any) -> None:
    """Of TensorRT 8 to 10, on one stream and on several."""
    result, _ = scenes.engine(folder)
    memory, schedule = planned(result), timed(result)
    if folder.name not in scenes.UNKEPT:
        head = f"# {result.engine.title}"
        golden(f"memory/recorded-{folder.name}.txt", {head: memory})
        golden(f"schedule/recorded-{folder.name}.txt", {head: schedule}, within=1e-6)


@scenes.built
def test_memory_and_streams_of_a_kept_build(path: Any, golden: Any) -> None:
    """Of TensorRT-RTX, with the strides that it printed."""
    result, _ = scenes.listing(path)
    golden(f"memory/built-{path.stem}.txt", {f"# {path.stem}": planned(result)})
    golden(f"schedule/built-{path.stem}.txt", {f"# {path.stem}": timed(result)}, within=1e-6)
