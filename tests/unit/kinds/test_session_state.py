"""What the Explorer's buttons ask of a study, and what a study keeps: calls and small numbers by hand."""

from __future__ import annotations

import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import numpy as np
import pytest

import rtlab
import scenes
from rtlab.core import stage
from rtlab.core.stage import Budget, Stage, Standing
from rtlab.documents.commands import StartWork
from rtlab.errors import CalibrationError, RtlabError, VariantError
from rtlab.explorer import delivering, opening
from rtlab.explorer.explorer import Explorer
from rtlab.session import measuring
from rtlab.session.bar import ProgressBar
from rtlab.testing import tiny_model

HOW = {"progress": "P"}


@pytest.fixture
def shown(monkeypatch: Any) -> Explorer:
    """The Explorer whose work is done at once, of a study that notes what it is asked for."""
    made = scenes.study("written").explore(baseline="fp32")
    study = mock.Mock(variants={"int8": "known"})
    study.snapshot.return_value = mock.Mock(diagnoses={}, verdicts={}, joined={}, bisections={})
    monkeypatch.setattr(Explorer, "_work", lambda self, work, _: work("P"))
    made.study = study
    return made


@pytest.mark.parametrize(
    ("work", "values", "call"),
    [
        ("sweep", {}, mock.call.sweep("int8", **HOW)),
        ("tune", {}, mock.call.tune(**HOW)),
        ("tune", {"budget_s": "7"}, mock.call.tune(budget_s=7.0, **HOW)),
        ("tune", {"recurrence": "/rnn"}, mock.call.time_forms("/rnn", **HOW)),
        ("peaks", {}, mock.call.measure_peaks(**HOW)),
        ("why", {"first": "a", "second": "b"}, mock.call.why("a", "b", variant="int8", again=False, **HOW)),
        ("why", {"first": "k", "second": "n"}, mock.call.why("k", "n", variant="int8", again=True, **HOW)),
        ("why", {"first": "k", "second": "n", "unless": "known"}, None),
        ("why", {"layer": "y"}, mock.call.why("y", variant="int8", **HOW)),
        ("why", {"layer": "known", "unless": "known"}, None),
        ("advise", {}, mock.call.advise("int8", **HOW)),
        ("sensitivity", {"asks": "only", "x": "1"}, mock.call.sensitivity("int8", asks="only", **HOW)),
        ("bisect", {"from": "fp32"}, mock.call.bisect("fp32", "int8", seconds=15.0, again=False, **HOW)),
        ("bisect", {"from": "a", "seconds": "3", "again": "1"},
         mock.call.bisect("a", "int8", seconds=3.0, again=True, **HOW)),
        ("only", {"samples": "1, 3"}, mock.call.only((1, 3), budget_s=15.0, **HOW)),
        ("only", {}, mock.call.only(None, budget_s=15.0, **HOW)),
        ("channels", {"value": "v"}, mock.call.channels("int8", "v", **HOW)),
        ("diagnose", {}, mock.call.diagnose("int8", **HOW)),
        ("diagnose", {"unless": "known"}, mock.call.diagnose("int8", **HOW)),
        ("repair", {}, mock.call.repair("int8", **HOW)),
    ],
)  # fmt: skip
def test_a_button_asks_the_study_for_its_work(shown: Explorer, work: Any, values: Any, call: Any) -> None:
    shown.study.repair.return_value = mock.Mock(changes=())
    known = shown.study.snapshot.return_value
    known.verdicts, known.joined = {"int8": {("k", "n"): None}}, {"int8": {"known": None}}
    shown._worked(StartWork(work, "int8", values))
    assert [c for c in shown.study.mock_calls if c[0] != "snapshot"] == ([] if call is None else [call])


def test_what_is_known_is_not_looked_for_again_and_what_is_not_is_refused(shown: Explorer) -> None:
    shown.study.snapshot.return_value.diagnoses = {"int8": None}
    shown._worked(StartWork("diagnose", "int8", {"unless": "known"}))
    shown.study.diagnose.assert_not_called()
    for wrong in (StartWork("bugreport", "int8", {"from": "fp32"}), StartWork("sweep", "none", {})):
        with pytest.raises(VariantError):
            shown._worked(wrong)


