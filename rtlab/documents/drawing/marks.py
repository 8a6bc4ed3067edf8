"""The marks of a trace: bars, lines, points and small pictures."""

from __future__ import annotations

import base64
import itertools
import math
import struct
import zlib
from collections.abc import Mapping, Sequence
from typing import Any

from rtlab.documents.drawing.axes import Axis
from rtlab.documents.drawing.pen import Pen, rgba, short, width_of, words
from rtlab.documents.figure import MAIN

_FONT = 11.0
#: Corners of symbols by their names: a point each, around the middle, for a size of 2.
_ROUND = {"triangle-up": (3, -90), "triangle-down": (3, 90), "pentagon": (5, -90), "hexagon": (6, -90)}


def bar_places(
    trace: Mapping[str, Any], gap: float, place: int, count: int
) -> tuple[list[Any], list[tuple[float, float] | None]]:
    """What bars are of, and from where to where each reaches along its axis, in the units of the axis.

    Names count from zero in steps of one; of ``count`` bars at one value this is number ``place``.
    """
    at = list(trace["y"] if trace.get("orientation") == "h" else trace["x"])
    if any(isinstance(v, str) for v in at):
        room = 1.0
    else:
        seen = sorted({float(v) for v in at if v is not None})
        room = min((b - a for a, b in itertools.pairwise(seen)), default=1.0)
    wide = trace.get("width")
    widths = list(wide) if isinstance(wide, (list, tuple)) else [wide] * len(at)
    found: list[tuple[float, float] | None] = []
    for value, width in zip(at, widths, strict=True):
        if width is not None:
            begin, long = -width / 2, width
        else:
            long = room * (1 - gap) / count
            begin = -room * (1 - gap) / 2 + place * long
        if isinstance(value, str) or value is None:
            found.append((begin, begin + long) if value is not None else None)
        else:
            found.append((float(value) + begin, float(value) + begin + long))
    return at, found


def draw_trace(
    pen: Pen, trace: Mapping[str, Any], across: Axis, up: Axis, spread: tuple[Any, ...] | None, *, texts: bool
) -> None:
    """Draw the marks of a trace, or the texts that stand at them."""
    if trace.get("type") == "bar":
        _bars(pen, trace, (across, up), spread or bar_places(trace, 0.2, 0, 1), texts=texts)
    elif texts:
        return
    elif trace.get("type") == "heatmap":
        _picture(pen, trace, across, up)
    else:
        _scatter(pen, trace, across, up)


def swatch(pen: Pen, trace: Mapping[str, Any], x: float, y: float) -> None:
    """What stands for a trace in the legend."""
    marker, line = trace.get("marker") or {}, trace.get("line") or {}
    if trace.get("type") == "bar":
        hatched = bool((marker.get("pattern") or {}).get("shape"))
        opacity = _one(marker.get("opacity"), 0, 1.0)
        pen.rect((x + 5.0, y - 5.0, 12.0, 10.0), _colour(marker, 0), opacity=opacity, hatched=hatched)
        return
    mode = str(trace.get("mode") or "lines")
    if trace.get("fill"):
        pen.rect((x, y, 22.0, 5.0), str(trace.get("fillcolor") or _colour(line, 0)), opacity=1.0)
    if "lines" in mode:
        dash = str(line.get("dash") or "")
        pen.line((x, y), (x + 22.0, y), _colour(line, 0), float(line.get("width", 2)), dash)
    if "markers" in mode:
        symbol = str(_one(marker.get("symbol"), 0, "circle"))
        _symbol(pen, symbol, (x + 11.0, y), 8.0, marker, colour=_colour(marker, 0))


