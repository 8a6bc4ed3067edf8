"""A question of one's own: a noun, a function and a line are all that the page and the command line need of it."""

from __future__ import annotations

import dataclasses
import json
from typing import Annotated

import pytest

from rtlab import CalibrationData, Study, samples
from rtlab.core.schema import Meaning
from rtlab.documents.answer import Answer
from rtlab.documents.numbers import number
from rtlab.documents.payload import decode, encode
from rtlab.documents.typescript import typescript
from rtlab.errors import CalibrationError, ReadError, RtlabError, RunError, VariantError
from rtlab.questions import panels
from rtlab.questions.scene import Question, Scene
from rtlab.testing import tiny_model


@dataclasses.dataclass(frozen=True)
class Fan:
    """How many tensors a layer reads."""

    layer: Annotated[str, Meaning("Layer", links="layers")]
    reads: Annotated[int, Meaning("Reads")]
    nbytes: Annotated[int | None, Meaning("Size", "B", "estimated")]


@dataclasses.dataclass(frozen=True)
class Fans:
    """How many tensors layers read."""

    most: Annotated[int, Meaning("Most", note="Of any layer.")]
    mean: Annotated[float, Meaning("Mean time", "ms", "measured")]
    share: Annotated[float, Meaning("Part", "%", "estimated")]
    rest: Annotated[float | None, Meaning("Rest", "ms", "measured")]
    fans: tuple[Fan, ...]


def fans(scene: Scene) -> Fans:
    """A real one, however small."""
    counts = [len(y.inputs) for y in scene.result.engine.layers]
    layers = [Fan(y.id, n, 1536 * n or None) for y, n in zip(scene.result.engine.layers, counts, strict=True)]
    return Fans(max(counts), 0.25, 0.125, None, tuple(layers))


FANS = Question("fans", tab="memory", label="Fans", title="What layers read", lead="Many.", noun=fans)


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
    scene = Scene(study.snapshot(), study["fp32"].facts)
    panel = panels.answer("fans", scene)
    told = asked.noun
    assert "fans" in panels.offered(study.model)
    assert ("What layers read", "Many.", "") == (panel["title"], panel["lead"], panel["problem"])
    assert [
        ("Most", f"{told.most}", "", "Of any layer."),
        ("Mean time", "250 µs", "measured", ""),
        ("Part", "12.5 %", "estimated", ""),
        ("Rest", "—", "", ""),
    ] == [(f["key"], f["value"], f["origin"], f["note"]) for f in panel["facts"]]
    assert [("Layer", "", False, ""), ("Reads", "", True, ""), ("Size", "KiB", True, "estimated")] == [
        (c["title"], c["unit"], c["numeric"], c["origin"]) for c in panel["columns"]
    ]
    assert [(f.reads, None if f.nbytes is None else f.nbytes / 1024) for f in told.fans] == [
        tuple(r["cells"][1:]) for r in panel["rows"]
    ]
    assert [f.layer for f in told.fans] == [r["key"] for r in panel["rows"]] == list(panel["links"])
    first = panel["links"][told.fans[0].layer]
    assert [told.fans[0].layer] == first["layers"]
    assert list(study["fp32"].mapping.nodes(told.fans[0].layer)) == first["nodes"]


def test_its_json_its_frame_its_text_and_its_html_say_the_same(asked) -> None:
    told = asked.noun
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
    # No number without where it is from.
    assert ", estimated" in lines[lines.index("") + 1]
    assert ", estimated</th>" in page


def test_its_type_in_typescript_and_its_bytes_follow_too(asked) -> None:
    written = typescript([Fans], {}, {}, head="Generated.")
    assert "  nbytes: number | null;" in written
    assert written.index("interface Fan ") < written.index("interface Fans ")
    assert asked.plain() == decode(encode(asked.noun, Fans))


def test_what_the_page_draws_by_itself_answers_in_words_too(study) -> None:
    """The older tabs are questions like the others."""
    study.observe()
    layers = study["fp32"].engine.layers
    assert [y.id for y in layers] == study.ask("table", variant="fp32").frame().id.tolist()
    told = study.ask("engine", variant="fp32")
    assert study["fp32"].kinds() == told.noun.kinds
    lines = repr(told).splitlines()
    assert ["What the layers are", "By kind", "By precision", "Between precisions"] == [
        line
        for line in lines
        if line in {"What the layers are", "By kind", "By precision", "Between precisions"}
    ]
    assert study["fp32"].findings == study.ask("findings", variant="fp32").noun.items
    seen = study.ask("calibration", variant="fp32")
    assert list(study.calibration.values) == seen.frame().value.tolist()
    assert "Samples: 1" in repr(seen)


@pytest.mark.slow
def test_errors_are_told_from_the_worst_on(study) -> None:
    made = Study(study.model, data=study.data)
    made.add("half", precision="fp16", target="cpu", backend="onnxruntime")
    told = made.run().ask("accuracy", variant="half")
    errors = made["half"].accuracy
    assert sorted(v.sqnr for v in errors.values) == told.frame().sqnr.tolist()
    assert ({"sqnr": "dB", "own_sqnr": "dB", "saturated": "%"}, "measured") == (
        told.frame().attrs["units"],
        told.frame().attrs["origins"]["rmse"],
    )
    with pytest.raises(
        RunError,
        match=r'Cannot tell the errors of "fp32": none of its values was compared\. Run study.measure\("fp32"\)',
    ):
        study.ask("accuracy", variant="fp32")


