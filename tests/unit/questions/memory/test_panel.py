"""The memory panel, on engines of the corpus and on small ones written for it."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import plotly.graph_objects as go
import pytest

import engines
import rtlab
from rtlab.backends.makers import TENSORRT_RTX
from rtlab.documents.contract import Panel
from rtlab.errors import VariantError
from rtlab.questions.memory.panel import memory
from rtlab.questions.scene import Scene


def scene(**files) -> Scene:
    study = rtlab.read(**files)
    return Scene(study.snapshot(), next(iter(study.results.values())).facts)


def asked(given: Scene, **settings: str) -> Panel:
    return memory(Scene(given.study, given.result, settings=settings))


def of(folder: Path | str) -> Scene:
    return scene(layers=engines.files(folder)["layers"])


def written(folder: Path, *layers: dict[str, object], ends=("x", "y")) -> Scene:
    """An engine of these layers, as trtexec exports it."""
    whole = {"LayerType": "Kernel", "TacticName": "", "StreamId": 0, "Metadata": ""}
    path = folder / "layers.json"
    path.write_text(json.dumps({"Layers": [whole | layer for layer in layers], "Bindings": list(ends)}))
    return scene(layers=path)


def tensor(name: str, *shape: int) -> dict[str, object]:
    return {"Name": name, "Dimensions": list(shape), "Format/Datatype": "Float"}


def small(folder: Path, batch: int = 1) -> Scene:
    x, a, b, y = (tensor(n, batch, 1000) for n in ("x", "a <b>", "b", "y"))
    return written(
        folder,
        {"Name": "first", "Inputs": [x], "Outputs": [a]},
        {"Name": "second", "Inputs": [a], "Outputs": [b]},
        {"Name": "third", "Inputs": [a, b], "Outputs": [y]},
    )


def facts(shown: Panel) -> dict[str, tuple[str, str]]:
    return {f["key"]: (f["value"], f["origin"]) for f in shown["facts"]}


def test_a_small_engine_by_hand(tmp_path: Path) -> None:
    """4,000 bytes round up to 4,096; both tensors are alive from the second layer on."""
    shown = memory(small(tmp_path))
    assert facts(shown) == {
        "Peak": ("8 KiB", "estimated"),
        "Lower bound": ("8 KiB", "estimated"),
        "Above the bound": ("0.0%", "estimated"),
        "Each its own memory": ("8 KiB", "estimated"),
        "Inputs and outputs": ("3.91 KiB + 3.91 KiB", "estimated"),
    }
    rows = [row["cells"] for row in shown["rows"]]
    assert [(r[0], r[1], r[2], r[3], r[4], r[5], r[7]) for r in rows] == [
        ("a <b>", "1×1000", "fp32", 4000 / 1024, 1, 3, "yes"),
        ("b", "1×1000", "fp32", 4000 / 1024, 2, 3, "yes"),
    ]
    assert {r[6] for r in rows} == {0.0, 4.0}
    assert "step 2 (Kernel)" in shown["lead"]
    bars = [t for t in shown["figures"][0]["data"] if t["type"] == "bar"]
    at = {i: (x, w) for t in bars for i, x, w in zip(t["ids"], t["x"], t["width"], strict=True)}
    edges = [at[row["key"]] for row in shown["rows"]]
    assert edges == [(2, 3), (2.5, 2)]


def test_a_tensor_leads_to_its_writer_and_then_to_its_readers(tmp_path: Path) -> None:
    given = small(tmp_path)
    shown = memory(given)
    names = {layer.id: layer.name for layer in given.result.engine.layers}
    assert [[names[i] for i in shown["links"][row["key"]]["layers"]] for row in shown["rows"]] == [
        ["first", "second", "third"],
        ["second", "third"],
    ]


def test_another_batch_moves_every_number_and_says_so(tmp_path: Path) -> None:
    given = small(tmp_path, batch=3)
    own, more = memory(given), asked(given, batch="6")
    (slider,) = own["settings"]
    assert (slider["key"], slider["kind"], slider["value"]) == ("batch", "range", "3")
    assert [int(o["id"]) for o in slider["options"]] == [1, 2, 3, 4, 8, 16, 32, 64, 128, 256]
    assert [s["value"] for s in more["settings"]] == ["6"]
    assert [2 * row["cells"][3] for row in own["rows"]] == [row["cells"][3] for row in more["rows"]]
    assert any("as if it were built" in note for note in more["notes"])
    assert not any("as if it were built" in note for note in own["notes"])


@engines.detailed
def test_figures_of_engines_are_plotlys_and_linked(folder: Path) -> None:
    """Plotly's own classes check them; every point that can be clicked leads somewhere; boxes are the table."""
    shown = memory(of(folder))
    assert not shown["problem"]
    (drawn,) = shown["figures"]
    go.Figure(drawn["data"], drawn["layout"])
    ids = [i for trace in drawn["data"] for i in trace.get("ids", [])]
    assert set(ids) <= set(shown["links"])
    keys = {row["key"] for row in shown["rows"]}
    assert keys == {i for trace in drawn["data"] if trace["type"] == "bar" for i in trace["ids"]}
    json.dumps(shown)
    peak, others = (t for t in drawn["data"] if t["type"] == "bar")
    marked = {row["key"] for row in shown["rows"] if row["cells"][7]}
    assert marked == set(peak["ids"])
    assert not marked & set(others["ids"])
    assert all(column["origin"] == "estimated" for column in shown["columns"] if column["unit"])


