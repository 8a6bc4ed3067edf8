"""A hundred faults planted at random places of random networks: the right place and cause; a cure that harms."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import rtlab
from rtlab.core.data import CalibrationData
from rtlab.core.model import wrap
from rtlab.core.task import Task
from tests.planted_faults import KINDS, Fault, healthy, planted, quantized

if TYPE_CHECKING:
    from conftest import Care

#: What is asked of the whole suite: right place and cause, and healthy nodes that are blamed.
RIGHT, BLAMED = 0.95, 0.01


def _diagnosed(fault: Fault):
    data = CalibrationData({"x": fault.fresh}, "fresh pictures")
    study = rtlab.Study(fault.model, data=fault.data, task=Task(data, fault.labels))
    choice = dict(fault.choice)
    if fault.amax:
        ready = study.calibration.prepare("observed", **fault.choice)
        scales = {value: scale.amax * fault.amax.get(value, 1) for value, scale in ready.scales.items()}
        choice = {"precision": "int8", "scales": scales}
        study.remove("observed")
    study.add("v", backend="onnxruntime", **choice)
    return study.accuracy.diagnose("v")


@pytest.mark.timeout(1200)
def test_planted_faults_are_found_in_their_place_with_their_cause(care: Care) -> None:
    wanted = care.size(100, 6)
    found, seed = {}, 0
    while len(found) < wanted:
        for kind in KINDS:
            fault = planted(kind, seed)
            if fault is None or len(found) == wanted:
                continue
            told = _diagnosed(fault).findings
            found[kind, seed] = (
                bool(told)
                and told[0].rule in fault.rules
                and (not fault.nodes or told[0].nodes[0] in fault.nodes)
            )
        seed += 1
    assert sum(found.values()) >= RIGHT * wanted, [k for k, right in found.items() if not right]


def test_healthy_nodes_of_healthy_networks_are_not_blamed(care: Care) -> None:
    nodes = blamed = 0
    for seed in range(care.size(40, 2)):
        model, data, fresh = healthy(seed)
        theirs = wrap(quantized(model, data)[0], name="quantized")
        choice = {"precision": "int8", "calibrator": "minmax"}
        for one in (model, theirs):
            told = _diagnosed(Fault("none", one, data, fresh, (), (), choice=choice))
            nodes += len(model.top)
            blamed += len({n for f in told.findings for n in f.nodes})
    assert blamed <= max(BLAMED * nodes, care.smoke)
