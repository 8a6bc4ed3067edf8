"""A variant is repaired by the cheapest change that does, chosen on some samples and told of others."""

import dataclasses
import math

import pytest

import rtlab
from rtlab.core.data import CalibrationData
from rtlab.core.task import Task
from rtlab.core.variant import Calibrator
from rtlab.experiments import repairing, running
from tests.planted_faults import healthy, planted

_PREDICTED = running.predict


def _study(name, variant, **choice):
    sample = rtlab.samples.load(name)
    study = rtlab.Study(sample.model, data=sample.calibration, task=sample.task)
    study.add(variant, backend="onnxruntime", **choice)
    return study.run([variant], compare=False)


def _without(monkeypatch, **tools):
    for name, instead in tools.items():
        monkeypatch.setattr(repairing, name, instead)


@pytest.mark.slow
def test_another_scale_repairs_what_outliers_spoilt_and_nothing_is_kept_high():
    study = _study("digits_outlier", "int8", calibrator="minmax")
    found = study.accuracy.repair("int8", budget_s=math.inf)
    assert [c.what for c in found.changes] == ["Another scale: percentile"]
    assert (found.kept_high, found.enough, found.runs) == ((), True, 1)
    assert (found.chosen, found.reported) == (450, 449)
    study.run(["int8 repaired"], budget_s=math.inf)
    # 899 held-out digits; the halves of the answer are a part of them each.
    assert study["int8 repaired"].score.value == pytest.approx(99.11, abs=0.12)
    assert found.before < 75
    assert found.after > 98


@pytest.mark.slow
def test_the_scores_that_are_told_are_those_of_samples_that_had_no_part_in_the_choice():
    study = _study("digits_outlier", "int8", calibrator="minmax")
    found, task = study.accuracy.repair("int8", budget_s=math.inf), study.task
    other = {k: a[1::2] for k, a in task.data.arrays.items()}
    half = rtlab.CalibrationData.of(other, model=study.model)
    again = rtlab.Study(study.model, data=study.data, task=Task(half, task.labels[1::2]))
    again.add("int8", calibrator="minmax", backend="onnxruntime")
    again.add("repaired", calibrator="percentile", precision="int8", backend="onnxruntime")
    again.add("fp32", backend="onnxruntime")
    again.run(budget_s=math.inf)
    assert found.before == pytest.approx(again["int8"].score.value)
    assert found.after == pytest.approx(again["repaired"].score.value)
    assert found.baseline == pytest.approx(again["fp32"].score.value)


@pytest.mark.slow
def test_a_region_beyond_fp16_is_kept_high_and_no_more():
    study = _study("fp16_overflow", "fp16")
    found = study.accuracy.repair("fp16", budget_s=math.inf)
    assert found.kept_high == ("/contrast/ReduceSum", "/contrast/Add", "/contrast/Sqrt")
    assert found.before < 20
    assert found.after == found.baseline


@pytest.mark.slow
def test_where_scales_do_not_help_the_fewest_of_the_guilty_are_kept_high(monkeypatch):
    study = _study("digits_outlier", "int8", calibrator="minmax")
    _without(
        monkeypatch,
        CALIBRATORS=(),
        propose_cure=lambda *_: None,
        choose_calibrators=lambda *_: {},
        _TREATMENTS={},
    )
    found = study.accuracy.repair("int8", budget_s=math.inf)
    high = [p.kept_high for p in found.points]
    # Twice as many each time, until it is enough; then halves of the last step.
    assert high[:4] == [0, 1, 2, 4]
    assert found.enough
    assert len(found.kept_high) == min(p.kept_high for p in found.points if p.drop <= 0.5)
    assert len(found.kept_high) <= 6
    assert found.runs <= 12


def test_values_are_scaled_apart_where_only_their_scales_are_wrong(monkeypatch):
    """One sample that does not belong makes some ranges too wide; all other values keep their calibrator."""
    fault = planted("sample", 4)
    study = rtlab.Study(fault.model, data=fault.data, task=Task(CalibrationData({"x": fault.fresh}, "fresh")))
    study.add("v", backend="onnxruntime", **fault.choice)
    study.run(["v"], compare=False)
    _without(monkeypatch, CALIBRATORS=(), propose_cure=lambda *_: None, _TREATMENTS={})
    found = study.accuracy.repair("v", budget_s=math.inf, max_drop=0, runs=1)
    wide = {f.value for f in study.accuracy.diagnose("v").findings if f.rule == "one-sample-range"}
    assert dict(study.state.variants["v repaired"].calibrators) == dict.fromkeys(wide, Calibrator.PERCENTILE)
    assert [c.what for c in found.changes] == [f"Another scale for {len(wide)} values: percentile"]
    before, after = study["v"].prepared.scales, study.calibration.prepare("v repaired").scales
    narrower = {v for v in before if before[v].amax != after[v].amax}
    # A percentile leaves out what is rare in a large value; in a small one the odd sample has its share.
    assert {"x"} <= narrower <= wide
    assert all(after[v].amax < before[v].amax for v in narrower)
    # On the samples that it is chosen by; 24 others cannot tell.
    assert found.points[1].score > found.points[0].score


@pytest.mark.slow
def test_nothing_is_kept_high_where_the_samples_cannot_tell_what_is_free_from_fp32(monkeypatch):
    """A hit in a hundred more than fp32 is out of reach, and a node in FP32 costs time for sure."""
    study = _study("digits_mobilenet", "int8", calibrator="minmax")
    monkeypatch.setattr(repairing._RepairState, "_propose_scales", lambda _: iter(()))
    _without(monkeypatch, _TREATMENTS={})
    found = study.accuracy.repair("int8", budget_s=math.inf, max_drop=-1)
    (as_it_is,) = found.points
    assert as_it_is.drop > -1
    assert (as_it_is.enough, found.kept_high, found.enough) == (True, (), True)
    # A drop within what was asked for needs no such word.
    for limit, words in ((found.max_drop, True), (100.0, False)):
        assert words == ("all the same" in dataclasses.replace(found, max_drop=limit).words)


def test_few_samples_conclude_nothing():
    model, data, fresh = healthy(3)
    study = rtlab.Study(model, data=data, task=Task(CalibrationData({"x": fresh[:3]}, "three")))
    study.add("int8", backend="onnxruntime", calibrator="minmax")
    study.run(compare=False)
    found = study.accuracy.repair("int8")
    assert found.told.endswith("1 sample is too few to conclude anything")
    assert found.kept_high == ()
