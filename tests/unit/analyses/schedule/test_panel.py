"""The panel of streams: its picture, its numbers and their origins, its links, and what it offers to rebuild."""

from __future__ import annotations

import dataclasses
import datetime
from typing import Any

import numpy as np
import onnx
import plotly.graph_objects as go
import pytest

import strategies
from rtlab import BuildOptions, Study
from rtlab.analyses.panel_context import PanelContext
from rtlab.analyses.panels import ask, render_panel
from rtlab.backends.compiler_info import ONNX_RUNTIME, TENSORRT_RTX
from rtlab.core.engine import Engine, Layer, Tensor
from rtlab.core.facts import VariantResult
from rtlab.core.model import Model, load
from rtlab.core.prepared import Prepared
from rtlab.core.trace import Profile
from rtlab.core.variant import Target, Variant
from rtlab.documents.contract import Panel
from rtlab.errors import ReadError
from rtlab.study.recorded import adopt

TIMES = {"stem": 1.0, "left1": 2.0, "left2": 1.0, "right": 5.0, "join": 0.5}


@pytest.fixture(scope="module")
def model() -> Model:
    node = onnx.helper.make_node
    return load(
        strategies.of_nodes([
            node("Relu", ["x"], ["a"], name="stem"), node("Neg", ["a"], ["b"], name="left1"),
            node("Sigmoid", ["a"], ["c"], name="right"), node("Abs", ["b"], ["d"], name="left2"),
            node("Add", ["c", "d"], ["y"], name="join"),
        ])
    )  # fmt: skip


def step(model: Model, name: str, stream: int, *, event: int | None = None) -> Layer:
    node = next((n for n in model.top if n.name == name), None)
    if node is None:
        return Layer(name, name, name.rstrip("12"), 0, stream=stream, event=event)

    ends = (tuple(Tensor(v, "fp32", (1, 4)) for v in values) for values in (node.inputs, node.outputs))
    return Layer(name, f"{name} <k>", "kgen", 0, *ends, stream=stream, origins=(node.id,))


#: The steps of the fork on two streams, and all on one.
TWO = (("stem", 0), ("signal1", 0), ("left1", 0), ("wait1", 1), ("right", 1), ("signal2", 1), ("left2", 0),
       ("wait2", 0), ("join", 0))  # fmt: skip
ONE = tuple((n, 0) for n, _ in TWO if not n.startswith(("signal", "wait")))


def timed(engine: Engine, times=TIMES) -> Profile:
    day = datetime.datetime(2026, 1, 1, tzinfo=datetime.timezone.utc)
    known = {y.id: times.get(y.id.removeprefix("cpu ")) for y in engine.layers}
    samples = {i: np.array([t]) for i, t in known.items() if t is not None}
    return Profile("tensorrt-rtx", "RTX 3090", samples, np.array([7.0]), 1, day, processor="GPU")


def result(model, name="fp32", steps=TWO, *, aux=None, memory=30_000_000, measured=True, times=TIMES):
    layers = tuple(step(model, n, s, event=int(n[-1]) if n[-1] in "12" else None) for n, s in steps)
    totals = {"activation": memory}
    engine = Engine("tensorrt-rtx", "1.7", Target("sm86"), layers, totals=totals, maker=TENSORRT_RTX)
    options = None if aux is None else BuildOptions.of(max_aux_streams=aux)
    variant = Variant.of("fp32", target="sm86", options=options)
    made = VariantResult(name, variant, model, Prepared(model, model), engine)
    if not measured:
        return made
    return dataclasses.replace(made, measured=engine, profile=timed(engine, times))


def context(*results: VariantResult, **settings: str) -> PanelContext:
    study = Study(results[0].source)
    for result in results:
        adopt(study._holder, result)
    return PanelContext(study.state, results[0], settings=settings)


def facts(panel: Panel) -> dict[str, tuple[str, str]]:
    return {f["key"]: (f["value"], f["origin"]) for f in panel["facts"]}


def checked(panel: Panel) -> dict[str, Any]:
    """The picture of the schedule, after Plotly found nothing wrong with any."""
    for found in panel["figures"]:
        go.Figure(found["data"], found["layout"])
    return panel["figures"][0]


def test_a_bar_for_each_layer_stands_on_its_stream_at_its_time(model) -> None:
    bars = checked(render_panel("schedule", context(result(model))))["data"][0]
    drawn = dict(zip(bars["ids"], zip(bars["y"], bars["base"], bars["x"], strict=True), strict=True))
    at = {"stem": (0, 0, 1), "left1": (0, 1, 2), "right": (1, 1, 5), "left2": (0, 3, 1), "join": (0, 6, 0.5)}
    assert at == drawn


def test_critical_layers_are_told_by_a_line_and_not_by_colour_alone(model) -> None:
    path = checked(render_panel("schedule", context(result(model))))["data"][-1]
    streams = [round(y - 0.38) for y in path["y"]]
    points = list(zip(streams, path["x"], strict=True))
    assert [(0, 0.0), (0, 1.0), (1, 1.0), (1, 6.0), (0, 6.0), (0, 6.5)] == points


def test_gaps_are_where_a_stream_stands_still_and_arrows_end_there(model) -> None:
    _, gaps, arrows, _ = checked(render_panel("schedule", context(result(model))))["data"]
    assert [(1, 0.0, 1.0), (0, 4.0, 2.0)] == list(zip(gaps["y"], gaps["base"], gaps["x"], strict=True))
    assert [1.0, 1.0, None, 6.0, 6.0, None] == arrows["x"]
    assert [0, 9, 0] * 2 == arrows["marker"]["size"]
    assert [3, 3] == [arrows["text"].count(text) for text in dict.fromkeys(arrows["text"])]