def test_a_repair_shows_the_variant_that_it_leads_to(shown: Explorer, monkeypatch: Any) -> None:
    derived = mock.Mock()
    monkeypatch.setattr(Explorer, "_derived", derived)
    shown.study.repair.return_value = mock.Mock(changes=("one",), repaired="int8 repaired")
    shown.study.treat.return_value, shown.study.remedy.return_value = "treated", "remedied"
    shown.study.vary.return_value = ("a", "b")
    for work, values in (("repair", {}), ("treat", {"cause": "c"}), ("remedy", {"rewrites": "x\ny"}),
                         ("rebuild", {"tf32": "on"}), ("rebuild", {"what": "compilers"})):  # fmt: skip
        shown._worked(StartWork(work, "int8", values))
    assert [(c.args[0], c.kwargs) for c in derived.call_args_list] == [
        (["int8 repaired"], {"compare": True}), (["treated"], {"compare": True}), (["remedied"], {"compare": True}),
        (("a", "b"), {"compare": False, "refusals": False}), (("a", "b"), {"compare": False, "refusals": True}),
    ]  # fmt: skip
    shown.study.remedy.assert_called_once_with("int8", ["x", "y"])
    assert [c.args for c in shown.study.vary.call_args_list] == [("int8", "tf32=on"), ("int8", "compilers")]


def test_samples_come_in_one_file_and_with_a_model(tmp_path: Path) -> None:
    explorer = scenes.study("written").explore()
    for name in ("a.npz", "b.npz"):
        np.savez(tmp_path / name, x=np.zeros(3))
    with pytest.raises(CalibrationError, match=r"a\.npz"):
        explorer._read([tmp_path / "a.npz", tmp_path / "b.npz"], None, {}, mock.Mock())
    alone = rtlab.read(
        **{k: v for k, v in scenes.engines.files("written-fp16").items() if k != "model"}
    ).explore()
    with pytest.raises(CalibrationError, match=r"a\.npz"):
        alone._read([tmp_path / "a.npz"], None, {}, mock.Mock())
    assert opening._title({"layers": Path("my_engine.graph.json"), "log": Path("b.log")}) == "my"
    assert opening._title({"log": Path("fast.build.log")}) == "fast"
    assert opening._title({"profile": Path("x.json")}) == opening._title({}) == "engine"
    assert [opening._unused("a", taken) for taken in ((), ("a",), ("a", "a 2"))] == ["a", "a 2", "a 3"]


@pytest.mark.parametrize(("heard_after", "rounds"), [(0, 0), (1, 1), (9, 4)])
def test_a_widget_is_sent_unasked_until_a_page_is_heard(
    heard_after: int, rounds: int, monkeypatch: Any
) -> None:
    """After 0.3, 0.7, 2 and 7 seconds, and whatever no page has asked for at the end."""
    explorer = scenes.study("written").explore()
    waited: list[float] = []
    explorer._heard = SimpleNamespace(wait=lambda s: waited.append(s) or len(waited) > heard_after)
    sent: list[str] = []
    monkeypatch.setattr(explorer, "_hand_over", lambda name, _: sent.append(name), raising=False)
    monkeypatch.setattr(delivering.time, "sleep", waited.append)
    explorer._deliver_unasked()
    assert waited == ([0.3, 0.7, 2.0, 7.0][: rounds + (heard_after < 4)] + [1.0] * (heard_after < 4))
    assert (sent.count("engine"), sent.count("other")) == (rounds, 0)
    assert sum(name.startswith("tab-") for name in sent) >= max(1, rounds)


@pytest.mark.parametrize(
    ("done", "total", "value", "words"),
    [(1, 4, 0.25, "a 1 of 4 · 2.0 s"), (9, 4, 1.0, "a 9 of 4"), (3, None, 0.0, "a · 2.0 s")],
)
def test_a_bar_is_as_long_as_the_part_that_is_done(done: int, total: Any, value: float, words: str) -> None:
    with mock.patch("rtlab.session.bar.display") as shown:
        bar = ProgressBar()
    shown.assert_called_once_with(bar._box)
    bar._show("a", done, total, 2.0)
    assert (bar._bar.value, bar._bar.min, bar._bar.max, bar._text.value.startswith(words)) == (
        value,
        0,
        1,
        True,
    )
    bar.close()
    assert bar._box.comm is None


