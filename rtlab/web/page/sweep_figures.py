"""Figures of the variants of a sweep: error against time with the Pareto front, and parallel coordinates."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rtlab.core.data import RANDOM
from rtlab.core.phrases import pluralize, quote_names
from rtlab.documents.figure import (
    BETTER,
    FAINT,
    MAIN,
    OTHER,
    SIGNS,
    WORSE,
    axis,
    layout,
    make_horizontal_line,
    make_log_ticks,
)
from rtlab.documents.numbers import choose_time_unit, format_number
from rtlab.errors import VariantError

if TYPE_CHECKING:
    import plotly.graph_objects as go

    from rtlab.study.sweep_rows import SweepRow

#: Columns of times and of errors that can be drawn, with what they are called and where they are from.
_TIMES = {"time_ms": ("Time", "measured"), "estimate_ms": ("GPU time", "estimated")}
_ERRORS = {"output_sqnr": "Worst output SQNR", "score": "Score", "score_delta": "Score's difference to fp32"}
#: Numbers of the parallel coordinates: heading, unit, origin.
_NUMBERS = {
    "layers": ("Layers", "", ""),
    "estimate_ms": ("GPU time", "ms", "estimated"),
    "time_ms": ("Time", "ms", "measured"),
    "output_sqnr": ("Worst output<br>SQNR", "dB", "measured"),
    "score": ("Score", "", "measured"),
    "score_delta": ("To fp32", "", "measured"),
}
#: Colours and symbols of models, both in turn, so that they are told apart without colours too.
_COLORS = (MAIN, OTHER, BETTER, WORSE, "#7b5ea7", "#8c6d31", "#5f6b6d")
_SYMBOLS = ("circle", "square", "diamond", "triangle-up", "cross", "x")
#: Share of an axis's length between its numbers and what is no number, ticks of one, pixels of a figure.
_GAP, _TICKS, _HEIGHT = 0.12, 5, 480


def find_pareto_front(points: Sequence[tuple[float, float]]) -> list[int]:
    """The places of the points that no other one beats, from the left to the right.

    Less is better of the first number and more of the second; a point is beaten by one that is as good in both and
    better in one. Equal points are all there or all not.
    """
    front: list[int] = []
    for at in sorted(range(len(points)), key=lambda i: (points[i][0], -points[i][1])):
        if not front or points[at][1] > points[front[-1]][1] or points[at] == points[front[-1]]:
            front.append(at)
    return front


def draw_pareto(rows: Sequence[SweepRow], x: str = "", y: str = "output_sqnr") -> go.Figure:
    """Error against time: each model has a symbol, and its Pareto front is a line.

    Times of CPU and GPU, estimates for different GPUs, and scores of different metrics have a front each.

    Raises:
        VariantError: there is no such column, or no variant has both numbers.
    """
    _check_column("x", x or "time_ms", _TIMES)
    _check_column("y", y, _ERRORS)
    rows = _add_references(rows)
    if not x:
        x = next((name for name in _TIMES if _select(rows, name, y)), "time_ms")
    drawn = _select(rows, x, y)
    if not drawn:
        raise VariantError(
            f'Cannot draw "{y}" against "{x}": no variant has both. Run the sweep with a budget for measuring, or '
            f"choose x of {quote_names(_TIMES)} and y of {quote_names(_ERRORS)}."
        )
    groups: dict[tuple[str, str, str], list[SweepRow]] = {}
    for row in drawn:
        groups.setdefault(_choose_group(row, x, y), []).append(row)
    is_one_place = len({place for _, place, _ in groups}) == 1
    unit, factor = choose_time_unit(max(getattr(row, x) for row in drawn))
    top = _place_infinity([getattr(row, y) for row in drawn])
    traces: list[dict[str, Any]] = []
    models = [*dict.fromkeys(model for model, _, _ in groups)]
    for (model, place, metric), members in groups.items():
        at = models.index(model)
        name = " · ".join(filter(None, (model, "" if is_one_place else place, metric)))
        traces += _draw_group(members, name, at, (x, unit, factor), (y, top))
    axes = _draw_axes(drawn, (x, unit, factor), y, top)
    return _make_figure(
        traces,
        f"{_ERRORS[y]} against {_TIMES[x][1]} time, lines are Pareto fronts · {_count(rows, drawn)}",
        showlegend=True,
        **axes,
    )


def _select(rows: Sequence[SweepRow], x: str, y: str) -> list[SweepRow]:
    """The rows that have both numbers; of an error only what is better than all numbers may be infinite."""

    def has_both(row: SweepRow) -> bool:
        time, error = getattr(row, x), getattr(row, y)
        is_drawable = error is not None and (math.isfinite(error) or error == math.inf)
        return time is not None and time > 0 and is_drawable

    return [row for row in rows if has_both(row)]


def _choose_group(row: SweepRow, x: str, y: str) -> tuple[str, str, str]:
    """The rows that are compared with this one: model, where it runs, and metric."""
    place = row.processor if x == "time_ms" else row.estimate_gpu
    return row.model, place, "" if y == "output_sqnr" else row.metric


def _place_infinity(values: Sequence[float]) -> float:
    """Where an axis shows what is infinite."""
    finite = [value for value in values if math.isfinite(value)] or [0.0]
    return max(finite) + _GAP * ((max(finite) - min(finite)) or abs(max(finite)) or 1.0)


def _draw_group(
    rows: Sequence[SweepRow], name: str, at: int, x: tuple[str, str, float], y: tuple[str, float]
) -> list[dict[str, Any]]:
    """The points of some rows, and the front as a staircase: right of a point nothing worse is worth its time."""
    (x_name, _, factor), (y_name, top) = x, y
    points = [(getattr(row, x_name) * factor, min(getattr(row, y_name), top)) for row in rows]
    sign = 1.0 if y_name == "output_sqnr" or rows[0].higher else -1.0
    front = find_pareto_front([(time, sign * error) for time, error in points])
    color = _COLORS[at % len(_COLORS)]
    dots = {
        "type": "scatter",
        "mode": "markers",
        "name": name,
        "legendgroup": name,
        "x": [time for time, _ in points],
        "y": [error for _, error in points],
        "marker": {
            "color": color,
            "symbol": _SYMBOLS[at % len(_SYMBOLS)],
            "size": [10 if i in {*front} else 7 for i in range(len(points))],
            "opacity": [1.0 if i in {*front} else 0.5 for i in range(len(points))],
        },
        "customdata": [_describe(row, x_name, y_name) for row in rows],
        "hovertemplate": "%{customdata}<extra></extra>",
    }
    line = {
        "type": "scatter",
        "mode": "lines",
        "name": f"{name}, front",
        "legendgroup": name,
        "showlegend": False,
        "x": [points[i][0] for i in front],
        "y": [points[i][1] for i in front],
        "line": {"color": color, "width": 1.5, "shape": "hv"},
        "hoverinfo": "skip",
    }
    return [line, dots]


def _describe(row: SweepRow, x: str, y: str) -> str:
    """What a point says on hover."""
    place = f"on {row.processor}" if x == "time_ms" else f"for {row.estimate_gpu}"
    machine = f", host {row.host}, load {format_number(row.load)}" if x == "time_ms" and row.host else ""
    error = getattr(row, y)
    number = "infinite: equal to fp32" if error == math.inf else format_number(error, _get_error_unit(row, y))
    lines = (
        f"{row.model} · {row.title}",
        f"{format_number(getattr(row, x), 'ms')} {_TIMES[x][1]} {place}{machine}",
        f"{_ERRORS[y]} {number}, measured",
        f"⚠ {RANDOM}: {row.random_input}" if row.random_input else "",
    )
    return "<br>".join(filter(None, lines))


def _get_error_unit(row: SweepRow, y: str) -> str:
    return "dB" if y == "output_sqnr" else row.unit


def _draw_axes(rows: Sequence[SweepRow], x: tuple[str, str, float], y: str, top: float) -> dict[str, Any]:
    """Both axes with units and origins, and the line of what is infinite."""
    name, unit, factor = x
    times = [getattr(row, name) * factor for row in rows]
    title, origin = _TIMES[name]
    places = [*dict.fromkeys(row.processor if name == "time_ms" else row.estimate_gpu for row in rows)]
    hosts = {row.host for row in rows}
    where = f"{'on' if name == 'time_ms' else 'for'} {', '.join(places)}"
    where += f" of {len(hosts)} hosts" if name == "time_ms" and len(hosts) > 1 else ""
    if name == "estimate_ms" and any(row.layers_origin == "predicted" for row in rows):
        where += ", engines predicted by rules"
    metrics = [*dict.fromkeys(" in ".join(filter(None, (row.metric, row.unit))) for row in rows)]
    what = "dB" if y == "output_sqnr" else ", ".join(metrics)
    better = "more" if y == "output_sqnr" or all(row.higher for row in rows) else "less"
    if y != "output_sqnr" and len({row.higher for row in rows}) > 1:
        better = "more or less, by metric,"
    limit: dict[str, Any] = {}
    ticks: dict[str, Any] = {}
    errors = [getattr(row, y) for row in rows]
    if math.inf in errors:
        finite = [e for e in errors if e < math.inf]
        values = _choose_ticks(min(finite), max(finite)) if finite else []
        ticks = {"tickvals": [*values, top], "ticktext": [*(format_number(v) for v in values), "∞"]}
        line = make_horizontal_line(top, color=FAINT, dash="dot")
        text = {"text": "equal to fp32", "showarrow": False, "xref": "paper", "x": 1, "xanchor": "right"}
        limit = {"shapes": [line], "annotations": [{**text, "y": top, "yanchor": "bottom"}]}
    return {
        "xaxis": axis(
            f"{SIGNS[origin]} {title}, {unit}, {origin} {where}", **make_log_ticks(min(times), max(times))
        ),
        "yaxis": axis(f"{SIGNS['measured']} {_ERRORS[y]}, {what}, measured; {better} is better", **ticks),
        **limit,
    }


def draw_parallel(
    rows: Sequence[SweepRow], choices: Sequence[Mapping[str, str]] = (), color: str = ""
) -> go.Figure:
    """Parallel coordinates: an axis for each choice in which the variants differ, then one for each number.

    Args:
        rows: Rows of variants; those that are built are drawn, a line each.
        choices: What was chosen for each row, by name; the columns of the row by default.
        color: The number that colours the lines; the last one by default.

    Raises:
        VariantError: no variant is built, or none has that number.
    """
    rows = _add_references(rows)
    picked = [i for i, row in enumerate(rows) if row.status in {"built", "read"}]
    drawn = [rows[i] for i in picked]
    if not drawn:
        raise VariantError("Cannot draw the variants: none is built. Run the sweep first.")
    chosen = [
        {**_list_choices(row), **(choices[i] if choices else {})}
        for i, row in zip(picked, drawn, strict=True)
    ]
    names = dict.fromkeys(name for choice in chosen for name in choice)
    dimensions = [
        _make_choice_axis(name, texts)
        for name in names
        if len({*(texts := [choice.get(name, "") for choice in chosen])}) > 1
    ]
    numbers = [name for name in _NUMBERS if any(getattr(row, name) is not None for row in drawn)]
    if color and color not in numbers:
        raise VariantError(
            f'Cannot colour the variants by "{color}": there is no such number of one of them. Choose one of '
            f"{quote_names(numbers)}."
        )
    by_name = {name: _make_number_axis(name, drawn) for name in numbers}
    trace: dict[str, Any] = {"type": "parcoords", "dimensions": [*dimensions, *by_name.values()]}
    title = f"Choices and numbers · {_count(rows, drawn)}"
    if shade := color or next(reversed(numbers), ""):
        scale = by_name[shade]
        bar = {key: scale[key] for key in ("tickvals", "ticktext")}
        trace["line"] = {
            "color": scale["values"], "colorscale": "Viridis", "showscale": True, "colorbar": bar,
        }  # fmt: skip
        title += f" · colour: {scale['label'].replace('<br>', ' ')}"
    return _make_figure([trace], title, margin={"l": 80, "r": 40, "t": 140, "b": 30})


def _list_choices(row: SweepRow) -> dict[str, str]:
    """The choices that a row has itself."""
    return {
        name: getattr(row, name)
        for name in ("model", "precision", "calibrator", "target", "backend", "sizes", "compiler")
    }


def _make_choice_axis(name: str, texts: Sequence[str]) -> dict[str, Any]:
    kinds = [*dict.fromkeys(texts)]
    return {
        "label": name,
        "values": [kinds.index(text) for text in texts],
        "tickvals": [*range(len(kinds))],
        "ticktext": [kind or "—" for kind in kinds],
        "range": [-0.2, len(kinds) - 0.8],
    }


def _make_number_axis(name: str, rows: Sequence[SweepRow]) -> dict[str, Any]:
    """An axis of numbers: what is infinite is above them, what is not there or no number below, both with a tick."""
    label, unit, origin = _NUMBERS[name]
    values = [getattr(row, name) for row in rows]
    finite = [v for v in values if v is not None and math.isfinite(v)] or [0.0]
    if unit == "ms":
        unit, factor = choose_time_unit(max(finite))
        ticks = make_log_ticks(min(finite) * factor, max(finite) * factor)
        scaled = [None if v is None else math.log10(v * factor) for v in values]
        places = {math.log10(v): text for v, text in zip(ticks["tickvals"], ticks["ticktext"], strict=True)}
    else:
        scaled, places = values, {v: format_number(v) for v in _choose_ticks(min(finite), max(finite))}
    finite = [v for v in scaled if v is not None and math.isfinite(v)] or [0.0]
    low, high = min(finite), max(finite)
    places = {v: text for v, text in places.items() if low <= v <= high}
    step = _GAP * ((high - low) or 1.0)
    above, below = high + step, low - step
    placed = [above if v == math.inf else v if v is not None and math.isfinite(v) else below for v in scaled]
    places |= ({above: "∞"} if above in placed else {}) | ({below: "—"} if below in placed else {})
    origins = [origin] if origin else sorted({row.layers_origin for row in rows} - {""})
    if name in {"score", "score_delta"}:
        unit = "<br>".join(dict.fromkeys("<br>".join(filter(None, (r.metric, r.unit))) for r in rows))
    sign = "".join(SIGNS[o] for o in origins)
    return {
        "label": "<br>".join(filter(None, (f"{sign} {label}".strip(), unit, ", ".join(origins)))),
        "values": placed,
        "tickvals": [*places],
        "ticktext": [*places.values()],
        "range": [min([low, *placed]) - step / 4, max([high, *placed]) + step / 4],
    }


def _choose_ticks(low: float, high: float) -> list[float]:
    """Round numbers at equal distances from one number to another; the number itself where these are the same."""
    if not high > low:
        return [low]
    least = (high - low) / _TICKS
    power = 10.0 ** math.floor(math.log10(least))
    step = next(m * power for m in (1, 2, 5, 10) if m * power >= least)
    return [i * step for i in range(math.ceil(low / step), math.floor(high / step) + 1)]


def _check_column(argument: str, name: str, columns: Mapping[str, object]) -> None:
    if name not in columns:
        raise VariantError(
            f'Cannot draw {argument}="{name}": it is none of {quote_names(columns)}. Choose one of them.'
        )


def _count(rows: Sequence[SweepRow], drawn: Sequence[SweepRow]) -> str:
    """How many variants are drawn, and how many of them rest on random samples."""
    count = f"{len(drawn)} of {pluralize(len(rows), 'variant')}"
    random = sum(bool(row.random_input) for row in drawn)
    return count + (f" · ⚠ {RANDOM}: {random}" if random else "")


def _make_figure(traces: list[dict[str, Any]], title: str, **more: Any) -> go.Figure:
    import plotly.graph_objects as go

    drawn = {**layout(), "margin": {"l": 8, "r": 12, "t": 60, "b": 8}, "height": _HEIGHT, **more}
    return go.Figure(data=traces, layout={**drawn, "title": {"text": title}})


def _add_references(rows: Sequence[SweepRow]) -> list[SweepRow]:
    """Rows of which those that others are compared with have a difference of 0."""
    return [
        dataclasses.replace(row, score_delta=0.0)
        if row.precision == "fp32" and row.score is not None and row.score_delta is None
        else row
        for row in rows
    ]