def _bars(
    pen: Pen, trace: Mapping[str, Any], axes: tuple[Axis, Axis], spread: tuple[Any, ...], *, texts: bool
) -> None:
    across, up = axes
    lying = trace.get("orientation") == "h"
    along, value = (up, across) if lying else (across, up)
    at, places = spread
    lengths = trace["x"] if lying else trace["y"]
    marker = trace.get("marker") or {}
    for k, (name, place, length) in enumerate(zip(at, places, lengths, strict=True)):
        if place is None or length is None:
            continue
        base = _one(trace.get("base"), k, 0.0) or 0.0
        middle = along.names.index(name) if isinstance(name, str) and name in along.names else 0.0
        ends = [along.at(middle + p if isinstance(name, str) else p) for p in place]
        low = value.at(base) if not (value.log and base <= 0) else value.start
        high = value.at(base + length)
        if None in ends or low is None or high is None:
            continue
        first, last = sorted(float(e) for e in ends if e is not None)
        start, end = sorted((low, high))
        box = (
            (start, first, end - start, last - first) if lying else (first, start, last - first, end - start)
        )
        if texts:
            _bar_text(pen, trace, k, box, lying=lying, rising=high >= low if lying else high <= low)
            continue
        outline = marker.get("line") or {}
        width = _one(outline.get("width"), k, 0.0) or 0.0
        opacity = _one(marker.get("opacity"), k, 1.0)
        hatched = bool(_one((marker.get("pattern") or {}).get("shape"), k, ""))
        about = str(_one(trace.get("ids"), k, "") or name)
        edge = (str(_one(outline.get("color"), k, "#808080")), float(width))
        pen.rect(box, _colour(marker, k), opacity=float(opacity), outline=edge, hatched=hatched, about=about)
        whisker = trace.get("error_x" if lying else "error_y")
        _error(pen, whisker, k, value, (base + length, (first + last) / 2), lying=lying)


def _error(
    pen: Pen, told: Mapping[str, Any] | None, k: int, value: Axis, at: tuple[float, float], *, lying: bool
) -> None:
    """The whisker of a bar, at its end and the middle of its side."""
    top, middle = at
    if not told or k >= len(told.get("array") or ()):
        return
    more = told["array"][k] or 0.0
    less = (told.get("arrayminus") or told["array"])[k] or 0.0
    low, high = value.at(top - less), value.at(top + more)
    if low is None or high is None or not (more or less):
        return
    ends = ((low, middle), (high, middle)) if lying else ((middle, low), (middle, high))
    pen.line(*ends, str(told.get("color") or "gray"), float(told.get("thickness", 1)))


def _bar_text(
    pen: Pen, trace: Mapping[str, Any], k: int, box: tuple[float, ...], *, lying: bool, rising: bool
) -> None:
    """The number at a bar: beyond its end, or within it."""
    where, said = trace.get("textposition", "none"), _one(trace.get("text"), k, "")
    lines = words(said or "")
    if where == "none" or not any(lines):
        return
    font = trace.get("textfont") or {}
    size, colour = float(font.get("size") or _FONT), str(font.get("color") or "")
    x, y, width, height = box
    inside = where == "inside" or (where == "auto" and max(width_of(w, size) for w in lines) < width - 6)
    for j, line in enumerate(lines):
        down = (j - (len(lines) - 1) / 2) * (size + 3)
        if inside:
            pen.text(
                (x + width / 2, y + height / 2 + size / 3 + down),
                line, size=size, anchor="middle", colour=colour or "#ffffff",
            )  # fmt: skip
        elif lying:
            far = x + width + 4.0 if rising else x - 4.0
            middle = y + height / 2 + size / 3 + down
            pen.text((far, middle), line, size=size, anchor="start" if rising else "end", colour=colour)
        else:
            far = (
                y - 4.0 - (len(lines) - 1 - j) * (size + 3) if rising else y + height + size + j * (size + 3)
            )
            pen.text((x + width / 2, far), line, size=size, anchor="middle", colour=colour)


