"""Figures are plain dictionaries; Plotly's own classes are the judge of them."""

from __future__ import annotations

import plotly.graph_objects as go
import pytest

from rtlab import CalibrationData, Study
from rtlab.testing import tiny_model
from rtlab.view.graph import engine_view
from rtlab.widgets import charts


@pytest.fixture(scope="module")
def view():
    model = tiny_model()
    study = Study(model, data=CalibrationData.random(model, samples=4))
    study.add("int8", calibrator="minmax", target="cpu")
    study.run()
    return engine_view(study["int8"], model)


@pytest.mark.parametrize("times", [True, False], ids=["with numbers", "without"])
@pytest.mark.parametrize("draw", [charts.timing, charts.accuracy])
def test_plotly_accepts_every_figure_as_it_is(view, draw, times: bool) -> None:
    """A misspelt property would be passed over in the page, and the chart would look wrong without a word."""
    shown = view if times else {**view, "overlays": []}
    figure = draw(shown)
    judged = go.Figure(data=figure["data"], layout=figure["layout"]).to_plotly_json()
    assert bool(figure["data"]) == times
    assert set(figure["layout"]) <= set(judged["layout"])
    for mine, theirs in zip(figure["data"], judged["data"], strict=True):
        assert set(mine) == set(theirs)


def test_each_bar_is_a_layer_in_its_order(view) -> None:
    """Ids join the chart with the other panes."""
    (trace,) = charts.timing(view)["data"]
    layers = [b["id"] for b in view["graph"]["boxes"] if b["kind"] == "layer"]
    assert [i for i in layers if i in set(trace["ids"])] == list(trace["ids"])
    assert list(trace["x"]) == sorted(trace["x"])
