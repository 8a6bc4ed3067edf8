"""Memory plans of engines that are built here, against what the builder itself reports."""

from __future__ import annotations

import functools

import pytest

import rtlab
import shelf
from rtlab import backends
from rtlab.analyses.memory.plan import MemoryPlan, plan_engine_memory
from rtlab.api import Result

#: TensorRT-RTX reserves this much for each slot of a library kernel whose needs are known on the GPU only.
RESERVATION = 8_192_000
TARGETS = {"tensorrt-rtx": "sm86", "onnxruntime": "cpu"}
SAMPLES = ("digits_inception", "digits_vit", "digits_qat", "dynamic_shapes", "control_flow", "hostile_names")
LARGE = ("googlenet", "resnet50", "mobilenet_v2", "bert")


@functools.lru_cache(1)
def built(name: str, backend: str) -> Result:
    here = backends.get(backend).availability()
    if not here.ok:
        pytest.skip(here.reason)
    study = rtlab.Study(shelf.load(name).model)
    study.add("it", target=TARGETS[backend], backend=backend)
    study.run(compare=False)
    return study["it"]


def planned(name: str, backend: str, batch: int | None = None) -> MemoryPlan:
    result = built(name, backend)
    return plan_engine_memory(result.engine, result.prepared.model, batch=batch)


@pytest.mark.slow
@pytest.mark.parametrize("batch", [None, 8])
@pytest.mark.parametrize("backend", TARGETS)
@pytest.mark.parametrize("name", [*SAMPLES, *LARGE])
def test_plans_of_the_samples_reach_their_bound(name: str, backend: str, batch: int | None) -> None:
    found = planned(name, backend, batch)
    assert found.overhead <= 0.05
    assert not found.unsized
    assert found.bound <= found.naive


@pytest.mark.parametrize("name", ["dynamic_shapes", "control_flow", "hostile_names"])
def test_small_engines_are_planned_to_the_byte_as_the_builder_did(name: str) -> None:
    found = planned(name, "tensorrt-rtx")
    assert found.peak == (found.reported or 0) - RESERVATION


@pytest.mark.slow
def test_streams_that_run_side_by_side_never_need_less() -> None:
    found = built("googlenet", "tensorrt-rtx")
    model = found.prepared.model
    together, alone = (
        plan_engine_memory(found.engine, model),
        plan_engine_memory(found.engine, model, one_stream=True),
    )
    assert together.streams > 1
    assert together.bound >= alone.bound
