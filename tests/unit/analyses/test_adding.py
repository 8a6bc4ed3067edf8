"""An analysis of one's own: a function, its dataclass and an entry are all that page and command line need of it."""

from __future__ import annotations

import dataclasses
import json
from typing import Annotated

import pytest

from rtlab import CalibrationData, Study, samples
from rtlab.analyses import panels
from rtlab.analyses.panel_context import PanelContext
from rtlab.core.schema import FieldMeta
from rtlab.documents.serialization import decode, encode, render_typescript
from rtlab.errors import CalibrationError, ReadError, RtlabError, VariantError
from rtlab.testing import tiny_model


@dataclasses.dataclass(frozen=True)
class Fan:
    """How many tensors a layer reads."""

    layer: Annotated[str, FieldMeta("Layer", links="layers")]
    reads: Annotated[int, FieldMeta("Reads")]
    nbytes: Annotated[int | None, FieldMeta("Size", "B", "estimated")]


@dataclasses.dataclass(frozen=True)
class Fans:
    """How many tensors layers read."""

    most: Annotated[int, FieldMeta("Most", note="Of any layer.")]
    mean: Annotated[float, FieldMeta("Mean time", "ms", "measured")]
    share: Annotated[float, FieldMeta("Part", "%", "estimated")]
    rest: Annotated[float | None, FieldMeta("Rest", "ms", "measured")]
    fans: tuple[Fan, ...]


def fans(context: PanelContext) -> Fans:
    """A real one, however small."""
    counts = [len(y.inputs) for y in context.result.engine.layers]
    layers = [
        Fan(y.id, n, 1536 * n or None) for y, n in zip(context.result.engine.layers, counts, strict=True)
    ]
    return Fans(max(counts), 0.25, 0.125, None, tuple(layers))


FANS = panels.Analysis("fans", "memory", "Fans", "What layers read", "Many.", compute=fans)


@pytest.fixture(scope="module")
def study() -> Study:
    model = tiny_model()
    made = Study(model, data=CalibrationData.random(model, samples=1))
    made.add("fp32", target="cpu", backend="onnxruntime")
    return made.run(compare=False)


@pytest.fixture
def asked(study, monkeypatch):
    monkeypatch.setattr(panels, "PANELS", {**panels.PANELS, "fans": FANS})
    return study.ask("fans", variant="fp32")


def test_its_panel_has_facts_columns_rows_and_links(study, asked) -> None:
    context = PanelContext(study.state, study["fp32"].facts)
    panel = panels.render_panel("fans", context)
    told = asked.result
    assert "fans" in panels.list_panels(study.model)
    assert ("What layers read", "Many.", "") == (panel["title"], panel["lead"], panel["problem"])
    assert [
        ("Most", f"{told.most}", "", "Of any layer."), ("Mean time", "250 µs", "measured", ""),
        ("Part", "12.5 %", "estimated", ""), ("Rest", "—", "", ""),
    ] == [(f["key"], f["value"], f["origin"], f["note"]) for f in panel["facts"]]  # fmt: skip
    columns = [("Layer", "", False, ""), ("Reads", "", True, ""), ("Size", "KiB", True, "estimated")]
    assert columns == [(c["title"], c["unit"], c["numeric"], c["origin"]) for c in panel["columns"]]
    rows = [[f.reads, None if f.nbytes is None else f.nbytes / 1024] for f in told.fans]
    assert rows == [r["cells"][1:] for r in panel["rows"]]
    assert [f.layer for f in told.fans] == [r["key"] for r in panel["rows"]] == list(panel["links"])
    first = panel["links"][told.fans[0].layer]
    assert [told.fans[0].layer] == first["layers"]
    assert list(study["fp32"].mapping.nodes(told.fans[0].layer)) == first["nodes"]


def test_its_json_its_frame_its_text_and_its_html_say_the_same(asked) -> None:
    told = asked.result
    plain = asked.plain()
    assert dataclasses.asdict(told) | {"fans": list(map(dataclasses.asdict, told.fans))} == plain
    assert plain == json.loads(json.dumps(plain, allow_nan=False))
    frame = asked.frame()
    assert ["layer", "reads", "nbytes"] == list(frame.columns)
    assert [f.reads for f in told.fans] == frame.reads.tolist()
    assert ({"nbytes": "B"}, {"nbytes": "estimated"}) == (frame.attrs["units"], frame.attrs["origins"])
    lines = repr(asked).splitlines()
    assert ["What layers read", f"Most: {told.most}", "Mean time: 250 µs (measured)"] == lines[:3]
    assert len(told.fans) == len(lines) - lines.index("") - 2
    assert "1.5 KiB" in repr(asked)
    page = asked._repr_html_()
    assert page.count("<tr>") == len(told.fans) + 1
    assert "1.5 KiB" in page
    assert ", estimated" in lines[lines.index("") + 1]
    assert ", estimated</th>" in page


def test_its_type_in_typescript_and_its_bytes_follow_too(asked) -> None:
    written = render_typescript([Fans], {}, {}, head="Generated.")
    assert "  nbytes: number | null;" in written
    assert written.index("interface Fan ") < written.index("interface Fans ")
    assert asked.plain() == decode(encode(asked.result))


def test_findings_are_those_of_the_engine_and_then_of_the_model() -> None:
    made = Study(samples.load("digits_qat_misplaced").model)
    alone = panels.ask("findings", PanelContext(made.state)).result
    assert made.findings() == alone.items
    assert alone.items
    assert "" == alone.note
    made.add("int8", target="sm89", backend="tensorrt-rtx")
    made.run(compare=False)
    both = made.ask("findings", variant="int8").result.items
    assert (*made["int8"].findings, *made.findings()) == both


def test_what_nobody_told_says_what_to_do(study) -> None:
    fresh = PanelContext(Study(tiny_model()).state)
    with pytest.raises(ReadError, match="no verbose log"):
        study.ask("build", variant="fp32")
    with pytest.raises(CalibrationError, match="nothing was observed"):
        panels.ask("calibration", fresh)
    with pytest.raises(VariantError, match="none is built"):
        panels.ask("engine", fresh)
    assert b"" == panels.encode_payloads(fresh)["engine"]
    assert "no Q/DQ pairs" in decode(panels.encode_payloads(fresh)["findings"])["note"]
    assert {"calibration": b""} == panels.encode_payloads(fresh, shared=True)


@pytest.mark.parametrize("name", panels.PANELS)
def test_every_question_answers_in_words_or_says_what_is_missing(name, study) -> None:
    told, missing = None, ""
    try:
        told = study.ask(name, variant="fp32")
    except RtlabError as error:
        missing = str(error)
    if told is None:
        assert len(missing.split(". ")) > 1, missing
        return
    assert json.loads(json.dumps(told.plain(), allow_nan=False))
    panel = panels.render_panel(name, PanelContext(study.state, study["fp32"].facts))
    if told.table:
        assert len(panel["rows"]) == len(told.frame())
    for fact in panel["facts"]:
        marked = f"{fact['key']}: {fact['value']}" + (f" ({fact['origin']})" if fact["origin"] else "")
        assert marked in repr(told).splitlines()


def test_a_question_that_there_is_not_is_refused_with_those_that_there_are(study) -> None:
    with pytest.raises(VariantError, match="Choose roofline, "):
        study.ask("fan", variant="fp32")
