"""Engines from logs that list no layers."""

from __future__ import annotations

from collections import Counter

from onnx import helper

from build_logs import INCEPTION, inception
from nets import chain, wired
from rtlab.analyses.build.replay import COPY, rebuild_layers, replay_decisions
from rtlab.backends.compiler_info import TENSORRT
from rtlab.backends.readers.log import verbose
from rtlab.core.engine import Engine
from rtlab.core.model import Model
from rtlab.core.variant import Target
from rtlab.relation.relate import relate
from rtlab.testing import tiny_model

MODEL = inception()
LAYERS = rebuild_layers(replay_decisions(verbose.parse(INCEPTION).log, MODEL), MODEL)


def test_as_many_layers_are_left_as_the_log_counts() -> None:
    """28 less 10 fusions and merges of three and two is 15, where a copy stands in for each Concat."""
    assert (15, 2) == (len(LAYERS), sum(layer.kind == COPY for layer in LAYERS))
    assert len({layer.id for layer in LAYERS}) == len(LAYERS)
    # Alone are three of the stem and the head, two poolings, the softmax; merged are six and four nodes.
    assert {1: 8, 2: 5, 4: 1, 6: 1} == Counter(len(layer.origins) for layer in LAYERS)


def test_each_node_is_in_one_layer() -> None:
    assert sorted(n.id for n in MODEL.top) == sorted(o for layer in LAYERS for o in layer.origins)
    merged = next(y for y in LAYERS if "mix2/a" in y.origins)
    assert {"mix2/a", "mix2/relu_a", "mix2/b_reduce", "mix2/relu_b_reduce"} == set(merged.origins)
    assert "mix2/a + mix2/relu_a || mix2/b_reduce + mix2/relu_b_reduce" == merged.name


def test_no_layer_runs_before_what_it_reads() -> None:
    """By the model's own edges: an oracle that knows nothing of tensors that were retargeted."""
    place = {origin: layer.index for layer in LAYERS for origin in layer.origins}
    concats = {o: n for n in MODEL.top if n.op == "Concat" for o in n.outputs}
    for node in (n for n in MODEL.top if n.op != "Concat"):
        for value in node.inputs:
            for source in concats[value].inputs if value in concats else (value,):
                producer = MODEL.producers.get(source)
                if producer is not None:
                    assert place[producer.id] <= place[node.id], (producer.id, node.id)


def test_what_an_eliminated_concat_wrote_is_written_by_its_producers() -> None:
    for value, reads in (("mix1/join:0", 4), ("mix2/join:0", 3)):
        writers = [y for y in LAYERS if value in {t.name for t in y.outputs}]
        assert (reads, 1) == (len(writers), sum(y.kind == COPY for y in writers))


def test_the_layers_relate_to_the_model_that_they_came_of_and_to_no_other() -> None:
    engine = Engine("trtexec", "5.1", Target("unknown"), LAYERS, maker=TENSORRT)
    assert () == relate(MODEL, MODEL, engine).missing
    other = tiny_model()
    assert () == rebuild_layers(replay_decisions(verbose.parse(INCEPTION).log, other), other)


def rebuild(model: Model, *sentences: str) -> list[tuple[tuple[str, ...], list[str], list[str]]]:
    """Of each layer its nodes, and the names of what it reads and writes."""
    log = "\n".join(f"[I] [TRT] {s}" for s in ("Original: 9 layers", *sentences, "After x: 1 layers", ""))
    layers = rebuild_layers(replay_decisions(verbose.parse(log).log, model), model)
    return [(y.origins, [t.name for t in y.inputs], [t.name for t in y.outputs]) for y in layers]


def test_a_node_that_was_removed_has_no_layer() -> None:
    assert [(("a",), ["x"], ["b_out"]), (("c",), ["b_out"], ["c_out"])] == rebuild(
        chain(*"abc"), "Removing b"
    )


def test_a_layer_that_duplicates_another_is_done_by_that_one() -> None:
    nodes = [helper.make_node("Neg", ["x"], [f"{n}_out"], n) for n in "ab"]
    nodes.append(helper.make_node("Add", ["a_out", "b_out"], ["y"], "c"))
    found = rebuild(wired(nodes, "y"), "Eliminating b which duplicates (ELEMENTWISE) a")
    assert [({"a", "b"}, {"a_out", "b_out"}), ({"c"}, {"y"})] == [(set(o), set(w)) for o, _, w in found]


def test_a_value_may_be_moved_into_one_concatenation_and_copied_into_another() -> None:
    nodes = [
        helper.make_node("Neg", ["x"], ["a_out"], "a"),
        helper.make_node("Concat", ["a_out", "x"], ["p"], "c1", axis=1),
        helper.make_node("Concat", ["a_out", "x"], ["q"], "c2", axis=1),
    ]
    found = rebuild(
        wired(nodes, "p", "q"),
        "Eliminating concatenation c1", "Retargeting a_out to c1", "Generating copy for x to c1",
        "Eliminating concatenation c2", "Generating copy for a_out to c2", "Generating copy for x to c2",
    )  # fmt: skip
    assert (("a",), ["x"], ["p", "a_out"]) in found
    assert [(["a_out"], ["q"]), (["x"], ["p"]), (["x"], ["q"])] == sorted(
        (r, w) for o, r, w in found if o != ("a",)
    )


def test_concatenations_in_concatenations_are_written_in_place() -> None:
    nodes = [helper.make_node("Neg", ["x"], ["c0_out"], "a")]
    steps = []
    for i in range(1, 4):
        nodes.append(helper.make_node("Concat", [f"c{i - 1}_out"] * 2, [f"c{i}_out"], f"c{i}", axis=1))
        steps += [f"Eliminating concatenation c{i}", f"Retargeting c{i - 1}_out to c{i}"]
    assert [(("a",), ["x"], ["c3_out"])] == rebuild(wired(nodes, "c3_out"), *steps)
