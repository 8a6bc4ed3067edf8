"""The ONNX Runtime backend against ONNX's own reference evaluator."""

from __future__ import annotations

import numpy as np
import pytest

from rtlab import backends
from rtlab.analysis.mapping import relate
from rtlab.core.data import CalibrationData
from rtlab.core.progress import Silent
from rtlab.core.protocols import BuildRequest
from rtlab.core.variant import Variant
from rtlab.errors import Cancelled, RunError
from rtlab.quantize import prepare
from rtlab.testing import ReferenceBackend, tiny_model


@pytest.fixture(scope="module")
def model():
    return tiny_model()


@pytest.fixture(scope="module")
def engine(model):
    return backends.get("onnxruntime").build(BuildRequest(model, Variant.of("fp32")), Silent())


def batch(model):
    return next(CalibrationData.random(model, samples=2, seed=3).batches(model, 2))


def test_every_intermediate_value_equals_the_reference(model, engine) -> None:
    """Accuracy is only as good as the tensors it is computed from."""
    names = [o for n in model.top for o in n.outputs]
    reference = ReferenceBackend()
    slow = reference.outputs(
        reference.build(BuildRequest(model, Variant.of()), Silent()), batch(model), names
    )
    fast = backends.get("onnxruntime").outputs(engine, batch(model), names)
    for name in names:
        np.testing.assert_allclose(fast[name], slow[name], rtol=1e-4, atol=1e-5, err_msg=name)


def test_every_layer_is_timed_in_every_run(model, engine) -> None:
    """A layer without samples would silently miss in the sum."""
    inputs = next(CalibrationData.random(model).batches(model, 1))
    profile = backends.get("onnxruntime").profile(engine, inputs, Silent(), runs=7, warmup=2)
    assert {layer.id for layer in engine.layers} == set(profile.samples)
    assert {7} == {len(s) for s in profile.samples.values()}
    assert 7 == len(profile.total)
    assert all((s >= 0).all() for s in profile.samples.values())


def test_every_node_is_in_an_optimized_layer(model, engine) -> None:
    """ONNX Runtime declares no origins, so the dataflow must tell."""
    mapping = relate(model, model, engine)
    assert () == mapping.missing
    fused = mapping.layers("stem/Conv")
    assert fused == mapping.layers("stem/Relu") == mapping.layers("stem/BatchNormalization")


def test_an_unknown_value_is_named_in_the_error(model, engine) -> None:
    """A typing error must not read like a crash of the runtime."""
    with pytest.raises(RunError, match='Cannot read value "nonsense"'):
        backends.get("onnxruntime").outputs(engine, batch(model), ["nonsense"])


def test_a_wrong_shape_is_an_error_of_the_run(model, engine) -> None:
    """And not a traceback of the vendor's."""
    with pytest.raises(RunError, match="Check the inputs"):
        backends.get("onnxruntime").outputs(engine, {"x": np.zeros((1, 9, 8, 8), np.float32)})


def test_profiling_stops_when_asked(model, engine) -> None:
    """Cancel must work in every phase."""
    progress = Silent()
    progress.cancel()
    inputs = next(CalibrationData.random(model).batches(model, 1))
    with pytest.raises(Cancelled):
        backends.get("onnxruntime").profile(engine, inputs, progress)


def test_an_fp16_graph_that_runs_in_fp32_still_maps_layer_by_layer(model) -> None:
    """ONNX Runtime renames every FP16 value; taken for unknown, one cast would seem to hold the whole model."""
    half = prepare(model, Variant.of("fp16")).model
    engine = backends.get("onnxruntime").build(BuildRequest(half, Variant.of("fp16")), Silent())
    mapping = relate(half, half, engine)
    fused = ("stem/Conv/input/Cast", "stem/Conv", "stem/BatchNormalization", "stem/Relu")
    assert fused == mapping.nodes(mapping.layers("stem/Conv")[0])
    assert len(fused) == max(len(mapping.nodes(layer.id)) for layer in engine.layers)
