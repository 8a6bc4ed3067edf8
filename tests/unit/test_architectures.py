"""The numbers of the generated architectures behave; their sizes are in golden/test_samples.py."""

from __future__ import annotations

import numpy as np
import pytest

import shelf
from rtlab.backends.onnxruntime import OnnxRuntime
from rtlab.samples.architectures import pictures


@pytest.mark.slow(but="mobilenet|csp|bert")
@pytest.mark.parametrize("name", ["mobilenet_v2", "csp_detector", "bert", "googlenet", "resnet50"])
def test_activations_stay_standardised_on_samples_that_weights_were_not_fitted_to(name: str):
    sample = shelf.load(name)
    model, key = sample.model, sample.model.inputs[0]
    names = [n.outputs[0] for n in model.nodes if model.values[n.outputs[0]].dtype == "fp32"]
    later = sample.calibration.arrays[key][8:12]
    fresh = pictures(7, 224)[4:] if name in {"googlenet", "resnet50"} else later
    with OnnxRuntime().reading(model, names) as fetch:
        held = dict(fetch({key: fresh}))
    assert all(np.isfinite(a).all() for a in held.values())
    assert max(float(np.abs(a).max()) for a in held.values()) < 100
    for node in model.nodes:
        if node.op in {"Clip", "LayerNormalization"}:
            assert 0.3 < held[node.outputs[0]].std() < 1.3, node.id
        if node.op == "Relu" and model.producers[node.inputs[0]].op != "Add":
            assert 0.8 < held[node.inputs[0]].std() < 1.25, node.id
            assert 0.1 < held[node.inputs[0]].mean() < 0.4, node.id
