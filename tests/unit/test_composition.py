"""What a study is composed of, and what stands in its namespaces alone."""

from __future__ import annotations

import numpy as np
import pytest

from rtlab import CalibrationData, Study, Task
from rtlab.errors import CalibrationError, RtlabError, VariantError
from rtlab.testing import tiny_model
from sessions import computed

NAMESPACES = {"accuracy", "fusion", "tuning", "calibration"}


@pytest.fixture(scope="module")
def study() -> Study:
    model = tiny_model(batch=1)
    made = Study(model, data=CalibrationData.random(model, samples=4))
    made.add("fp32", target="cpu", backend="onnxruntime")
    made.add("int8", target="cpu", backend="onnxruntime", calibrator="minmax")
    return made.run(["fp32"], budget_s=0)


def test_few_members_and_four_namespaces_stand_side_by_side(study) -> None:
    members = {n for n in dir(study) if not n.startswith("_")}
    assert members >= NAMESPACES
    # With what a study keeps and shows of itself as a whole: save, open and frame.
    assert len(members - NAMESPACES) <= 31
    assert len(Study.__mro__) <= 4


def test_a_study_maps_names_to_results_of_what_is_built(study) -> None:
    assert ["fp32"] == [*study] == [*study.keys()] == [*dict(study)]
    assert ("int8" in study, len(study), study.get("int8"), study.get("int8", 3)) == (False, 1, None, 3)
    assert study["fp32"] is study.get("fp32") is next(iter(study.values())) is dict(study.items())["fp32"]
    assert ["fp32", "int8"] == [*study.state.variants]


def test_a_part_runs_on_what_the_whole_computes(study) -> None:
    part = study.cut(["left/Conv"])
    (name,) = part.model.inputs
    feeds = list(study.data.batches(study.model, 1))
    expected = np.stack([computed(study.model, feed, (name,))[name] for feed in feeds])
    np.testing.assert_allclose(part.data.arrays[name], expected, rtol=1e-5, atol=1e-6)
    assert part.add("fp32", target="cpu", backend="onnxruntime").name == "fp32"
    assert part.run()["fp32"].timing is not None
    with pytest.raises(RtlabError):
        study.cut(["nothing"])


def test_a_score_needs_a_task_and_measures_what_is_not_built(study) -> None:
    with pytest.raises(CalibrationError, match="has no task"):
        study.accuracy.score("int8")
    scored = Study(study.model, data=study.data, task=Task(study.data))
    scored.add("int8", target="cpu", backend="onnxruntime", calibrator="minmax")
    assert scored.accuracy.score("int8") is scored["int8"].score
    with pytest.raises(VariantError):
        scored.accuracy.score("nothing")


def test_the_scales_of_a_calibrator_are_those_of_a_variant(study) -> None:
    prepared = study.calibration.prepare("int8")
    scales = study.calibration.scales("minmax")
    assert prepared.scales.keys() <= scales.keys()
    assert all(scale.amax == scales[value].amax for value, scale in prepared.scales.items())


def test_a_report_is_of_the_kind_that_its_suffix_says(study, tmp_path) -> None:
    assert study.report(tmp_path / "r.html").read_text(encoding="utf-8").startswith("<!")
    assert study.report(tmp_path / "r.md").read_text(encoding="utf-8").startswith("#")
    assert study.report(tmp_path / "r.json").read_text(encoding="utf-8").startswith("{")
    with pytest.raises(RtlabError, match="suffix"):
        study.report(tmp_path / "r.pdf")
