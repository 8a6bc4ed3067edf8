"""The panel of recurrences, on engines that are built here."""

from __future__ import annotations

import functools
import json
from collections import Counter

import plotly.graph_objects as go
import pytest

import rtlab
from recurrent import recurrent_model
from rtlab import backends
from rtlab.analyses.panel_context import PanelContext
from rtlab.analyses.panels import render_panel

needs_rtx = pytest.mark.skipif(not backends.get("tensorrt-rtx").availability().ok, reason="not installed")


@functools.cache
def study(op="LSTM", steps=8, backend="tensorrt-rtx", **more):
    made = rtlab.Study(recurrent_model(op, steps, **more))
    made.add("fp32", backend=backend)
    made.run()
    return made


def shown(made, **given):
    return render_panel("recurrence", PanelContext(made.state, made["fp32"].facts, settings=given))


def facts(panel) -> dict[str, str]:
    return {f["key"]: f["value"] for f in panel["facts"]}


def check(panel, made) -> None:
    """What every answer must hold: figures that Plotly takes, and keys that lead somewhere."""
    json.dumps(panel, allow_nan=False)
    layers = {layer.id for layer in made["fp32"].engine.layers}
    ids = [i for f in panel["figures"] for trace in f["data"] for i in trace.get("ids", ())]
    assert len(ids) == len(set(ids)), "points with one id hide each other"
    for key in (*ids, *(r["key"] for r in panel["rows"])):
        found = panel["links"][key]
        assert set(found["layers"]) <= layers
        assert found["nodes"]
        assert set(found["nodes"]) <= set(made.model.places)
    for figure in panel["figures"]:
        go.Figure(figure["data"], figure["layout"])
        for trace in figure["data"]:
            assert {len(trace["y"])} == {len(trace[k]) for k in ("x", "ids", "base") if k in trace}


@pytest.mark.slow
@needs_rtx
def test_unrolled_steps_stand_below_the_products_of_the_definition():
    made = study()
    panel = shown(made)
    check(panel, made)
    above, below = panel["figures"][0]["data"]
    assert 9 * 8 == len(above["y"])
    rows = Counter(below["y"])
    assert {8} == {rows[k] for k in ("input product · i o f c", "state product · i o f c", "pointwise")}
    told = [facts(panel)[k] for k in ("Products", "Steps", "Gates merged", "Input hoisted")]
    assert ["64 → 16", "unrolled", "yes", "no"] == told


@pytest.mark.slow
@needs_rtx
def test_a_loop_shows_its_layers_once_in_every_turn_and_its_input_product_across_all_steps():
    made = study("GRU", 16, linear=1)
    panel = shown(made)
    check(panel, made)
    below = panel["figures"][0]["data"][1]
    wide = [x for y, x in zip(below["y"], below["x"], strict=True) if y == "input product · z r h"]
    assert [pytest.approx(16, abs=0.1)] == wide
    assert "loop, 2 turns of 8" == facts(panel)["Steps"]
    assert "yes" == facts(panel)["Input hoisted"]
    twice = [r for r in panel["rows"] if r["cells"][3] == 2]
    assert any("state product" in str(r["cells"][2]) for r in twice)


@pytest.mark.slow
@needs_rtx
def test_a_recurrence_can_be_chosen():
    made = study("LSTM", 4, layers=2, head=False)
    panel = shown(made, node="/rnn1")
    check(panel, made)
    assert ["/rnn0", "/rnn1"] == [o["id"] for o in panel["settings"][0]["options"]]
    assert {"/rnn1"} == {n for found in panel["links"].values() for n in found["nodes"]}
    back = shown(study("LSTM", 4, direction="reverse", batch=2))
    assert "reads position 3:" in back["figures"][0]["data"][0]["text"][0]


def test_onnx_runtime_shows_one_layer_that_does_not_tell():
    made = study(backend="onnxruntime")
    panel = shown(made)
    check(panel, made)
    (bar,) = panel["figures"][0]["data"][1]["y"]
    assert "one layer" == bar
    assert {"64 → ?", "not reported", "one layer"} <= set(facts(panel).values())


def test_it_answers_in_words_what_its_panel_tells() -> None:
    made = study()
    told, panel = made.ask("recurrence", variant="fp32"), shown(made)
    (found,) = made["fp32"].recurrences()
    assert [p.layer for p in found.pieces] == told.frame().layer.tolist()
    assert found.launches == told.result.launches
    assert facts(panel) == facts({"facts": told.facts})
