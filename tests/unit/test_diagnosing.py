"""Planted faults are found where they are, with their cause; what is treated is as good as it was before."""

import math

import numpy as np
import pytest

import rtlab
from net_text import written
from rtlab.core.data import CalibrationData
from rtlab.core.task import Task
from tests.planted_faults import KINDS, Fault, healthy, planted


def diagnosed(fault: Fault):
    """The diagnosis of a network with a fault, by what a notebook calls."""
    data, choice = CalibrationData({"x": fault.fresh}, "fresh pictures"), dict(fault.choice)
    study = rtlab.Study(fault.model, data=fault.data, task=Task(data, fault.labels))
    if fault.amax:
        ready = study.calibration.prepare("observed", **choice)
        scales = {value: scale.amax * fault.amax.get(value, 1) for value, scale in ready.scales.items()}
        choice = {"precision": "int8", "scales": scales}
    study.add("v", backend="onnxruntime", **choice)
    study.run(["v"], compare=False)
    return study.accuracy.diagnose("v")


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


@pytest.mark.slow(but="inf-fp16")
@pytest.mark.parametrize("precision", ["fp16", "bf16"])
@pytest.mark.parametrize("far", [-math.inf, -3.4e38])
def test_a_mask_that_hides_in_fp32_too_is_no_cause(far: float, precision: str):
    weights = {"far": np.float32(far), "w": np.eye(8, dtype=np.float32)}
    net = written(
        "x[B, 8]; mask: m = Less(x, far0); hide: h = Where(m, far, x); soft: s = Softmax(h); mul: y = MatMul(s, w); y",
        **weights, far0=np.float32(0),
    )  # fmt: skip
    study = rtlab.Study(net, data={"x": np.random.default_rng(0).standard_normal((4, 8)).astype(np.float32)})
    study.add("v", precision=precision, target="sm86", backend="classic")
    study.run()
    diagnosis = study.accuracy.diagnose("v")
    assert (diagnosis.findings, diagnosis.guilty) == ((), ())


@pytest.mark.slow
def test_a_region_that_leaves_fp16_is_pinned_as_a_whole():
    sample = rtlab.samples.load("fp16_overflow")
    study = rtlab.Study(sample.model, data=sample.calibration, task=sample.task)
    study.add("fp16", backend="onnxruntime")
    study.run(budget_s=math.inf)
    found = study.accuracy.diagnose("fp16").findings[0]
    region = tuple(f"/contrast/{op}" for op in ("ReduceSum", "Add", "Sqrt"))
    assert (found.rule, found.nodes) == ("fp16-overflow", region)
    name = study.calibration.transform("fp16", found.id)
    study.run([name], budget_s=math.inf)
    assert study["fp16"].score.value < 20
    assert study[name].score.value == pytest.approx(98.22, abs=0.12)
