"""Plotly figures of a variant, and Plotly itself for the page.

The front end marks the selection and reads clicks from the points' ids, which are layer ids, so that charts follow the
other panes without a round trip. FigureWidget would bring its own copy of the library for each figure, five megabytes a
chart and variant.
"""

from __future__ import annotations

import dataclasses
import functools
import gzip
import hashlib
import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rtlab.analyses.accuracy import compute_accuracy
from rtlab.analyses.cards.card import format_box_name
from rtlab.core.data import RANDOM
from rtlab.core.facts import VariantResult
from rtlab.documents.figure import FAINT, MAIN, OTHER, SIGNS, layout
from rtlab.documents.numbers import format_number
from rtlab.errors import Unavailable
from rtlab.web.page.contract import EngineView

if TYPE_CHECKING:
    from rtlab.analyses.accuracy import Accuracy

_STATIC = Path(__file__).parents[2] / "static"
#: What every widget stands on.
CORE = "core.js"
#: What tabs of the Explorer need beside it.
_TABS = "tab-*.js"


def bundle(name: str) -> str:
    """The text of a built script; ``Unavailable`` in a checkout that was never built, with the command."""
    path = _STATIC / name
    if not path.exists():
        raise Unavailable(
            f'Cannot show the widget: its script "static/{name}" is not built. '
            "Run npm --prefix widgets ci && npm --prefix widgets run build in the checkout."
        )
    return path.read_text(encoding="utf-8")


@functools.cache
def parts() -> dict[str, str]:
    """The texts of all parts, by file name. They are read together, because they fit only those of their own build."""
    tabs = sorted(path.name for path in _STATIC.glob(_TABS))
    return {name: bundle(name) for name in (CORE, "explorer.js", "graph.js", *tabs)}


@functools.cache
def edition() -> str:
    """The digest of all parts: a page keeps those of two installations apart by it."""
    return hashlib.sha256("".join(parts().values()).encode()).hexdigest()[:16]


@functools.cache
def figures() -> bytes:
    """The library that draws a report's figures; ``charts.plotly_script`` has the whole of it for a page."""
    return gzip.compress(bundle("figures.js").encode(), compresslevel=9, mtime=0)


def inline_script() -> str:
    """One classic script with every part of a report, which it opens."""
    scripts = {**parts(), "report.js": bundle("report.js")}
    del scripts["graph.js"]
    wrapped_scripts = (
        f'rtlabParts.add("{name}",(module,require)=>{{"use strict";\n{text}\n}});\n'
        for name, text in scripts.items()
    )
    return f'{bundle("inline.js")}{"".join(wrapped_scripts)}rtlabParts.run("report.js").open(rtlabParts);\n'


#: Names that have room below the bars, and the axis by its longest bar.
_NAMES, _ROOM = 40, 1.15
#: Up to this number of layers every step has its number below the axis; above, every fifth, then Plotly decides.
_EACH, _FIFTH = 12, 80
#: Words of a card that a bar shows on hover.
_OPERATORS = 4


@dataclasses.dataclass(frozen=True)
class Bar:
    """One engine layer on a chart, or the first of ``shared`` layers that have one number together.

    ``value`` is in the overlay's unit; of a layer of a repeated block it is the sum over its ``copies``.
    """

    layer: str
    label: str
    value: float
    spread: float | None
    note: str
    step: int
    shared: int = 1
    copies: int = 1


def bars(view: EngineView, overlay: str) -> tuple[Bar, ...]:
    """Every layer that has this number, in execution order; one that several have together is one bar, of the first."""
    readings = next((o["layers"] for o in view["overlays"] if o["id"] == overlay), {})
    rows: dict[tuple[object, ...], Bar] = {}
    for step, box in enumerate(b for b in view["graph"]["boxes"] if b["kind"] == "layer"):
        reading = readings.get(box["id"])
        if reading is None:
            continue
        shared = reading["shared"]
        # The note names the layers that were measured: it is the same for those that have them together.
        key = (box["id"],) if shared == 1 else (shared, reading["value"], reading["note"])
        rows.setdefault(
            key,
            Bar(
                layer=box["id"],
                label=format_box_name(box, _OPERATORS),
                value=reading["value"],
                spread=reading["spread"],
                note="<br>".join(filter(None, (box["title"] if box["chips"] else "", reading["note"]))),
                step=step,
                shared=shared,
            ),
        )
    return tuple(rows.values())


