"""Errors, pictures, Markdown and JSON: their limits, what they list and what they leave out."""

from __future__ import annotations

import dataclasses
import importlib
import json
import pickle
import sys
import types
from pathlib import Path
from typing import Any

import pytest

import rtlab
import scenes
from rtlab import errors
from rtlab.questions.scene import Scene
from rtlab.report.picture import _panel
from rtlab.testing import tiny_model

GIB = 1 << 30
markdown, whole = (importlib.import_module(f"rtlab.report.{n}") for n in ("markdown", "whole"))


def confine(monkeypatch: Any, soft: int) -> None:
    """As if the address space of this process were limited: softly to this, and never by the hard limit."""
    limited = types.SimpleNamespace(
        RLIMIT_AS=9, RLIM_INFINITY=-1, getrlimit=lambda which: (soft, -1) if which == 9 else 0
    )
    monkeypatch.setattr(errors, "resource", limited)


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such limit")
def test_memory_is_confined_by_the_soft_limit_of_the_address_space(monkeypatch: Any) -> None:
    """A GiB and a half is told; under half a GiB nothing is started, from there on it is."""
    confine(monkeypatch, 3 * GIB // 2)
    assert "1.50 GiB" in errors.confined()
    errors.see_room("load it")
    assert errors.starved(RuntimeError("std::bad_alloc"))
    assert errors.starved(ImportError("x"))
    assert not errors.starved(ModuleNotFoundError("x"))
    assert not errors.starved(RuntimeError("other"))
    for found in (MemoryError(), errors.BuildError("Cannot. bad_alloc.")):
        told = errors.told(found, "build", errors.RunError)
        assert (type(told), "1.50 GiB" in str(told)) == (errors.RunError, True)
        with (
            pytest.raises(
                errors.BuildError if isinstance(found, errors.BuildError) else errors.RtlabError,
                match=r"1\.50",
            ),
            errors.boundary("build"),
        ):
            raise found
    confine(monkeypatch, GIB // 2)
    errors.see_room("load it")
    confine(monkeypatch, GIB // 2 - 1)
    with pytest.raises(errors.RtlabError, match=r"Cannot load it: .*0\.50 GiB"):
        errors.see_room("load it")
    confine(monkeypatch, -1)
    assert errors.confined() == ""
    errors.see_room("load it")
    assert not errors.starved(RuntimeError("std::bad_alloc"))
    monkeypatch.setattr(errors.sys, "platform", "win32")
    confine(monkeypatch, 1)
    assert errors.confined() == ""


@pytest.mark.parametrize(
    ("quote", "count", "cut"), [('"', 200, False), ('"', 201, True), ("", 200, False), ("", 201, True)]
)
@pytest.mark.parametrize("letter", "a世")
def test_the_two_hundred_and_first_letter_of_a_name_cuts_it_to_both_ends(
    quote: str, count: int, cut: bool, letter: str
) -> None:
    """99 letters of each end and a mark between; the whole stands in the details, behind the vendor's words."""
    name = letter * 100 + "b" * (count - 200) + "c" * 100
    error = errors.ModelError(f"Cannot load {quote}{name}{quote} gone.", details="words")
    shown = f"{letter * 99}…{'c' * 99}" if cut else name
    assert str(error) == f"Cannot load {quote}{shown}{quote} gone."
    assert error.details == (f"words\nCannot load {quote}{name}{quote} gone." if cut else "words")
    again = pickle.loads(pickle.dumps(error))
    assert (type(again), str(again), again.details) == (errors.ModelError, str(error), error.details)


def test_what_nobody_foresaw_is_quoted_up_to_300_letters() -> None:
    told = str(errors.told(ValueError("ab " * 200), "do it"))
    assert told.startswith("Cannot do it: ValueError: ")
    assert len(told.partition("ValueError: ")[2].partition(". Nobody")[0]) == 300
    assert ": KeyboardInterrupt" not in told
    assert str(errors.told(ValueError(), "do it")).startswith("Cannot do it: ValueError. ")
    assert 'it "/a/b": no' in str(errors.told(OSError(2, "no", "/a/b"), "do it"))
    assert "it: no" in str(errors.told(OSError(2, "no"), "do it"))


def written() -> rtlab.Study:
    return scenes.study("written")


@pytest.mark.parametrize(
    ("name", "title"),
    [("memory", "memory"), ("table", "table"), ("timing", "layers"), ("tuning", "formulations"),
     ("compare", "difference"), ("engine", "engine"), ("fusion", "why"), ("streams", "schedule")],
)  # fmt: skip
def test_a_picture_is_of_a_panel_of_a_chart_or_of_the_first_of_a_tab(name: str, title: str) -> None:
    study = written()
    scene = Scene(study.snapshot(), study.facts_of("int8"), study.facts_of("fp32"), {})
    assert _panel(name, scene)["title"] == _panel(title, scene)["title"]


def test_a_picture_tells_whose_it_is_and_is_written(tmp_path: Path) -> None:
    """As wide as asked for; with the longest layer first where that is asked for."""
    study = written()
    found = study.picture("layers", variant="int8", width=700, path=tmp_path / "a.svg")
    assert (tmp_path / "a.svg").read_text(encoding="utf-8") == found.svg == found._repr_svg_()
    assert 'width="700' in found.svg
    assert ("beside" in found.svg, "read:" in found.svg) == (False, True)
    beside = study.picture("layers", variant="int8", baseline="fp32")
    assert ("beside" in beside.svg, 'width="960' in beside.svg) == (True, True)
    assert (
        study.picture("layers", variant="int8", dark=True).svg != study.picture("layers", variant="int8").svg
    )
    scene = Scene(study.snapshot(), study.facts_of("int8"), None, {"order": "time"})
    sizes = _panel("layers", scene)["figures"][0]["data"][0]["y"]
    assert sorted(sizes, key=abs) in (list(sizes), list(sizes)[::-1])
    for wrong in ({"question": "nothing", "variant": "int8"}, {"question": "memory", "variant": "none"},
                  {"question": "memory", "variant": "int8", "baseline": "none"}):  # fmt: skip
        with pytest.raises(errors.VariantError):
            study.picture(**wrong)
    with pytest.raises(errors.RtlabError, match="SVG"):
        study.picture("memory", variant="int8", path=tmp_path / "a.txt")


def test_an_answer_is_compared_with_the_variant_that_is_named() -> None:
    """80 or 57.6 microseconds became 70.4."""
    study = written()
    for baseline, before in (("fp32", 80.0), ("fp16", 57.6)):
        found = study.ask("difference", variant="int8", baseline=baseline).noun
        assert found.milliseconds == pytest.approx((before / 1e3, 70.4 / 1e3))
        assert (found.before, found.after) == (baseline, "int8")
    with pytest.raises(errors.VariantError):
        study.ask("difference", variant="int8", baseline="nothing")


def test_markdown_lists_eight_findings_five_layers_and_how_many_there_are_more(tmp_path: Path) -> None:
    study = written()
    facts = study.facts_of("int8")
    one = study.findings("int8")[0]
    many = [dataclasses.replace(one, title=f"Finding {i}.") for i in range(11)]
    for count, more in ((8, ""), (9, "- and 1 more"), (11, "- and 3 more")):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(markdown.questions.findings, "of", lambda _, count=count: tuple(many[:count]))
            lines = [*markdown._variant(study.snapshot(), facts, "int8")]
        assert sum("**Finding" in line for line in lines) == 8
        assert (lines[-1] if more else "") == more
        assert f"### {count} findings" in lines
    rows = [line for line in lines[lines.index("### Slow layers") + 2 :] if line.startswith("| ")]
    assert len(rows) == 7
    times = [t.median for t in sorted(study["int8"].timing.layers, key=lambda t: -t.median)]
    assert f"{1e3 * times[0]:.3g} µs" in rows[2]
    assert markdown._several(["a"]) == "a"
    assert markdown._several(["a", "b", "c"]) == "a and 2 more"
    assert len(markdown._several(["n" * 90])) <= 81


@pytest.mark.parametrize(
    ("text", "shown"),
    [("1. a", "1\\. a"), ("12.", "12\\."), ("1.5 a", "1.5 a"), ("- a", "\\- a"), ("a - b", "a - b"), ("+", "\\+"),
     ("a|b", "a\\|b"), ("a\tb\nc", "a b c"), ("x:y", "x:y"), ("1a. b", "1a. b")],
)  # fmt: skip
def test_text_of_others_stands_in_markdown_as_it_is(text: str, shown: str) -> None:
    assert markdown.escaped(text) == shown


@pytest.mark.parametrize(("inside", "fence"), [("a", 3), ("```", 4), ("`````", 6), ("``", 3)])
def test_a_fence_is_longer_than_the_longest_run_of_backticks_in_it(inside: str, fence: str) -> None:
    first, _, last = markdown._fenced(f"{inside}\n\n", "bash")
    assert (first, last) == ("`" * fence + "bash", "`" * fence)


@pytest.fixture
def failed() -> rtlab.Study:
    """One variant that is built, one that failed, and one that is only planned."""
    study = rtlab.Study(tiny_model(batch=1))
    for name in ("fp32", "fp16", "int8"):
        study.add(name, target="sm86", backend="classic" if name == "fp32" else "tensorrt-rtx")
    study.run(["fp32"], compare=False)
    study._kept = study._kept.failed("fp16", errors.BuildError("Cannot build it: no. Go.", details="words"))
    return study


def test_a_report_tells_of_what_is_built_and_why_others_failed(failed: rtlab.Study, tmp_path: Path) -> None:
    text = failed.to_markdown(tmp_path / "r.md").read_text(encoding="utf-8")
    rows = {r.split(" | ")[0].strip("| "): r for r in text.splitlines() if r.startswith("| ")}
    assert "Cannot build it" in rows["fp16"]
    assert rows["fp16"].count("—") == 3
    assert "## fp16" not in text
    told = json.loads(failed.to_json(tmp_path / "r.json").read_text())
    assert (list(told["variants"]), list(told["failures"])) == (["fp32"], ["fp16"])
    assert told["failures"]["fp16"]["details"] == "words"
    assert told["recipe"]["dates"]["fp32"]["timed"] is None
    assert (told["schema"], told["baseline"]) == (1, "fp32")
    for name in ("fp16", "int8", "none"):
        with pytest.raises(errors.VariantError):
            failed.to_html(tmp_path / "r.html", baseline=name)
    for empty in (rtlab.Study(tiny_model()), rtlab.Study(tiny_model())):
        with pytest.raises(errors.VariantError):
            empty.to_markdown(tmp_path / "no.md")
        empty.add("fp32")
    assert not (tmp_path / "no.md").exists()


def test_json_compares_each_variant_with_the_baseline_and_not_the_baseline_with_itself(
    monkeypatch: Any,
) -> None:
    monkeypatch.setattr(whole, "document", lambda *_, baseline: baseline and baseline.name)
    found = whole.whole(written().snapshot(), ["fp32", "int8"], "fp32")
    assert found["variants"] == {"fp32": None, "int8": "fp32"}
    assert whole.whole(written().snapshot(), ["int8"], "")["baseline"] is None


def test_methods_of_a_result_have_its_names_and_a_study_says_how_far_it_is(failed: rtlab.Study) -> None:
    assert (rtlab.Result.roofline.__qualname__, rtlab.Result.roofline.__name__) == (
        "Result.roofline",
        "roofline",
    )
    assert rtlab.Result.roofline.__module__ == "rtlab.study"
    assert "facts" not in (rtlab.Result.memory.__doc__ or "facts: The variant.")
    assert repr(failed) == "<Study tiny: 1 of 3 variants built>"
    assert (len(failed), [*failed], [*failed.results]) == (3, ["fp32", "fp16", "int8"], ["fp32"])
    assert repr(failed["fp32"]).startswith("<Result ")
    assert failed["fp32"] is failed["fp32"]
    with pytest.raises(errors.BuildError):
        failed["fp16"]
    with pytest.raises(errors.VariantError):
        failed["int8"]


def test_what_cannot_be_saved_or_read_is_refused(failed: rtlab.Study, tmp_path: Path) -> None:
    with pytest.raises(errors.RunError):
        failed.save_engine("fp32", tmp_path / "e.plan")
    with pytest.raises(errors.ReadError):
        rtlab.read(tmp_path / "none.json")
    (tmp_path / "m.onnx").write_bytes(tiny_model().bytes())
    with pytest.raises(errors.ReadError, match=r"m\.onnx"):
        rtlab.read(tmp_path / "m.onnx")
    layers = failed.export_layers("fp32", tmp_path / "layers.json")
    for given in ({}, {"model": tmp_path / "m.onnx"}, {"model": tiny_model()}):
        found = rtlab.read(layers, **given, name="other")
        assert ([*found], len(found.model.nodes) > 0) == (["other"], bool(given))
    assert len(rtlab.read(layers, tmp_path / "m.onnx").model.nodes) == 10
    # The engine was built from the file, and the study is of the model.
    model = tiny_model(batch=2)
    both = rtlab.read(layers, tmp_path / "m.onnx", model=model)
    assert (both.model, both["engine"].prepared.model.digest) == (model, tiny_model().digest)
    build = failed.save_build("fp32", tmp_path / "b.json")
    assert len(rtlab.read(build).model.nodes) == 10
    with pytest.raises(errors.ReadError):
        rtlab.explore(build, data={"x": 1})
