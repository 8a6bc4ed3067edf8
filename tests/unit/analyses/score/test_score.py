"""What is said of a score: the words, the samples that flipped, and what must not be concluded."""

from __future__ import annotations

import dataclasses

import numpy as np
import plotly.graph_objects as go
import pytest

import rtlab
from rtlab.analyses.panel_context import PanelContext
from rtlab.analyses.panels import render_panel
from rtlab.analyses.score import find_reference
from rtlab.analyses.score.panel import analyze_score
from rtlab.analyses.study_state import SampleSelection
from rtlab.analyses.variants.panel import analyze_variants
from rtlab.core.data import CalibrationData
from rtlab.core.facts import Score
from rtlab.core.task import Predictions, Task
from rtlab.errors import RunError
from rtlab.testing import tiny_model
from rtlab.web.page.chrome import build_chips
from rtlab.web.page.document import build_variant_document
from rtlab.web.page.table import study_html

CLASSES = 4


@pytest.fixture(scope="module")
def built() -> rtlab.Study:
    study = rtlab.Study(tiny_model())
    for name in ("fp32", "int8"):
        study.add(name, precision=name, backend="onnxruntime", target="cpu")
    return study.run(budget_s=0)


def context(built: rtlab.Study, task: Task | None, before: np.ndarray, after: np.ndarray) -> PanelContext:
    snapshot, facts = built.state, {}
    for name, outputs in (("fp32", before), ("int8", after)):
        held = Predictions()
        held.add({"y": outputs}, len(outputs))
        score = Score.of(task, held, "here") if task is not None else None
        facts[name] = dataclasses.replace(snapshot.results[name], score=score)
    made = dataclasses.replace(snapshot, results=facts, task=task)
    return PanelContext(made, facts["int8"], facts["fp32"])


def answers(*classes: int) -> np.ndarray:
    """Outputs that say these classes, by a margin that grows with the number of the sample."""
    return np.eye(CLASSES, dtype=np.float32)[list(classes)] * np.arange(1, len(classes) + 1)[:, None]


def task(labels: object, metric: object = None, **more: object) -> Task:
    return Task(CalibrationData({"x": np.zeros((1, 1))}), np.asarray(labels), metric=metric, **more)


def test_the_samples_that_flipped_are_told_with_answers(built) -> None:
    """Sample 1 was right and says class 3 now; sample 3 is right now; sample 2 is wrong in both."""
    labels = [0, 1, 2, 3, 0, 1, 2, 3]
    before, after = answers(0, 1, 0, 0, 0, 1, 2, 3), answers(0, 3, 1, 3, 0, 1, 2, 3)
    found = analyze_score(context(built, task(labels), before, after))
    assert (1, 1, 1.0) == (found.lost, found.won, found.p)
    assert [(1, "lost", "1", "1", "3"), (3, "won", "3", "0", "3")] == [
        (f.sample, f.flip, f.label, f.before, f.after) for f in found.flipped
    ]
    assert "cannot tell" == found.verdict


def test_a_drop_is_told_in_words_everywhere(built) -> None:
    """Of 900 samples 891 were right; 242 are lost: the words are the same on a chip, in JSON, in a table."""
    labels = np.zeros(900, int)
    before, after = np.zeros(900, int), np.zeros(900, int)
    before[:9], after[: 9 + 242] = 1, 1
    one = context(built, task(labels), answers(*before), answers(*after))
    told = "72.11 %, 69.1 to 74.9"
    found = analyze_score(one)
    assert (told, "worse") == (found.told, found.verdict)
    assert "26.9 points below fp32, 23.9 to 29.7" == found.compared
    assert "242 lost, 0 won; McNemar's exact test p < 1e-9" == found.flips
    chip = build_chips(one.study, baseline="fp32")[1]
    whole = f"{told}, 900 samples; 26.9 points below fp32, 23.9 to 29.7, McNemar p < 1e-9"
    assert (whole, True) == (chip["score_told"], chip["score_worse"])
    assert told in study_html(one.study)
    (row,) = [r for r in analyze_variants(one).variants if r.name == "int8"]
    assert (told, "26.9 points below fp32, 23.9 to 29.7") == (row.score, row.drop)
    crossed = build_variant_document(dataclasses.replace(one.result, errors=None), one.model)
    low, high = (pytest.approx(v, abs=0.01) for v in (69.10, 74.94))
    assert {"low": low, "high": high, "method": "Wilson"} == crossed["score"]["interval"]


