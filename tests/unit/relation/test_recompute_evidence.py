"""Nodes without a layer that the layer of their readers computes: it is given nothing that holds what they write."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper

from nets import graph
from rtlab.core.engine import Engine, Layer, Tensor
from rtlab.core.model import Model
from rtlab.core.variant import Target
from rtlab.relation.relate import relate

F, B = TensorProto.FLOAT, TensorProto.BOOL
X = Tensor("x", "fp32", (1, 3, 8, 8))
Y = Tensor("y", "fp32", (1, 4, 7, 7))


def step(index: int, origins: tuple[str, ...], reads: list[Tensor], writes: list[Tensor]) -> Layer:
    ends = tuple(reads), tuple(writes)
    return Layer(f"L{index}", f"step{index}", "correlation", index, *ends, origins=origins)


def built(inputs: list[Tensor], *layers: Layer) -> Engine:
    return Engine("test", "1", Target("sm86"), layers, inputs=tuple(inputs))


def padded(
    *, batch: int | str = 1, extra: list | None = None, reads: str = "p", outputs: list | None = None
) -> Model:
    """A Relu, a Pad to 9 by 9 and a convolution, as networks with TensorFlow's "same" padding are exported."""
    n = helper.make_node
    nodes = [n("Relu", ["x"], ["r"], name="relu"), n("Pad", ["r", "pads"], ["p"], name="pad")]
    nodes += [*(extra or []), n("Conv", [reads, "w"], ["y"], name="conv")]
    weights = {"pads": np.array([0, 0, 0, 0, 0, 0, 1, 1]), "w": np.ones((4, 3, 3, 3), np.float32)}
    return graph(nodes, [("x", F, [batch, 3, 8, 8])], outputs or [("y", F, [batch, 4, None, None])], weights)


def before(shape: tuple[int, ...], dtype: str = "fp32", name: str = "t") -> list[Layer]:
    """The Relu, which writes a tensor of this shape, and the convolution, which reads it."""
    t = Tensor(name, dtype, shape)
    return [step(0, ("relu",), [X], [t]), step(1, ("conv",), [t], [Y])]


@pytest.mark.parametrize(
    ("shape", "dtype", "layers"),
    [
        # The convolution reads 8 by 8 and the Pad writes 9 by 9, so the convolution pads.
        ((1, 3, 8, 8), "fp32", ("L1",)),
        # An INT8 convolution reads four channels where the model has three: what tells are the other dimensions.
        ((1, 4, 8, 8), "int8", ("L1",)), ((1, 4, 9, 9), "int8", ()),
        # As it is, in another shape of as many numbers, or of sizes that nobody told: another layer may have padded.
        ((1, 3, 9, 9), "fp32", ()), ((1, 9, 9, 3), "fp32", ()), ((243,), "fp32", ()), ((1, 3, -1, -1), "fp32", ()),
        (None, "fp32", ()),
    ],
)  # fmt: skip
def test_a_pad_is_done_by_a_convolution_whose_input_cannot_hold_what_it_writes(shape, dtype, layers) -> None:
    m = padded()
    mapping = relate(m, m, built([X], *before(shape, dtype)))
    assert layers == mapping.layers("pad")
    assert {("inferred", "work")} >= {(p.evidence, p.role) for p in mapping.pairs if p.node == "pad"}
    assert layers or mapping.why("pad").reason == "unknown"


def test_a_second_tensor_that_may_hold_it_leaves_it_unknown_and_one_of_another_input_does_not() -> None:
    """A residual that comes from the same input may be the padded one; what no input of the node feeds is not."""
    m = padded()
    relu, conv = before((1, 3, 8, 8))
    more = Tensor("u", "fp32", (1, 3, 9, 9))
    given = step(2, ("conv",), [*conv.inputs, more], [Y])
    aside = step(1, (), [X], [more])
    mapping = relate(m, m, built([X], relu, aside, given))
    assert "L2" not in {p.layer for p in mapping.pairs if p.node == "pad"}
    other = Tensor("z", "fp32", (1, 3, 9, 9))
    both = step(1, ("conv",), [*conv.inputs, other], [Y])
    assert ("L1",) == relate(m, m, built([X, other], relu, both)).layers("pad")


def test_a_node_stays_unknown_where_others_need_what_it_writes() -> None:
    """An output of the model, a reader without a layer, or one that takes a part of it."""
    n = helper.make_node
    leaves = padded(outputs=[("y", F, [1, 4, 7, 7]), ("p", F, [1, 3, 9, 9])])
    erf = n("Erf", ["p"], ["e"], name="erf")
    lost = padded(extra=[erf], outputs=[("y", F, [1, 4, 7, 7]), ("e", F, [1, 3, 9, 9])])
    part = padded(extra=[n("Split", ["p"], ["s"], name="part", axis=0)], reads="s")
    for m in (leaves, lost, part):
        missing = relate(m, m, built([X], *before((1, 3, 8, 8)))).missing
        assert "pad" in {x.node for x in missing if x.reason == "unknown"}


def test_a_node_whose_readers_work_is_divided_stays_unknown() -> None:
    n = helper.make_node
    m = graph(
        [n("Expand", ["x", "to"], ["e"], name="expand"), n("Pad", ["e", "pads"], ["p"], name="pad"),
         n("Softmax", ["p"], ["y"], name="softmax")],
        [("x", F, [1, 8])], [("y", F, [4, 9])],
        {"to": np.array([4, 8]), "pads": np.array([0, 0, 0, 1])},
    )  # fmt: skip
    x, most, y = Tensor("x", "fp32", (1, 8)), Tensor("m", "fp32", (4, 1)), Tensor("y", "fp32", (4, 9))
    two = built([x], step(0, ("softmax",), [x], [most]), step(1, ("softmax",), [x, most], [y]))
    assert () == relate(m, m, two).layers("pad")
    one = built([x], step(0, ("softmax",), [x], [y]))
    assert ("L0",) == relate(m, m, one).layers("pad")


