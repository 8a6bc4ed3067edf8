"""The streams of an engine: what runs when, what waits for what, and what streams save."""

from __future__ import annotations

import contextlib
import dataclasses
import html
import math
from collections import defaultdict
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal

from rtlab.analyses.cards.card import format_exact_names, number_layers
from rtlab.analyses.fusion import map_nodes
from rtlab.analyses.panel_context import PanelContext, PanelParts
from rtlab.analyses.roofline.estimate import compute_engine_roofline, pick_default_gpu
from rtlab.analyses.schedule.streams import Schedule, ScheduledStep, compute_schedule, unit_durations
from rtlab.analyses.timing import get_engine_timing, get_milliseconds
from rtlab.core.peaks import TABLE
from rtlab.core.phrases import pluralize, quote_names
from rtlab.core.schema import UNSENT, FieldMeta, Origin
from rtlab.documents.contract import Figure, Setting, Work
from rtlab.documents.figure import FAINT, MAIN, OTHER, SIGNS, axis, figure
from rtlab.documents.numbers import choose_time_unit, format_number
from rtlab.documents.panel import button, make_select, make_slider
from rtlab.errors import ReadError, RtlabError, VariantError

if TYPE_CHECKING:
    from rtlab.core.variant import Variant

#: Auxiliary streams that the slider offers; builders use no more on branching networks than there are branches.
_AUX = range(8)
#: Arrows that a picture can bear.
_ARROWS = 400
_ORIGINS: Mapping[str, Origin | Literal[""]] = {"measured": "measured", "estimated": "estimated", "unit": ""}
_END = "the end of the last layer, as soon as possible"
_BOUND = "the longest chain of tensors, or all work shared out evenly among the streams"
_IDLE = "share of the time in which nothing runs, by stream"
_SERIAL = FieldMeta("On one stream", "{self.unit}", "{self.origin}", note="all layers one after the other")
_SAVED = FieldMeta("Bought", origin="{self.made}", note="at most: see the notes", omit=True)
_MEMORY = FieldMeta("Activation memory", "B", "reported", note="as the builder plans it", omit=True)


def _follows(title: str, note: str) -> FieldMeta:
    """A time that follows from the durations, on several streams."""
    return FieldMeta(title, "{self.unit}", "{self.made}", note=note, omit=True)


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
    """The streams of an engine, and what they save; None on one stream, and where it is not reported.

    ``origin`` is that of the durations, ``made`` of what follows from them: a schedule is an estimate, whatever they
    are. Both are empty where every layer counts one step, which then is the ``unit``.
    """

    streams: Annotated[int, FieldMeta("Streams", note="{self.shares}")]
    count: Annotated[int, FieldMeta("Layers")]
    sync: Annotated[int, FieldMeta("Signals and waits", note="{self.signals}, reported by the engine")]
    serial: Annotated[float, _SERIAL]
    makespan: Annotated[float | None, _follows("Makespan", _END)]
    bought: Annotated[str | None, _SAVED]
    bound: Annotated[float | None, _follows("Lower bound", _BOUND)]
    idle: Annotated[str | None, FieldMeta("Idle", origin="{self.made}", note=_IDLE, omit=True)]
    memory: Annotated[int | None, _MEMORY]
    unit: str
    origin: Origin | Literal[""]
    made: Origin | Literal[""]
    shares: Annotated[str, UNSENT]
    signals: Annotated[str, UNSENT]
    layers: tuple[ScheduledLayer, ...]
    notes: tuple[str, ...]


def analyze_streams(context: PanelContext) -> StreamedEngine:
    """When each layer runs on its stream, and what it waits for.

    Raises:
        VariantError: a setting is none that there is.
        RtlabError: no durations of this kind are known.
    """
    source = _choose_source(context)
    return _summarize_streams(context, _compute_plan(context, source), source)


def build_schedule_panel(context: PanelContext) -> PanelParts:
    """The same as figures and a table.

    Raises:
        VariantError: a setting is none that there is.
    """
    source = _choose_source(context)
    settings = _list_settings(context, source)
    try:
        plan = _compute_plan(context, source)
    except RtlabError as error:
        return PanelParts(settings=settings, problem=str(error))
    names = format_exact_names(context.layer_names, context.result.engine)
    return PanelParts(
        result=_summarize_streams(context, plan, source),
        units={"ms": choose_time_unit(plan.makespan)},
        lead=_lead(plan),
        settings=settings,
        work=[_rebuild(context)],
        figures=[_draw_gantt(plan, names, _label_sources(context)[source])],
    )


