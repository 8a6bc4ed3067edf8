"""One figure as SVG: its axes, its legend, and the marks of its traces."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from rtlab.documents.drawing.axes import Axis, axis_of
from rtlab.documents.drawing.marks import bar_places, draw_trace, swatch
from rtlab.documents.drawing.pen import Pen, cut, width_of, words
from rtlab.documents.figure import FAINT

_FONT = 11.0
_LINE = 14.0
#: Of an axis' texts: the longest that is not cut, and the room that its title takes.
_LONGEST, _TITLE = 150.0, 18.0
#: A figure that fills its panel is this high.
HEIGHT = 320.0


@dataclasses.dataclass(frozen=True)
class Placed:
    """A trace with its two axes; ``spread`` is where its bars stand, empty of other traces."""

    trace: Mapping[str, Any]
    across: str
    up: str


def draw(pen: Pen, figure: Mapping[str, Any], box: tuple[float, float, float, float], name: str) -> None:
    """Draw a figure into a box (left, top, width, height); ``name`` is its own in the picture."""
    left, top, width, height = box
    layout, traces = figure["layout"], [simple(t) for t in figure["data"]]
    placed = [Placed(t, _axis_name("x", t), _axis_name("y", t)) for t in traces]
    bottom = top + height
    top = _head(pen, layout, traces, (left, top), width)
    names = dict.fromkeys([p.across for p in placed] + [p.up for p in placed]) or {
        "xaxis": None,
        "yaxis": None,
    }
    spread = _spread(placed, layout)
    made = {n: _made(n, layout, placed, spread, (0.0, 0.0, width, height)) for n in names}
    # First the texts beside the axes, which say how much room is left for the plot.
    aside = {n: _breadth(axis) for n, axis in made.items()}
    west = max(
        [a for n, a in aside.items() if n[0] == "y" and made[n].given.get("side") != "right"], default=8.0
    )
    east = max(
        [a for n, a in aside.items() if n[0] == "y" and made[n].given.get("side") == "right"], default=10.0
    )
    south = max([a for n, a in aside.items() if n[0] == "x"], default=8.0)
    plot = (left + west, top + 6.0, left + width - east, bottom - south)
    made = {n: _made(n, layout, placed, spread, plot) for n in names}
    made = _level(made)
    for axis_name, axis in made.items():
        _grid(pen, axis_name, axis, made, plot)
    inner = (plot[0], plot[1], max(1.0, plot[2] - plot[0]), max(1.0, plot[3] - plot[1]))
    for shape in layout.get("shapes") or ():
        _shape(pen, shape, made, plot)
    with contextlib.contextmanager(pen.clipped)(f"{name}-plot", inner):
        for one in placed:
            draw_trace(pen, one.trace, made[one.across], made[one.up], spread.get(id(one.trace)), texts=False)
    for one in placed:
        draw_trace(pen, one.trace, made[one.across], made[one.up], spread.get(id(one.trace)), texts=True)
    for axis_name, axis in made.items():
        _texts(pen, axis_name, axis, made, plot)
    for note in layout.get("annotations") or ():
        _note(pen, note, made, plot)


def simple(trace: Mapping[str, Any]) -> dict[str, Any]:
    """A trace without what is for graphics cards, and a waterfall as bars that stand on each other."""
    kind = trace.get("type")
    if kind == "scattergl":
        return {**trace, "type": "scatter"}
    if kind != "waterfall":
        return dict(trace)
    level, base, colours = 0.0, [], []
    lengths = []
    for value, measure in zip(trace["y"], trace["measure"], strict=True):
        whole = measure != "relative"
        base.append(0.0 if whole else level)
        level = value if whole else level + value
        lengths.append(value)
        way = "totals" if whole else "increasing" if value > 0 else "decreasing"
        colours.append(trace[way]["marker"]["color"])
    left = {"measure", "decreasing", "increasing", "totals", "connector"}
    kept = {k: v for k, v in trace.items() if k not in left}
    return {**kept, "type": "bar", "y": lengths, "base": base, "marker": {"color": colours}}


def _axis_name(letter: str, trace: Mapping[str, Any]) -> str:
    named = str(trace.get(f"{letter}axis", letter))
    return f"{letter}axis{named[1:]}"


def _spread(placed: Sequence[Placed], layout: Mapping[str, Any]) -> dict[int, tuple[Any, ...]]:
    """Where the bars of each trace stand, by the trace: those of one pair of axes stand beside each other."""
    found: dict[int, tuple[Any, ...]] = {}
    pairs: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for one in placed:
        if one.trace.get("type") == "bar":
            pairs.setdefault((one.across, one.up), []).append(one.trace)
    for traces in pairs.values():
        grouped = layout.get("barmode", "group") == "group"
        for k, trace in enumerate(traces):
            place, count = (k, len(traces)) if grouped else (0, 1)
            found[id(trace)] = bar_places(trace, float(layout.get("bargap", 0.2)), place, count)
    return found


def _made(
    name: str,
    layout: Mapping[str, Any],
    placed: Sequence[Placed],
    spread: Mapping[int, tuple[Any, ...]],
    plot: tuple[float, ...],
) -> Axis:
    """An axis of the layout over its part of the plot."""
    given = layout.get(name) or {}
    first, last = (plot[0], plot[2]) if name[0] == "x" else (plot[3], plot[1])
    low, high = given.get("domain") or (0.0, 1.0)
    start, end = first + low * (last - first), first + high * (last - first)
    values: list[Any] = []
    ends: list[float] = []
    for one in placed:
        if name not in {one.across, one.up}:
            continue
        letter, trace = name[0], one.trace
        along = (trace.get("orientation") == "h") == (letter == "y")
        if trace.get("type") == "heatmap":
            count = len(trace["z"]) if letter == "y" else len(trace["z"][0])
            begin = float(trace.get(f"{letter}0", 0)) - trace.get(f"d{letter}", 1) / 2
            ends += [begin, begin + count * float(trace.get(f"d{letter}", 1))]
        elif trace.get("type") != "bar":
            values += list(trace.get(letter) or ())
            ends += [0.0] if trace.get("fill") == f"tozero{letter}" else []
        elif not along:
            bases = _listed(trace.get("base"), len(trace[letter]))
            for base, length in zip(bases, trace[letter], strict=True):
                if length is not None:
                    ends += [base or 0.0, (base or 0.0) + length]
        else:
            values += list(trace[letter])
            if not any(isinstance(v, str) for v in trace[letter]):
                ends += [v for place in spread[id(trace)][1] if place is not None for v in place]
    if any(isinstance(v, str) for v in values):
        ends = []
    return axis_of(given, values, ends, start, end)


def _level(made: dict[str, Axis]) -> dict[str, Axis]:
    """Axes of one scale, as pictures have them: the plot is as wide as it is high."""
    tied = next((n for n, a in made.items() if a.given.get("scaleanchor")), "")
    if not tied:
        return made
    other = f"{made[tied].given['scaleanchor'][0]}axis"
    one, two = made[tied], made[other]
    scale = min(
        abs(one.end - one.start) / (abs(one.high - one.low) or 1.0),
        abs(two.end - two.start) / (abs(two.high - two.low) or 1.0),
    )

    def fitted(axis: Axis) -> Axis:
        room = scale * abs(axis.high - axis.low)
        middle, way = (axis.start + axis.end) / 2, 1 if axis.end > axis.start else -1
        return dataclasses.replace(axis, start=middle - way * room / 2, end=middle + way * room / 2)

    return {**made, tied: fitted(one), other: fitted(two)}


def _breadth(axis: Axis) -> float:
    """How much room the texts beside an axis take, across it."""
    if axis.given.get("visible") is False:
        return 8.0
    told = [line for _, text in axis.ticks() for line in words(text)]
    longest = min(_LONGEST, max((width_of(line, _FONT) for line in told), default=0.0))
    title = _TITLE if _title(axis) else 0.0
    if axis.end < axis.start:
        return longest + 10.0 + title
    lines = max((len(words(text)) for _, text in axis.ticks()), default=0)
    tall = 0.62 * longest + _LINE if axis.given.get("tickangle") else lines * _LINE
    return tall + 8.0 + title


def _title(axis: Axis) -> str:
    title = axis.given.get("title") or {}
    return str(title.get("text") or "") if isinstance(title, dict) else str(title)


def _head(
    pen: Pen,
    layout: Mapping[str, Any],
    traces: Sequence[Mapping[str, Any]],
    corner: tuple[float, float],
    width: float,
) -> float:
    """The title and the legend above the plot; returns where the plot begins."""
    left, top = corner
    title = (layout.get("title") or {}).get("text") or ""
    for line in words(title) if title else ():
        pen.text((left, top + 12.0), cut(line, 12.0, width), size=12.0)
        top += _LINE + 4.0
    if not layout.get("showlegend"):
        return top
    x = left
    for trace in traces:
        said = " ".join(words(trace.get("name") or ""))
        if not said or trace.get("showlegend") is False:
            continue
        wide = width_of(said, _FONT) + 40.0
        if x > left and x + wide > left + width:
            x, top = left, top + _LINE + 2.0
        swatch(pen, trace, x, top + 8.0)
        pen.text((x + 26.0, top + 12.0), said, size=_FONT)
        x += wide
    return top + _LINE + 4.0


def _anchor(name: str, axis: Axis, made: Mapping[str, Axis], plot: tuple[float, ...]) -> float:
    """The pixel across at which an axis stands."""
    other = axis.given.get("anchor") or ("y" if name[0] == "x" else "x")
    found = made.get(f"{other[0]}axis{other[1:]}")
    if name[0] == "x":
        return found.start if found else plot[3]
    if axis.given.get("side") == "right":
        return found.end if found else plot[2]
    return found.start if found else plot[0]


def _grid(pen: Pen, name: str, axis: Axis, made: Mapping[str, Axis], plot: tuple[float, ...]) -> None:
    if axis.given.get("showgrid") is False or axis.given.get("visible") is False:
        return
    others = [a for n, a in made.items() if n[0] != name[0] and not a.given.get("overlaying")]
    low, high = (plot[0], plot[2]) if name[0] == "y" else (plot[1], plot[3])
    if len(others) == 1:
        low, high = sorted((others[0].start, others[0].end))
    colour = str(axis.given.get("gridcolor") or FAINT)
    for at, _ in axis.ticks():
        ends = ((at, low), (at, high)) if name[0] == "x" else ((low, at), (high, at))
        pen.line(ends[0], ends[1], colour)


def _texts(pen: Pen, name: str, axis: Axis, made: Mapping[str, Axis], plot: tuple[float, ...]) -> None:
    """The numbers or names beside an axis, and its title."""
    if axis.given.get("visible") is False:
        return
    side, at = axis.given.get("side"), _anchor(name, axis, made, plot)
    angle = float(axis.given.get("tickangle") or 0.0)
    size = float((axis.given.get("tickfont") or {}).get("size") or _FONT)
    longest = 0.0
    for place, text in axis.ticks():
        lines = [cut(line, size, _LONGEST) for line in words(text)]
        longest = max([longest, *(width_of(line, size) for line in lines)])
        for k, line in enumerate(lines):
            if name[0] == "y":
                x = at + 5.0 if side == "right" else at - 5.0
                down = place + 4.0 + (k - (len(lines) - 1) / 2) * _LINE
                pen.text((x, down), line, size=size, anchor="start" if side == "right" else "end")
            elif angle:
                pen.text((place + 3.0, at + 12.0), line, size=size, anchor="end", turned=angle)
            else:
                pen.text((place, at + 13.0 + k * _LINE), line, size=size, anchor="middle")
    title = " ".join(words(_title(axis)))
    middle = (axis.start + axis.end) / 2
    if title and name[0] == "x":
        pen.text(
            (middle, at + _breadth(axis) - 6.0),
            cut(title, _FONT, abs(axis.end - axis.start) + 60.0),
            anchor="middle",
        )
    elif title:
        x = at + longest + 18.0 if side == "right" else at - longest - 12.0
        pen.text(
            (x, middle), cut(title, _FONT, abs(axis.end - axis.start) + 40.0), anchor="middle", turned=-90.0
        )


def _shape(pen: Pen, shape: Mapping[str, Any], made: Mapping[str, Axis], plot: tuple[float, ...]) -> None:
    """A line or a rectangle of the layout."""
    ends = []
    for letter, first, last in (("x", plot[0], plot[2]), ("y", plot[3], plot[1])):
        ref = str(shape.get(f"{letter}ref", letter))
        axis = made.get(f"{letter}axis{ref[1:]}") if ref != "paper" else None
        for end in ("0", "1"):
            value = shape[f"{letter}{end}"]
            if ref == "paper":
                ends.append(first + float(value) * (last - first))
            elif axis is None or (at := axis.at(value)) is None:
                return
            else:
                ends.append(at)
    x0, x1, y0, y1 = ends
    line = shape.get("line") or {}
    if shape.get("type") == "rect":
        box = (min(x0, x1), min(y0, y1), abs(x1 - x0), abs(y1 - y0))
        pen.rect(box, str(shape.get("fillcolor") or FAINT), opacity=float(shape.get("opacity", 1.0)))
        return
    colour = str(line.get("color") or "#808080")
    pen.line((x0, y0), (x1, y1), colour, float(line.get("width", 1)), str(line.get("dash") or ""))


def _note(pen: Pen, note: Mapping[str, Any], made: Mapping[str, Axis], plot: tuple[float, ...]) -> None:
    """A text at a place of the plot."""
    at = []
    for letter, first, last in (("x", plot[0], plot[2]), ("y", plot[3], plot[1])):
        ref = str(note.get(f"{letter}ref", letter))
        if ref == "paper":
            at.append(first + float(note[letter]) * (last - first))
        else:
            axis = made.get(f"{letter}axis{ref[1:]}")
            place = axis.at(note[letter]) if axis else None
            if place is None:
                return
            at.append(place)
    size = float((note.get("font") or {}).get("size") or _FONT)
    anchor = {"left": "start", "right": "end"}.get(str(note.get("xanchor")), "middle")
    down = {"top": size, "bottom": -2.0}.get(str(note.get("yanchor")), size / 3)
    for k, line in enumerate(words(note["text"])):
        pen.text((at[0], at[1] + down + k * _LINE), line, size=size, anchor=anchor)


def _listed(value: Any, count: int) -> list[Any]:
    return list(value) if isinstance(value, (list, tuple)) else [value] * count