def _scatter(pen: Pen, trace: Mapping[str, Any], across: Axis, up: Axis) -> None:
    mode = str(trace.get("mode") or "lines")
    line, marker = trace.get("line") or {}, trace.get("marker") or {}
    points = [
        None if (x := across.at(a)) is None or (y := up.at(b)) is None else (x, y)
        for a, b in zip(trace.get("x") or (), trace.get("y") or (), strict=False)
    ]
    for run in _runs(points):
        path = _steps(run, str(line.get("shape") or "linear"))
        drawn = "M" + "L".join(f"{short(x)} {short(y)}" for x, y in path)
        fill = trace.get("fill")
        if fill in {"tozeroy", "tozerox"}:
            axis = up if fill == "tozeroy" else across
            zero = axis.at(0.0)
            zero = axis.start if zero is None else zero
            (a, b), (c, d) = path[0], path[-1]
            closing = (
                f"L{short(c)} {short(zero)}L{short(a)} {short(zero)}Z"
                if fill == "tozeroy"
                else f"L{short(zero)} {short(d)}L{short(zero)} {short(b)}Z"
            )
            pen.path(drawn + closing, fill=str(trace.get("fillcolor") or _colour(line, 0)), opacity=1.0)
        if "lines" in mode:
            width, dash = float(line.get("width", 2)), str(line.get("dash") or "")
            pen.path(drawn, stroke=_colour(line, 0), width=width, dash=dash)
    if "markers" not in mode:
        return
    for k, point in enumerate(points):
        if point is not None:
            symbol = str(_one(marker.get("symbol"), k, "circle"))
            size, opacity = (
                float(_one(marker.get("size"), k, 6.0)),
                float(_one(marker.get("opacity"), k, 1.0)),
            )
            _symbol(pen, symbol, point, size, marker, colour=_colour(marker, k), opacity=opacity)


def _runs(points: Sequence[tuple[float, float] | None]) -> list[list[tuple[float, float]]]:
    """Points that follow each other without a gap."""
    found: list[list[tuple[float, float]]] = [[]]
    for point in points:
        if point is None:
            found.append([])
        else:
            found[-1].append(point)
    return [run for run in found if run]


def _steps(run: Sequence[tuple[float, float]], shape: str) -> list[tuple[float, float]]:
    """The corners of a line: straight, or in steps that change half-way or at the next point."""
    made = [run[0]]
    for (x, y), (to, down) in itertools.pairwise(run):
        if shape == "hvh":
            made += [((x + to) / 2, y), ((x + to) / 2, down)]
        elif shape == "hv":
            made.append((to, y))
        elif shape == "vh":
            made.append((x, down))
        made.append((to, down))
    return made


def _symbol(
    pen: Pen,
    symbol: str,
    at: tuple[float, float],
    size: float,
    marker: Mapping[str, Any],
    *,
    colour: str,
    opacity: float = 1.0,
) -> None:
    """A point's mark."""
    name, _, open_ = symbol.partition("-open")
    x, y, r = *at, size / 2
    outline = marker.get("line") or {}
    edge, width = str(outline.get("color") or colour), float(_one(outline.get("width"), 0, 0.0) or 0.0)
    hollow = symbol.endswith("-open") or bool(open_)
    look: dict[str, Any] = {
        "fill": None if hollow else colour,
        "stroke": colour if hollow else edge,
        "width": max(1.5, width) if hollow else width,
        "opacity": opacity,
    }
    if name == "circle":
        left, right = short(x - r), short(x + r)
        arc = f"A{short(r)} {short(r)} 0 1 1"
        path = f"M{right} {short(y)}{arc} {left} {short(y)}{arc} {right} {short(y)}Z"
    elif name == "square":
        path = _closed([(x - r, y - r), (x + r, y - r), (x + r, y + r), (x - r, y + r)])
    elif name == "diamond":
        path = _closed([(x, y - 1.3 * r), (x + 1.3 * r, y), (x, y + 1.3 * r), (x - 1.3 * r, y)])
    elif name in {"x", "cross"}:
        arms = ((1, 1), (1, -1)) if name == "x" else ((1, 0), (0, 1))
        path = "".join(
            f"M{short(x - a * r)} {short(y - b * r)}L{short(x + a * r)} {short(y + b * r)}" for a, b in arms
        )
        look |= {"fill": None, "stroke": colour, "width": 2.5}
    elif name == "star":
        path = _closed(_around(x, y, 10, -90, (1.3 * r, 0.5 * r)))
    elif name == "arrow":
        path = _closed([(x, y - r), (x + 0.6 * r, y + r), (x - 0.6 * r, y + r)])
    else:
        corners, turn = _ROUND.get(name, (6, -90))
        path = _closed(_around(x, y, corners, turn, (1.2 * r,)))
    pen.path(path, **look)