def _label_sources(context: PanelContext) -> dict[str, str]:
    """Where durations may come from, the best first."""
    times = get_engine_timing(context.result)
    labels = {"estimated": f"estimated, {_gpu(context)}", "unit": "every layer alike"}
    if times is not None and times.layers:
        return {"measured": f"measured, {times.device or 'device not reported'}"} | labels
    return labels


def _choose_source(context: PanelContext) -> str:
    """The setting, else the best that gives durations."""
    labels = _label_sources(context)
    requested = context.settings.get("times", "")
    if requested in labels:
        return requested
    if requested:
        raise VariantError(
            f'Cannot draw the streams of "{context.result.name}" with "{requested}" times: there are none. '
            f"Choose one of {quote_names(labels)}."
        )
    for source in labels:
        with contextlib.suppress(RtlabError):
            if _durations(context, source):
                return source
    return "unit"


def _durations(context: PanelContext, source: str) -> Mapping[str, float]:
    result = context.result
    if source == "measured":
        return get_milliseconds(result)
    if source == "unit":
        return unit_durations(result.engine)
    roofs = compute_engine_roofline(result.engine, map_nodes(result), context.model, _gpu(context))
    return roofs.milliseconds(result.engine)


def _compute_plan(context: PanelContext, source: str) -> Schedule:
    durations = _durations(context, source)
    if not durations:
        raise ReadError(
            f'Variant "{context.result.name}" has no layer that takes time. Choose another variant.'
        )
    return compute_schedule(context.result.engine, durations, origin=_ORIGINS[source])


def _gpu(context: PanelContext) -> str:
    """The one that was chosen, else that of the engine, else one of its target."""
    return context.settings.get("gpu") or pick_default_gpu(context.result.engine).name


def _summarize_streams(context: PanelContext, plan: Schedule, source: str) -> StreamedEngine:
    several, few = len(plan.streams) > 1, plan.streams[:8]
    sync, engine = sum(s.sync for s in plan.streams), context.result.engine
    signals = sum(y.kind == "signal" for y in engine.layers)
    share = f" ({plan.time_saved / plan.serial:.0%})" if plan.serial else ""
    return StreamedEngine(
        streams=len(plan.streams),
        count=sum(s.layers for s in plan.streams),
        sync=sync,
        serial=plan.serial,
        makespan=plan.makespan if several else None,
        bought=f"{format_number(plan.time_saved, plan.unit)}{share}" if several else None,
        bound=plan.bound if several else None,
        idle=", ".join(f"{plan.idle(s):.0%} on {s.id}" for s in few) if several else None,
        memory=engine.totals.get("activation"),
        unit=plan.unit,
        origin=plan.origin,
        made="estimated" if plan.origin else "",
        shares=", ".join(f"{s.layers} layers on {s.id}" for s in few),
        signals=f"{signals:,} and {sync - signals:,}",
        layers=_list_layers(context, plan),
        notes=(*_notes(context, plan, source), *plan.notes),
    )


def _list_layers(context: PanelContext, plan: Schedule) -> tuple[ScheduledLayer, ...]:
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


def _list_settings(context: PanelContext, source: str) -> list[Setting]:
    gpu, labels, count = _gpu(context), _label_sources(context), _get_stream_count(context)
    gpus = {n: n for n in dict.fromkeys([*(p.name for p in TABLE), gpu])}
    hint = "How many streams beside the main one the next build may use."
    return [
        make_select(
            "times", "Durations", "Whose times the bars have: measured or estimated.", labels, source
        ),
        make_select("gpu", "GPU", "The GPU for which times are estimated.", gpus, gpu),
        make_slider("aux", "Auxiliary streams", hint, _AUX, count),
    ]


def _get_stream_count(context: PanelContext) -> int:
    """The number on the slider: what was chosen, else what was built, else the streams that the engine has."""
    configured = _aux(context.result.variant)
    used = len({y.stream for y in context.result.engine.layers}) - 1
    return min(max(context.get_number("aux", used if configured is None else configured), 0), _AUX[-1])


def _aux(variant: Variant) -> int | None:
    """The builder's option for auxiliary streams; None where that was left to it."""
    stream_count = dict(variant.options.config).get("max_aux_streams") if variant.options else None
    return stream_count if isinstance(stream_count, int) and stream_count >= 0 else None