def test_a_budget_is_shared_by_parts_of_what_is_left(monkeypatch: Any) -> None:
    """A third of 15 is 5 seconds; 6 went by, so that two thirds of 9 are left for the next."""
    now = [100.0]
    monkeypatch.setattr(stage.time, "monotonic", lambda: now[0])
    budget = Budget(15.0)
    assert (budget.bounded, Budget(math.inf).bounded) == (True, False)
    with budget.share(mock.Mock(stopped=lambda: False), measuring._PARTS[Stage.TIMED]) as within:
        assert (within.left, within.over) == (5.0, False)
        now[0] += 6
        assert (within.left, within.over) == (0.0, False)
        within.advance()
        assert within.stopped()
        assert not within.cancelled
    assert budget.left == 9.0
    with budget.share(mock.Mock(), measuring._PARTS[Stage.COMPARED]) as within:
        assert within.left == 6.0
        now[0] += 60
    assert budget.left == 0.0
    assert [stage.budget_of(x) for x in (0, "2.5", math.inf)] == [0.0, 2.5, math.inf]
    for wrong in (-1, math.nan, "x", None):
        with pytest.raises(VariantError):
            stage.budget_of(wrong)


@pytest.mark.parametrize(
    ("done", "wanted", "known", "state", "part"),
    [(0, 0, 0, "missing", "not timed: "), (3, 30, 0, "partial", "timed on 3 of 30 runs: "), (30, 30, 40, "done", ""),
     (3, 30, 40, "partial", "timed on 3 of 40 runs: "), (0, 30, 40, "missing", "not timed: ")],
)  # fmt: skip
def test_a_stage_that_ended_early_says_on_how_much_it_rests(done, wanted, known, state, part) -> None:
    found = measuring._missing(
        Stage.TIMED,
        Standing(Stage.TIMED, "waiting", done=done, wanted=wanted, unit="runs", known=known),
        "budget",
    )
    assert (found.state, found.done, found.wanted, found.known) == (state, done, wanted, known)
    assert found.text.startswith(part)
    assert found.why == ("" if state == "done" else "budget")


def test_values_are_read_in_groups_of_a_quarter_of_a_gibibyte(monkeypatch: Any) -> None:
    """The largest layers first; a value that is larger than a group is one of its own."""
    model = tiny_model(batch=1)
    names = ["stem", "normal", "left", "right"]
    assert measuring._groups(names, dict.fromkeys(names, 64 << 20), model) == [tuple(names)]
    producers = {n: SimpleNamespace(id=n) for n in names}
    monkeypatch.setattr(measuring, "_operations", lambda _: {"stem": 1, "normal": 4, "left": 3, "right": 2})
    sizes = {"stem": 10 << 20, "normal": 300 << 20, "left": 200 << 20, "right": 50 << 20}
    found = measuring._groups(names, sizes, SimpleNamespace(producers=producers))
    assert found == [("normal",), ("left", "right"), ("stem",)]
    assert {*measuring._operations(model)} >= {"stem"}


def test_what_a_study_keeps_is_of_its_model_and_variants(tmp_path: Path) -> None:
    study = rtlab.Study(tiny_model(batch=1))
    study.add("fp16", target="sm86", backend="classic")
    for call, kind in (
        (lambda: study.calibrate("fp16"), VariantError), (lambda: study.measure("none"), VariantError),
        (lambda: study.run(["none"]), VariantError), (lambda: study.run(budget_s=-1), VariantError),
        (lambda: study.throughput("fp16"), RtlabError), (lambda: study.only([]), CalibrationError),
        (lambda: study.only([64]), CalibrationError), (lambda: study.only([-1]), CalibrationError),
        (lambda: study.only([True]), CalibrationError), (lambda: study.only([1.5]), CalibrationError),
    ):  # fmt: skip
        study.run(compare=False)
        with pytest.raises(kind):
            call()
    assert study.only([63, 3, 3]).chosen == (3, 63)
    assert study.only(None).chosen == ()
    first = study["fp16"]
    assert study.run(compare=False)["fp16"] is first
    assert study.run(compare=False, again=True)["fp16"] is not first
    study.read("read", study.export_layers("fp16", tmp_path / "layers.json"))
    for call in (
        lambda: study.run("read", again=True),
        lambda: study.measure("read"),
        lambda: study.calibrate("read"),
    ):
        with pytest.raises(VariantError):
            call()
