"""Laws of the join between nodes, layers and times, over whatever a compiler may say."""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

import strategies
from rtlab.analyses.timing.times import map_times_to_nodes, summarize_profile
from rtlab.backends.compiler_info import TENSORRT
from rtlab.backends.onnxruntime import OnnxRuntime
from rtlab.core.engine import Engine, Layer, Tensor
from rtlab.core.model import Model, load
from rtlab.core.progress import Silent
from rtlab.core.protocols import BuildRequest
from rtlab.core.variant import Target, Variant
from rtlab.relation.relate import relate


@st.composite
def built(draw: st.DrawFn) -> tuple:
    """A model with an engine that a compiler could have made of it."""
    model = draw(strategies.models(bodies=True))
    return model, draw(strategies.engines(model))


def related() -> st.SearchStrategy[tuple]:
    return built().map(lambda case: (*case, relate(case[0], case[0], case[1])))


def check_partition(model, engine, mapping) -> None:
    """The law of every mapping: each node is in layers or is missing with a reason, and layers are real."""
    accounted = Counter({p.node for p in mapping.pairs}) + Counter(m.node for m in mapping.missing)

    assert Counter(n.id for n in model.nodes) == accounted
    assert {p.layer for p in mapping.pairs} <= {layer.id for layer in engine.layers}
    assert len(mapping.pairs) == len({(p.node, p.layer) for p in mapping.pairs})
    assert [] == [m for m in mapping.missing if not m.text]


@given(related())
def test_every_node_is_in_layers_or_has_one_reason(case):
    check_partition(*case)


@given(related())
def test_what_the_compiler_declares_is_shown_as_declared(case):
    _model, engine, mapping = case
    declared = {(p.node, p.layer) for p in mapping.pairs if p.evidence == "declared"}

    assert {(node, layer.id) for layer in engine.layers for node in layer.origins} == declared


@given(related())
def test_layers_of_a_node_come_in_execution_order(case):
    model, engine, mapping = case
    order = {layer.id: layer.index for layer in engine.layers}
    runs = [[order[i] for i in mapping.layers(n.id)] for n in model.nodes]

    assert [sorted(indices) for indices in runs] == runs


@given(strategies.models())
def test_a_real_engine_accounts_for_every_node(model):
    engine = OnnxRuntime(threads=1).build(BuildRequest(model, Variant.of()), Silent())
    mapping = relate(model, model, engine)
    check_partition(model, engine, mapping)

    # Whatever runs, runs some node of the model; a layer of nothing would be invented.
    assert mapping.pairs or not engine.layers


@given(built(), st.data())
def test_shares_add_up_and_medians_are_the_samples(case, data):
    _, engine = case
    profile = data.draw(strategies.profiles(engine))
    times = summarize_profile(profile, engine)

    assert [layer.id for layer in engine.layers] == [t.layer for t in times.layers]
    medians = [float(np.median(profile.samples[t.layer])) for t in times.layers]
    assert medians == [t.median for t in times.layers]
    if times.layers:
        assert math.isclose(1, sum(t.share for t in times.layers), rel_tol=1e-9)


@given(related(), st.data())
def test_a_node_shows_the_time_of_its_layers_and_how_many_share_it(case, data):
    _model, engine, mapping = case
    profile = data.draw(strategies.profiles(engine))
    shown = map_times_to_nodes(summarize_profile(profile, engine), mapping)

    assert {p.node for p in mapping.pairs} == set(shown)
    for node, time in shown.items():
        layers = mapping.layers(node)
        assert math.isclose(sum(np.median(profile.samples[i]) for i in layers), time.median, rel_tol=1e-9)
        assert len({n for i in layers for n in mapping.nodes(i)}) == time.shared


#: Names as exporters and people write them, some with what TensorRT itself joins names by.
_FORMS = (
    "Conv_{}", "/layer.{}/conv/Conv", "block{}_conv/Conv2D__6:0", "a + b{}", "m{}, n", "x || y{}", "f({})", "two  w{}",
    "onnx::Conv_{}", "é✓ {}",
)  # fmt: skip


def _pointwise(names: Sequence[str]) -> str:
    """Every pointwise kernel stands in the brackets of the next."""
    text = f"PWN({names[0]})"
    for name in names[1:]:
        text = f"PWN({text}, {name})"
    return text


