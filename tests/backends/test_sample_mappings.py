"""Blocks of today's models on the real builder: each node is in a layer, or the mapping says why it is in none."""

from __future__ import annotations

import pytest

import rtlab
import shelf
from rtlab import backends

needs_rtx = pytest.mark.skipif(not backends.get("tensorrt-rtx").availability().ok, reason="not installed")
#: The attentions of each, which FP16 makes one layer each.
ATTENTIONS = {
    "decoder_with_cache": 2,
    "unet_block": 2,
    "whisper_encoder": 2,
    "mixture_of_experts": 2,
    "characters": 4,
}


@needs_rtx
@pytest.mark.slow
@pytest.mark.parametrize("precision", ["fp32", "fp16", "int8"])
@pytest.mark.parametrize("name", ATTENTIONS)
def test_at_most_one_node_of_two_hundred_is_in_no_layer_for_an_unknown_reason(
    name: str, precision: str
) -> None:
    sample = shelf.load(name)
    study = rtlab.Study(sample.model, data=sample.calibration.take(16))
    study.add("it", precision=precision, target="sm86", backend="tensorrt-rtx")
    study.run(compare=False, budget_s=0)
    seen, model, mapping = study["it"].coverage, study["it"].prepared.model, study["it"].mapping
    assert seen.nodes + seen.explained >= 0.995 * seen.all_nodes
    if precision == "fp16":
        softmaxes = [n for n in model.top if n.op == "Softmax" and "router" not in n.id]
        alike = [[model.by_id[n].op for n in mapping.nodes(mapping.layers(s.id)[0])] for s in softmaxes]
        assert [2] * ATTENTIONS[name] == [ops.count("MatMul") for ops in alike]
