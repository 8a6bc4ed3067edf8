"""Figures are plain dictionaries; Plotly's own classes are the judge of them."""

from __future__ import annotations

import itertools
from typing import cast

import plotly.graph_objects as go
import pytest

from rtlab import CalibrationData, Study
from rtlab.analyses.cards.picture import OpChip, Overlay, OverlayValue
from rtlab.testing import tiny_model
from rtlab.web.page import charts
from rtlab.web.page.contract import EngineView
from rtlab.web.page.graph import engine_view


@pytest.fixture(scope="module")
def view():
    model = tiny_model()
    study = Study(model, data=CalibrationData.random(model, samples=4))
    study.add("int8", calibrator="minmax", target="cpu")
    study.run()
    return engine_view(study["int8"].facts, model)


@pytest.mark.parametrize("times", [True, False], ids=["with numbers", "without"])
@pytest.mark.parametrize("draw", [charts.timing, charts.draw_errors])
def test_plotly_accepts_every_figure_as_it_is(view, draw, times: bool) -> None:
    """A misspelt property would be passed over in the page, and the chart would look wrong without a word."""
    shown = view if times else {**view, "overlays": []}
    figure = draw(shown)
    judged = go.Figure(data=figure["data"], layout=figure["layout"]).to_plotly_json()
    assert bool(figure["data"]) == times
    assert set(figure["layout"]) <= set(judged["layout"])
    for mine, theirs in zip(figure["data"], judged["data"], strict=True):
        assert set(mine) == set(theirs)


def given(times: list[float], spread: float | None = None) -> EngineView:
    """A view whose layers have these times in milliseconds."""
    chips = [OpChip(op="Op", family="other", node="")]
    boxes = [{"id": f"L{i}", "kind": "layer", "chips": chips, "title": f"L{i}"} for i in range(len(times))]
    layers = {f"L{i}": OverlayValue(value=t, spread=spread, shared=1, note="") for i, t in enumerate(times)}
    overlay = Overlay(
        id="time", title="CPU time", unit="ms", origin="measured", source="measured", best="low", nodes={},
        layers=layers,
    )  # fmt: skip
    return cast(
        "EngineView", {"graph": {"boxes": boxes, "repeats": [], "folded": False}, "overlays": [overlay]}
    )


def test_the_axis_follows_the_bars_and_not_an_interruption() -> None:
    """One run that was interrupted makes a whisker of 8 ms; the bars are 0.4 and 0.586 ms long."""
    figure = charts.timing(given([0.4, 0.586], spread=8.0))
    (trace,), axis = figure["data"], figure["layout"]["yaxis"]
    top = axis["range"][1]
    assert top == pytest.approx(1.15 * 586)
    whiskers = trace["error_y"]
    for y, up, down in zip(trace["y"], whiskers["array"], whiskers["arrayminus"], strict=True):
        assert y + up == pytest.approx(top)
        assert 0 == pytest.approx(y - down)
    # What was clipped is told as it is.
    assert ["8e+03", "8e+03"] == [told for _, told in trace["customdata"]]
    assert "586" == trace["text"][1]
    (trace,) = charts.timing(given([0.5, 0.2], spread=0.05))["data"]
    assert [50.0, 50.0] == pytest.approx(trace["error_y"]["array"]), "what fits is as long as the spread"


def test_the_longest_first_or_as_executed() -> None:
    times = [0.2, 0.5, 0.1, 0.5]
    executed, longest = (charts.timing(given(times), longest=one)["data"][0] for one in (False, True))
    assert ["L0", "L1", "L2", "L3"] == executed["ids"]
    # Of equals the one that runs first.
    assert ["L1", "L3", "L0", "L2"] == longest["ids"]
    assert [0, 1, 2, 3] == longest["x"]
    of = [dict(zip(t["ids"], t["y"], strict=True)) for t in (executed, longest)]
    assert of[0] == of[1]


@pytest.mark.parametrize("longest", [False, True])
@pytest.mark.parametrize("count", [1, 12, 40, 41, 85, 1000])
def test_bars_bear_names_and_no_two_names_share_a_place(count: int, longest: bool) -> None:
    times = [1.0 + (7 * i) % count for i in range(count)]
    axis = charts.timing(given(times), longest=longest)["layout"]["xaxis"]
    assert len(axis["tickvals"]) == len(axis["ticktext"])
    assert min(count, 20) <= len(axis["tickvals"]) <= 40
    gaps = [b - a for a, b in itertools.pairwise(axis["tickvals"])]
    assert all(gap >= count / 40 for gap in gaps)
    top = 0 if longest else max(range(count), key=lambda i: times[i])
    assert top in axis["tickvals"]
