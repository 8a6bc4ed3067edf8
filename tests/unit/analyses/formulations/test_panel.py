"""Auto-tuning as the page gets it: measured here, reported by the builder, or not at all."""

from __future__ import annotations

import dataclasses
import datetime
import functools
import json
import types
from typing import Any

import plotly.graph_objects
import pytest

import pasted
import rtlab
from build_logs import CONV, REGIONS, REST
from rtlab import Study
from rtlab.analyses.panel_context import PanelContext
from rtlab.analyses.panels import ask, render_panel
from rtlab.backends.readers.log.verbose import parse
from rtlab.core.buildlog import BuildLog, TacticTime, Tuning
from rtlab.core.model import make_empty_model
from rtlab.errors import ReadError, RunError
from rtlab.formulations.trial import ModelTrial, Trial, TunedLayer, TunedModel

WHEN = datetime.datetime(2026, 1, 2, 3, 4, tzinfo=datetime.timezone.utc)


def trial(name: str, median: float | None, threads: int = 2, **more: Any) -> Trial:
    quartiles = (median * 0.9, median * 1.1) if median else None
    given = {"runs": 10, "error": 1e-6, "tolerance": 2e-5, "ok": median is not None, **more}
    return Trial(name, threads, median, quartiles, **given)


def tuned(nodes: list[str], **more: Any) -> TunedModel:
    """The first layer is won by Winograd, the others by the direct one."""
    layers = []
    for i, node in enumerate(nodes):
        direct = trial("direct", 2.0)
        other = trial("Winograd 2×2", 1.0 if i == 0 else 4.0, 1)
        refused = trial("im2col", None, note="refused: it differs", error=0.5)
        like = nodes[0] if i == 2 else ""
        layers.append(TunedLayer(node, f"Conv {i}", f"key {i}", (direct, other, refused), direct, like))
    whole = ModelTrial(2, 10.0, (9.5, 10.5), 8.0, (7.5, 8.5), 20, 1e-6, ok=True, changed=(nodes[0],))
    given = {"model_trials": (whole,), "device": "a CPU", "source": "ORT", "taken": WHEN, "seconds": 1.0}
    return TunedModel(tuple(layers), **{**given, "complete": True, **more})


@functools.cache
def study() -> Study:
    """Twelve nodes with an engine that was written by hand, called "engine"."""
    folder = pasted.CORPUS / "engines" / "written-fp16"
    return rtlab.read(folder / "engine.graph.json", folder / "model.structure-only.onnx")


def context(
    found: TunedModel | None = None, log: BuildLog | None = None, model=None, **settings: str
) -> PanelContext:
    there = study()
    result = dataclasses.replace(there["engine"].facts, build_log=log)
    asked = types.SimpleNamespace(model=model or there.model, tuned=found, facts={"engine": result})
    return PanelContext(asked, result, settings=settings)


def nodes() -> list[str]:
    return [n.id for n in study().model.top]


def checked(panel: Any) -> Any:
    """Plotly takes the figures, JSON takes all, and each link is that of a point or a row, and leads somewhere."""
    points = {r["key"] for r in panel["rows"]}
    for figure in panel["figures"]:
        plotly.graph_objects.Figure(figure["data"], figure["layout"])
        for trace in figure["data"]:
            ids = trace.get("ids", ())
            points |= {*ids}
            # Points of one id are one point to Plotly: the others are not drawn.
            assert len(ids) == len(set(ids))
    assert set(panel["links"]) <= points
    assert all(any(link.values()) for link in panel["links"].values())
    assert len({r["key"] for r in panel["rows"]}) == len(panel["rows"])
    assert all(len(r["cells"]) == len(panel["columns"]) for r in panel["rows"])
    json.dumps(panel, allow_nan=False)
    return panel


def values(panel: Any) -> dict[str, str]:
    return {f["key"]: f["value"] for f in panel["facts"]}


def test_each_layer_shows_its_fastest_beside_what_the_runtime_does_by_itself() -> None:
    some = nodes()
    panel = checked(render_panel("formulations", context(tuned(some))))
    cells = [1, study().model.top[0].title, "Winograd 2×2, 1 thread", 1.0, 2.0, 2.0, 2.0, "yes", 1e-6, 3]
    assert cells == panel["rows"][0]["cells"]
    by_name = {t["name"]: t for t in panel["figures"][0]["data"]}
    assert {"direct", "Winograd 2×2", "fastest"} == set(by_name)
    assert [1.0] * len(some) == by_name["direct"]["y"]
    assert [0.5, *[2.0] * (len(some) - 1)] == by_name["Winograd 2×2"]["y"]
    assert [0.5, *[1.0] * (len(some) - 1)] == by_name["fastest"]["y"]
    assert {some[0]} == set(panel["links"][some[0]]["nodes"])
    assert panel["links"][some[0]]["layers"]


