"""The two linked graphs without the rest of the Explorer."""

from __future__ import annotations

import pytest

from rtlab import Study
from rtlab.documents.payload import decode
from rtlab.errors import ModelError, VariantError
from rtlab.testing import tiny_model


@pytest.fixture(scope="module")
def study():
    made = Study(tiny_model())
    made.add("fp32", target="cpu")
    return made.run()


def test_a_graph_carries_both_sides_and_what_joins_them(study) -> None:
    """Nothing else is needed to draw and to link."""
    graph = study.graph("fp32")
    assert [n.id for n in study.model.top] == [
        b["id"] for b in decode(graph.source)["boxes"] if b["kind"] == "node"
    ]
    assert len(study["fp32"].engine.layers) == sum(
        b["kind"] == "layer" for b in decode(graph.engine)["graph"]["boxes"]
    )


def test_a_selected_node_lights_up_its_layers(study) -> None:
    """The same rule as in the Explorer."""
    graph = study.graph("fp32")
    graph.select("stem/Relu")
    assert study["fp32"].mapping.layers("stem/Relu") == graph.state.layers
    with pytest.raises(ModelError, match="no node has this id"):
        graph.select("nonsense")


def test_a_variant_that_is_not_built_cannot_be_drawn(study) -> None:
    """And the message says what to do."""
    with pytest.raises(VariantError, match="is not built"):
        study.graph("fp16")


def test_two_variants_stand_beside_the_model(study) -> None:
    """Two engines compare the same way as a model and its engine."""
    study.add("fp16", target="cpu")
    study.run(compare=False)
    graph = study.graph("fp32", "fp16")
    assert ("fp32", "fp16") == (decode(graph.engine)["variant"], decode(graph.other)["variant"])
    graph.select("stem/Relu")
    assert study["fp16"].mapping.layers("stem/Relu") == graph.state.others
    assert ("node", "layer", "other") == graph.state.panes
    assert b"" == study.graph("fp32").other