def _around(
    x: float, y: float, corners: int, turn: float, radii: Sequence[float]
) -> list[tuple[float, float]]:
    angles = [math.radians(turn + 360 * k / corners) for k in range(corners)]
    return [
        (x + radii[k % len(radii)] * math.cos(a), y + radii[k % len(radii)] * math.sin(a))
        for k, a in enumerate(angles)
    ]


def _closed(points: Sequence[tuple[float, float]]) -> str:
    return "M" + "L".join(f"{short(x)} {short(y)}" for x, y in points) + "Z"


def _picture(pen: Pen, trace: Mapping[str, Any], across: Axis, up: Axis) -> None:
    """A matrix as an image of one pixel for each number."""
    rows = trace["z"]
    begin = [float(trace.get(f"{v}0", 0)) - float(trace.get(f"d{v}", 1)) / 2 for v in "xy"]
    ends = [
        begin[0] + len(rows[0]) * float(trace.get("dx", 1)),
        begin[1] + len(rows) * float(trace.get("dy", 1)),
    ]
    x0, x1 = across.at(begin[0]), across.at(ends[0])
    y0, y1 = up.at(begin[1]), up.at(ends[1])
    if x0 is None or x1 is None or y0 is None or y1 is None:
        return
    # The first row is the lowest where values rise upward.
    pixels = rows if y1 > y0 else rows[::-1]
    known = [v for row in rows for v in row if v is not None]
    low, high = (
        float(trace.get("zmin", min(known, default=0))),
        float(trace.get("zmax", max(known, default=1))),
    )
    data = _png([[_shade(trace.get("colorscale"), v, low, high) for v in row] for row in pixels])
    pen.parts.append(
        f'<image x="{short(min(x0, x1))}" y="{short(min(y0, y1))}" width="{short(abs(x1 - x0))}" '
        f'height="{short(abs(y1 - y0))}" preserveAspectRatio="none" '
        'image-rendering="optimizeSpeed" style="image-rendering:pixelated" '
        f'href="data:image/png;base64,{base64.b64encode(data).decode("ascii")}"/>'
    )


def _shade(scale: Any, value: Any, low: float, high: float) -> tuple[int, int, int]:
    """The colour of a number on a scale, which is a list of places and colours, or grey."""
    if value is None:
        return 128, 128, 128
    part = min(1.0, max(0.0, (float(value) - low) / ((high - low) or 1.0)))
    stops: Any = scale if isinstance(scale, (list, tuple)) else [[0, "#000000"], [1, "#ffffff"]]
    for (start, first), (end, last) in itertools.pairwise(stops):
        if part <= end:
            share = (part - start) / ((end - start) or 1.0)
            one, two = rgba(first), rgba(last)
            red, green, blue = (round(a + share * (b - a)) for a, b in zip(one[:3], two[:3], strict=True))
            return red, green, blue
    red, green, blue = (round(c) for c in rgba(stops[-1][1])[:3])
    return red, green, blue


def _png(pixels: Sequence[Sequence[tuple[int, int, int]]]) -> bytes:
    """An image of eight bits a colour, as the PNG specification has it."""

    def chunk(kind: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    rows = b"".join(b"\0" + bytes(c for pixel in row for c in pixel) for row in pixels)
    head = struct.pack(">IIBBBBB", len(pixels[0]), len(pixels), 8, 2, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", head)
        + chunk(b"IDAT", zlib.compress(rows, 9))
        + chunk(b"IEND", b"")
    )


def _one(value: Any, k: int, usual: Any) -> Any:
    """What holds of one mark, where a trace tells each or all."""
    if value is None:
        return usual
    if isinstance(value, (list, tuple)):
        return value[k] if k < len(value) else usual
    return value


def _colour(look: Mapping[str, Any], k: int) -> str:
    found = _one(look.get("color"), k, MAIN)
    return found if isinstance(found, str) else MAIN