def test_a_layer_that_wins_by_fewer_threads_alone_is_not_won_by_another_way() -> None:
    """Winograd takes 1 ms with one thread, direct 2 ms with two; with one thread direct takes 1 ms too."""
    found = tuned(nodes())
    first, *others = found.layers
    first = dataclasses.replace(first, trials=(*first.trials, trial("direct", 1.0, 1)))
    for this, count in ((found, "1"), (dataclasses.replace(found, layers=(first, *others)), "0")):
        panel = render_panel("formulations", context(this))
        assert count == values(panel)["Another way is faster"]


@pytest.mark.parametrize(
    ("model_trials", "said"),
    [
        ({"tuned": 8.0, "tuned_quartiles": (7.5, 8.5)}, "is faster than"),
        ({"tuned": 12.0, "tuned_quartiles": (11.5, 12.5)}, "is slower as a whole"),
        ({"tuned": 9.9, "tuned_quartiles": (9.4, 10.4)}, "within noise"),
        ({"changed": ()}, "For no layer"),
        ({"ok": False, "error": 0.5}, "differs by 5.0e-01"),
    ],
)
def test_it_is_told_whether_tuning_paid(model_trials: dict[str, Any], said: str) -> None:
    whole = dataclasses.replace(tuned(nodes()).model_trials[0], **model_trials)
    assert said in render_panel("formulations", context(tuned(nodes(), model_trials=(whole,))))["notes"][0]


def test_one_layer_shows_all_its_candidates_with_the_reasons_of_those_that_failed() -> None:
    node = nodes()[0]
    panel = checked(render_panel("formulations", context(tuned(nodes()), layer=node)))
    (bars,) = panel["figures"][0]["data"]
    assert ["default: direct, 2 threads", "fastest: Winograd 2×2, 1 thread"] == bars["y"]
    assert [
        ["Winograd 2×2", 1, 1.0, 0.9, 1.1, 0.5, 1e-6, 2e-5, 10, ""],
        ["direct", 2, 2.0, 1.8, 2.2, 1.0, 1e-6, 2e-5, 10, ""],
        ["im2col", 2, None, None, None, None, 0.5, 2e-5, 10, "refused: it differs"],
    ] == [r["cells"] for r in panel["rows"]]
    assert all([node] == link["nodes"] for link in panel["links"].values())
    rows = {r["key"]: r["cells"][2] for r in panel["rows"] if r["cells"][2] is not None}
    assert dict(zip(bars["ids"], bars["x"], strict=True)) == rows
    # A layer that is gone, as after another model was tuned, shows all.
    assert len(nodes()) == len(render_panel("formulations", context(tuned(nodes()), layer="gone"))["rows"])


def log(tables: dict[str, list[tuple[str, float]]]) -> BuildLog:
    told = [(layer, i, *row) for layer, table in tables.items() for i, row in enumerate(table)]
    rows = (Tuning(y, "Cask", f, (TacticTime(f"0x{i}", f"tactic {i}", t),), "", 1, 1) for y, i, f, t in told)
    return BuildLog(version="10.3", device="a GPU", tunings=tuple(rows))


def test_the_builders_contests_tell_what_forcing_the_runner_up_costs() -> None:
    told = log({"one": [("a", 1.0), ("b", 1.5)], "two": [("a", 4.0)]})
    panel = checked(render_panel("formulations", context(log=told)))
    assert [
        [1, "one", "tactic 0", 1.0, "tactic 1", 1.5, 0.5, 50.0, 10.0, "no", 2],
        [2, "two", "tactic 0", 4.0, "", None, None, None, None, "", 1],
    ] == [r["cells"] for r in panel["rows"]]
    shown = values(panel)
    assert ("5 ms", "+500 µs (10%)") == (shown["Fastest of all layers"], shown["All runners-up instead"])
    assert {"reported"} == {f["origin"] for f in panel["facts"]} - {""}
    others, seconds = panel["figures"][0]["data"]
    assert ([], [1.5], ["one|1"]) == (others["y"], seconds["y"], seconds["ids"])
    one = checked(render_panel("formulations", context(log=told, contest="one")))
    assert ["tactic 0", "Cask", "0x0", 1.0, None, None, None, "a"] == one["rows"][0]["cells"]
    assert ["tactic 1", "Cask", "0x1", 1.5, 0.5, 50.0, 10.0, "b"] == one["rows"][1]["cells"]
    # A bar and its row are one thing.
    (bars,) = one["figures"][0]["data"]
    assert dict(zip(bars["ids"], bars["x"], strict=True)) == {r["key"]: r["cells"][3] for r in one["rows"]}


