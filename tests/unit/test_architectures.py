"""The numbers of the generated architectures behave; their sizes are in golden/test_samples.py."""

from __future__ import annotations

import dataclasses
import functools

import numpy as np
import pytest

import shelf
from rtlab import samples
from rtlab.backends.onnxruntime import OnnxRuntime
from rtlab.core.progress import Silent
from rtlab.core.variant import Calibrator, Variant
from rtlab.quantize import Collector, prepare, quantizable

NAMES = ("mobilenet_v2", "csp_detector", "bert")


@functools.cache
def load(name: str) -> samples.Sample:
    sample = shelf.load(name)
    return dataclasses.replace(sample, calibration=sample.calibration.take(12))


def values(name: str, names: list[str], part: slice) -> dict[str, np.ndarray]:
    sample = load(name)
    key = sample.model.inputs[0]
    with OnnxRuntime().reading(sample.model, names) as fetch:
        return dict(fetch({key: sample.calibration.arrays[key][part]}))


@pytest.mark.parametrize("name", NAMES)
def test_activations_stay_standardised_on_samples_that_weights_were_not_fitted_to(name: str):
    """Activations that explode or die with depth would make every precision look broken, or none."""
    model = load(name).model
    names = [n.outputs[0] for n in model.nodes if model.values[n.outputs[0]].dtype == "fp32"]
    held = values(name, names, slice(8, 12))
    assert all(np.isfinite(a).all() for a in held.values())
    assert max(float(np.abs(a).max()) for a in held.values()) < 100
    for node in model.nodes:
        if node.op in {"Clip", "LayerNormalization"}:
            assert 0.3 < held[node.outputs[0]].std() < 1.3, node.id


@pytest.mark.slow
@pytest.mark.parametrize(("name", "least"), [("mobilenet_v2", 12), ("bert", 15)])
def test_int8_leaves_most_of_the_signal(name: str, least: float):
    sample = load(name)
    model, names = sample.model, quantizable(sample.model)
    collector = Collector(names)
    with OnnxRuntime().reading(model, names) as fetch:
        collector.run(sample.calibration.take(8).batches(model, 4), fetch, Silent())
    ready = prepare(model, Variant.of("int8", calibrator=Calibrator.MSE), collector.ranges)
    key, out = model.inputs[0], model.outputs[0]
    fresh = {key: sample.calibration.arrays[key][8:]}
    with OnnxRuntime().reading(ready.emulation, [out]) as fetch:
        got = fetch(fresh)[out]
    want = values(name, [out], slice(8, 12))[out].astype(np.float64)
    assert 10 * np.log10(np.square(want).sum() / np.square(want - got).sum()) > least