def test_a_difference_that_chance_explains_is_no_drop(built) -> None:
    before, after = np.zeros(100, int), np.zeros(100, int)
    after[0] = 1
    one = context(built, task(np.zeros(100, int)), answers(*before), answers(*after))
    assert "cannot tell" == analyze_score(one).verdict
    assert build_chips(one.study, baseline="fp32")[1]["score_worse"] is False


def test_less_error_is_better(built) -> None:
    rng = np.random.default_rng(0)
    labels = rng.normal(size=(40, 3)).astype(np.float32)
    near, far = (labels + rng.normal(size=(40, 3)).astype(np.float32) * s for s in (0.1, 1.0))
    found = analyze_score(context(built, task(labels, "mse"), near, far))
    assert ("worse", None) == (found.verdict, found.p)
    assert found.difference > 0
    assert "worse" == found.flipped[0].flip
    changes = [f.change for f in found.flipped if f.flip == "worse"]
    assert changes == sorted(changes, reverse=True), "the one that lost most comes first"
    assert "better" == analyze_score(context(built, task(labels, "mse"), far, near)).verdict
    for two, red in (((near, far), True), ((far, near), False)):
        one = context(built, task(labels, "mse"), *two)
        assert red == build_chips(one.study, baseline="fp32")[1]["score_worse"]
    less, more = (Score("an error", v, "", 8, "here", higher=False).better for v in (0.5, 2.0))
    assert less > more, "calibrators are ranked by it"


def test_a_hundred_samples_that_changed_most_are_listed(built) -> None:
    labels = np.zeros((120, 3), np.float32)
    after = labels + np.linspace(0, 1, 120, dtype=np.float32)[:, None]
    found = analyze_score(context(built, task(labels, "mse"), labels, after))
    assert [*range(119, 19, -1)] == [f.sample for f in found.flipped]


def test_chosen_samples_keep_their_numbers(built) -> None:
    pictures = np.zeros((4, 5, 5))
    pictures[1] = np.tri(5)
    given = Task(CalibrationData({"x": pictures}), np.zeros(4, int), picked=True)
    one = context(built, given, answers(0, 0, 0, 0), answers(0, 1, 0, 0))
    selection = SampleSelection((7, 30, 31, 44), one.study.task.data, one.study.task)
    one = dataclasses.replace(one, study=dataclasses.replace(one.study, selection=selection))
    panel = render_panel("score", one)
    assert 30 == panel["rows"][0]["cells"][0]
    sheet = panel["figures"][0]["data"][0]["z"]
    assert np.tri(5).tolist() == [row[:5] for row in sheet[:5]]
    assert ["All samples again"] == [w["label"] for w in panel["work"]]
    assert [] == panel["settings"]


def test_answers_are_texts_where_a_vocabulary_is_given(built) -> None:
    named = task([0] * 8, vocabulary=("ant", "bee", "cat", "dog"))
    found = analyze_score(context(built, named, answers(*[0] * 8), answers(1, *[0] * 7)))
    assert ("ant", "ant", "bee") == (found.flipped[0].label, found.flipped[0].before, found.flipped[0].after)


def test_hits_of_a_metric_of_ones_own_are_right_or_wrong(built) -> None:
    near = rtlab.Metric("near", lambda y, t: np.abs(y[:, 0] - t) < 1, unit="%", link="share")
    before, after = np.zeros((9, 1), np.float32), np.zeros((9, 1), np.float32)
    after[4] = 7
    found = analyze_score(context(built, task(np.zeros(9), near), before, after))
    assert [(4, "lost", "right", "wrong")] == [(f.sample, f.flip, f.before, f.after) for f in found.flipped]
    assert (1, 0) == (found.lost, found.won)


def test_too_few_samples_are_told(built) -> None:
    found = analyze_score(context(built, task([0] * 7), answers(*[0] * 7), answers(*[1] * 7)))
    assert "cannot tell" == found.verdict
    assert "7 samples are too few" in found.notes[0]


def test_a_baseline_that_is_broken_itself_is_told(built) -> None:
    before = answers(*[0] * 9)
    before[2:5] = np.nan
    found = analyze_score(context(built, task([0] * 9), before, answers(*[0] * 9)))
    assert any("NaN in 3 of 9 samples" in n for n in found.notes)
    assert "NaN" == found.flipped[0].before


