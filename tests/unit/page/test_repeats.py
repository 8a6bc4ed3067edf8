"""Repeated blocks of models: counted by whoever made them."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper

import nets
from rtlab import samples
from rtlab.core.model import Model
from rtlab.web.page.graph import source_graph


def cached(blocks: int) -> Model:
    """Blocks of four nodes, each with a cache of its own that it reads and writes, as a decoder has."""
    nodes, x = [], "x"
    for k in range(blocks):
        names = [f"h{k}", f"new{k}", f"g{k}", f"y{k}"]
        reads = [[x], [f"old{k}", names[0]], [names[1]], [names[2], x]]
        for op, inputs, name in zip(("Relu", "Add", "Sigmoid", "Mul"), reads, names, strict=True):
            nodes.append(helper.make_node(op, inputs, [name], name=f"/net/block.{k}/{op}"))
        x = f"y{k}"
    nodes.append(helper.make_node("Tanh", [x], ["y"], name="/net/head/Tanh"))
    sized = [TensorProto.FLOAT, [1, 4]]
    ins = [("x", *sized), *((f"old{k}", *sized) for k in reversed(range(blocks)))]
    return nets.graph(nodes, ins, [("y", *sized), *((f"new{k}", *sized) for k in range(blocks))], {})


def test_inputs_and_outputs_that_one_block_alone_has_belong_to_it() -> None:
    graph = source_graph(cached(8))
    (repeats,) = graph["repeats"]
    rows = [[graph["boxes"][at]["id"] for at in row] for row in repeats["rows"]]
    assert ("8 × net/block", 8) == (repeats["title"], repeats["count"])
    assert [[f"/net/block.{k}/{op}" for k in range(8)] for op in ("Relu", "Add", "Sigmoid", "Mul")] == rows[
        :4
    ]
    assert [[f"{end}{k}" for k in range(8)] for end in ("input old", "output new")] == sorted(rows[4:])


@pytest.mark.parametrize(("blocks", "folded"), [(7, False), (8, True)])
def test_a_graph_opens_folded_from_eight_equal_blocks_on(blocks: int, *, folded: bool) -> None:
    graph = source_graph(cached(blocks))
    assert (folded, [blocks]) == (graph["folded"], [r["count"] for r in graph["repeats"]])


def test_the_layers_of_a_transformer_are_one_run() -> None:
    """The sample has 33 nodes to a layer, and the names ``/layer0`` to ``/layer29``."""
    graph = source_graph(samples.transformer_stack(nodes=991))
    (repeats,) = graph["repeats"]
    titles = [[graph["boxes"][at]["title"] for at in row] for row in repeats["rows"]]
    assert ("30 × layer", 33) == (repeats["title"], len(titles))
    assert [[f"/layer{k}" for k in range(30)]] * 33 == [[t[: t.index("/", 1)] for t in row] for row in titles]


def test_the_identity_of_a_weight_stands_in_the_blocks_that_have_it() -> None:
    """An exporter keeps one of several equal weights, and gives the others to their readers through Identity."""
    nodes, x = [], "x"
    for k in range(8):
        if k:
            nodes.insert(0, helper.make_node("Identity", ["w"], [f"w{k}"], name=f"Identity_{k}"))
        nodes.append(helper.make_node("Relu", [x], [f"h{k}"], name=f"/block.{k}/Relu"))
        nodes.append(
            helper.make_node("Mul", [f"h{k}", f"w{k}" if k else "w"], [f"y{k}"], name=f"/block.{k}/Mul")
        )
        x = f"y{k}"
    ends = ("x", TensorProto.FLOAT, [1, 4]), (x, TensorProto.FLOAT, [1, 4])
    graph = source_graph(nets.graph(nodes, [ends[0]], [ends[1]], {"w": np.ones(4, np.float32)}))
    (repeats,) = graph["repeats"]
    rows = [[graph["boxes"][at]["title"] for at in row] for row in repeats["rows"]]
    blocks = [[f"/block.{k}/{op}" for k in range(8)] for op in ("Relu", "Mul")]
    assert [*blocks, [f"Identity_{k}" for k in range(1, 8)]] == rows


def test_what_all_blocks_read_of_the_first_one_stands_before_them() -> None:
    """A tracing exporter writes a node that all blocks read where the first of them needs it."""
    nodes, x = [helper.make_node("Cos", ["p"], ["c"], name="/net/angles/Cos")], "x"
    for k in range(8):
        nodes.append(helper.make_node("Relu", [x], [f"h{k}"], name=f"/net/block.{k}/Relu"))
        if k == 0:
            nodes.append(helper.make_node("Abs", ["c"], ["a"], name="/net/block.0/Abs"))
        for op, reads, name in (("Mul", [f"h{k}", "a"], f"m{k}"), ("Add", [f"m{k}", x], f"y{k}")):
            nodes.append(helper.make_node(op, reads, [name], name=f"/net/block.{k}/{op}"))
        x = f"y{k}"
    sized = [TensorProto.FLOAT, [1, 4]]
    graph = source_graph(nets.graph(nodes, [("x", *sized), ("p", *sized)], [(x, *sized)], {}))
    (repeats,) = graph["repeats"]
    rows = [[graph["boxes"][at]["title"] for at in row] for row in repeats["rows"]]
    assert [[f"/net/block.{k}/{op}" for k in range(8)] for op in ("Relu", "Mul", "Add")] == rows
