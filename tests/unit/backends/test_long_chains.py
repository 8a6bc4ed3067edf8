"""Graphs of one long chain: what rules predict of them takes a time that grows with the chain alone."""

from __future__ import annotations

import rtlab
import strategies


def test_a_layer_of_a_predicted_engine_has_a_bounded_number_of_nodes() -> None:
    study = rtlab.Study(rtlab.load(strategies.chain(1200, ["Relu"])))
    study.add("a", backend="classic")
    study.run(compare=False)
    counts = [len(layer.origins) for layer in study["a"].engine.layers]
    assert sum(counts) == 1200
    assert max(counts) <= 500
    assert study["a"].coverage.nodes == 1200