def sum_blocks(bars: Sequence[Bar], view: EngineView, unit: str) -> tuple[Bar, ...]:
    """Bars of which those of the same layer in all copies of a repeated block are one, where the graph opens folded.

    ``value`` is their sum and ``step`` that of the first copy; ``spread`` is None, since the note has the range.
    """
    graph = view["graph"]
    if not graph["folded"]:
        return tuple(bars)
    by_layer = {b.layer: b for b in bars}
    for repeats in graph["repeats"]:
        for row in repeats["rows"]:
            ids = [graph["boxes"][at]["id"] for at in row]
            copies = [b for i in ids if (b := by_layer.get(i)) is not None]
            # A number of layers of several blocks together is no number of one block.
            if len(copies) < repeats["count"] or len({b.shared for b in copies}) > 1:
                continue
            values = [b.value for b in copies]
            each = " to ".join(dict.fromkeys(format_number(end(values), unit) for end in (min, max)))
            note = f"sum of {len(copies)} layers, each {each}, in {repeats['title']}"
            for bar in copies[1:]:
                del by_layer[bar.layer]
            by_layer[copies[0].layer] = dataclasses.replace(
                copies[0], value=sum(values), spread=None, note=note, copies=len(copies)
            )
    return tuple(sorted(by_layer.values(), key=lambda b: b.step))


def shorten_label(bar: Bar, most: int = 13) -> str:
    """A name below a bar, cut where there is no room for all of it: the number of the layer tells it from its like."""
    copies = f"{bar.copies}× " if bar.copies > 1 else ""
    close = f"L{bar.step + 1} {copies}{bar.label}".replace(" · ", "·")
    return close if len(close) <= most else f"{close[: most - 1]}…"


def build_charts(view: EngineView, result: VariantResult) -> dict[str, Any]:
    """The figures of times and errors, by name; the picture has all its numbers."""
    return {
        "timing": timing(view),
        "longest": timing(view, longest=True),
        "accuracy": draw_errors(view, compute_accuracy(result)),
    }


def timing(view: EngineView, *, longest: bool = False) -> dict[str, Any]:
    """Time of each layer: estimated for the engine's GPU where it was not measured there, else measured.

    Args:
        view: The variant.
        longest: The longest first, in place of the order of execution.
    """
    overlay = next((o for o in view["overlays"] if o["unit"] == "ms" and o["layers"]), None)
    if overlay is None:
        return _empty("No layer times: this variant was not run here, or its files hold none.")
    rows = sum_blocks(bars(view, overlay["id"]), view, overlay["unit"])
    origin, title, is_summed = overlay["origin"], overlay["title"], any(b.copies > 1 for b in rows)
    slowest = max(rows, key=lambda b: b.value)
    # Small networks run in microseconds.
    unit, factor = ("µs", 1e3) if slowest.value < 1 else ("ms", 1.0)
    # Room for the number above the longest bar. An interruption makes a whisker of any length, but not the axis.
    top = _ROOM * slowest.value or 1.0
    # A recorded profile holds one number a layer, which has no spread to show.
    spread = "" if all(b.spread is None for b in rows) else " ± %{customdata[1]}"
    shared_note = (
        " · pale: one time for several layers, at the first" if any(b.shared > 1 for b in rows) else ""
    )
    if longest:
        rows = tuple(sorted(rows, key=lambda b: (-b.value, b.step)))
    # A layer without a time has no bar, and its step stays empty; copies of a block leave no places.
    places = list(range(len(rows))) if longest or is_summed else [b.step for b in rows]
    trace: dict[str, Any] = {
        "type": "bar",
        "x": places,
        "y": [b.value * factor for b in rows],
        "ids": [b.layer for b in rows],
        # One time that several layers have together stands once, pale, at the first of them.
        "marker": {
            "color": MAIN,
            "line": {"width": 0},
            "opacity": [0.45 if b.shared > 1 else 1.0 for b in rows],
        },
        # The slowest has its number above; all have their names below, and the rest on hover.
        "text": [f"{b.value * factor:.3g}" if b is slowest else "" for b in rows],
        "textposition": "outside",
        "textangle": 0,
        "constraintext": "none",
        "cliponaxis": False,
        "customdata": [
            [f"{b.label} · layer {b.step + 1}<br>{b.note}", f"{(b.spread or 0.0) * factor:.2g}"] for b in rows
        ],
        "hovertemplate": f"%{{customdata[0]}}<br>%{{y:.3~g}}{spread} {unit}<extra>{origin}, {title}</extra>",
    }
    # A whisker of no length would be an element to draw all the same.
    if any(b.spread for b in rows):
        trace["error_y"] = {
            "array": [min(b.spread or 0.0, top - b.value) * factor for b in rows],
            # No time is below zero.
            "arrayminus": [min(b.spread or 0.0, b.value) * factor for b in rows],
            "symmetric": False,
            "thickness": 1,
            "width": 2,
            "color": "gray",
        }
    tick_names = _place_names(
        [(place, b.value, shorten_label(b)) for place, b in zip(places, rows, strict=True)]
    )
    axis = {
        "tickvals": list(tick_names),
        "ticktext": list(tick_names.values()),
        "tickangle": -40,
        # The name of the first bar reaches beyond it on the left.
        "ticklabeloverflow": "allow",
        "tickfont": {"size": 10},
        "range": [min(places) - 0.7, max(places) + 0.7],
        "title": _axis_title("layers, the longest first" if longest else "layers in order of execution"),
    }
    blocks = " · equal layers of repeated blocks are one bar, their sum" if is_summed else ""
    heading = f"{SIGNS[origin]} {title} per layer, {unit}{blocks}{shared_note}"
    return _figure([trace], heading, axis, {"range": [0, top * factor], "title": _axis_title(unit)})


