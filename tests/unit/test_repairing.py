"""A variant is repaired by the cheapest change that does, chosen on some samples and told of others."""

import pytest

import rtlab
from rtlab.core.task import Task
from rtlab.errors import CalibrationError
from tests.planted_faults import healthy


def _study(name, variant, **choice):
    sample = rtlab.samples.load(name)
    study = rtlab.Study(sample.model, data=sample.calibration, task=sample.task)
    study.add(variant, backend="onnxruntime", **choice)
    return study.run([variant], compare=False)


def test_another_scale_repairs_what_outliers_spoilt_and_nothing_is_kept_high():
    study = _study("digits_outlier", "int8", calibrator="minmax")
    found = study.repair("int8")
    assert [c.what for c in found.changes] == ["Another scale: percentile"]
    assert (found.kept_high, found.enough, found.runs) == ((), True, 1)
    assert (found.chosen, found.reported) == (450, 449)
    study.run(["int8 repaired"])
    # 899 held-out digits; the halves of the answer are a part of them each.
    assert study["int8 repaired"].score.value == pytest.approx(99.11, abs=0.12)
    assert found.before < 75
    assert found.after > 98


def test_the_scores_that_are_told_are_those_of_samples_that_had_no_part_in_the_choice():
    study = _study("digits_outlier", "int8", calibrator="minmax")
    found, task = study.repair("int8"), study.task
    other = {k: a[1::2] for k, a in task.data.arrays.items()}
    half = rtlab.CalibrationData.of(other, model=study.model)
    again = rtlab.Study(study.model, data=study.data, task=Task(half, task.labels[1::2]))
    again.add("int8", calibrator="minmax", backend="onnxruntime")
    again.add("repaired", calibrator="percentile", precision="int8", backend="onnxruntime")
    again.add("fp32", backend="onnxruntime")
    again.run()
    assert found.before == pytest.approx(again["int8"].score.value)
    assert found.after == pytest.approx(again["repaired"].score.value)
    assert found.baseline == pytest.approx(again["fp32"].score.value)


def test_a_region_beyond_fp16_is_kept_high_and_no_more():
    study = _study("fp16_overflow", "fp16")
    found = study.repair("fp16")
    assert found.kept_high == ("/contrast/ReduceSum", "/contrast/Add", "/contrast/Sqrt")
    assert found.before < 20
    assert found.after == found.baseline


def test_where_scales_do_not_help_the_fewest_of_the_guilty_are_kept_high(monkeypatch):
    study = _study("digits_outlier", "int8", calibrator="minmax")
    monkeypatch.setattr("rtlab.experiments.repairing.CALIBRATORS", ())
    monkeypatch.setattr("rtlab.experiments.repairing.cure", lambda *_: None)
    monkeypatch.setattr("rtlab.experiments.repairing._TREATMENTS", {})
    found = study.repair("int8")
    high = [p.kept_high for p in found.points]
    # Twice as many each time, until it is enough; then halves of the last step.
    assert high[:4] == [0, 1, 2, 4]
    assert found.enough
    assert len(found.kept_high) == min(p.kept_high for p in found.points if p.drop <= 0.5)
    assert len(found.kept_high) <= 6
    assert found.runs <= 12


def test_what_is_good_enough_is_left_as_it_is():
    study = _study("digits_mobilenet", "int8", calibrator="minmax")
    found = study.repair("int8", max_drop=5)
    assert (found.changes, found.runs, found.before) == ((), 0, found.after)
    assert found.words.startswith("Nothing needs a repair")
    assert "int8 repaired" not in study.variants


def test_without_a_task_nobody_can_say_what_is_good_enough():
    model, data, _ = healthy(3)
    study = rtlab.Study(model, data=data)
    study.add("int8", backend="onnxruntime")
    study.run(compare=False)
    with pytest.raises(
        CalibrationError, match=r"has no task, so that nobody can say what is good enough\. Give one"
    ):
        study.repair("int8")
