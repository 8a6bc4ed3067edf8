"""The streams of an engine as a panel and a table tell them."""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Literal

from rtlab.core.schema import UNSENT, Meaning, Origin
from rtlab.documents.numbers import number, storage
from rtlab.questions.cards.card import numbered
from rtlab.questions.titles import titles

if TYPE_CHECKING:
    from rtlab.core.facts import Facts
    from rtlab.questions.scene import Scene
    from rtlab.questions.schedule.streams import Schedule

_END = "the end of the last layer, as soon as possible"
_BOUND = "the longest chain of tensors, or all work shared out evenly among the streams"


@dataclasses.dataclass(frozen=True)
class ScheduledLayer:
    """A layer on its stream: when it starts, how long it runs, and how much later it could end."""

    step: Annotated[int, Meaning("Step")]
    layer: Annotated[str, Meaning(links="layers")]
    name: Annotated[str, Meaning("Layer")]
    stream: Annotated[int, Meaning("Stream")]
    start: Annotated[float, Meaning("Start", "{of.unit}", "{of.made}")]
    duration: Annotated[float, Meaning("Duration", "{of.unit}", "{of.origin}")]
    waits: Annotated[str, Meaning("Waits for")]
    slack: Annotated[float, Meaning("Slack", "{of.unit}", "{of.made}")]
    critical: Annotated[bool, Meaning("Critical path")]
    note: Annotated[str, UNSENT]


@dataclasses.dataclass(frozen=True)
class StreamedEngine:
    """The streams of an engine, and what they buy; None on one stream, and where it is not told.

    ``origin`` is that of the durations, ``made`` of what follows from them: a schedule is an estimate, whatever they
    are. Both are empty where every layer counts one step, which then is the ``unit``.
    """

    streams: Annotated[int, Meaning("Streams", note="{self.shares}")]
    count: Annotated[int, Meaning("Layers")]
    sync: Annotated[int, Meaning("Signals and waits", note="{self.signals}, told by the engine")]
    serial: Annotated[
        float, Meaning("On one stream", "{self.unit}", "{self.origin}", note="all layers one after the other")
    ]
    makespan: Annotated[
        float | None, Meaning("Ends after", "{self.unit}", "{self.made}", note=_END, omit=True)
    ]
    bought: Annotated[
        str | None, Meaning("Bought", origin="{self.made}", note="at most: see the notes", omit=True)
    ]
    bound: Annotated[
        float | None, Meaning("Cannot end before", "{self.unit}", "{self.made}", note=_BOUND, omit=True)
    ]
    idle: Annotated[
        str | None,
        Meaning(
            "Stands still",
            origin="{self.made}",
            note="share of the time in which nothing runs, by stream",
            omit=True,
        ),
    ]
    memory: Annotated[
        int | None,
        Meaning("Activation memory", "B", "reported", note="as the builder plans it", omit=True),
    ]
    against: Annotated[
        str | None,
        Meaning(
            "Against {self.other}",
            origin="reported",
            note="activation memory; {self.other_memory} there",
            omit=True,
        ),
    ]
    unit: str
    origin: Origin | Literal[""]
    made: Origin | Literal[""]
    shares: Annotated[str, UNSENT]
    signals: Annotated[str, UNSENT]
    other: str
    other_memory: Annotated[str, UNSENT]
    layers: tuple[ScheduledLayer, ...]
    notes: tuple[str, ...]


def streamed(
    scene: Scene, plan: Schedule, beside: Sequence[tuple[Facts, Schedule]], notes: Sequence[str]
) -> StreamedEngine:
    """A schedule; ``beside`` are those of variants that differ in their streams alone."""
    several, few = len(plan.streams) > 1, plan.streams[:8]
    sync, engine = sum(s.sync for s in plan.streams), scene.result.engine
    signals = sum(y.kind == "signal" for y in engine.layers)
    share = f" ({plan.bought / plan.serial:.0%})" if plan.serial else ""
    memory = engine.totals.get("activation")
    told = ((r.name, r.engine.totals.get("activation")) for r, _ in beside if r.name != scene.result.name)
    name, held = next(((n, m) for n, m in told if m), ("", 0))
    return StreamedEngine(
        streams=len(plan.streams),
        count=sum(s.layers for s in plan.streams),
        sync=sync,
        serial=plan.serial,
        makespan=plan.makespan if several else None,
        bought=f"{number(plan.bought, plan.unit)}{share}" if several else None,
        bound=plan.bound if several else None,
        idle=", ".join(f"{plan.idle(s):.0%} on {s.id}" for s in few) if several else None,
        memory=memory,
        against=storage(memory - held, signed=True) if memory is not None and held else None,
        unit=plan.unit,
        origin=plan.origin,
        made="estimated" if plan.origin else "",
        shares=", ".join(f"{s.layers} layers on {s.id}" for s in few),
        signals=f"{signals:,} and {sync - signals:,}",
        other=titles(scene.study)[name] if held else "",
        other_memory=storage(held),
        layers=_layers(scene, plan),
        notes=tuple(notes),
    )


def _layers(scene: Scene, plan: Schedule) -> tuple[ScheduledLayer, ...]:
    called, own = scene.called, {y.id: y.name for y in scene.result.engine.layers}
    steps, sources = numbered(called), defaultdict[str, list[str]](list)
    for wait in plan.waits:
        if wait.layer and wait.source:
            sources[wait.layer].append(steps[wait.source])
    return tuple(
        ScheduledLayer(
            position, s.layer, called[s.layer], s.stream, s.start, s.duration,
            ", ".join(dict.fromkeys(sources[s.layer])), s.slack, s.critical, own[s.layer],
        )
        for position, s in enumerate(plan.steps, 1)
        if not s.sync
    )  # fmt: skip
