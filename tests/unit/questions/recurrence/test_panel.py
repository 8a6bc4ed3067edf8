"""The panel of recurrences, on engines that are built here."""

from __future__ import annotations

import copy
import functools
import json

import plotly.graph_objects as go
import pytest

import rtlab
from recurrent import recurrent_model
from rtlab import backends, samples
from rtlab.formulations.recurrent import Timed
from rtlab.questions.panels import answer
from rtlab.questions.scene import Scene

needs_rtx = pytest.mark.skipif(
    not backends.get("tensorrt-rtx").availability().ok, reason="needs the builder of tensorrt-rtx"
)
TIMES = (Timed("naive", 64, 221, 0.3, 0.2, 0.5, 9, 1e-7), Timed("operator", 0, 2, 0.1, 0.1, 0.1, 9, 0.0))


@functools.cache
def study(op="LSTM", steps=8, backend="tensorrt-rtx", **more):
    """A study of one variant, built for this backend."""
    made = rtlab.Study(recurrent_model(op, steps, **more))
    made.add("fp32", backend=backend)
    made.run()
    return made


def shown(made, **given):
    return answer("recurrence", Scene(made.snapshot(), made["fp32"].facts, settings=given))


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
    for row in panel["rows"]:
        assert len(panel["columns"]) == len(row["cells"])


@pytest.mark.slow
@needs_rtx
def test_unrolled_steps_stand_below_the_products_of_the_definition():
    """Nine rows of eight steps above; below one product of the input and of the state for each step."""
    made = study()
    panel = shown(made)
    check(panel, made)
    above, below = panel["figures"][0]["data"]
    assert 9 * 8 == len(above["y"])
    rows = {
        row: [b for y, b in zip(below["y"], below["base"], strict=True) if y == row] for row in below["y"]
    }
    assert 8 == len(rows["input product · i o f c"]) == len(rows["state product · i o f c"])
    assert 8 == len(rows["pointwise"])
    assert ("64 → 16", "unrolled", "yes", "no") == tuple(
        facts(panel)[k] for k in ("Products", "Steps", "Gates merged", "Input hoisted")
    )
    # A kernel that ends one step begins the next, and bears its number in both.
    texts = dict(
        zip(
            zip(below["y"], [round(b + 0.46) for b in below["base"]], strict=True), below["text"], strict=True
        )
    )
    assert texts["pointwise", 2] == texts["state product · i o f c", 3] != ""


@pytest.mark.slow
@needs_rtx
def test_a_loop_shows_its_layers_once_in_every_turn_and_its_input_product_across_all_steps():
    """Sixteen steps are two turns of eight; the product of all inputs is one long bar."""
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


@needs_rtx
def test_what_is_inferred_says_so():
    """Most of these layers bear no label."""
    panel = shown(study())
    told = [str(r["cells"][4]).partition(":")[0] for r in panel["rows"]]
    assert {"declared", "inferred"} == set(told)
    assert told.count("declared") < told.count("inferred")
    for fact in panel["facts"]:
        if fact["key"] in {"Products", "Gates merged", "Input hoisted", "Steps"}:
            assert fact["origin"] == "estimated"


@pytest.mark.slow
@needs_rtx
def test_recurrence_and_direction_can_be_chosen():
    """Two nodes of two directions would not fit into one picture."""
    made = study("LSTM", 4, layers=2, head=False)
    panel = shown(made, node="/rnn1")
    check(panel, made)
    assert ["/rnn0", "/rnn1"] == [o["id"] for o in panel["settings"][0]["options"]]
    assert "/rnn1" in panel["title"]
    assert {"/rnn1"} == {n for found in panel["links"].values() for n in found["nodes"]}
    both = study("LSTM", 4, direction="bidirectional", batch=2)
    panels = [shown(both, direction=d) for d in ("forward", "backward")]
    texts = [p["figures"][0]["data"][0]["text"][0] for p in panels]
    assert ["reads position 0", "reads position 3"] == [
        t[t.index("reads") :].partition(":")[0] for t in texts
    ]


def test_onnx_runtime_shows_one_layer_that_does_not_tell():
    """What its kernel does inside is not known, so nothing is counted."""
    made = study(backend="onnxruntime")
    panel = shown(made)
    check(panel, made)
    (bar,) = panel["figures"][0]["data"][1]["y"]
    assert "one layer" == bar
    assert {"64 → ?", "not told", "one layer"} <= set(facts(panel).values())


def test_times_of_forms_are_a_figure_once_they_are_known():
    """They are measured on demand; the button says whether they were."""
    made = study(backend="onnxruntime")
    assert 1 == len(shown(made)["figures"])
    assert {"recurrence": "/rnn0"} == shown(made)["work"][0]["values"]
    made = copy.copy(made)
    made._change(lambda kept: kept.timed("/rnn0", TIMES))
    panel = shown(made)
    check(panel, made)
    bars = panel["figures"][1]["data"][0]
    assert "µs" in panel["figures"][1]["layout"]["xaxis"]["title"]["text"]
    assert [300, 100] == pytest.approx(bars["x"])
    assert [200, 0] == pytest.approx(bars["error_x"]["array"])
    assert "again" in panel["work"][0]["label"]


@pytest.mark.slow
def test_many_steps_are_drawn_in_few_traces_without_points_above():
    """A long sequence must not freeze the page."""
    made = study("RNN", 200, backend="onnxruntime")
    panel = shown(made)
    check(panel, made)
    assert 2 == len(panel["figures"][0]["data"])
    assert "ids" not in panel["figures"][0]["data"][0]


@pytest.mark.slow
def test_a_model_without_a_recurrence_names_the_samples_that_have_one():
    """The panel is offered for every model."""
    sample = samples.load("digits_sparse24", samples=4)
    made = rtlab.Study(sample.model, data=sample.calibration)
    made.add("fp32", backend="onnxruntime")
    made.run()
    panel = shown(made)
    assert 'Open the sample "digits_lstm" or "digits_gru"' in panel["problem"]
    assert not panel["figures"]


def test_it_answers_in_words_what_its_panel_tells() -> None:
    made = study()
    told, panel = made.ask("recurrence", variant="fp32"), shown(made)
    (found,) = made["fp32"].recurrences()
    assert [p.layer for p in found.pieces] == told.frame().layer.tolist()
    assert found.launches == told.noun.launches
    assert {f["key"]: f["value"] for f in panel["facts"]} == {
        f["key"]: f["value"] for f in told.parts()["facts"]
    }
    assert f"{found.before.products} products and" in panel["facts"][1]["note"]
