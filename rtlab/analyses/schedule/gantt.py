"""The picture of a schedule: a bar for each layer on its stream, gaps, and arrows between the streams."""

from __future__ import annotations

import html
from collections import defaultdict
from collections.abc import Mapping
from typing import Any

from rtlab.analyses.schedule.streams import Schedule
from rtlab.documents.contract import Figure
from rtlab.documents.figure import FAINT, MAIN, OTHER, SIGNS, axis, figure
from rtlab.documents.numbers import choose_time_unit, format_number

#: Arrows that a picture can bear.
_ARROWS = 400


def draw_gantt(plan: Schedule, names: Mapping[str, str], caption: str) -> Figure:
    """Streams from top to bottom, time from left to right.

    Bars bear the ids of their layers.

    Args:
        plan: What is drawn.
        names: Of all layers by id.
        caption: Where the durations come from.
    """
    rows = {s.id: y for y, s in enumerate(plan.streams)}
    sign = f"{SIGNS[plan.origin]} " if plan.origin else ""
    more = [_gaps(plan, rows), _arrows(plan, rows, names), _path(plan, rows)] if len(rows) > 1 else []
    unit, factor = choose_time_unit(plan.makespan) if plan.origin else ("", 1.0)
    data = [_scale_trace(t, factor) for t in (_bars(plan, rows, names), *more)]
    height = min(max(200, 90 + 44 * len(rows)), 640)
    return figure(
        f"{len(plan.streams)} streams over {format_number(plan.makespan, plan.unit)}, "
        f"from {_describe_durations(plan)}: "
        f"{sum(s.critical and not s.sync for s in plan.steps)} layers on the critical path",
        data,
        height=height,
        title=f"{sign}{caption}" + (" · line: critical path · hatched: idle" if len(rows) > 1 else ""),
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


def _bars(plan: Schedule, rows: Mapping[int, int], names: Mapping[str, str]) -> dict[str, Any]:
    layer_steps = [s for s in plan.steps if not s.sync]
    return {
        "type": "bar",
        "orientation": "h",
        "x": [s.duration for s in layer_steps],
        "base": [s.start for s in layer_steps],
        "y": [rows[s.stream] for s in layer_steps],
        "width": 0.6,
        "ids": [s.layer for s in layer_steps],
        "marker": {
            "color": MAIN,
            "opacity": [1.0 if s.critical else 0.5 for s in layer_steps],
            "line": {"color": "rgba(255,255,255,0.5)", "width": 0.5},
        },
        "customdata": [
            [html.escape(names[s.layer]), *(format_number(t, plan.unit) for t in (s.duration, s.start, s.slack))]
            for s in layer_steps
        ],
        "hovertemplate": "%{customdata[0]}<br>%{customdata[1]} from %{customdata[2]}, slack %{customdata[3]}"
        f"<extra>{_describe_durations(plan)}</extra>",
    }  # fmt: skip


def _gaps(plan: Schedule, rows: Mapping[int, int]) -> dict[str, Any]:
    wait_times: defaultdict[str, float] = defaultdict(float)
    for wait in plan.waits:
        wait_times[wait.step] += wait.idle_time
    still = [s for s in plan.steps if wait_times.get(s.layer)]
    return {
        "type": "bar",
        "orientation": "h",
        "x": [wait_times[s.layer] for s in still],
        "base": [s.start - wait_times[s.layer] for s in still],
        "y": [rows[s.stream] for s in still],
        "width": 0.24,
        "marker": {
            "color": "rgba(0,0,0,0)",
            "line": {"color": FAINT, "width": 0.5},
            "pattern": {"shape": "/", "fgcolor": "gray", "bgcolor": "rgba(0,0,0,0)", "size": 6, "solidity": 0.1},
        },
        "customdata": [format_number(wait_times[s.layer], plan.unit) for s in still],
        "hovertemplate": "idle for %{customdata}" + f"<extra>{_describe_durations(plan)}</extra>",
    }  # fmt: skip


def _arrows(plan: Schedule, rows: Mapping[int, int], names: Mapping[str, str]) -> dict[str, Any]:
    """One line for each wait, from where the signal comes to where the stream goes on."""
    at = {s.layer: s for s in plan.steps}
    waits = plan.waits
    if len(waits) > _ARROWS:
        waits = tuple(sorted(waits, key=lambda w: -w.idle_time)[:_ARROWS])
    x: list[float | None] = []
    y: list[float | None] = []
    texts: list[str] = []
    sizes: list[int] = []
    for wait in waits:
        start, end = at[wait.on], at[wait.step]
        side = 0.36 if rows[end.stream] > rows[start.stream] else -0.36
        x += [start.end, end.start, None]
        y += [rows[start.stream] + side, rows[end.stream] - side / 2, None]
        reason = f"event {wait.event}" if wait.event is not None else "inferred from its tensors"
        text = (
            f"{html.escape(names.get(wait.layer, 'stream ' + str(end.stream)))}<br>waits for "
            f"{html.escape(names.get(wait.source, 'stream ' + str(start.stream)))}<br>{reason}, idle for "
            f"{format_number(wait.idle_time, plan.unit)}"
        )
        texts += [text] * 3
        sizes += [0, 9, 0]
    return {
        "type": "scatter",
        "mode": "lines+markers",
        "x": x,
        "y": y,
        "line": {"color": "gray", "width": 1},
        "marker": {
            "symbol": "arrow",
            "angleref": "previous",
            "size": sizes,
            "color": "gray",
            "opacity": 1,
            "line": {"width": 0},
        },
        "text": texts,
        "hovertemplate": f"%{{text}}<extra>{_describe_durations(plan)}</extra>",
    }


def _path(plan: Schedule, rows: Mapping[int, int]) -> dict[str, Any]:
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
    return {
        "type": "scatter",
        "mode": "lines",
        "x": x,
        "y": y,
        "line": {"color": OTHER, "width": 3},
        "hoverinfo": "skip",
    }
