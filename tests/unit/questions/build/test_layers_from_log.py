"""Engines from logs that list no layers."""

from __future__ import annotations

from pathlib import Path

import pytest
from onnx import helper

from nets import chain, wired
from rtlab.backends.log import verbose
from rtlab.backends.makers import TENSORRT
from rtlab.core.engine import Engine
from rtlab.core.model import Model
from rtlab.core.variant import Target
from rtlab.questions.build.layers_from_log import COPY, rebuilt
from rtlab.questions.build.replay import replay
from rtlab.relation.relate import relate
from rtlab.testing import tiny_model
from shelf import load

# Recordings live beside the checkout, not in it.
LOG = Path(__file__).parents[5] / "shared/recorded/build-logs/googlenet-caffe-trt5.1-fp32.log"


@pytest.fixture(scope="module")
def googlenet():
    if not LOG.is_file():
        pytest.skip("no ../shared/recorded beside the checkout")
    model = load("googlenet").model
    return model, rebuilt(replay(verbose.parse(LOG).log, model), model)


def test_as_many_layers_are_left_as_the_log_counts(googlenet) -> None:
    """57 fusions and 9 merges of three leave 66, where a copy stands in for each Concat: the log's own number."""
    _, layers = googlenet
    assert 66 == len(layers)
    assert 9 == sum(layer.kind == COPY for layer in layers)
    assert len({layer.id for layer in layers}) == len(layers)


def test_each_node_is_in_one_layer(googlenet) -> None:
    """Fused, merged, alone, or a Concat in the place of which something is copied."""
    model, layers = googlenet
    held = [origin for layer in layers for origin in layer.origins]
    assert sorted(n.id for n in model.top) == sorted(held)
    merged = next(y for y in layers if "inception_3a/1x1" in y.origins)
    assert {
        "inception_3a/1x1", "inception_3a/relu_1x1", "inception_3a/3x3_reduce", "inception_3a/relu_3x3_reduce",
        "inception_3a/5x5_reduce", "inception_3a/relu_5x5_reduce",
    } == set(merged.origins)  # fmt: skip
    assert " || " in merged.name


def test_no_layer_runs_before_what_it_reads(googlenet) -> None:
    """By the model's own edges: an oracle that knows nothing of tensors that were retargeted."""
    model, layers = googlenet
    place = {origin: layer.index for layer in layers for origin in layer.origins}
    concats = {o: n for n in model.top if n.op == "Concat" for o in n.outputs}
    for node in (n for n in model.top if n.op != "Concat"):
        for value in node.inputs:
            for source in concats[value].inputs if value in concats else (value,):
                producer = model.producers.get(source)
                if producer is not None:
                    assert place[producer.id] <= place[node.id], (producer.id, node.id)


def test_what_an_eliminated_concat_wrote_is_written_by_its_producers(googlenet) -> None:
    """Three write their part of the buffer, one is copied into it."""
    model, layers = googlenet
    for node in model.top:
        if node.op == "Concat":
            writers = [y for y in layers if node.outputs[0] in {t.name for t in y.outputs}]
            assert 4 == len(writers)
            assert 1 == sum(y.kind == COPY for y in writers)


def test_the_layers_relate_to_the_model_that_they_came_of(googlenet) -> None:
    model, layers = googlenet
    mapping = relate(model, model, Engine("trtexec", "5.1", Target("unknown"), layers, maker=TENSORRT))
    assert () == mapping.missing


def test_a_log_of_another_model_leaves_nothing(googlenet) -> None:
    """Layers that no decision speaks of would be invented."""
    assert () == rebuilt(replay(verbose.parse(LOG).log, tiny_model()), tiny_model())


def told(model: Model, *sentences: str) -> list[tuple[tuple[str, ...], list[str], list[str]]]:
    """Of each layer its nodes, and the names of what it reads and writes."""
    log = "\n".join(f"[I] [TRT] {s}" for s in ("Original: 9 layers", *sentences, "After x: 1 layers", ""))
    layers = rebuilt(replay(verbose.parse(log).log, model), model)
    return [(y.origins, [t.name for t in y.inputs], [t.name for t in y.outputs]) for y in layers]


def test_a_node_that_was_removed_has_no_layer() -> None:
    """What it would have read is written under the name that its readers know."""
    assert [(("a",), ["x"], ["b_out"]), (("c",), ["b_out"], ["c_out"])] == told(chain(*"abc"), "Removing b")


def test_a_layer_that_duplicates_another_is_done_by_that_one() -> None:
    nodes = [helper.make_node("Neg", ["x"], [f"{n}_out"], n) for n in "ab"]
    nodes.append(helper.make_node("Add", ["a_out", "b_out"], ["y"], "c"))
    found = told(wired(nodes, "y"), "Eliminating b which duplicates (ELEMENTWISE) a")
    assert [({"a", "b"}, {"a_out", "b_out"}), ({"c"}, {"y"})] == [(set(o), set(w)) for o, _, w in found]


def test_a_value_may_be_moved_into_one_concatenation_and_copied_into_another() -> None:
    """The builder can move it once; its second place needs a copy."""
    nodes = [
        helper.make_node("Neg", ["x"], ["a_out"], "a"),
        helper.make_node("Concat", ["a_out", "x"], ["p"], "c1", axis=1),
        helper.make_node("Concat", ["a_out", "x"], ["q"], "c2", axis=1),
    ]
    found = told(
        wired(nodes, "p", "q"),
        "Eliminating concatenation c1", "Retargeting a_out to c1", "Generating copy for x to c1",
        "Eliminating concatenation c2", "Generating copy for a_out to c2", "Generating copy for x to c2",
    )  # fmt: skip
    assert (("a",), ["x"], ["p", "a_out"]) in found
    assert [(["a_out"], ["q"]), (["x"], ["p"]), (["x"], ["q"])] == sorted(
        (r, w) for o, r, w in found if o != ("a",)
    )


def test_concatenations_in_concatenations_are_written_in_place() -> None:
    """As in a DenseNet: what the innermost reads is a part of the outermost."""
    nodes = [helper.make_node("Neg", ["x"], ["c0_out"], "a")]
    nodes += [
        helper.make_node("Concat", [f"c{i}_out"] * 2, [f"c{i + 1}_out"], f"c{i + 1}", axis=1)
        for i in range(3)
    ]
    steps = [
        s
        for i in range(1, 4)
        for s in (f"Eliminating concatenation c{i}", f"Retargeting c{i - 1}_out to c{i}")
    ]
    assert [(("a",), ["x"], ["c3_out"])] == told(wired(nodes, "c3_out"), *steps)
