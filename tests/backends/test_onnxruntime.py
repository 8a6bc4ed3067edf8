"""The ONNX Runtime backend against ONNX's own reference evaluator."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import helper, numpy_helper

import strategies
from rtlab import backends
from rtlab.core.data import CalibrationData
from rtlab.core.model import load
from rtlab.core.progress import Silent
from rtlab.core.protocols import BuildRequest
from rtlab.core.scale import Scale
from rtlab.core.variant import Variant
from rtlab.errors import Cancelled
from rtlab.quantize import int8, prepare, quantizable
from rtlab.relation.relate import relate
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
    assert 7 == profile.runs
    assert 7 <= len(profile.total)
    assert all((s >= 0).all() for s in profile.samples.values())


def test_every_node_is_in_an_optimized_layer(model, engine) -> None:
    """ONNX Runtime declares no origins, so the dataflow must tell."""
    mapping = relate(model, model, engine)
    assert () == mapping.missing
    fused = mapping.layers("stem/Conv")
    assert fused == mapping.layers("stem/Relu") == mapping.layers("stem/BatchNormalization")


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


@pytest.mark.parametrize("precision", backends.get("onnxruntime").capabilities().precisions, ids=str)
def test_every_precision_that_is_offered_builds_at_every_level_and_runs(precision) -> None:
    """At level "all", ONNX Runtime makes of an FP8 product an INT8 kernel that then refuses its input."""
    rng = np.random.default_rng(0)
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["m"], name="first"),
        helper.make_node("Relu", ["m"], ["r"], name="relu"),
        helper.make_node("MatMul", ["r", "w"], ["y"], name="second"),
    ]
    weight = numpy_helper.from_array(rng.standard_normal((32, 32)).astype(np.float32) / 6, "w")
    net = load(strategies.of_nodes(nodes, weights=[weight], shape=(4, 32)))
    variant = Variant.of(precision)
    ready = prepare(net, variant, scales={v: Scale(4.0) for v in quantizable(net)})
    backend, x = backends.get("onnxruntime"), rng.standard_normal((4, 32)).astype(np.float32)
    plain = backend.build(BuildRequest(net, Variant.of("fp32")), Silent())
    want = backend.outputs(plain, {"x": x})["y"]
    for model, level in ((ready.model, "all"), (ready.model, "basic"), (ready.emulation, "basic")):
        engine = backend.build(BuildRequest(model, variant, level=level), Silent())
        assert 2 == backend.profile(engine, {"x": x}, Silent(), runs=2, warmup=0).runs
        assert 0.5 > np.abs(want - backend.outputs(engine, {"x": x})["y"]).max()


def test_reading_gives_the_values_of_the_model(model, engine) -> None:
    """Calibration reads through a leaner session, which must compute the same network."""
    names = [*model.inputs, *(o for n in model.top for o in n.outputs)]
    expected = backends.get("onnxruntime").outputs(engine, batch(model), names[1:])
    before = model.bytes()
    with backends.get("onnxruntime").reading(model, names) as fetch:
        found = fetch(batch(model))
    assert before == model.bytes()
    assert set(names[1:]) == set(found)
    for name, array in found.items():
        np.testing.assert_allclose(expected[name], array, rtol=1e-4, atol=1e-5, err_msg=name)


def test_reading_a_quantized_model_rounds_as_the_comparison_does(model) -> None:
    """Fused integer kernels round otherwise, by as much as quantization itself."""
    quantized = int8(model, {v: Scale(3.0) for v in quantizable(model)})
    runner = backends.get("onnxruntime")
    names = [o for n in quantized.top for o in n.outputs]
    engine = runner.build(BuildRequest(quantized, Variant.of("fp32"), level="basic"), Silent())
    expected = runner.outputs(engine, batch(model), names)
    with runner.reading(quantized, names) as fetch:
        found = fetch(batch(model))
    for name in names:
        np.testing.assert_array_equal(expected[name], found[name], err_msg=name)
