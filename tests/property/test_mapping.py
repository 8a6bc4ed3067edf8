"""Laws of the join between nodes, layers and times, over whatever a compiler may say."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

import strategies
from rtlab.analysis.mapping import relate
from rtlab.analysis.timing import on_nodes, timing
from rtlab.backends.onnxruntime import OnnxRuntime
from rtlab.core.progress import Silent
from rtlab.core.protocols import BuildRequest
from rtlab.core.variant import Variant


@st.composite
def built(draw: st.DrawFn, **options: object) -> tuple:
    """A model with an engine that a compiler could have made of it."""
    model = draw(strategies.models(bodies=True))
    return model, draw(strategies.engines(model, **options))


def check_partition(model, engine, mapping) -> None:
    """The law of every mapping: each node is in layers or is missing with a reason, and layers are real."""
    accounted = Counter({p.node for p in mapping.pairs}) + Counter(m.node for m in mapping.missing)

    assert Counter(n.id for n in model.nodes) == accounted
    assert {p.layer for p in mapping.pairs} <= {layer.id for layer in engine.layers}
    assert len(mapping.pairs) == len({(p.node, p.layer) for p in mapping.pairs})
    assert [] == [m for m in mapping.missing if not m.text]


@given(built())
def test_every_node_is_in_layers_or_has_one_reason(case):
    """A node that disappears from the picture without a word is the worst that a viewer can do."""
    model, engine = case
    check_partition(model, engine, relate(model, model, engine))


@given(built())
def test_what_the_compiler_declares_is_shown_as_declared(case):
    """Evidence of our own never overrules the compiler's."""
    model, engine = case
    mapping = relate(model, model, engine)
    declared = {(p.node, p.layer) for p in mapping.pairs if p.evidence == "declared"}

    assert {(node, layer.id) for layer in engine.layers for node in layer.origins} == declared


@given(built(declare=False))
def test_without_labels_nothing_is_called_declared(case):
    """A compiler that says nothing leaves inference, and inference is shown as such."""
    model, engine = case
    mapping = relate(model, model, engine)
    check_partition(model, engine, mapping)

    assert "declared" not in {p.evidence for p in mapping.pairs}


@given(built())
def test_layers_of_a_node_come_in_execution_order(case):
    """The side panel lists them in the order in which they run."""
    model, engine = case
    mapping = relate(model, model, engine)
    order = {layer.id: layer.index for layer in engine.layers}
    runs = [[order[i] for i in mapping.layers(n.id)] for n in model.nodes]

    assert [sorted(indices) for indices in runs] == runs


@given(strategies.models())
def test_a_real_engine_accounts_for_every_node(model):
    """ONNX Runtime's optimizer fuses, folds and renames for real."""
    engine = OnnxRuntime(threads=1).build(BuildRequest(model, Variant.of()), Silent())
    mapping = relate(model, model, engine)
    check_partition(model, engine, mapping)

    # Whatever runs, runs some node of the model; a layer of nothing would be invented.
    assert mapping.pairs or not engine.layers


@given(built(), st.data())
def test_shares_add_up_and_medians_are_the_samples(case, data):
    """A chart of shares that does not end at 100 % is wrong somewhere."""
    _, engine = case
    profile = data.draw(strategies.profiles(engine))
    times = timing(profile, engine)

    assert [layer.id for layer in engine.layers] == [t.layer for t in times.layers]
    assert [float(np.median(profile.samples[t.layer])) for t in times.layers] == [
        t.median for t in times.layers
    ]
    if times.layers:
        assert math.isclose(1, sum(t.share for t in times.layers), rel_tol=1e-9)


@given(built(), st.data())
def test_a_node_shows_the_time_of_its_layers_and_how_many_share_it(case, data):
    """A fused layer's time is never divided among its nodes: nobody measured that."""
    model, engine = case
    mapping = relate(model, model, engine)
    profile = data.draw(strategies.profiles(engine))
    shown = on_nodes(timing(profile, engine), mapping)

    assert {p.node for p in mapping.pairs} == set(shown)
    for node, time in shown.items():
        layers = mapping.layers(node)
        assert math.isclose(sum(np.median(profile.samples[i]) for i in layers), time.median, rel_tol=1e-9)
        assert len({n for i in layers for n in mapping.nodes(i)}) == time.shared