def _rebuild(context: PanelContext) -> Work:
    stream_count, result = _get_stream_count(context), context.result
    words = pluralize(stream_count, "auxiliary stream")
    reason = ""
    if result.recorded:
        reason = "This engine was read from files. Build the model in a study to choose its streams."
    elif "streams" not in result.engine.maker.reports:
        reason = f"{result.engine.compiler} has no streams to choose. Build with another backend."
    elif _aux(result.variant) == stream_count:
        reason = f'Variant "{result.name}" is built with {words}.'
    return button("rebuild", f"Rebuild with {words}", reason, max_aux_streams=str(stream_count))


def _lead(plan: Schedule) -> str:
    if len(plan.streams) < 2:
        return "Every bar is a layer of the engine. All run on one stream, one after the other."
    return (
        "Every bar is a layer on its stream. A hatched gap is an idle stream, and an arrow leads to its "
        "end from the layer that it waits for. The line along the bars is the critical path: only "
        "when a layer on it gets shorter does the whole end earlier."
    )


def _notes(context: PanelContext, plan: Schedule, source: str) -> list[str]:
    notes = []
    if source == "estimated":
        notes.append(f"Each layer's duration is estimated from its operations and bytes on {_gpu(context)}.")
    elif source == "unit":
        notes.append("Every layer counts as one unit here, however long it takes.")
    if len(plan.streams) > 1:
        notes.append(
            "As soon as possible: layers side by side do not slow each other down here, and signals and waits cost "
            "nothing. On a GPU they share its units, and one thread of the CPU starts them one after the other unless "
            "a CUDA graph does: what streams save is at most this."
        )
        return notes
    if math.isclose(plan.chain, plan.serial, rel_tol=1e-6):
        why = "All layers that take time are one chain of tensors: a second stream would have nothing to do."
    else:
        free = format_number(plan.serial - plan.chain, plan.unit)
        why = f"Its tensors would allow it to end up to {free} earlier, were layers to run side by side."
    is_limited = _aux(context.result.variant) == 0
    return [*notes, why + " It was built with max_aux_streams=0: rebuild it with more." * is_limited]


def _draw_gantt(plan: Schedule, names: Mapping[str, str], caption: str) -> Figure:
    """Streams from top to bottom, time from left to right; bars bear the ids of their layers.

    Args:
        plan: What is drawn.
        names: Of all layers by id.
        caption: Where the durations come from.
    """
    rows = {s.id: y for y, s in enumerate(plan.streams)}
    several = len(rows) > 1
    sign = f"{SIGNS[plan.origin]} " if plan.origin else ""
    more = [_draw_gaps(plan, rows), _draw_arrows(plan, rows, names), _draw_path(plan, rows)]
    unit, factor = choose_time_unit(plan.makespan) if plan.origin else ("", 1.0)
    critical_count = sum(s.critical and not s.sync for s in plan.steps)
    return figure(
        f"{len(plan.streams)} streams over {format_number(plan.makespan, plan.unit)}, "
        f"from {_describe_durations(plan)}: {critical_count} layers on the critical path",
        [_scale_trace(t, factor) for t in [_draw_bars(plan, rows, names), *(more if several else [])]],
        height=min(max(200, 90 + 44 * len(rows)), 640),
        title=f"{sign}{caption}" + (" · line: critical path · hatched: idle" if several else ""),
        barmode="overlay",
        hovermode="closest",
        xaxis=axis(f"time, {unit}" if plan.origin else "step", rangemode="tozero"),
        yaxis=axis(
            "stream",
            tickvals=list(rows.values()),
            ticktext=[str(s) for s in rows],
            range=[len(rows) - 0.4, -0.6],
            fixedrange=True,
            showgrid=False,
        ),
    )


def _scale_trace(trace: dict[str, Any], factor: float) -> dict[str, Any]:
    """A trace with its times in another unit."""
    times: dict[str, Any] = {
        key: [None if v is None else v * factor for v in trace[key]] for key in ("x", "base") if key in trace
    }
    return trace | times


def _describe_durations(plan: Schedule) -> str:
    return f"{plan.origin} durations" if plan.origin else "layers of one length"