def test_tuning_answers_in_words_with_its_own_origins() -> None:
    found, told = tuned(nodes()), log({"one": [("a", 1.0), ("b", 1.5)], "two": [("a", 4.0)]})
    mine = ask("formulations", context(found))
    assert nodes() == mine.frame().node.tolist()
    assert [1.0, *[2.0] * (len(nodes()) - 1)] == mine.frame()["time"].tolist()
    assert {"measured"} == {*mine.frame().attrs["origins"].values()}
    theirs = ask("formulations", context(found, told, tuned="builder"))
    assert {"reported"} == {*theirs.frame().attrs["origins"].values()}
    assert [1.0, 1.5] == ask("formulations", context(log=told, contest="one")).frame()["time"].tolist()
    with pytest.raises(RunError):
        ask("formulations", context())
    with pytest.raises(ReadError):
        ask("formulations", context(model=make_empty_model()))


def test_both_can_be_seen_one_after_the_other() -> None:
    told = log({"one": [("a", 1.0), ("b", 1.5)]})
    mine, theirs = (
        render_panel("formulations", context(tuned(nodes()), told, **s)) for s in ({}, {"tuned": "builder"})
    )
    assert ["here", "builder"] == [o["id"] for o in mine["settings"][0]["options"]]
    assert ("here", "builder") == (mine["settings"][0]["value"], theirs["settings"][0]["value"])
    assert "Winograd 2×2, 1 thread" in mine["rows"][0]["cells"]
    assert "tactic 0" in theirs["rows"][0]["cells"]
    assert '"gpu"' in render_panel("formulations", context(tuned(nodes()), told, tuned="gpu"))["problem"]


def test_every_tactic_of_a_layer_is_a_point_that_selects_its_layer() -> None:
    told = log({"one": [("a", 1.0), ("b", 1.5), ("c", 2.0), ("c", 2.0)]})
    others, seconds = checked(render_panel("formulations", context(log=told)))["figures"][0]["data"]
    assert (["one|2", "one|3"], ["one|1"]) == (others["ids"], seconds["ids"])


@pytest.mark.parametrize("asked", ["0", "999999999", "soon"])
def test_a_time_that_nobody_can_tune_for_is_refused(asked: str) -> None:
    assert render_panel("formulations", context(budget=asked))["problem"]


@pytest.mark.parametrize(("layers", "kind"), [(1000, "scatter"), (1001, "scattergl")])
def test_many_layers_are_one_trace_for_each_formulation(layers: int, kind: str) -> None:
    """A trace for each layer would freeze the page, and so would more than 2,000 points that are no pixels."""
    told = log({f"layer {i}": [("a", 1.0), ("b", 2.0), ("c", 3.0)] for i in range(layers)})
    assert [kind] * 2 == [
        t["type"] for t in render_panel("formulations", context(log=told))["figures"][0]["data"]
    ]
    panel = render_panel("formulations", context(tuned([f"layer {i}" for i in range(layers)])))
    assert [kind] * 3 == [t["type"] for t in panel["figures"][0]["data"]]


def test_the_numbers_of_a_build_are_those_of_its_text() -> None:
    """Of 4 + 2 + 20 µs, by hand: forcing the second of the region costs 2, and of the pooling 0.5."""
    told = parse(REGIONS).log
    panel = checked(render_panel("formulations", context(log=told)))
    myelin, pool = "Myelin 0x0000000000000000", ("invented_pool_max_f32_any", "invented_pool_max_f32_nchw")
    expected = [
        [1, CONV, myelin, 4, myelin, 1.5, 2, 50, 200 / 26, "no", 2],
        [2, "pool", pool[0], 2, pool[1], 1.25, 0.5, 25, 50 / 26, "yes", 3],
        [3, REST, myelin, 20, "", None, None, None, None, "", 1],
    ]
    for cells, row in zip(expected, panel["rows"], strict=True):
        assert cells == [pytest.approx(c) if isinstance(c, float) else c for c in row["cells"]]
    assert "+2.5 µs (10%)" == values(panel)["All runners-up instead"]
    # One dot for each but the fastest; each layer of the table can be looked into.
    dots = sorted(y for t in panel["figures"][0]["data"] for y in t["y"])
    assert pytest.approx([1.25, 1.5, 1.5]) == dots
    for row in panel["rows"]:
        checked(render_panel("formulations", context(log=told, contest=row["cells"][1])))