#: How an era of TensorRT writes a fused layer, given its nodes' names; Myelin names one node only.
_ERAS: dict[str, Callable[[Sequence[str]], str]] = {
    "vertical": " + ".join,
    "horizontal": " || ".join,
    "both": lambda names: " || ".join([" + ".join(names[:2]), *names[2:]]),
    "pointwise": _pointwise,
    "mixed": lambda names: f"w.7 + {names[0]}" + "".join(f" + PWN({n})" for n in names[1:]),
    "helpers": lambda names: " + (Unnamed Layer* 3) [Shuffle] + ".join(names) + " + ONNXTRT_Broadcast_4",
    "profile": lambda names: " + ".join(names) + " [profile 1]",
    "parser": lambda names: " + ".join(f"{n}_77" for n in names),
    "myelin": lambda names: f"{names[0].replace('.', '_')}_myl7_1",
    "region": lambda names: f"{{ForeignNode[{names[0]}...{names[-1]}]}}",
}


@st.composite
def written(draw: st.DrawFn) -> tuple[Model, Engine, dict[str, str]]:
    """A model, an engine whose layers tell their nodes by name alone, and the layer of each node that is named."""
    proto = draw(strategies.protos(hostile=False))
    for i, node in enumerate(proto.graph.node):
        node.name = draw(st.sampled_from(_FORMS)).format(i)
    model = load(proto, name="drawn")
    layers: list[Layer] = []
    truth: dict[str, str] = {}
    nodes, told = list(model.top), draw(st.booleans())
    while nodes:
        size = draw(st.integers(1, 5))
        run, nodes = nodes[:size], nodes[size:]
        era, at = draw(st.sampled_from(sorted(_ERAS))), len(layers)
        named = {"myelin": run[:1], "region": [run[0], run[-1]]}.get(era, run)
        truth |= {n.id: f"L{at}" for n in named}
        reads = dict.fromkeys(i for n in run for i in n.inputs if i and model.values[i].kind != "constant")
        layers += [
            Layer(
                f"L{at}", _ERAS[era]([n.name for n in run]), "kgen", at,
                inputs=tuple(map(Tensor, reads)) if told else (),
                outputs=tuple(map(Tensor, run[-1].outputs)) if told else (),
            ),
            Layer(f"L{at + 1}", f"Reformatting CopyNode for Input Tensor 0 to {run[0].name}", "Reformat", at + 1),
        ]  # fmt: skip
    return model, Engine("trtexec", "8.4", Target("unknown"), tuple(layers), maker=TENSORRT), truth


@given(written())
def test_names_of_every_era_map_back_to_the_nodes_that_they_were_written_from(case):
    model, engine, truth = case
    mapping = relate(model, model, engine)
    check_partition(model, engine, mapping)

    assert {n: (layer,) for n, layer in truth.items()} == {n: mapping.layers(n) for n in truth}
    assert "declared" not in {p.evidence for p in mapping.pairs}


@given(written(), st.randoms(use_true_random=False))
def test_labels_outrank_the_names_of_layers(case, chance):
    model, engine, _ = case
    truth = {y.id: chance.choice(model.top).id for y in engine.layers}
    layers = tuple(dataclasses.replace(y, origins=(truth[y.id],)) for y in engine.layers)
    mapping = relate(model, model, dataclasses.replace(engine, layers=layers))

    assert set(truth.items()) == {(p.layer, p.node) for p in mapping.pairs if p.evidence == "declared"}


@given(
    strategies.models(), st.lists(st.text(st.sampled_from("PWN(),+| {}[].F_yml0aé"), max_size=30), max_size=6)
)
def test_any_name_is_read_without_an_error(model, texts):
    forms = ("{}", "PWN({})", "{{ForeignNode[{}]}}", "{{ForeignNode[{0}...{0}]}}", "{} copy", "[A]-[b]-[{}]")
    names = [f.format(t) for t in texts for f in forms]
    layers = tuple(Layer(f"L{i}", n, "kgen", i) for i, n in enumerate(names))
    engine = Engine("trtexec", "8.4", Target("unknown"), layers, maker=TENSORRT)

    check_partition(model, engine, relate(model, model, engine))