def test_a_metric_of_all_samples_has_a_difference_without_interval_and_no_flips(built) -> None:
    labels = np.zeros(60, int)
    own = task(labels, lambda y, t: float((y.argmax(axis=1) == t).mean()), unit="share")
    found = analyze_score(context(built, own, answers(*[0] * 60), answers(*[1] * 30, *[0] * 30)))
    assert -0.5 == found.difference
    assert (None, ()) == (found.difference_interval, found.flipped)


@pytest.mark.slow
def test_what_is_missing_is_told(built) -> None:
    with pytest.raises(RunError, match="no task"):
        analyze_score(context(built, None, np.zeros(1), np.zeros(1)))
    model = tiny_model()
    study = rtlab.Study(model, task=Task(CalibrationData.random(model, samples=4), np.zeros(4)))
    study.add("fp32", backend="onnxruntime", target="cpu")
    study.run(budget_s=0)
    with pytest.raises(RunError, match="only compiled"):
        study.ask("score", variant="fp32")


def test_the_first_other_variant_in_fp32_is_compared_with_when_nobody_chose(built) -> None:
    one = context(built, task([0] * 8), answers(*[0] * 8), answers(*[1] * 8))
    assert one.study.results["fp32"] is find_reference(one.study, one.result)
    assert find_reference(one.study, one.study.results["fp32"]) is None
    alone = analyze_score(PanelContext(one.study, one.study.results["fp32"]))
    assert (None, ()) == (alone.compared, alone.flipped)


def test_samples_are_pictures_where_the_model_sees_any(built) -> None:
    labels, before, after = np.zeros(20, int), answers(*[0] * 20), answers(*[1] * 20)
    pictures = np.random.default_rng(0).normal(size=(20, 6, 6))
    for given in (pictures[:, None], np.stack([pictures] * 3, 1), np.stack([pictures] * 3, -1), pictures):
        data = CalibrationData({"x": given})
        panel = render_panel("score", context(built, Task(data, labels), before, after))
        (drawn,) = panel["figures"]
        sheet, dots = drawn["data"]
        tile = np.array([row[:6] for row in sheet["z"][:6]], float)
        low, high = pictures[0].min(), pictures[0].max()
        assert tile == pytest.approx((pictures[0] - low) / (high - low), abs=0.006)
        assert 16 * 36 == sum(v is not None for row in sheet["z"] for v in row)
        assert ["0 → 1"] * 16 == [a["text"] for a in drawn["layout"]["annotations"]]
        assert 16 == len(dots["hovertext"])
        go.Figure(drawn["data"], drawn["layout"])


def test_samples_that_are_no_pictures_are_told_in_words(built) -> None:
    labels, before, after = np.zeros(8, int), answers(*[0] * 8), answers(*[1] * 8)
    for inputs, told in (
        (np.tile(np.array([[3, 1, 2]]), (8, 1)), "3 1 2"),
        (np.tile(np.array([[0.5, -2.0]]), (8, 1)), "0.5, −2"),
        (np.tile(np.linspace(-1, 3, 64), (8, 1)), "64 numbers, −1 to 3"),
    ):
        panel = render_panel(
            "score", context(built, Task(CalibrationData({"x": inputs}), labels), before, after)
        )
        assert told == panel["rows"][0]["cells"][1]
        assert [] == panel["figures"]


def test_samples_can_be_written(built) -> None:
    labels = [0, 1, 2, 3, 0, 1, 2, 3]
    one = context(built, task(labels), answers(0, 1, 0, 0, 0, 1, 2, 3), answers(0, 3, 1, 3, 0, 1, 2, 3))
    for settings, label, samples in (
        ({}, "Show only these 2 samples", "1,3"),
        ({"samples": "3"}, "Show only this sample", "3"),
        ({"samples": "0, 5-7"}, "Show only these 4 samples", "0,5,6,7"),
    ):
        (work,) = render_panel("score", dataclasses.replace(one, settings=settings))["work"]
        assert (label, samples, "") == (work["label"], work["values"]["samples"], work["reason"])
    for samples in ("5-x", "7-5"):
        (work,) = render_panel("score", dataclasses.replace(one, settings={"samples": samples}))["work"]
        assert "Write " in work["reason"]
