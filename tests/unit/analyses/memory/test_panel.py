"""The memory panel, on engines of the corpus and on small ones written for it."""

from __future__ import annotations

import json
from pathlib import Path

import engines
import rtlab
from rtlab.analyses.panel_context import PanelContext
from rtlab.analyses.panels import render_panel
from rtlab.documents.contract import Panel


def context(**files) -> PanelContext:
    study = rtlab.read(**files)
    return PanelContext(study.state, next(iter(study.values())).facts)


def asked(given: PanelContext, **settings: str) -> Panel:
    return render_panel("memory", PanelContext(given.study, given.result, settings=settings))


def of(folder: Path | str) -> PanelContext:
    return context(layers=engines.files(folder)["layers"])


def written(folder: Path, *layers: tuple[list, list, int]) -> PanelContext:
    """An engine of layers that read, write, and run on a stream, as trtexec exports it."""
    whole = {"LayerType": "Kernel", "TacticName": "", "Metadata": ""}
    keys = ("Inputs", "Outputs", "StreamId")
    told = [whole | {"Name": f"layer {i}"} | dict(zip(keys, y, strict=True)) for i, y in enumerate(layers)]
    path = folder / "layers.json"
    path.write_text(json.dumps({"Layers": told, "Bindings": ["x", "y"]}))
    return context(layers=path)


def tensor(name: str, *shape: int) -> dict[str, object]:
    return {"Name": name, "Dimensions": list(shape), "Format/Datatype": "Float"}


def small(folder: Path, batch: int = 1) -> PanelContext:
    x, a, b, y = (tensor(n, batch, 1000) for n in ("x", "a <b>", "b", "y"))
    return written(folder, ([x], [a], 0), ([a], [b], 0), ([a, b], [y], 0))


def facts(shown: Panel) -> dict[str, tuple[str, str]]:
    return {f["key"]: (f["value"], f["origin"]) for f in shown["facts"]}


def test_a_small_engine_by_hand(tmp_path: Path) -> None:
    """4,000 bytes round up to 4,096; both tensors are alive from the second layer on."""
    shown = render_panel("memory", small(tmp_path))
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
    bars = [t for t in shown["figures"][0]["data"] if t["type"] == "bar"]
    at = {i: (x, w) for t in bars for i, x, w in zip(t["ids"], t["x"], t["width"], strict=True)}
    edges = [at[row["key"]] for row in shown["rows"]]
    assert edges == [(2, 3), (2.5, 2)]


def test_another_batch_moves_every_number_and_says_so(tmp_path: Path) -> None:
    given = small(tmp_path, batch=3)
    own, more = render_panel("memory", given), asked(given, batch="6")
    (slider,) = own["settings"]
    assert (slider["key"], slider["kind"], slider["value"]) == ("batch", "range", "3")
    assert [int(o["id"]) for o in slider["options"]] == [1, 2, 3, 4, 8, 16, 32, 64, 128, 256]
    assert [s["value"] for s in more["settings"]] == ["6"]
    assert [2 * row["cells"][3] for row in own["rows"]] == [row["cells"][3] for row in more["rows"]]


def test_boxes_do_not_overlap_in_the_picture() -> None:
    (drawn,) = render_panel("memory", of(engines.MOBILE))["figures"]
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
    (drawn,) = render_panel("memory", small(tmp_path))["figures"]
    told = [t for trace in drawn["data"] for t in trace.get("hovertext", [])]
    assert any("a &lt;b&gt;" in t for t in told)
    assert not any("a <b>" in t for t in told)


def test_a_batch_that_is_no_number_is_refused(tmp_path: Path) -> None:
    assert asked(small(tmp_path), batch="many")["problem"]


def test_what_no_plan_can_be_made_for_keeps_the_settings(tmp_path: Path) -> None:
    shown = asked(small(tmp_path), batch="-4")
    assert shown["problem"]
    assert (["batch"], []) == ([s["key"] for s in shown["settings"]], shown["figures"])


def test_an_engine_of_one_layer_has_an_empty_arena(tmp_path: Path) -> None:
    shown = render_panel("memory", written(tmp_path, ([tensor("x", 1, 2)], [tensor("y", 1, 2)], 0)))
    assert facts(shown)["Peak"] == ("0 bytes", "estimated")
    assert (shown["figures"], shown["rows"]) == ([], [])


def test_two_streams_tell_what_they_cost(tmp_path: Path) -> None:
    """Stream 1 may still read ``a`` when stream 0 writes ``c``: three tensors instead of two."""
    x, a, b, c, y = (tensor(n, 1, 1000) for n in "xabcy")
    shown = render_panel(
        "memory", written(tmp_path, ([x], [a], 0), ([a], [b], 1), ([x], [c], 0), ([b, c], [y], 0))
    )
    assert facts(shown)["Peak"][0] == "12 KiB"
    assert facts(shown)["On one stream"][0] == "8 KiB"
