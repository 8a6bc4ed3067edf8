"""Planted faults are found where they are, with their cause; what is treated is as good as it was before."""

import math

import pytest

import rtlab
from rtlab.core.data import CalibrationData
from rtlab.core.task import Task
from tests.planted_faults import KINDS, Fault, healthy, planted


def diagnosed(fault: Fault):
    """The diagnosis of a network with a fault, by what a notebook calls."""
    study, choice = _study(fault)
    study.add("v", backend="onnxruntime", **choice)
    study.run(["v"], compare=False)
    return study.diagnose("v")


def _study(fault: Fault):
    data = CalibrationData({"x": fault.fresh}, "fresh pictures")
    study = rtlab.Study(fault.model, data=fault.data, task=Task(data, fault.labels))
    if not fault.amax:
        return study, dict(fault.choice)
    ready = study.prepare("observed", **fault.choice)
    scales = {value: scale.amax * fault.amax.get(value, 1) for value, scale in ready.scales.items()}
    study.remove("observed")
    return study, {"precision": "int8", "scales": scales}


@pytest.mark.slow(but="^(sample|overflow)$")
@pytest.mark.parametrize("kind", KINDS)
def test_a_planted_fault_is_the_first_finding_in_its_place_with_its_cause(kind):
    faults = [f for seed in range(3) if (f := planted(kind, seed)) is not None][:2]
    assert len(faults) == 2
    for fault in faults:
        found = diagnosed(fault).findings[0]
        assert found.rule in fault.rules
        assert not fault.nodes or found.nodes[0] in fault.nodes
        assert not fault.which or fault.which[0] in (*found.samples, *found.channels)


@pytest.mark.slow
def test_nothing_is_blamed_in_a_healthy_network():
    model, data, fresh = healthy(3)
    fault = Fault("none", model, data, fresh, (), (), choice={"precision": "int8", "calibrator": "minmax"})
    assert diagnosed(fault).findings == ()


@pytest.mark.slow
def test_another_scale_gives_back_what_outlier_channels_took():
    sample = rtlab.samples.load("digits_outlier")
    study = rtlab.Study(sample.model, data=sample.calibration, task=sample.task)
    study.add("int8", calibrator="minmax", backend="onnxruntime")
    study.run(budget_s=math.inf)
    found = study.diagnose("int8")
    assert {f.rule for f in found.findings} == {"outlier-channels"}
    assert found.findings[0].nodes[0].endswith("/depthwise/Conv")
    name = study.treat("int8")
    study.run([name], budget_s=math.inf)
    assert study["int8"].score.value < 75
    assert study[name].score.value == pytest.approx(99.11, abs=0.2)
    assert not study.variants[name].pins


@pytest.mark.slow
def test_a_region_that_leaves_fp16_is_pinned_as_a_whole():
    sample = rtlab.samples.load("fp16_overflow")
    study = rtlab.Study(sample.model, data=sample.calibration, task=sample.task)
    study.add("fp16", backend="onnxruntime")
    study.run(budget_s=math.inf)
    found = study.diagnose("fp16").findings[0]
    assert (found.rule, found.nodes) == (
        "fp16-overflow",
        ("/contrast/ReduceSum", "/contrast/Add", "/contrast/Sqrt"),
    )
    name = study.treat("fp16", found.id)
    study.run([name], budget_s=math.inf)
    assert study["fp16"].score.value < 20
    assert study[name].score.value == pytest.approx(98.22, abs=0.12)
