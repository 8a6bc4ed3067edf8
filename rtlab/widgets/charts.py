"""Plotly figures of a variant, and Plotly itself for the page.

The front end marks the selection and reads clicks from the points' ids, which are layer ids, so that charts follow the
other panes without a round trip. FigureWidget would bring its own copy of the library for each figure, five megabytes a
chart and variant.
"""

from __future__ import annotations

import functools
import gzip
from typing import Any

from rtlab.core.data import RANDOM
from rtlab.view import charts
from rtlab.view.contract import EngineView
from rtlab.view.figure import FAINT, MAIN, layout

#: Up to this number of layers every step has its number below the axis; above, every fifth, then Plotly decides.
_EACH, _FIFTH = 12, 80


def timing(view: EngineView) -> dict[str, Any]:
    """Time measured for the nodes of each layer, in execution order."""
    rows = charts.bars(view, "time")
    if not rows:
        return _empty("No layer times: this variant was not run here, or its files hold none.")
    title = next(o["title"] for o in view["overlays"] if o["id"] == "time")
    slowest = max(rows, key=lambda b: b.value)
    # Small networks run in microseconds.
    unit, factor = ("µs", 1e3) if slowest.value < 1 else ("ms", 1.0)
    # A recorded profile holds one number a layer, which has no spread to show.
    spread = "" if all(b.spread is None for b in rows) else " ± %{error_y.array:.2~g}"
    shared = " · pale: one time for several layers" if any(b.shared > 1 for b in rows) else ""
    trace = {
        "type": "bar",
        "x": [b.step + 1 for b in rows],
        "y": [b.value * factor for b in rows],
        "ids": [b.layer for b in rows],
        "error_y": {
            "array": [(b.spread or 0.0) * factor for b in rows],
            # No time is below zero.
            "arrayminus": [min(b.spread or 0.0, b.value) * factor for b in rows],
            "symmetric": False,
            "thickness": 1,
            "width": 2,
            "color": "gray",
        },
        # One time that several layers have together is pale on each of them: it counts once.
        "marker": {
            "color": MAIN,
            "line": {"width": 0},
            "opacity": [0.45 if b.shared > 1 else 1.0 for b in rows],
        },
        # The slowest bears its name; the others tell theirs on hover.
        "text": [b.label if b is slowest else "" for b in rows],
        "textposition": "outside",
        "textangle": 0,
        "constraintext": "none",
        "cliponaxis": False,
        "customdata": [f"{b.label}<br>{b.note}" for b in rows],
        "hovertemplate": f"%{{customdata}}<br>%{{y:.3~g}}{spread} {unit}<extra>measured, {title}</extra>",
    }
    return _figure(trace, rows, f"● {title} per layer, {unit}{shared}", "tozero")


def accuracy(view: EngineView, *, compared: bool = True) -> dict[str, Any]:
    """The error of each layer's last value, in execution order; ``compared`` tells whether errors were measured."""
    rows = charts.bars(view, "error")
    if not rows and not (compared and any(o["id"] == "time" for o in view["overlays"])):
        return _empty("No errors: the values of this variant were not compared here.")
    if not rows:
        return _empty("Every value equals the fp32 reference.")
    worst = min(rows, key=lambda b: b.value)
    told = next(o["title"] for o in view["overlays"] if o["id"] == "error")
    noisy = told.endswith(RANDOM)
    trace = {
        "type": "scatter",
        "mode": "lines+markers",
        "x": [b.step + 1 for b in rows],
        "y": [b.value for b in rows],
        "ids": [b.layer for b in rows],
        "line": {"color": FAINT, "width": 1.5},
        "marker": {"color": MAIN, "size": 8},
        "customdata": [f"{b.label}<br>{b.note}" for b in rows],
        "hovertemplate": "%{customdata}<br>%{y:.3~g} dB<extra>measured against fp32"
        f"{f', {RANDOM}' if noisy else ''}</extra>",
    }
    # Of noise nothing is worst: the number would stand there like a finding.
    where = f"⚠ {RANDOM}" if noisy else f"worst {worst.value:.3g} dB in step {worst.step + 1}"
    title = f"● SQNR along the network, dB · {where}"
    return _figure(trace, rows, title, "normal")


def _figure(trace: Any, rows: tuple[charts.Bar, ...], title: str, rangemode: str) -> dict[str, Any]:
    axis = {
        "title": {"text": "step of the engine", "standoff": 4},
        **({"dtick": 1 if len(rows) <= _EACH else 5} if len(rows) <= _FIFTH else {}),
        "tickangle": 0,
        "automargin": True,
        "showgrid": False,
        "zeroline": False,
    }
    scale = {"rangemode": rangemode, "gridcolor": FAINT, "automargin": True, "zeroline": False}
    return {"data": [trace], "layout": {**layout(title), "xaxis": axis, "yaxis": scale}}


def _empty(title: str) -> dict[str, Any]:
    hidden = {"visible": False}
    note = {"text": title, "showarrow": False, "xref": "paper", "yref": "paper", "x": 0.5, "y": 0.5}
    return {"data": [], "layout": {**layout(""), "annotations": [note], "xaxis": hidden, "yaxis": hidden}}


@functools.cache
def script() -> bytes:
    """Plotly as a gzipped ES module with the library as its default export.

    It is the script that Python's plotly package carries; the page asks for it when it draws the first chart.
    """
    from plotly.offline import get_plotlyjs

    inside = f"const module = {{ exports: {{}} }}, exports = module.exports;\n{get_plotlyjs()}\nreturn module.exports;"
    text = f"export default (function () {{\n{inside}\n}}).call(globalThis);\n"
    return gzip.compress(text.encode(), compresslevel=6, mtime=0)