def _place_names(bars: list[tuple[int, float, str]]) -> dict[int, str]:
    """Names by place, as many as have room: those of the longest bars first, none too near to another."""
    # Layers without a time leave empty places, so what counts is the span and not the number of bars.
    places = [place for place, _, _ in bars]
    gap = math.ceil((max(places) - min(places) + 1) / _NAMES)
    names: dict[int, str] = {}
    for place, _, name in sorted(bars, key=lambda b: -b[1]):
        if all(abs(place - other) >= gap for other in names):
            names[place] = name
    return dict(sorted(names.items()))


def draw_errors(view: EngineView, errors: Accuracy | None = None) -> dict[str, Any]:
    """The error of each layer's last value, in execution order, and the error that the layer makes itself.

    ``errors`` are those of the values; None where none was compared.
    """
    rows = bars(view, "error")
    if not rows and errors is None:
        return _empty("No errors: the values of this variant were not compared here.")
    if not rows:
        return _empty("Every value equals the fp32 reference.")
    worst = min(rows, key=lambda b: b.value)
    heading = next(o["title"] for o in view["overlays"] if o["id"] == "error")
    noisy = heading.endswith(RANDOM)
    trace = _error_trace(rows, "measured against fp32", noisy=noisy) | {
        "mode": "lines+markers",
        "line": {"color": FAINT, "width": 1.5},
        "marker": {"color": MAIN, "size": 8},
    }
    local_bars = bars(view, "own_error")
    local_trace = _error_trace(local_bars, "made in this layer, measured against fp32", noisy=noisy) | {
        "mode": "markers",
        "marker": {"color": OTHER, "size": 8, "symbol": "triangle-up"},
    }
    # Of noise nothing is worst: the number would look like a finding.
    where = f"⚠ {RANDOM}" if noisy else f"worst inside {worst.value:.3g} dB in layer {worst.step + 1}"
    if errors is not None and errors.output and not noisy:
        where = f"{errors.outcome} · {where}"
    heading = "● SQNR by layer of the engine, dB"
    if local_bars:
        worst_local = min(local_bars, key=lambda b: b.value)
        most = "" if noisy else f" (most {worst_local.value:.3g} dB in layer {worst_local.step + 1})"
        heading = f"SQNR by layer, dB: ● arrived and made, ▲ made here{most}"
    ticks = {"dtick": 1 if len(rows) <= _EACH else 5} if len(rows) <= _FIFTH else {}
    traces = [trace, local_trace] if local_bars else [trace]
    axis = {**ticks, "tickangle": 0, "title": _axis_title("layers in order of execution")}
    return _figure(traces, f"{heading} · {where}", axis, {"rangemode": "normal", "title": _axis_title("dB")})


def _axis_title(text: str) -> dict[str, Any]:
    return {"text": text, "font": {"size": 10}, "standoff": 4}


def _error_trace(rows: tuple[Bar, ...], source: str, *, noisy: bool) -> dict[str, Any]:
    """The points of a chart of errors, without their style."""
    return {
        "type": "scatter",
        "x": [b.step + 1 for b in rows],
        "y": [b.value for b in rows],
        "ids": [b.layer for b in rows],
        "customdata": [f"{b.label}<br>{b.note}" for b in rows],
        "hovertemplate": "%{customdata}<br>%{y:.3~g} dB"
        f"<extra>{source}{f', {RANDOM}' if noisy else ''}</extra>",
    }


def _figure(traces: list[Any], title: str, axis: dict[str, Any], scale: dict[str, Any]) -> dict[str, Any]:
    """A figure of traces over the layers: ``axis`` is what is special below it, ``scale`` beside it."""
    layer_axis = {**axis, "automargin": True, "showgrid": False, "zeroline": False}
    value_axis = {**scale, "gridcolor": FAINT, "automargin": True, "zeroline": False}
    return {"data": traces, "layout": {**layout(title), "xaxis": layer_axis, "yaxis": value_axis}}


def _empty(title: str) -> dict[str, Any]:
    hidden = {"visible": False}
    note = {"text": title, "showarrow": False, "xref": "paper", "yref": "paper", "x": 0.5, "y": 0.5}
    return {"data": [], "layout": {**layout(""), "annotations": [note], "xaxis": hidden, "yaxis": hidden}}


@functools.cache
def plotly_script() -> bytes:
    """Plotly as a gzipped ES module with the library as its default export.

    It is the script that Python's plotly package carries; the page fetches it when it draws the first chart. A report
    brings a smaller one along.
    """
    from plotly.offline import get_plotlyjs

    inside = f"const module = {{ exports: {{}} }}, exports = module.exports;\n{get_plotlyjs()}\nreturn module.exports;"
    text = f"export default (function () {{\n{inside}\n}}).call(globalThis);\n"
    return gzip.compress(text.encode(), compresslevel=6, mtime=0)
