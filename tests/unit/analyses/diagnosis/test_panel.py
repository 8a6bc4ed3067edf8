"""The panel of causes: what is chosen is told in full, and its samples can be shown alone."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

import rtlab
from rtlab.analyses.diagnosis import AccuracyDiagnosis
from rtlab.analyses.panel_context import PanelContext
from rtlab.analyses.panels import render_panel
from rtlab.core.data import CalibrationData
from rtlab.core.finding import Finding
from rtlab.core.task import Task
from rtlab.testing import tiny_model


@pytest.fixture(scope="module")
def study() -> rtlab.Study:
    model = tiny_model()
    noise = CalibrationData.random(model, samples=8, seed=1)
    made = rtlab.Study(model, data=CalibrationData(noise.arrays, source="own"))
    made.add("int8", precision="int8", backend="onnxruntime", target="cpu")
    return made.run(compare=False)


def finding(rule: str, node: str, **told: tuple[int, ...]) -> Finding:
    words = (f"{rule} title.", (node,), "", "A remedy.", "Evidence.")
    return Finding(f"{rule} {node}", rule, *words, fixable=False, **told)


def shown(study: rtlab.Study, *found: Finding, task: Task | None = None, **settings: str):
    node = study.model.top[0].id
    known = AccuracyDiagnosis("int8", found, (node,), (), 8, "a CPU")
    snapshot = dataclasses.replace(study.state, diagnoses={"int8": known}, task=task)
    return render_panel("diagnosis", PanelContext(snapshot, study["int8"].facts, settings=settings))


def test_the_chosen_cause_is_told_in_full_with_its_samples_and_channels(study) -> None:
    node = study.model.top[0].id
    one = finding("one-sample-range", node, samples=(3, 5))
    other = finding("outlier-channels", node, channels=(19,))
    panel = shown(study, one, other, cause=one.id)
    assert f"{one.title} {one.evidence} {one.fix}" == panel["lead"]
    (only,) = (w for w in panel["work"] if w["work"] == "only")
    assert ("", {"samples": "3,5"}) == (only["reason"], only["values"])
    titles = [c["title"] for c in panel["columns"]]
    cells = [dict(zip(titles, r["cells"], strict=True)) for r in panel["rows"]]
    assert [("3, 5", None), (None, "19")] == [(c["Samples"], c["Channels"]) for c in cells]
    assert [one.id, other.id] == [r["key"] for r in panel["rows"]]


@pytest.mark.parametrize("cause", ["all", "outlier-channels stem"])
def test_no_samples_are_offered_where_none_show_the_cause(study, cause) -> None:
    panel = shown(study, finding("outlier-channels", study.model.top[0].id, channels=(1,)), cause=cause)
    assert not [w for w in panel["work"] if w["work"] == "only"]


def test_channels_are_measured_where_the_model_computes_their_value(study) -> None:
    node = study.model.top[0]
    value, weight = (
        dataclasses.replace(finding("outlier-channels", node.id, channels=(1,)), id=v, value=v)
        for v in (node.outputs[0], node.inputs[1])
    )
    for cause, asked in ((value.id, [{"value": node.outputs[0]}]), (weight.id, []), ("all", [])):
        work = shown(study, value, weight, cause=cause)["work"]
        assert asked == [w["values"] for w in work if w["work"] == "channels"]


def test_samples_of_the_calibration_are_no_samples_of_the_task(study) -> None:
    node, data = study.model.top[0].id, study.state.user_data
    task = Task(dataclasses.replace(data, source="other"), np.zeros(8))
    calibrated = finding("one-sample-range", node, samples=(3,))
    fresh, own = finding("too-few-samples", node, samples=(3,)), Task(data, np.zeros(8))
    for found, where, possible in (
        (calibrated, task, False), (fresh, task, True), (calibrated, own, True), (calibrated, None, True),
    ):  # fmt: skip
        (only,) = (w for w in shown(study, found, task=where, cause=found.id)["work"] if w["work"] == "only")
        assert possible is (only["reason"] == ""), found.rule