def test_an_arrow_of_a_wait_that_holds_nothing_leads_from_the_signal_to_where_the_stream_goes_on(model):
    _, gaps, arrows, _ = checked(
        render_panel("schedule", context(result(model, times=TIMES | {"right": 0.5})))
    )["data"]
    assert [1.5, 4.0, None] == arrows["x"][3:]
    assert [1] == gaps["y"]


def test_times_keep_their_origin_and_what_follows_from_them_is_estimated(model) -> None:
    panel = render_panel("schedule", context(result(model)))
    told = facts(panel)
    assert ("9.5 ms", "measured") == told["On one stream"]
    assert ("6.5 ms", "estimated") == told["Makespan"]
    assert ("3 ms (32%)", "estimated") == told["Bought"]
    assert ("28.6 MiB", "reported") == told["Activation memory"]
    origins = {c["title"]: c["origin"] for c in panel["columns"] if c["unit"]}
    assert {"Start": "estimated", "Duration": "measured", "Slack": "estimated"} == origins


def test_a_schedule_answers_in_words_with_both_origins(model) -> None:
    """By hand: 9.5 ms of work on two streams end after 6.5; durations are measured, all else follows from them."""
    told = ask("schedule", context(result(model)))
    frame = told.frame().set_index("layer")
    assert TIMES == frame.duration.to_dict()
    assert {"stem": 0, "left1": 1, "right": 1, "left2": 3, "join": 6} == frame.start.to_dict()
    assert ("ms", 9.5, 6.5) == tuple(told.plain()[k] for k in ("unit", "serial", "makespan"))
    alike = ask("schedule", context(result(model), times="unit"))
    assert ("steps", 4, {}) == (alike.result.unit, alike.result.makespan, alike.frame().attrs["origins"])
    with pytest.raises(ReadError, match="has no layer that takes time"):
        ask("schedule", context(result(model, steps=())))


def test_a_stream_that_never_stands_still_is_not_told_to_stand_less_than_never(model) -> None:
    times = {"stem": 0.9, "left1": 0.7, "left2": 0.7, "right": 0.05, "join": 0.1 + 0.2}
    assert (
        "0% on 0, 98% on 1" == facts(render_panel("schedule", context(result(model, times=times))))["Idle"][0]
    )


def test_rows_tell_whom_a_layer_waits_for_and_its_slack(model) -> None:
    panel = render_panel("schedule", context(result(model)))
    cells = {r["key"]: r["cells"] for r in panel["rows"]}
    assert set(TIMES) == set(cells)
    assert [9, "Add", 0, 6.0, 0.5, "5: Sigmoid", 0.0, "yes"] == cells["join"]
    assert ["", 2.0, ""] == cells["left2"][5:]
    assert all(len(panel["columns"]) == len(c) for c in cells.values())


def test_the_slider_offers_to_rebuild_with_so_many_auxiliary_streams(model) -> None:
    panel = render_panel("schedule", context(result(model), aux="5"))
    (work,) = panel["work"]
    assert ("rebuild", {"max_aux_streams": "5"}, True) == (work["work"], work["values"], not work["reason"])
    slider = next(s for s in panel["settings"] if s["key"] == "aux")
    assert ("5", [str(n) for n in range(8)]) == (slider["value"], [o["id"] for o in slider["options"]])


@pytest.mark.parametrize(("aux", "at"), [(None, "1"), (6, "6")])
def test_the_slider_stands_at_what_was_built(model, aux, at) -> None:
    settings = render_panel("schedule", context(result(model, aux=aux)))["settings"]
    assert at == next(s["value"] for s in settings if s["key"] == "aux")


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"recorded": True}, "files"),
        ({"engine": ONNX_RUNTIME}, "no streams"),
        ({"variant": 1}, "1 auxiliary"),
    ],
)
def test_a_rebuild_that_cannot_be_is_disabled_with_the_reason(model, changes, why) -> None:
    found = result(model, aux=changes.pop("variant", None))
    if maker := changes.pop("engine", None):
        engine = dataclasses.replace(found.engine, maker=maker)
        found = dataclasses.replace(found, engine=engine, measured=engine)
    (work,) = render_panel("schedule", context(dataclasses.replace(found, **changes)))["work"]
    assert why in work["reason"]


def test_an_engine_without_times_is_drawn_with_estimates_for_a_gpu_of_its_target(model) -> None:
    panel = render_panel("schedule", context(result(model, measured=False)))
    options = {s["key"]: s["value"] for s in panel["settings"]}
    assert ("estimated", "RTX 3090") == (options["times"], options["gpu"])
    assert {"estimated"} == {f["origin"] for f in panel["facts"]} - {"", "reported"}


@pytest.mark.parametrize(("key", "value"), [("times", "moon"), ("aux", "many"), ("times", "cpu")])
def test_a_setting_that_there_is_not_is_refused(model, key, value) -> None:
    assert f'"{value}"' in render_panel("schedule", context(result(model), **{key: value}))["problem"]


def test_a_gpu_that_is_not_in_the_table_is_a_problem_beside_the_settings(model) -> None:
    panel = render_panel(
        "schedule", context(result(model, measured=False), times="estimated", gpu="Voodoo 2")
    )
    assert 'Cannot find the GPU "Voodoo 2"' in panel["problem"]
    assert {"times", "gpu", "aux"} == {s["key"] for s in panel["settings"]}
    assert [] == panel["figures"]
