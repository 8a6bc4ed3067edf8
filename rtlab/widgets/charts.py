"""Plotly charts that follow the selection."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

import plotly.graph_objects as go

from rtlab.view import charts
from rtlab.view.contract import EngineView

_FONT = {"family": "system-ui, sans-serif", "size": 11}
_MARK = "#e08700"
_PLAIN = "#31688e"
_FAINT = "rgba(128,128,128,0.25)"


class Chart:
    """One FigureWidget over the layers of the engine shown. ``picked`` is called with a layer id on a click."""

    def __init__(self, picked: Callable[[str], None]) -> None:
        self.figure = go.FigureWidget()
        self._rows: tuple[charts.Bar, ...] = ()
        self._picked = picked
        self.figure.update_layout(
            autosize=True,
            margin={"l": 8, "r": 16, "t": 28, "b": 30},
            font=_FONT,
            paper_bgcolor="rgba(0,0,0,0)",
            plot_bgcolor="rgba(0,0,0,0)",
            showlegend=False,
            hoverlabel={"font": _FONT},
        )

    def mark(self, layers: Collection[str]) -> None:
        """Light up layers."""
        if self.figure.data:
            colours = [_MARK if b.layer in layers else _PLAIN for b in self._rows]
            with self.figure.batch_update():
                self.figure.data[0].marker.color = colours

    def _put(self, trace: Any, title: str) -> None:
        with self.figure.batch_update():
            self.figure.data = ()
            self.figure.layout.title = {"text": title, "font": {"size": 12}, "x": 0.01, "y": 0.97}
        if trace is not None:
            self.figure.add_trace(trace)
            self.figure.data[0].on_click(self._click)

    def _click(self, _trace: Any, points: Any, _state: Any) -> None:
        for i in points.point_inds:
            self._picked(self._rows[i].layer)


class TimingChart(Chart):
    """The slowest layers of the engine, by the time measured for their nodes."""

    def show(self, view: EngineView) -> None:
        """Draw a variant."""
        rows = charts.bars(view, "time")
        self._rows = charts.slowest(rows)
        if not self._rows:
            self._put(None, "No layer times: nothing here can run this variant")
            return
        more = f", {len(self._rows)} slowest of {len(rows)} layers" if len(rows) > len(self._rows) else ""
        trace = go.Bar(
            orientation="h",
            x=[b.value for b in self._rows],
            y=[f"{b.step + 1} {b.label}" for b in self._rows],
            error_x={"array": [b.spread or 0.0 for b in self._rows], "thickness": 1, "color": "gray"},
            text=[f"{b.value:.3g} ms" for b in self._rows],
            textposition="outside",
            cliponaxis=False,
            marker={"color": _PLAIN},
            customdata=[b.note for b in self._rows],
            hovertemplate="%{customdata}<br>%{x:.3g} ms ± %{error_x.array:.2g}<extra>measured on the CPU</extra>",
        )
        self._put(trace, f"● CPU time per layer, ms{more}")
        with self.figure.batch_update():
            self.figure.layout.yaxis = {"autorange": "reversed", "automargin": True, "gridcolor": _FAINT}
            self.figure.layout.xaxis = {"rangemode": "tozero", "gridcolor": _FAINT, "ticksuffix": " ms"}


class AccuracyChart(Chart):
    """The error of each layer's last value, in execution order."""

    def show(self, view: EngineView) -> None:
        """Draw a variant."""
        self._rows = charts.bars(view, "error")
        if not self._rows:
            self._put(None, "Every value equals the fp32 reference, or nothing could be compared")
            return
        worst = min(self._rows, key=lambda b: b.value)
        trace = go.Scatter(
            mode="lines+markers",
            x=[b.step + 1 for b in self._rows],
            y=[b.value for b in self._rows],
            line={"color": _FAINT, "width": 1.5},
            marker={"color": _PLAIN, "size": 8},
            customdata=[f"{b.label}<br>{b.note}" for b in self._rows],
            hovertemplate="%{customdata}<br>%{y:.3g} dB<extra>measured against fp32</extra>",
        )
        self._put(trace, f"● SQNR along the network, dB (worst: step {worst.step + 1}, {worst.value:.3g} dB)")
        with self.figure.batch_update():
            self.figure.layout.xaxis = {"title": {"text": "step of the engine"}, "gridcolor": _FAINT}
            self.figure.layout.yaxis = {"ticksuffix": " dB", "gridcolor": _FAINT, "automargin": True}