def test_findings_are_those_of_the_engine_and_then_of_the_model() -> None:
    """A study of a model from quantization-aware training, before and after it is built."""
    made = Study(samples.load("digits_qat_misplaced").model)
    alone = panels.ask("findings", Scene(made.snapshot())).noun
    assert made.findings() == alone.items
    assert alone.items
    assert "" == alone.note
    made.add("int8", target="sm89", backend="tensorrt-rtx")
    made.run(compare=False)
    both = made.ask("findings", variant="int8").noun.items
    assert (*made["int8"].findings, *made.findings()) == both


def test_what_nobody_told_says_what_to_do(study) -> None:
    with pytest.raises(
        ReadError, match=r'Cannot tell how "fp32" was built: there is no verbose log of it\. Read'
    ):
        study.ask("build", variant="fp32")
    fresh = Study(tiny_model())
    with pytest.raises(CalibrationError, match=r"nothing was observed\. Run study.observe\(\) first"):
        panels.ask("calibration", Scene(fresh.snapshot()))
    with pytest.raises(
        VariantError, match=r"Cannot ask about a variant of .*: none is built\. Run study.run\(\)"
    ):
        panels.ask("engine", Scene(fresh.snapshot()))
    # The page says itself what is missing.
    assert b"" == panels.packed(Scene(fresh.snapshot()))["engine"]
    assert "no Q/DQ pairs" in decode(panels.packed(Scene(fresh.snapshot()))["findings"])["note"]
    assert {"calibration": b""} == panels.packed(Scene(fresh.snapshot()), shared=True)


@pytest.mark.slow
def test_questions_with_a_figure_answer_in_words_what_their_panel_tells(study) -> None:
    """The numbers of facts and table, in the units that the noun declares."""
    roofs = study.ask("roofline", variant="fp32", gpu="H100 SXM")
    expected = study["fp32"].roofline("H100 SXM")
    frame = roofs.frame()
    assert [p.flops for p in expected.layers] == frame.flops.tolist()
    assert [p.attainable for p in expected.layers] == pytest.approx(frame.attainable.tolist())
    assert ("ms", "estimated") == (frame.attrs["units"]["attainable"], frame.attrs["origins"]["attainable"])
    assert (
        f"at batch {expected.batch}"
        == panels.answer(
            "roofline", Scene(study.snapshot(), study["fp32"].facts, settings={"gpu": "H100 SXM"})
        )["facts"][1]["note"]
    )
    plan = study["fp32"].memory()
    told = study.ask("memory", variant="fp32")
    assert (plan.peak, plan.bound, plan.naive) == (told.noun.peak, told.noun.bound, told.noun.naive)
    assert [a.nbytes for a in plan.allocations] == told.frame().nbytes.tolist()
    assert f"{len(plan.lives):,} tensors, addresses at multiples of 256 bytes" in repr_notes(told)
    ran = Study(study.model, data=study.data)
    ran.add("here", target="cpu", backend="onnxruntime")
    ran.run()
    with pytest.raises(RunError, match=r'nothing was measured yet\. Run study\.sweep\("here"\) first'):
        ran.ask("batches", variant="here")
    swept = ran.sweep("here", (1, 2))
    rates = ran.ask("batches", variant="here")
    assert [r.rate for r in swept.rows] == rates.frame().rate.tolist()
    assert f"Latency of batch 1: {number(swept.rows[0].times.median, 'ms')} (measured)" in repr(rates)
    assert len(ran["here"].timing.samples) == ran.ask("samples", variant="here").noun.count


def repr_notes(told: Answer) -> str:
    """What is said of the facts on hover."""
    return " ".join(f["note"] for f in told.parts()["facts"])


@pytest.mark.parametrize("name", panels.PANELS)
def test_every_question_answers_in_words_or_says_what_is_missing(name, study) -> None:
    """None only draws: what is on screen is in the frame, in JSON and in text too, with the same origins."""
    told, missing = None, ""
    try:
        told = study.ask(name, variant="fp32")
    except RtlabError as error:
        missing = str(error)
    if told is None:
        assert len(missing.split(". ")) > 1, missing
        return
    assert json.loads(json.dumps(told.plain(), allow_nan=False))
    panel = panels.answer(name, Scene(study.snapshot(), study["fp32"].facts))
    if told.table:
        assert len(panel["rows"]) == len(told.frame())
    for fact in panel["facts"]:
        marked = f"{fact['key']}: {fact['value']}" + (f" ({fact['origin']})" if fact["origin"] else "")
        assert marked in repr(told).splitlines()


def test_a_question_that_there_is_not_is_refused_with_those_that_there_are(study) -> None:
    with pytest.raises(
        VariantError, match=r'Cannot answer "fan": there is none of this name\. Choose roofline, '
    ):
        study.ask("fan", variant="fp32")
