"""Studies, reports and the Explorer: limits, lists, refusals and calls by hand."""

from __future__ import annotations

import dataclasses
import importlib
import json
import math
import pickle
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import numpy as np
import pytest

import rtlab
import scenes
from rtlab import errors
from rtlab.core.budget import Budget, parse_budget
from rtlab.core.stage import Stage, StageStatus
from rtlab.documents.commands import StartWork
from rtlab.errors import CalibrationError, RtlabError, VariantError
from rtlab.study import stages
from rtlab.study.progress import ProgressBar
from rtlab.testing import tiny_model
from rtlab.web.explorer.explorer import Explorer
from rtlab.web.explorer.open_commands import BuildCommands
from rtlab.web.explorer.widget import TaskRunner
from rtlab.web.page import document

GIB = 1 << 30
markdown = importlib.import_module("rtlab.web.report.html")


def confine(monkeypatch: Any, soft: int) -> None:
    """As if the address space of this process were limited: softly to this, and never by the hard limit."""
    limits = {"RLIMIT_AS": 9, "RLIM_INFINITY": -1, "getrlimit": {9: (soft, -1)}.__getitem__}
    monkeypatch.setattr(errors, "resource", SimpleNamespace(**limits))


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such limit")
def test_memory_is_confined_by_the_soft_limit_of_the_address_space(monkeypatch: Any) -> None:
    """A GiB and a half is told; under half a GiB nothing is started, from there on it is."""
    confine(monkeypatch, 3 * GIB // 2)
    assert "1.50 GiB" in errors.describe_memory_limit()
    errors.check_memory_limit("load it")
    cases = RuntimeError("std::bad_alloc"), ImportError("x"), ModuleNotFoundError("x"), RuntimeError("other")
    assert [*map(errors.is_out_of_memory, cases)] == [True, True, False, False]
    for error, kind in ((MemoryError(), RtlabError), (errors.BuildError("bad_alloc"), errors.BuildError)):
        assert isinstance(errors.wrap_error(error, "build", errors.RunError), errors.RunError)
        with pytest.raises(kind, match=r"1\.50"), errors.boundary("build"):
            raise error
    confine(monkeypatch, GIB // 2)
    errors.check_memory_limit("load it")
    confine(monkeypatch, GIB // 2 - 1)
    with pytest.raises(RtlabError, match=r"Cannot load it: .*0\.50 GiB"):
        errors.check_memory_limit("load it")
    confine(monkeypatch, -1)
    assert errors.describe_memory_limit() == ""
    errors.check_memory_limit("load it")
    assert not errors.is_out_of_memory(RuntimeError("std::bad_alloc"))
    monkeypatch.setattr(errors.sys, "platform", "win32")
    confine(monkeypatch, 1)
    assert errors.describe_memory_limit() == ""


@pytest.mark.parametrize(("count", "cut"), [(200, False), (201, True)])
@pytest.mark.parametrize("quote", ['"', ""])
@pytest.mark.parametrize("letter", "a世")
def test_letter_201_of_a_name_cuts_it_to_both_ends(quote: str, count: int, cut: bool, letter: str) -> None:
    """99 letters of each end and a mark between; the whole stands in the details, behind the vendor's words."""
    name = letter * 100 + "b" * (count - 200) + "c" * 100
    error = errors.ModelError(f"Cannot load {quote}{name}{quote} gone.", details="words")
    shown = f"{letter * 99}…{'c' * 99}" if cut else name
    assert str(error) == f"Cannot load {quote}{shown}{quote} gone."
    assert error.details == (f"words\nCannot load {quote}{name}{quote} gone." if cut else "words")
    again = pickle.loads(pickle.dumps(error))
    assert (type(again), str(again), again.details) == (errors.ModelError, str(error), error.details)


def written() -> rtlab.Study:
    return scenes.study("written")


def test_an_answer_is_compared_with_the_variant_that_is_named() -> None:
    """80 or 57.6 microseconds became 70.4."""
    study = written()
    for baseline, before in (("fp32", 80.0), ("fp16", 57.6)):
        noun = study.ask("difference", variant="int8", baseline=baseline).result
        assert noun.milliseconds == pytest.approx((before / 1e3, 70.4 / 1e3))
        assert (noun.before, noun.after) == (baseline, "int8")
    with pytest.raises(VariantError):
        study.ask("difference", variant="int8", baseline="nothing")


def test_markdown_lists_eight_findings_five_layers_and_how_many_there_are_more(tmp_path: Path) -> None:
    study = written()
    facts = study["int8"].facts
    one = study.findings("int8")[0]
    many = [dataclasses.replace(one, title=f"Finding {i}.") for i in range(11)]
    for count, more in ((8, ""), (11, "- and 3 more")):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(markdown, "list_findings", lambda _, count=count: tuple(many[:count]))
            lines = [*markdown._render_variant(study.state, facts, "int8")]
        assert sum("**Finding" in line for line in lines) == 8
        assert (lines[-1] if more else "") == more
        assert f"### {count} findings" in lines
    rows = [line for line in lines[lines.index("### Slow layers") + 2 :] if line.startswith("| ")]
    assert len(rows) == 7
    assert f"{1e3 * max(t.median for t in study['int8'].timing.layers):.3g} µs" in rows[2]


@pytest.fixture
def failed() -> rtlab.Study:
    """One variant that is built, one that failed, and one that is only planned."""
    study = rtlab.Study(tiny_model(batch=1))
    for name in ("fp32", "fp16", "int8"):
        study.add(name, target="sm86", backend="classic" if name == "fp32" else "tensorrt-rtx")
    study.run(["fp32"], compare=False)
    error = errors.BuildError("Cannot build it: no. Go.", details="words")
    study._holder.update(lambda state: state.with_entries(failures={"fp16": error}))
    return study


def test_a_report_tells_of_what_is_built_and_why_others_failed(failed: rtlab.Study, tmp_path: Path) -> None:
    text = failed.report(tmp_path / "r.md").read_text(encoding="utf-8")
    rows = {r.split(" | ")[0].strip("| "): r for r in text.splitlines() if r.startswith("| ")}
    assert "Cannot build it" in rows["fp16"]
    assert rows["fp16"].count("—") == 2
    assert not {"## fp16", "## What fell"} & {*text.splitlines()}
    content = json.loads(failed.report(tmp_path / "r.json").read_text())
    assert (list(content["variants"]), list(content["failures"])) == (["fp32"], ["fp16"])
    assert content["failures"]["fp16"]["details"] == "words"
    assert content["baseline"] == "fp32"
    for name in ("int8", "none"):
        with pytest.raises(VariantError):
            failed.report(tmp_path / "r.html", baseline=name)


def test_json_compares_every_other_variant_with_the_baseline(monkeypatch: Any) -> None:
    monkeypatch.setattr(document, "build_variant_document", lambda *_, baseline: baseline and baseline.name)
    answer = document.build_study_document(written().state, ["fp32", "int8"], "fp32")
    assert answer["variants"] == {"fp32": None, "int8": "fp32"}
    assert document.build_study_document(written().state, ["int8"], "")["baseline"] is None


def test_a_study_says_how_far_it_is(failed: rtlab.Study) -> None:
    assert repr(failed) == "<Study tiny: 1 of 3 variants built>"
    assert (len(failed), [*failed], [*failed.state.variants]) == (1, ["fp32"], ["fp32", "fp16", "int8"])
    assert repr(failed["fp32"]).startswith("<Result ")
    with pytest.raises(errors.BuildError):
        failed["fp16"]
    with pytest.raises(VariantError):
        failed["int8"]


def test_what_cannot_be_saved_or_read_is_refused(failed: rtlab.Study, tmp_path: Path) -> None:
    with pytest.raises(errors.RunError):
        failed.save_build("fp32", tmp_path / "e.plan", kind="engine")
    with pytest.raises(errors.ReadError):
        rtlab.read(tmp_path / "none.json")
    (tmp_path / "m.onnx").write_bytes(tiny_model().bytes())
    with pytest.raises(errors.ReadError, match=r"m\.onnx"):
        rtlab.read(tmp_path / "m.onnx")
    layers = failed.save_build("fp32", tmp_path / "layers.json", kind="layers")
    for options in ({}, {"model": tmp_path / "m.onnx"}, {"model": tiny_model()}):
        other = rtlab.read(layers, **options, name="other")
        assert ([*other], len(other.model.nodes) > 0) == (["other"], bool(options))
    assert "Slow layers" not in other.report(tmp_path / "o.md").read_text(encoding="utf-8")
    assert len(rtlab.read(layers, tmp_path / "m.onnx").model.nodes) == 10
    # The engine was built from the file, and the study is of the model.
    model = tiny_model(batch=2)
    both = rtlab.read(layers, tmp_path / "m.onnx", model=model)
    assert (both.model, both["engine"].prepared.model.digest) == (model, tiny_model().digest)
    build = failed.save_build("fp32", tmp_path / "b.json")
    assert len(rtlab.read(build).model.nodes) == 10
    with pytest.raises(errors.ReadError):
        rtlab.explore(build, data={"x": 1})


HOW = {"progress": "P"}


@pytest.fixture
def shown(monkeypatch: Any) -> Explorer:
    """The Explorer whose work is done at once, of a study that notes what it is asked for."""
    made = scenes.study("written").explore(baseline="fp32")
    study = mock.Mock()
    study.state = mock.Mock(
        variants={"int8": "known"}, diagnoses={}, verdicts={}, fusion_explanations={}, bisections={}
    )
    monkeypatch.setattr(TaskRunner, "start", lambda self, work, *_: work("P"))
    made._view_sync.study = study
    return made


@pytest.mark.parametrize(
    ("work", "values", "call"),
    [
        ("sweep", {}, mock.call.tuning.batch_sizes("int8", **HOW)), ("tune", {}, mock.call.tuning.tune(**HOW)),
        ("tune", {"budget_s": "7"}, mock.call.tuning.tune(budget_s=7.0, **HOW)),
        ("peaks", {}, mock.call.tuning.peaks(**HOW)),
        ("why", {"first": "a", "second": "b"}, mock.call.fusion.why("a", "b", variant="int8", again=False, **HOW)),
        ("why", {"first": "k", "second": "n"}, mock.call.fusion.why("k", "n", variant="int8", again=True, **HOW)),
        ("why", {"first": "k", "second": "n", "unless": "known"}, None),
        ("why", {"layer": "y"}, mock.call.fusion.why("y", variant="int8", **HOW)),
        ("why", {"layer": "known", "unless": "known"}, None), ("advise", {}, mock.call.fusion.advise("int8", **HOW)),
        ("sensitivity", {"asks": "only", "x": "1"}, mock.call.accuracy.sensitivity("int8", asks="only", **HOW)),
        ("bisect", {"from": "fp32"}, mock.call.fusion.bisect("fp32", "int8", seconds=15.0, **HOW)),
        ("bisect", {"from": "a", "seconds": "3"}, mock.call.fusion.bisect("a", "int8", seconds=3.0, **HOW)),
        ("only", {"samples": "1, 3"}, mock.call.accuracy.use_samples((1, 3), budget_s=15.0, **HOW)),
        ("only", {}, mock.call.accuracy.use_samples(None, budget_s=15.0, **HOW)),
        ("channels", {"value": "v"}, mock.call.accuracy.channels("int8", "v", **HOW)),
        ("diagnose", {}, mock.call.accuracy.diagnose("int8", **HOW)),
        ("diagnose", {"unless": "known"}, mock.call.accuracy.diagnose("int8", **HOW)),
        ("repair", {}, mock.call.accuracy.repair("int8", **HOW)),
    ],
)  # fmt: skip
def test_a_button_asks_the_study_for_its_work(shown: Explorer, work: Any, values: Any, call: Any) -> None:
    shown.study.accuracy.repair.return_value = mock.Mock(changes=())
    state = shown.study.state
    state.verdicts, state.fusion_explanations = {"int8": {("k", "n"): None}}, {"int8": {"known": None}}
    shown._builds.start_panel_work(StartWork(work, "int8", values))
    assert shown.study.mock_calls == ([] if call is None else [call])


def test_what_is_known_is_not_looked_for_again_and_what_is_not_is_refused(shown: Explorer) -> None:
    shown.study.state.diagnoses = {"int8": None}
    shown._builds.start_panel_work(StartWork("diagnose", "int8", {"unless": "known"}))
    shown.study.accuracy.diagnose.assert_not_called()
    with pytest.raises(VariantError):
        shown._builds.start_panel_work(StartWork("sweep", "none", {}))


def test_a_repair_shows_the_variant_that_it_leads_to(shown: Explorer, monkeypatch: Any) -> None:
    derived = mock.Mock()
    monkeypatch.setattr(BuildCommands, "_build_variants", derived)
    shown.study.accuracy.repair.return_value = mock.Mock(changes=("one",), repaired="int8 repaired")
    shown.study.calibration.transform.return_value = "treated"
    shown.study.fusion.suggest_edit.return_value = "remedied"
    shown.study.vary.return_value = ("a", "b")
    for work, values in (("repair", {}), ("treat", {"cause": "c"}), ("remedy", {"rewrites": "x\ny"}),
                         ("rebuild", {"tf32": "on"}), ("rebuild", {"what": "compilers"})):  # fmt: skip
        shown._builds.start_panel_work(StartWork(work, "int8", values))
    assert [(c.args[0], c.kwargs) for c in derived.call_args_list] == [
        (["int8 repaired"], {"compare": True}), (["treated"], {"compare": True}), (["remedied"], {"compare": True}),
        (("a", "b"), {"compare": False, "refusals": False}), (("a", "b"), {"compare": False, "refusals": True}),
    ]  # fmt: skip
    shown.study.fusion.suggest_edit.assert_called_once_with("int8", ["x", "y"])
    assert [c.args for c in shown.study.vary.call_args_list] == [("int8", "tf32=on"), ("int8", "compilers")]


def test_samples_come_in_one_file_and_with_a_model(tmp_path: Path) -> None:
    explorer = scenes.study("written").explore()
    for name in ("a.npz", "b.npz"):
        np.savez(tmp_path / name, x=np.zeros(3))
    with pytest.raises(CalibrationError, match=r"b\.npz"):
        explorer._opens.read([tmp_path / "a.npz", tmp_path / "b.npz"], None, {}, mock.Mock())


def test_a_bar_is_as_long_as_the_part_that_is_done() -> None:
    with mock.patch("IPython.display.display") as shown:
        bar = ProgressBar()
    shown.assert_called_once_with(bar._box)
    told = (1, 4, 0.25, "a 1 of 4 · 2.0"), (9, 4, 1, "a 9"), (3, None, 0, "a · 2")
    for done, total, value, words in told:
        bar._show("a", done, total, 2.0)
        assert (bar._bar.value, bar._text.value[: len(words)]) == (value, words)
    bar.close()
    assert (bar._bar.max, bar._box.comm) == (1.0, None)


def test_a_budget_is_shared_by_parts_of_what_is_left(monkeypatch: Any) -> None:
    """A third of 15 is 5 seconds; 6 went by, so that two thirds of 9 are left for the next."""
    now = [100.0]
    monkeypatch.setattr("rtlab.core.budget.time.monotonic", lambda: now[0])
    budget = Budget(15.0)
    assert (budget.is_bounded, Budget(math.inf).is_bounded) == (True, False)
    with budget.share(mock.Mock(stopped=lambda: False), stages._PARTS[Stage.TIMED]) as within:
        assert (within.remaining, within.is_timed_out) == (5.0, False)
        now[0] += 6
        assert (within.remaining, within.is_timed_out) == (0.0, False)
        within.advance()
        assert within.stopped()
        assert not within.is_cancelled()
    assert budget.remaining == 9.0
    with budget.share(mock.Mock(), stages._PARTS[Stage.COMPARED]) as within:
        assert within.remaining == 6.0
        now[0] += 60
    assert budget.remaining == 0.0
    with budget.share(mock.Mock(stopped=lambda: False), 1.0) as within:
        # What is granted beyond all seconds has gone too.
        now[0] += 0.1
        assert (within.has_result, within.stopped(), within.is_cancelled()) == (False, True, False)
    with budget.share(mock.Mock(stopped=lambda: False), 1.0, ends=False) as within:
        now[0] += 60
        assert not within.stopped()
    assert [parse_budget(x) for x in (0, "2.5", math.inf)] == [0.0, 2.5, math.inf]
    for wrong in (-1, math.nan, "x", None):
        with pytest.raises(VariantError):
            parse_budget(wrong)


@pytest.mark.parametrize(
    ("done", "wanted", "known", "state", "part"),
    [(0, 0, 0, "missing", "not timed: "), (3, 30, 0, "partial", "timed on 3 of 30 runs: "), (30, 30, 40, "done", ""),
     (3, 30, 40, "partial", "timed on 3 of 40 runs: "), (0, 30, 40, "missing", "not timed: ")],
)  # fmt: skip
def test_a_stage_that_ended_early_says_on_how_much_it_rests(done, wanted, known, state, part) -> None:
    before = StageStatus(
        Stage.TIMED, "waiting", done=done, target_count=wanted, unit="runs", available_count=known
    )
    standing = stages._incomplete_status(Stage.TIMED, before, "budget")
    assert (standing.state, standing.done, standing.target_count, standing.available_count) == (
        state,
        done,
        wanted,
        known,
    )
    assert standing.text.startswith(part)
    assert standing.why == ("" if state == "done" else "budget")


def test_values_are_read_in_groups_of_a_quarter_of_a_gibibyte() -> None:
    """A value that is larger than a group is one of its own."""
    names = ["stem", "normal", "left", "right"]
    assert stages._groups(names, dict.fromkeys(names, 64 << 20)) == [tuple(names)]
    sizes = {"stem": 1 << 20, "normal": 300 << 20, "left": 200 << 20, "right": 56 << 20}
    assert stages._groups(names, sizes) == [("stem",), ("normal",), ("left", "right")]


def test_what_a_study_keeps_is_of_its_model_and_variants(tmp_path: Path) -> None:
    study = rtlab.Study(tiny_model(batch=1))
    study.add("fp16", target="sm86", backend="classic")
    for call, kind in (
        (lambda: study.calibration.recalibrate("fp16"), VariantError), (lambda: study.measure("none"), VariantError),
        (lambda: study.run(["none"]), VariantError), (lambda: study.run(budget_s=-1), VariantError),
        (lambda: study.accuracy.use_samples([64]), CalibrationError),
        (lambda: study.accuracy.use_samples([True]), CalibrationError),
    ):  # fmt: skip
        study.run(compare=False)
        with pytest.raises(kind):
            call()
    study.accuracy.use_samples([63, 3, 3])
    assert study.state.selected_samples == (3, 63)
    study.accuracy.use_samples(None)
    assert study.state.selected_samples == ()
    first = study["fp16"]
    assert study.run(compare=False)["fp16"] is first
    assert study.run(compare=False, again=True)["fp16"] is not first
    study.read("read", study.save_build("fp16", tmp_path / "layers.json", kind="layers"))
    for method, options in (
        (study.run, {"again": True}),
        (study.measure, {}),
        (study.calibration.recalibrate, {}),
    ):
        with pytest.raises(VariantError):
            method("read", **options)
