"""Charts in Python are those of the page, and a report draws the same bars without a waterfall."""

from __future__ import annotations

import plotly.graph_objects as go
import pytest

import scenes
from rtlab.analyses import panels
from rtlab.analyses.panel_context import PanelContext
from rtlab.errors import VariantError


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


def test_an_unknown_name_is_refused() -> None:
    study = scenes.study("written")
    with pytest.raises(VariantError, match="nonsense"):
        study.figure("nonsense", variant="fp16")