def test_boxes_do_not_overlap_in_the_picture() -> None:
    """Read back from the bars that Plotly draws."""
    (drawn,) = memory(of(engines.MOBILE))["figures"]
    boxes = [
        (x - w / 2, x + w / 2, base, base + y)
        for t in drawn["data"]
        if t["type"] == "bar"
        for x, w, base, y in zip(t["x"], t["width"], t["base"], t["y"], strict=True)
    ]
    for i, (left, right, low, high) in enumerate(boxes):
        for begin, end, bottom, top in boxes[:i]:
            assert min(right, end) <= max(left, begin) or min(high, top) <= max(low, bottom) + 1e-9


def test_names_are_text_in_the_hover(tmp_path: Path) -> None:
    """A tensor's name may look like markup."""
    (drawn,) = memory(small(tmp_path))["figures"]
    told = [t for trace in drawn["data"] for t in trace.get("hovertext", [])]
    assert any("a &lt;b&gt;" in t for t in told)
    assert not any("a <b>" in t for t in told)


def test_weights_are_shown_where_every_layer_counts_its_own() -> None:
    """21,032 bytes by hand; Myelin's product does not say how many numbers it has."""
    assert facts(memory(of("written-fp32")))["Weights"] == ("20.5 KiB", "estimated")
    assert "Weights" not in facts(memory(of(engines.MOBILE)))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"sizes": "length"}, 'Cannot read the sizes "length"'),
        ({"sizes": "length=0"}, 'Cannot read the sizes "length=0"'),
        ({"sizes": "a=1; b"}, "such as length=128, height=224"),
        ({"batch": "many"}, 'Cannot use batch "many": it is no whole number'),
    ],
)
def test_a_setting_that_cannot_be_read_says_how_to_write_it(tmp_path: Path, settings, message) -> None:
    with pytest.raises(VariantError, match=message):
        asked(small(tmp_path), **settings)


def test_what_no_plan_can_be_made_for_keeps_the_settings(tmp_path: Path) -> None:
    """A batch of none is said in the panel, and the slider stays."""
    shown = asked(small(tmp_path), batch="-4")
    assert "a batch is at least 1" in shown["problem"]
    assert [s["key"] for s in shown["settings"]] == ["batch"]
    assert shown["figures"] == []


def test_open_dimensions_ask_for_a_shape(tmp_path: Path) -> None:
    """The file alone does not tell how long the sequence is."""
    x, a, y = (tensor(n, -1, -1) for n in "xay")
    shown = memory(
        written(
            tmp_path,
            {"Name": "first", "Inputs": [x], "Outputs": [a]},
            {"Name": "second", "Inputs": [a], "Outputs": [y]},
        )
    )
    assert 'input "x" has the shape ?×?' in shown["problem"]
    assert "rtlab.load" in shown["problem"]


def test_an_engine_of_one_layer_has_an_empty_arena(tmp_path: Path) -> None:
    shown = memory(
        written(tmp_path, {"Name": "all", "Inputs": [tensor("x", 1, 2)], "Outputs": [tensor("y", 1, 2)]})
    )
    assert facts(shown)["Peak"] == ("0 bytes", "estimated")
    assert (shown["figures"], shown["rows"]) == ([], [])
    assert "keeps nothing between its layers" in shown["lead"]


@pytest.mark.parametrize(("total", "told"), [(8_000, "does not tell tensors and scratch apart"),
                                            (8_210_000, "it holds 8,192,000 bytes")])  # fmt: skip
def test_scratch_is_explained_as_far_as_the_total_holds_any(tmp_path: Path, total: int, told: str) -> None:
    """TensorRT-RTX of an engine without library kernels reserves nothing."""
    given = small(tmp_path)
    engine = dataclasses.replace(
        given.result.engine, maker=TENSORRT_RTX, totals={"activation": total, "scratch": total}
    )
    shown = memory(Scene(given.study, dataclasses.replace(given.result, engine=engine)))
    notes = [note for note in shown["notes"] if "scratch" in note]
    assert 1 == len(notes)
    assert told in notes[0]
    assert (total > 8_192_000) == ("Without reservations" in facts(shown))


def test_two_streams_tell_what_they_cost(tmp_path: Path) -> None:
    """Stream 1 may still read ``a`` when stream 0 writes ``c``: three tensors instead of two."""
    x, a, b, c, y = (tensor(n, 1, 1000) for n in "xabcy")
    shown = memory(
        written(
            tmp_path,
            {"Name": "first", "Inputs": [x], "Outputs": [a]},
            {"Name": "second", "Inputs": [a], "Outputs": [b], "StreamId": 1},
            {"Name": "third", "Inputs": [x], "Outputs": [c]},
            {"Name": "last", "Inputs": [b, c], "Outputs": [y]},
        )
    )
    assert facts(shown)["Peak"][0] == "12 KiB"
    assert facts(shown)["On one stream"][0] == "8 KiB"
    assert any("side by side" in note for note in shown["notes"])
