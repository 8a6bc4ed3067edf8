"""Parts of reports from values written by hand: rows, findings, what fell, and slow layers."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from rtlab.core.finding import Finding
from rtlab.web.page.table import list_variant_rows
from rtlab.web.report import html


def finding(name: str = "a", **fields: Any) -> Finding:
    told = {"nodes": (), "cost": "cost", "fix": "fix", "evidence": "evidence", "fixable": False}
    return Finding(name, "rule", **{"title": f"{name}.", **told, **fields})


@pytest.mark.parametrize(
    ("fields", "start"),
    [
        ({}, "**a**. cost Evidence: evidence Remedy: fix"),
        ({"microseconds": 12.345}, "**a** (● 12.3 µs). cost"),
        ({"microseconds": 0.0, "nodes": ("n",)}, "**a** at n (● 0 µs). cost"),
        ({"nodes": ("n", "m")}, "**a** at n and 1 more. cost"),
        ({"nodes": ("n" * 80, "m", "k")}, f"**a** at {'n' * 80} and 2 more. cost"),
        ({"nodes": ("n" * 81,)}, f"**a** at {'n' * 40}…{'n' * 40}. cost"),
    ],
)
def test_a_finding_is_a_line(fields: dict[str, Any], start: str) -> None:
    assert html._format_finding(finding(**fields)).startswith(start)


@pytest.mark.parametrize(("letters", "shown"), [(240, "a" * 240), (241, f"{'a' * 120}…{'a' * 120}")])
def test_a_cell_of_a_table_is_cut_in_its_middle(letters: int, shown: str) -> None:
    table = list(html._table(("One", "Two"), [("a" * letters, "b|")]))
    assert ["| One | Two |", "| --- | --- |"] == table[:2]
    assert rf"| {shown} | b\| |" == table[2]


@pytest.mark.parametrize(("text", "fence"), [("a", 3), ("``", 3), ("```", 4), ("` `````\n", 6)])
def test_a_block_is_fenced_by_more_backticks_than_are_in_it(text: str, fence: int) -> None:
    assert [f"{'`' * fence}x", text.rstrip("\n"), "`" * fence] == list(html._fence(text, "x"))


def chip(name: str, **fields: Any) -> dict[str, Any]:
    told = {
        "score_worse": True,
        "score_delta": None,
        "score_told": f"score {name}",
        "label": name,
        "id": name,
    }
    return {**told, **fields}


def test_what_fell_most_is_first_with_as_many_causes_as_a_reader_reads() -> None:
    chips = [
        chip("a", score_delta=-1.0), chip("b", score_delta=2.0), chip("c", score_delta=-9.0, score_worse=False),
        chip("d"), chip("e", score_delta=-0.5),
    ]  # fmt: skip
    causes = SimpleNamespace(findings=[finding(f"cause{i}") for i in range(9)])
    study: Any = SimpleNamespace(diagnoses={"a": causes, "c": causes})
    lines = list(html._list_drops(study, chips))
    assert ["**b**", "**a**", "**e**", "**d**"] == [
        y.split(":")[0].removeprefix("- ") for y in lines if y.startswith("- ")
    ]
    assert [f"**cause{i}**" for i in range(8)] == [y[4:].split(".")[0] for y in lines if y.startswith("  - ")]
    assert [] == list(html._list_drops(study, [chips[2]]))


@pytest.mark.parametrize(("count", "more"), [(0, None), (1, None), (8, None), (9, 1), (12, 4)])
def test_of_many_findings_the_first_are_told_and_how_many_follow(
    monkeypatch, count: int, more: int | None
) -> None:
    monkeypatch.setattr(html, "list_findings", lambda _: [finding(f"f{i}") for i in range(count)])
    status = [{"warning": w, "origin": "measured", "text": "text"} for w in (True, False)]
    monkeypatch.setattr(html.chrome, "list_status", lambda *_: status)
    monkeypatch.setattr(html, "_list_slow_layers", lambda _: ("", []))
    facts: Any = SimpleNamespace(name="x")
    lines = list(html._render_variant(SimpleNamespace(), facts, "title"))  # type: ignore[arg-type]
    assert ["", "## title", "", "- ● ⚠ text", "- ● text"] == lines[:5]
    assert min(count, 8) == sum(y.startswith("- **f") for y in lines)
    assert [y for y in lines if y.startswith("- and")] == ([f"- and {more} more"] if more else [])
    assert any(y.startswith(f"### {count} finding") for y in lines) == (count > 0)


def slow(monkeypatch: Any, timing: Any, roof: Any) -> Any:
    monkeypatch.setattr(html, "get_engine_timing", lambda _: timing)
    monkeypatch.setattr(html, "estimate_timing", lambda _: roof)
    mapping = SimpleNamespace(nodes=lambda layer: (f"n{layer}", f"m{layer}"))
    monkeypatch.setattr(html, "map_nodes", lambda _: mapping)
    monkeypatch.setattr(html, "name_layers", lambda *_: {"b": "Title"})
    return html._list_slow_layers(SimpleNamespace(source=None))  # type: ignore[arg-type]


def test_the_five_slowest_layers_are_listed_measured_before_estimated(monkeypatch) -> None:
    rows = [
        ("a", 0.25, 0.125),
        ("b", 1.5, 0.75),
        ("c", 0.0, 0.0),
        ("d", 0.1, 0.05),
        ("e", 0.1, 0.05),
        ("f", 0.05, 0.0),
    ]
    timed = [SimpleNamespace(layer=n, median=t, share=s) for n, t, s in rows]
    timing = SimpleNamespace(layers=timed, scale=1.0, layer_origin="measured")
    points = [SimpleNamespace(layer=n, estimated=t) for n, t in (("a", 0.3), ("b", None), ("c", 0.1))]
    roof = SimpleNamespace(layers=points, withheld="", peaks=SimpleNamespace(name="GPU"))
    origin, measured = slow(monkeypatch, timing, roof)
    assert "●" == origin
    assert ["Title", "a", "d", "e", "f"] == [r[0] for r in measured]
    assert ("Title", "1.5 ms", "75 %", "nb, mb") == measured[0]
    assert ("a", "250 µs", "12.5 %") == measured[1][:3]
    # What timing each cost is taken off, which no longer is a measurement.
    scaled = SimpleNamespace(layers=timed, scale=0.5, layer_origin="estimated")
    origin, halves = slow(monkeypatch, scaled, roof)
    assert ("○", "750 µs", "75 %") == (origin, *halves[0][1:3])
    origin, estimated = slow(monkeypatch, None, roof)
    assert "○ GPU" == origin
    assert [("a", "300 µs", "75 %"), ("c", "100 µs", "25 %"), ("Title", "0 ms", "0 %")] == [
        r[:3] for r in estimated
    ]
    assert "○ GPU" == slow(monkeypatch, SimpleNamespace(layers=[]), roof)[0]
    assert [] == slow(monkeypatch, None, SimpleNamespace(**{**vars(roof), "withheld": "why"}))[1]
    assert [] == slow(monkeypatch, None, None)[1]
    nothing = SimpleNamespace(**{**vars(roof), "layers": points[1:2]})
    assert [("Title", "0 ms", "0 %", "nb, mb")] == slow(monkeypatch, None, nothing)[1]


FULL: dict[str, Any] = {
    "label": "int8", "calibrator": "auto", "target": "sm86", "status": "ready", "error": None, "predicted": False,
    "estimate": 0.25, "estimate_gpu": "A GPU", "time": 1.5, "time_source": "by x on the CPU", "baseline": True,
    "nodes": 3, "layers": 2, "counted": "layer", "score_told": "98 %", "sqnr": 20.04, "sqnr_told": "",
    "random": "noise",
}  # fmt: skip
ROW = {
    "Variant": "int8 (baseline)", "Calibrator": "auto", "Target": "sm86", "Nodes → layers": "3 → ◐ 2 layers",
    "GPU estimate": "○ 250 µs A GPU", "Time": "● 1.5 ms CPU", "Score": "● 98 %", "Output SQNR": "● 20 dB",
    "Note": "⚠ random input: noise",
}  # fmt: skip


@pytest.mark.parametrize(
    ("fields", "cells"),
    [
        ({}, {}),
        ({"baseline": False}, {"Variant": "int8"}),
        ({"predicted": True, "layers": 1, "nodes": 0}, {"Nodes → layers": "— → ◌ 1 layer"}),
        ({"time_source": "a file"}, {"Time": "● 1.5 ms"}),
        ({"time": 0.0, "estimate": 0.0}, {"GPU estimate": "○ 0 ms A GPU", "Time": "● 0 ms CPU"}),
        ({"sqnr": None, "sqnr_told": "equal to fp32"}, {"Output SQNR": "● equal to fp32"}),
        ({"sqnr_told": "boxes: 3.0 dB"}, {"Output SQNR": "● boxes: 3.0 dB"}),
        # A column without any value is left out.
        ({"time": None, "random": ""}, {"Time": None, "Note": None}),
        ({"estimate": None, "score_told": ""}, {"GPU estimate": None, "Score": None}),
        ({"sqnr": None, "calibrator": ""}, {"Output SQNR": None, "Calibrator": None}),
    ],
)
def test_a_variant_is_a_row_with_the_origin_of_each_number(
    fields: dict[str, Any], cells: dict[str, str | None]
) -> None:
    head, row = list_variant_rows([{**FULL, **fields}])  # type: ignore[typeddict-item]
    assert {name: cell for name, cell in {**ROW, **cells}.items() if cell} == dict(
        zip(head, row, strict=True)
    )


def test_a_variant_without_an_engine_is_a_row_that_says_why() -> None:
    failed = {**FULL, "label": "fp8", "status": "failed", "error": {"message": "why"}, "baseline": False}
    planned = {**FULL, "label": "fp16", "status": "planned", "calibrator": "", "baseline": False}
    head, _, *rows = list_variant_rows([FULL, failed, planned])  # type: ignore[list-item]
    empty = ["—"] * (len(head) - 4)
    assert [["fp8", "auto", "sm86", *empty, "why"], ["fp16", "—", "sm86", *empty, "not built yet"]] == rows
