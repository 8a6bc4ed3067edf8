"""Every node of the real architectures is accounted for, on every compiler that is here."""

from __future__ import annotations

import pytest

import rtlab
import shelf
from rtlab import backends

TARGETS = {"tensorrt-rtx": "sm86", "onnxruntime": "cpu"}


@pytest.fixture(params=["digits_inception", "googlenet", "resnet50"], scope="module")
def sample(request):
    return shelf.load(request.param)


@pytest.mark.slow
@pytest.mark.parametrize("backend", TARGETS)
@pytest.mark.parametrize("precision", ["fp32", "fp16", "int8"])
def test_every_node_is_in_a_layer_or_has_a_reason(sample, backend: str, precision: str) -> None:
    """At most one node in two hundred may be unknown; none is lost or counted on both sides."""
    here = backends.get(backend).availability()
    if not here.ok:
        pytest.skip(here.reason)
    study = rtlab.Study(sample.model, data=sample.calibration.take(2))
    study.add("it", precision=precision, calibrator="minmax", target=TARGETS[backend], backend=backend)
    study.run(compare=False)
    mapping = study["it"].mapping
    placed = {p.node for p in mapping.pairs}
    missing = {m.node for m in mapping.missing}
    assert {n.id for n in sample.model.nodes} == placed | missing
    assert set() == placed & missing
    assert sum(m.reason == "unknown" for m in mapping.missing) <= len(sample.model.nodes) / 200
    layers = {layer.id for layer in study["it"].engine.layers}
    assert {p.layer for p in mapping.pairs} <= layers
    if precision != "fp32" and backend == "tensorrt-rtx":
        assert precision in {layer.precision for layer in study["it"].engine.layers}


@pytest.mark.slow
def test_steps_that_only_order_streams_are_not_counted_as_layers() -> None:
    """GoogLeNet runs on several streams; signals and waits between them would outnumber its layers."""
    here = backends.get("tensorrt-rtx").availability()
    if not here.ok:
        pytest.skip(here.reason)
    study = rtlab.Study(shelf.load("googlenet").model)
    study.add("fp32", target="sm86")
    engine = study.run(compare=False)["fp32"].engine
    assert len({layer.stream for layer in engine.layers}) > 1
    silent = [layer for layer in engine.layers if not (layer.inputs or layer.outputs or layer.origins)]
    assert len(silent) == engine.control_count
    assert engine.layer_count < len(study.model.top)