def masked() -> Model:
    """A mask that is broadcast, turned into numbers and added to scores, as attention does."""
    n = helper.make_node
    adds = [n("Add", [f"s{i}", "w"], [f"y{i}"], name=f"add{i}") for i in range(2)]
    return graph(
        [n("Not", ["k"], ["b"], name="not"), n("And", ["b", "rows"], ["a"], name="and"),
         n("Where", ["a", "zero", "low"], ["w"], name="where"), *adds],
        [("k", B, [1, 1, 1, 6]), *((f"s{i}", F, [2, 6, 6]) for i in range(2))],
        [(f"y{i}", F, [1, 2, 6, 6]) for i in range(2)],
        {"rows": np.ones((1, 1, 6, 6), bool), "zero": np.float32(0), "low": np.float32(-1e4)},
    )  # fmt: skip


def attention(mask: Tensor) -> Engine:
    """The mask by itself, then each sum in a layer that reads this tensor of it."""
    k = Tensor("k", "bool", (1, 1, 1, 6))
    s = [Tensor(f"s{i}", "fp32", (2, 6, 6)) for i in range(2)]
    y = [Tensor(f"y{i}", "fp32", (1, 2, 6, 6)) for i in range(2)]
    adds = [step(1 + i, (f"add{i}",), [s[i], mask], [y[i]]) for i in range(2)]
    return built([k, *s], step(0, ("not",), [k], [mask]), *adds)


@pytest.mark.parametrize(
    ("dtype", "shape", "unknown"),
    [
        # Every attention reads the row of truth values: it broadcasts them and makes numbers of them itself.
        ("bool", (1, 1, 1, 6), set()),
        # The Where is in the sums, for numbers do not come as truth values; the And may be in the layer before.
        ("bool", (1, 1, 6, 6), {"and"}), ("bool", (2, 6, 6), {"and"}),
        # Numbers of the size of the mask may be the mask.
        ("fp32", (1, 1, 6, 6), {"and", "where"}),
    ],
)  # fmt: skip
def test_who_makes_numbers_of_a_mask_is_told_by_what_is_read_of_it(dtype, shape, unknown) -> None:
    m = masked()
    mapping = relate(m, m, attention(Tensor("t", dtype, shape)))
    assert unknown == {x.node for x in mapping.missing if x.reason == "unknown"}
    assert {("L1", "L2")} >= {mapping.layers(n) for n in {"where", "and"} - unknown}


def test_steps_that_prepare_the_mask_of_two_attentions_belong_to_what_both_share() -> None:
    """The blocks that a mask leaves out are listed once for both: neither Where runs there, and both run the And."""
    n = helper.make_node
    nodes = [n("Not", ["k"], ["b"], name="not"), n("And", ["b", "rows"], ["a"], name="and")]
    for i in range(2):
        nodes.append(n("Where", ["a", "zero", "low"], [f"w{i}"], name=f"where{i}"))
        nodes.append(n("Add", [f"s{i}", f"w{i}"], [f"y{i}"], name=f"add{i}"))
    weights = {"rows": np.ones((1, 1, 6, 6), bool), "zero": np.float32(0), "low": np.float32(-1e4)}
    inputs = [("k", B, [1, 1, 1, 6]), *((f"s{i}", F, [2, 6, 6]) for i in range(2))]
    m = graph(nodes, inputs, [(f"y{i}", F, [1, 2, 6, 6]) for i in range(2)], weights)
    k, t = Tensor("k", "bool", (1, 1, 1, 6)), Tensor("t", "bool", (1, 1, 1, 6))
    count, blocks = Tensor("count", "int32", (1, 1, 2)), Tensor("blocks", "int32", (1, 1, 3))
    scores = [Tensor(f"s{i}", "fp32", (2, 6, 6)) for i in range(2)]
    made = [Tensor(f"y{i}", "fp32", (1, 2, 6, 6)) for i in range(2)]
    sums = [step(3 + i, (f"add{i}",), [scores[i], t, blocks], [made[i]]) for i in range(2)]
    first = step(0, ("not",), [k], [t, count])
    lists = [step(1, (), [count], [Tensor("at", "int32", (1, 1, 3))])]
    lists.append(step(2, (), [lists[0].outputs[0]], [blocks]))
    mapping = relate(m, m, built([k, *(s.inputs[0] for s in sums)], first, *lists, *sums))
    where = {"where0": ("L3",), "where1": ("L4",), "and": ("L1", "L2", "L3", "L4")}
    assert where == {name: mapping.layers(name) for name in where}


def test_sizes_that_are_not_those_of_the_engine_tell_nothing() -> None:
    """The model's batch is open; an engine for eight says nothing of sizes at a batch of one."""
    m = padded(batch="n")
    small = before((1, 3, 8, 8))
    eight = Tensor("x", "fp32", (8, 3, 8, 8))
    assert () == relate(m, m, built([eight], *small)).layers("pad")
    assert ("L1",) == relate(m, m, built([X], *small)).layers("pad")


def test_a_layer_behind_a_node_gives_nothing_that_the_node_writes() -> None:
    """The second sum adds the first one too, which has the mask's size but comes after it."""
    m = masked()
    plan = attention(Tensor("t", "bool", (1, 1, 1, 6)))
    first, second = plan.layers[1:]
    chained = step(2, ("add1",), [*second.inputs, first.outputs[0]], list(second.outputs))
    mapping = relate(m, m, built(list(plan.inputs), plan.layers[0], first, chained))
    assert ("L1", "L2") == mapping.layers("where")
