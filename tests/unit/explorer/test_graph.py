"""The two linked graphs without the rest of the Explorer."""

from __future__ import annotations

import pytest

from rtlab import Study
from rtlab.documents.payload import decode
from rtlab.testing import tiny_model


@pytest.fixture(scope="module")
def study():
    made = Study(tiny_model())
    made.add("fp32", target="cpu")
    return made.run()


def test_a_graph_carries_both_sides_and_what_joins_them(study) -> None:
    graph = study.graph("fp32")
    nodes = [b["id"] for b in decode(graph.source)["boxes"] if b["kind"] == "node"]
    assert [n.id for n in study.model.top] == nodes
    layers = [b for b in decode(graph.engine)["graph"]["boxes"] if b["kind"] == "layer"]
    assert len(study["fp32"].engine.layers) == len(layers)


def test_two_variants_stand_beside_the_model(study) -> None:
    study.add("fp16", target="cpu")
    study.run(compare=False)
    graph = study.graph("fp32", "fp16")
    assert ("fp32", "fp16") == (decode(graph.engine)["variant"], decode(graph.other)["variant"])
    graph.select("stem/Relu")
    assert study["fp32"].mapping.layers("stem/Relu") == graph.state.layers
    assert study["fp16"].mapping.layers("stem/Relu") == graph.state.others
    assert ("node", "layer", "other") == graph.state.panes
    assert b"" == study.graph("fp32").other
