"""Conformance of ONNX Runtime's execution providers: each that the installed build has, and the CPU's as one of them.

The CPU's own stands in for providers that run nodes one by one, so that their path is walked wherever tests run.
"""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from one_precision import int8
from rtlab import backends, samples
from rtlab.analyses.timing.times import summarize_profile
from rtlab.backends import placement, providers
from rtlab.backends.onnxruntime import OnnxRuntime
from rtlab.backends.workers.inference import RECORD_PLACEMENT, SessionSpec, create_session
from rtlab.core.progress import Silent
from rtlab.core.protocols import BuildRequest
from rtlab.core.scale import Scale
from rtlab.core.variant import Target, Variant
from rtlab.errors import BuildError, Unavailable
from rtlab.quantize import quantizable
from rtlab.relation.relate import relate
from rtlab.testing import tiny_model

STAND_IN = dataclasses.replace(providers.CPU, title="Stand-in")


@pytest.fixture(scope="module", params=[STAND_IN, *providers.list_available()], ids=lambda p: p.title)
def runner(request):
    return OnnxRuntime(request.param)


@pytest.fixture(scope="module")
def sample():
    return samples.load("digits_inception")


@pytest.fixture(scope="module")
def variant(runner):
    return Variant.of(target=runner.capabilities().targets[0])


@pytest.fixture(scope="module")
def engine(runner, sample, variant):
    return runner.build(BuildRequest(sample.model, variant), Silent())


@pytest.fixture(scope="module")
def batch(sample):
    return next(sample.calibration.batches(sample.model, 1))


def test_every_node_is_in_a_layer_with_its_provider(runner, sample, engine) -> None:
    assert () == relate(sample.model, sample.model, engine).missing
    told = {layer.attributes.get("provider") for layer in engine.layers}
    assert runner.provider.name in told
    assert told <= {runner.provider.name, "CPUExecutionProvider", None}
    assert any(note.startswith(f"{runner.provider.title} runs ") for note in engine.notes)


@pytest.mark.slow
def test_times_say_where_they_were_measured(runner, engine, batch) -> None:
    profile = runner.profile(engine, batch, Silent(), runs=4, warmup=1)
    assert f"ONNX Runtime {providers.version()} {runner.provider.name}" == profile.source
    assert engine.target.name.upper() == profile.processor
    assert profile.device
    assert 4 == profile.runs
    assert 4 <= len(profile.total)
    assert {layer.id for layer in engine.layers} >= set(profile.samples)
    if runner.provider.waits:
        assert {4} == {len(s) for s in profile.samples.values()}
    assert runner.provider.name in summarize_profile(profile, engine).origin


@pytest.mark.slow
def test_values_are_those_of_the_cpu(runner, sample, engine, batch) -> None:
    usual = backends.get("onnxruntime")
    plain = usual.build(BuildRequest(sample.model, Variant.of()), Silent())
    names = runner.unfused(engine, batch, Silent())
    expected, found = usual.outputs(plain, batch, names), runner.outputs(engine, batch, names)
    assert set(sample.model.outputs) <= set(names)
    for name in names:
        scale = np.abs(expected[name]).max()
        np.testing.assert_allclose(expected[name], found[name], atol=1e-2 * scale, rtol=0, err_msg=name)
    runner.release(engine)


@pytest.mark.slow
def test_values_of_a_quantized_network_are_read_only_where_reading_changes_nothing(runner, variant) -> None:
    """Outputs beside all inner values must be those without them; else only what is written anyway is offered."""
    model = tiny_model()
    quantized = int8(model, {v: Scale(3.0) for v in quantizable(model)})
    x = {n: np.full(quantized.input_shape(n), 0.5, np.float32) for n in quantized.inputs}
    built = runner.build(BuildRequest(quantized, variant), Silent())
    alone, names = runner.outputs(built, x), runner.unfused(built, x, Silent())
    beside = runner.outputs(built, x, names)
    for name, value in alone.items():
        np.testing.assert_allclose(value, beside[name], atol=1e-2 * np.abs(value).max(), rtol=0)


def test_a_provider_that_takes_no_node_is_refused(sample) -> None:
    if "AzureExecutionProvider" not in providers.built_in():
        pytest.skip("this build has no provider that takes no nodes")
    request = BuildRequest(sample.model, Variant.of(target="gpu"))
    with pytest.raises(BuildError, match=f" {len(sample.model.top)} nodes"):
        backends.get("onnxruntime:azure").build(request, Silent())


def test_a_plug_in_is_opened_by_its_device(sample, monkeypatch) -> None:
    """The CPU's own device stands in for that of a plug-in, which ONNX Runtime takes in the same way."""
    monkeypatch.setattr(providers, "built_in", lambda: ())
    monkeypatch.setattr(providers, "plug_ins", lambda: {STAND_IN.name: ""})
    spec = SessionSpec(
        sample.model.bytes(), "", 1, provider=STAND_IN, target=Target("cpu"), entries=(RECORD_PLACEMENT,)
    )
    session = create_session(spec)
    assert {STAND_IN.name} == {part.provider for part in placement.list_partitions(session)}
    with pytest.raises(Unavailable, match="no such device here"):
        create_session(dataclasses.replace(spec, target=Target("npu")))
