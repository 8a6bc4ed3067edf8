"""What holds for every panel, of every kind of variant: the page draws whatever comes."""

from __future__ import annotations

import json

import plotly.graph_objects as go
import pytest

import engines
import rtlab
from rtlab import samples
from rtlab.analyses.panel_context import PanelContext
from rtlab.analyses.panels import PANELS, list_panels, render_panel

ORIGINS = {"", "measured", "reported", "estimated"}


@pytest.fixture(scope="session")
def studies() -> dict[str, tuple]:
    """Variants of every origin: built and run here, built only, without a model, with several streams, empty."""
    found: dict[str, tuple] = {}
    digits = samples.load("digits_inception", samples=32)
    study = rtlab.Study(digits.model, data=digits.calibration)
    study.add("fp32", backend="onnxruntime", target="cpu")
    study.add("int8", precision="int8", backend="onnxruntime", target="cpu")
    study.run()
    found["run here"] = (study, "int8", "fp32")
    for folder in (engines.RESIDUAL, engines.MOBILE):
        found[folder.name] = (rtlab.read(**engines.files(folder)), "engine", None)
    return found


def scenes(studies: dict[str, tuple]) -> list[tuple[str, PanelContext]]:
    return [
        (title, PanelContext(study.state, study[name].facts, study[other].facts if other else None, {}))
        for title, (study, name, other) in studies.items()
    ]


@pytest.mark.parametrize("name", PANELS)
def test_a_panel_is_what_the_page_can_draw(name, studies) -> None:
    """A missing cell, a NaN, or an id that stands twice breaks the page, or links the wrong thing."""
    for title, context in scenes(studies):
        found = render_panel(name, context)
        assert (name, context.result.name) == (found["name"], found["variant"]), title
        # NaN and infinity are no JSON.
        assert found == json.loads(json.dumps(found, allow_nan=False)), title
        assert found["problem"] or found["title"], title
        for row in found["rows"]:
            assert len(found["columns"]) == len(row["cells"]), (title, row)
        keys = [r["key"] for r in found["rows"]]
        assert len(keys) == len(set(keys)), title
        for setting in found["settings"]:
            if setting["kind"] != "text":
                assert setting["value"] in [o["id"] for o in setting["options"]], (title, setting)
        assert {f["origin"] for f in (*found["facts"], *found["columns"])} <= ORIGINS, title
        for figure in found["figures"]:
            go.Figure(figure["data"], figure["layout"])
            assert figure["title"], title
            for trace in figure["data"]:
                ids = trace.get("ids") or []
                # Two points of one id are one point to Plotly: the second is not drawn.
                assert len(ids) == len(set(ids)), (title, figure["title"])
        layers = {y.id for y in context.result.engine.layers}
        # The third pane may show any other variant.
        others = {y.id for r in context.study.results.values() for y in r.engine.layers}
        for key, link in found["links"].items():
            assert set(link["nodes"]) <= set(context.model.places), (title, key)
            assert set(link["layers"]) <= layers, (title, key)
            assert set(link["others"]) <= others, (title, key)


def test_recurrence_is_offered_where_there_is_one(studies) -> None:
    study = studies["run here"][0]
    drawn = {"engine", "build", "calibration", "findings", "table"}
    assert set(PANELS) - {"recurrence", "generation"} - drawn == set(list_panels(study.model))
    recurrent = [name for name in PANELS if name not in {*drawn, "generation"}]
    assert recurrent == list_panels(samples.load("digits_lstm").model)
    assert "generation" in list_panels(samples.load("decoder_with_cache").model)
