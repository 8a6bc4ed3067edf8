"""The streams of an engine as a panel and a table tell them."""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Literal

from rtlab.analyses.cards.card import number_layers
from rtlab.analyses.titles import get_variant_titles
from rtlab.core.schema import UNSENT, FieldMeta, Origin
from rtlab.documents.numbers import format_bytes, format_number

if TYPE_CHECKING:
    from rtlab.analyses.panel_context import PanelContext
    from rtlab.analyses.schedule.streams import Schedule
    from rtlab.core.facts import VariantResult

_END = "the end of the last layer, as soon as possible"
_BOUND = "the longest chain of tensors, or all work shared out evenly among the streams"


@dataclasses.dataclass(frozen=True)
class ScheduledLayer:
    """A layer on its stream: when it starts, how long it runs, and how much later it could end."""

    step: Annotated[int, FieldMeta("Step")]
    layer: Annotated[str, FieldMeta(links="layers")]
    name: Annotated[str, FieldMeta("Layer")]
    stream: Annotated[int, FieldMeta("Stream")]
    start: Annotated[float, FieldMeta("Start", "{of.unit}", "{of.made}")]
    duration: Annotated[float, FieldMeta("Duration", "{of.unit}", "{of.origin}")]
    waits: Annotated[str, FieldMeta("Waits for")]
    slack: Annotated[float, FieldMeta("Slack", "{of.unit}", "{of.made}")]
    critical: Annotated[bool, FieldMeta("Critical path")]
    note: Annotated[str, UNSENT]


@dataclasses.dataclass(frozen=True)
class StreamedEngine:
    """The streams of an engine, and what they buy; None on one stream, and where it is not told.

    ``origin`` is that of the durations, ``made`` of what follows from them: a schedule is an estimate, whatever they
    are. Both are empty where every layer counts one step, which then is the ``unit``.
    """

    streams: Annotated[int, FieldMeta("Streams", note="{self.shares}")]
    count: Annotated[int, FieldMeta("Layers")]
    sync: Annotated[int, FieldMeta("Signals and waits", note="{self.signals}, reported by the engine")]
    serial: Annotated[
        float,
        FieldMeta("On one stream", "{self.unit}", "{self.origin}", note="all layers one after the other"),
    ]
    makespan: Annotated[
        float | None, FieldMeta("Makespan", "{self.unit}", "{self.made}", note=_END, omit=True)
    ]
    bought: Annotated[
        str | None, FieldMeta("Bought", origin="{self.made}", note="at most: see the notes", omit=True)
    ]
    bound: Annotated[
        float | None, FieldMeta("Lower bound", "{self.unit}", "{self.made}", note=_BOUND, omit=True)
    ]
    idle: Annotated[
        str | None,
        FieldMeta(
            "Idle",
            origin="{self.made}",
            note="share of the time in which nothing runs, by stream",
            omit=True,
        ),
    ]
    memory: Annotated[
        int | None,
        FieldMeta("Activation memory", "B", "reported", note="as the builder plans it", omit=True),
    ]
    against: Annotated[
        str | None,
        FieldMeta(
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


def summarize_streams(
    context: PanelContext,
    plan: Schedule,
    siblings: Sequence[tuple[VariantResult, Schedule]],
    notes: Sequence[str],
) -> StreamedEngine:
    """A schedule; ``siblings`` are those of variants that differ in their streams alone."""
    several, few = len(plan.streams) > 1, plan.streams[:8]
    sync, engine = sum(s.sync for s in plan.streams), context.result.engine
    signals = sum(y.kind == "signal" for y in engine.layers)
    share = f" ({plan.time_saved / plan.serial:.0%})" if plan.serial else ""
    memory = engine.totals.get("activation")
    sibling_memory = (
        (r.name, r.engine.totals.get("activation")) for r, _ in siblings if r.name != context.result.name
    )
    name, other_memory = next(((n, m) for n, m in sibling_memory if m), ("", 0))
    return StreamedEngine(
        streams=len(plan.streams),
        count=sum(s.layers for s in plan.streams),
        sync=sync,
        serial=plan.serial,
        makespan=plan.makespan if several else None,
        bought=f"{format_number(plan.time_saved, plan.unit)}{share}" if several else None,
        bound=plan.bound if several else None,
        idle=", ".join(f"{plan.idle(s):.0%} on {s.id}" for s in few) if several else None,
        memory=memory,
        against=format_bytes(memory - other_memory, signed=True)
        if memory is not None and other_memory
        else None,
        unit=plan.unit,
        origin=plan.origin,
        made="estimated" if plan.origin else "",
        shares=", ".join(f"{s.layers} layers on {s.id}" for s in few),
        signals=f"{signals:,} and {sync - signals:,}",
        other=get_variant_titles(context.study)[name] if other_memory else "",
        other_memory=format_bytes(other_memory),
        layers=_layers(context, plan),
        notes=tuple(notes),
    )


def _layers(context: PanelContext, plan: Schedule) -> tuple[ScheduledLayer, ...]:
    layer_names, full_names = context.layer_names, {y.id: y.name for y in context.result.engine.layers}
    steps, sources = number_layers(layer_names), defaultdict[str, list[str]](list)
    for wait in plan.waits:
        if wait.layer and wait.source:
            sources[wait.layer].append(steps[wait.source])
    return tuple(
        ScheduledLayer(
            position, s.layer, layer_names[s.layer], s.stream, s.start, s.duration,
            ", ".join(dict.fromkeys(sources[s.layer])), s.slack, s.critical, full_names[s.layer],
        )
        for position, s in enumerate(plan.steps, 1)
        if not s.sync
    )  # fmt: skip