def _draw_bars(plan: Schedule, rows: Mapping[int, int], names: Mapping[str, str]) -> dict[str, Any]:
    steps = [s for s in plan.steps if not s.sync]

    def format_step(s: ScheduledStep) -> list[str]:
        times = (format_number(t, plan.unit) for t in (s.duration, s.start, s.slack))
        return [html.escape(names[s.layer]), *times]

    return {
        "type": "bar",
        "orientation": "h",
        "x": [s.duration for s in steps],
        "base": [s.start for s in steps],
        "y": [rows[s.stream] for s in steps],
        "width": 0.6,
        "ids": [s.layer for s in steps],
        "marker": {
            "color": MAIN,
            "opacity": [1.0 if s.critical else 0.5 for s in steps],
            "line": {"color": "rgba(255,255,255,0.5)", "width": 0.5},
        },
        "customdata": [format_step(s) for s in steps],
        "hovertemplate": "%{customdata[0]}<br>%{customdata[1]} from %{customdata[2]}, slack %{customdata[3]}"
        f"<extra>{_describe_durations(plan)}</extra>",
    }


def _draw_gaps(plan: Schedule, rows: Mapping[int, int]) -> dict[str, Any]:
    idle_times: defaultdict[str, float] = defaultdict(float)
    for wait in plan.waits:
        idle_times[wait.step] += wait.idle_time
    gaps = [(s, idle_times[s.layer]) for s in plan.steps if idle_times.get(s.layer)]
    clear = "rgba(0,0,0,0)"
    return {
        "type": "bar",
        "orientation": "h",
        "x": [t for _, t in gaps],
        "base": [s.start - t for s, t in gaps],
        "y": [rows[s.stream] for s, _ in gaps],
        "width": 0.24,
        "marker": {
            "color": clear,
            "line": {"color": FAINT, "width": 0.5},
            "pattern": {"shape": "/", "fgcolor": "gray", "bgcolor": clear, "size": 6, "solidity": 0.1},
        },
        "customdata": [format_number(t, plan.unit) for _, t in gaps],
        "hovertemplate": "idle for %{customdata}" + f"<extra>{_describe_durations(plan)}</extra>",
    }


def _draw_arrows(plan: Schedule, rows: Mapping[int, int], names: Mapping[str, str]) -> dict[str, Any]:
    """One line for each wait, from where the signal comes to where the stream goes on."""
    at = {s.layer: s for s in plan.steps}
    waits = sorted(plan.waits, key=lambda w: -w.idle_time)[:_ARROWS]
    x: list[float | None] = []
    y: list[float | None] = []
    texts: list[str] = []
    for wait in waits if len(plan.waits) > _ARROWS else plan.waits:
        start, end = at[wait.on], at[wait.step]
        side = 0.36 if rows[end.stream] > rows[start.stream] else -0.36
        x += [start.end, end.start, None]
        y += [rows[start.stream] + side, rows[end.stream] - side / 2, None]
        reason = f"event {wait.event}" if wait.event is not None else "inferred from its tensors"
        text = (
            f"{html.escape(names.get(wait.layer, f'stream {end.stream}'))}<br>waits for "
            f"{html.escape(names.get(wait.source, f'stream {start.stream}'))}<br>{reason}, idle for "
            f"{format_number(wait.idle_time, plan.unit)}"
        )
        texts += [text] * 3
    return {
        "type": "scatter",
        "mode": "lines+markers",
        "x": x,
        "y": y,
        "line": {"color": "gray", "width": 1},
        "marker": {
            "symbol": "arrow",
            "angleref": "previous",
            "size": [0, 9, 0] * (len(x) // 3),
            "color": "gray",
            "opacity": 1,
            "line": {"width": 0},
        },
        "text": texts,
        "hovertemplate": f"%{{text}}<extra>{_describe_durations(plan)}</extra>",
    }


def _draw_path(plan: Schedule, rows: Mapping[int, int]) -> dict[str, Any]:
    """The critical path as one line below its bars, from stream to stream."""
    x: list[float] = []
    y: list[float] = []
    at = {s.layer: s for s in plan.steps}
    for step in map(at.__getitem__, plan.path):
        row = rows[step.stream] + 0.38
        # Bars in a row on one stream are one piece of the line.
        if len(y) > 1 and y[-1] == y[-2] == row:
            x[-1] = step.end
        else:
            x += [step.start, step.end]
            y += [row, row]
    line = {"color": OTHER, "width": 3}
    return {"type": "scatter", "mode": "lines", "x": x, "y": y, "line": line, "hoverinfo": "skip"}
