"""Pruned models through the real compiler and the real runner."""

from __future__ import annotations

import numpy as np
import pytest

from rtlab import backends, samples
from rtlab.core.progress import Silent
from rtlab.core.protocols import BuildRequest, Limits
from rtlab.core.variant import Variant
from rtlab.quantize import prepare
from rtlab.quantize.sparsity import find, prune, select_prunable_weights
from rtlab.relation.relate import relate

here = backends.get("tensorrt-rtx").availability()


@pytest.mark.skipif(not here.ok, reason=here.reason)
@pytest.mark.parametrize("precision", ["fp32", "fp16"])
def test_a_pruned_model_builds_with_sparse_weights(precision) -> None:
    source = samples.load("digits_inception").model
    pruned = prune(source, select_prunable_weights(source, ["*"]))
    variant = Variant.of(precision, target="sm86", sparsity=True)
    prepared = prepare(pruned, variant).model
    engine = backends.get("tensorrt-rtx").build(BuildRequest(prepared, variant, Limits()), Silent())

    assert "sm86" == str(engine.target)
    mapping = relate(source, prepared, engine)
    assert all(mapping.layers(w.node) for w in find(source))


@pytest.mark.slow
def test_pruning_costs_accuracy_that_is_seen() -> None:
    sample = samples.load("digits_inception")
    runner = backends.get("onnxruntime")
    scores = []
    for model in (sample.model, prune(sample.model, select_prunable_weights(sample.model, ["*"]))):
        engine = runner.build(BuildRequest(model, Variant.of("fp32"), Limits()), Silent())
        output = model.outputs[0]
        parts = [
            runner.outputs(engine, batch, (output,))[output] for batch in sample.task.data.batches(model, 64)
        ]
        scores.append(sample.task.score(np.concatenate(parts)))
        runner.release(engine)

    before, after = scores
    assert 98 < before
    assert 50 < after < before
