"""Charts in Python are those of the page, and a report draws the same bars without a waterfall."""

from __future__ import annotations

import plotly.graph_objects as go
import pytest

import scenes
from rtlab.analyses import panels
from rtlab.analyses.panel_context import PanelContext
from rtlab.errors import VariantError
from rtlab.web.report.html import _simplify_trace


@scenes.of(("cpu", "written"))
def test_every_chart_of_a_panel_is_a_plotly_figure_with_the_data_of_the_page(subject) -> None:
    study = scenes.study(subject)
    first, *others = study
    last = others[-1] if others else first
    context = PanelContext(study.state, study[last].facts, study[first].facts if others else None)
    for name in panels.PANELS:
        figures = panels.render_panel(name, context)["figures"]
        for i, figure in enumerate(figures):
            drawn = study.figure(name, variant=last, baseline=first if others else None, index=i)
            assert drawn.data == go.Figure(data=figure["data"]).data
            assert drawn.layout.title.text.startswith(panels.render_panel(name, context)["title"])
            assert (", beside " in drawn.layout.title.text) == bool(others)
            assert study.model.name in drawn.layout.title.text
            assert drawn.layout.height == (figure["height"] or None)
        for index in (-1, len(figures)):
            with pytest.raises(VariantError, match=f"chart {index} of"):
                study.figure(name, variant=last, baseline=first if others else None, index=index)


def test_layers_are_drawn_in_their_order_or_by_time() -> None:
    study = scenes.study("cpu")
    in_order, by_time = (
        study.figure("layers", variant="fp32", **settings).data[0].y for settings in ({}, {"order": "time"})
    )
    assert len({*in_order}) > 1
    assert list(by_time) == sorted(in_order, reverse=True) != list(in_order)


def test_a_tab_stands_for_its_first_panel_and_other_names_are_refused() -> None:
    study = scenes.study("written")
    assert study.figure("streams", variant="fp16").data == study.figure("schedule", variant="fp16").data
    with pytest.raises(VariantError, match="nonsense"):
        study.figure("nonsense", variant="fp16")


def test_a_waterfall_becomes_bars_each_on_the_level_before_it() -> None:
    marker = {n: {"marker": {"color": n[0]}} for n in ("increasing", "decreasing", "totals")}
    trace = {
        "type": "waterfall",
        "name": "t",
        "y": [10, -4, 3, 9],
        "measure": ["absolute", "relative", "relative", "total"],
    }
    assert _simplify_trace({**trace, **marker}) == {
        "type": "bar", "name": "t", "y": [10, -4, 3, 9], "base": [0, 10, 6, 0],
        "marker": {"color": ["t", "d", "i", "t"]},
    }  # fmt: skip
    assert _simplify_trace({"type": "scattergl", "x": [1]}) == {"type": "scatter", "x": [1]}
