"""Layers of two engines of one network side by side: what does the same work, however it was built and called."""

from __future__ import annotations

import dataclasses

import pytest

from rtlab.analyses.difference import Difference, Side, compute_difference
from rtlab.backends.compiler_info import TENSORRT
from rtlab.core.engine import Engine, Layer, Tensor
from rtlab.core.model import make_empty_model
from rtlab.core.variant import Target
from rtlab.relation.align import align
from rtlab.relation.similarity import compute_signatures
from twins import Habits, build, network


def conv(name: str, reads: str, writes: str, shapes, kernel: int = 3, stride: int = 1, **more) -> Layer:
    """A convolution from one shape to another."""
    attributes = {"ParameterType": "Convolution", "Kernel": [kernel] * 2, "Stride": [stride] * 2, "Groups": 1}
    return step(name, reads, writes, shapes, "CaskConvolution", **attributes, **more)


def step(name: str, reads: str, writes: str, shapes, kind: str = "PointWise", **attributes) -> Layer:
    inputs = tuple(Tensor(r, "fp16", (1, *shapes[0])) for r in reads.split())
    outputs = (Tensor(writes, "fp16", (1, *shapes[1])),)
    return Layer(name, name, kind, 0, inputs, outputs, attributes=attributes)


def engine(*layers: Layer, shape=(8, 16, 16)) -> Engine:
    numbered = tuple(dataclasses.replace(y, index=i) for i, y in enumerate(layers))
    ends = (Tensor("x", "fp16", (1, *shape)),), numbered[-1].outputs
    return Engine("tensorrt", "10", Target("sm86"), numbered, *ends, maker=TENSORRT)


def compared(one: Engine, two: Engine) -> Difference:
    return compute_difference(Side("one", one), Side("two", two), make_empty_model())


def pairs(found: Difference) -> set[tuple[tuple[str, ...], tuple[str, ...]]]:
    return {(g.first.layers, g.second.layers) for g in found.groups}


def basis(found: Difference) -> dict[str, str]:
    """By the first layer of a group."""
    return {(g.first.layers or g.second.layers)[0]: g.basis for g in found.groups}


SAME, WIDE = ((8, 16, 16), (8, 16, 16)), ((8, 16, 16), (32, 16, 16))

HABITS = {
    "same": (Habits(), Habits(counts=3)),
    "int8": (Habits(), Habits(quantizes=0.5, precision="int8", counts=3)),
    "sums elsewhere": (Habits(shorts=0.5), Habits(shorts=0.5, pools=True, counts=2)),
    "all of it": (
        Habits(shorts=0.5, batch=32),
        Habits(shorts=0.5, pools=True, quantizes=0.3, precision="int8", counts=3),
    ),
}


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("habits", HABITS)
def test_engines_that_share_no_name_are_aligned_through_every_difference(habits: str, seed: int) -> None:
    ops = network(4 + 5 * seed, stages=1 + seed % 4)
    first, second = HABITS[habits]
    (one, runs), (two, others) = build(ops, first, "a", seed), build(ops, second, "b", seed + 100)
    found = compared(one, two)
    for group in found.groups:
        mine = {p for i in group.first.layers for p in runs.get(i, ())}
        assert mine == {p for i in group.second.layers for p in others.get(i, ())}, group
        assert group.basis not in {"alone", "names"}
        assert (group.basis == "converts") == (not (group.first.layers and group.second.layers))
    products = sum(o.kind == "Conv" for o in ops)
    assert ((products, products), (products, products)) == (
        found.overlap.paired_counts,
        found.overlap.total_counts,
    )
    back = {(g.second, g.first, g.basis) for g in compared(two, one).groups}
    assert back == {(g.first, g.second, g.basis) for g in found.groups}


PICTURE = (1, 8, 16, 16)
TWINS = (
    ("a", "x", "a", SAME, 1),
    ("b", "x", "b", SAME, 1),
    ("a3", "a", "c", WIDE, 3),
    ("b5", "b", "d", WIDE, 5),
)
END = ("c d", "y", ((32, 16, 16), (64, 16, 16)), "Concat")
QUANTIZING = Layer("q", "QuantizeLinear_1", "Reformat", 0, (Tensor("x", "fp32", PICTURE),),
                   (Tensor("xq", "int8", PICTURE),), attributes={"Origin": "QDQ"})  # fmt: skip
#: Layers of two engines, and which stand beside which; with the basis of some.
BESIDE: dict[str, tuple[list[Layer], list[Layer], str, dict[str, str]]] = {
    # Both write what the next layer reads, and stand in another order.
    "a 1x1 and a 3x3 of one shape": (
        [conv("long", "x", "a", SAME, 3), conv("short", "x", "b", SAME, 1), step("sum", "a b", "y", SAME)],
        [conv("short'", "x", "b", SAME, 1), conv("long'", "x", "a", SAME, 3), step("sum'", "a b", "y", SAME)],
        "long > long', short > short', sum > sum'", {},
    ),
    "an activation behind another layer": (
        [conv("a", "x", "a", SAME, 3), step("relu", "a", "b", SAME), conv("b", "b", "y", SAME, 5)],
        [conv("a'", "x", "a", SAME, 3), conv("b'", "a", "b", SAME, 5), step("relu'", "b", "y", SAME)],
        "a relu > a', b > b' relu'", {},
    ),
    # Two equal convolutions of one tensor: what reads their results is told apart.
    "like layers by their readers": (
        [*(conv(*t) for t in TWINS), step("end", *END)],
        [*(conv(f"{n}'", *t) for n, *t in (TWINS[i] for i in (1, 0, 3, 2))), step("end'", *END)],
        "a > a', b > b', a3 > a3', b5 > b5', end > end'", {},
    ),
    # Its time is what a precision costs, which must not be lost in a convolution's gain.
    "a step that only quantizes": (
        [conv("a", "x", "y", SAME)], [QUANTIZING, conv("b", "xq", "y", SAME)], " > q, a > b",
        {"q": "converts", "a": "shapes"},
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", BESIDE)
def test_layers_stand_beside_those_that_do_their_work(case: str) -> None:
    one, two, told, bases = BESIDE[case]
    sides = [[tuple(side.split()) for side in pair.split(">")] for pair in told.split(",")]
    found, back = compared(engine(*one), engine(*two)), compared(engine(*two), engine(*one))
    assert {(a, b) for a, b in sides} == pairs(found)
    assert {(b, a) for a, b in sides} == pairs(back)
    assert bases.items() <= basis(found).items()
    assert found.overlap.is_enough


@pytest.mark.parametrize("differs", [{"stride": 2}, {"groups": 8}, {"kernel": 5}])
def test_what_a_convolution_is_has_to_agree(differs: dict) -> None:
    kernel, stride = differs.get("kernel", 3), differs.get("stride", 1)
    one = engine(conv("a", "x", "y", SAME))
    layer = conv("b", "x", "y", SAME, kernel, stride)
    groups = {**layer.attributes, "Groups": differs.get("groups", 1)}
    two = engine(dataclasses.replace(layer, attributes=groups))
    assert {"a": "alone", "b": "alone"} == basis(compared(one, two))
    assert not compared(one, two).overlap.is_enough


def test_hundreds_of_equal_blocks_keep_their_order() -> None:
    """More than one table of costs holds: matched window by window, between pairs that are known."""
    ops = network(150, stages=1)
    one, runs = build(ops, Habits(shorts=0.5), "a", 0)
    two, others = build(ops, Habits(quantizes=0.2, counts=2), "b", 50)
    for group in compared(one, two).groups:
        mine = {p for i in group.first.layers for p in runs.get(i, ())}
        assert mine == {p for i in group.second.layers for p in others.get(i, ())}


def test_names_are_doubted_where_they_contradict_kernels() -> None:
    """``Conv_3`` of two exports are two convolutions; a shared number means nothing then."""
    kernels = [7, 1, 3, 5, 1, 3]

    def built(numbers: list[int], suffix: str) -> Engine:
        names = [f"Conv_{n}" for n in numbers]
        told = enumerate(zip(names, kernels, strict=True))
        made = [conv(n, f"t{i}" if i else "x", f"t{i + 1}", SAME, k) for i, (n, k) in told]
        return engine(*(dataclasses.replace(y, id=f"{y.name}{suffix}") for y in made))

    found = compared(built([0, 1, 2, 3, 4, 5], ""), built([1, 2, 3, 4, 5, 6], "'"))
    assert {((f"Conv_{n}",), (f"Conv_{n + 1}'",)) for n in range(6)} == pairs(found)
    alike = compared(built([0, 1, 2, 3, 4, 5], ""), built([0, 1, 2, 3, 4, 5], "'"))
    assert {"names"} == {g.basis for g in alike.groups}


def test_a_name_that_stays_outweighs_a_shape_that_was_padded() -> None:
    one, two = (
        engine(*(conv(f"w{w}.weight + Conv_{i}", "xa"[i], "ay"[i], SAME) for i, w in enumerate(order)))
        for order in ((0, 1), (1, 0))
    )
    expected = {((f"w{i}.weight + Conv_{i}",), (f"w{i}.weight + Conv_{1 - i}",)) for i in (0, 1)}
    assert expected == pairs(compared(one, two))


@pytest.mark.parametrize("cut", [0.1, 0.5, 0.9])
def test_of_a_cut_file_what_is_there_is_aligned(cut: float) -> None:
    """A log that ends early, or begins late, has fewer layers; none of them is set beside another's."""
    ops = network(16)
    one, runs = build(ops, Habits(), "a", 1)
    two, others = build(ops, Habits(counts=3), "b", 2)
    keep = int(len(two.layers) * cut)
    for part in (two.layers[:keep], two.layers[len(two.layers) - keep :]):
        found = compared(one, dataclasses.replace(two, layers=part))
        assert len(part) == sum(len(g.second.layers) for g in found.groups)
        wrong = [g for g in found.groups if g.second.layers and g.first.layers
                 and runs[g.first.layers[0]] != others[g.second.layers[0]]]  # fmt: skip
        assert not wrong
        assert found.overlap.is_enough == (found.overlap.share >= 0.5)


def test_engines_of_names_alone_are_aligned_by_names_then_by_kind_and_order() -> None:
    def named(*names: str) -> Engine:
        return engine(*(Layer(n, n, "", i) for i, n in enumerate(names)))

    names = ["Conv_0 + Relu_1", "MaxPool_2", "Conv_3", "Gemm_4"]
    same = compared(named(*names), named(*names))
    assert {"names"} == {g.basis for g in same.groups}
    numbered = ["Conv_10 + Relu_11", "MaxPool_12", "Conv_13", "Gemm_14"]
    other = compared(named(*names), named(*numbered))
    assert {((a,), (b,)) for a, b in zip(names, numbered, strict=True)} == pairs(other)
    assert {"kinds"} == {g.basis for g in other.groups}
    assert other.warnings


def test_another_size_of_input_is_the_same_model() -> None:
    ops = network(8)
    one, runs = build(ops, Habits(), "a", 1)
    larger = [
        dataclasses.replace(o, shape=(o.shape[0], *(d * 2 if d > 1 else d for d in o.shape[1:]))) for o in ops
    ]
    two, others = build(larger, Habits(counts=2), "b", 2)
    two = dataclasses.replace(two, inputs=(Tensor(two.inputs[0].name, "fp32", (1, 3, 448, 448)),))
    found = compared(one, two)
    assert found.overlap.is_enough
    assert all(runs[g.first.layers[0]] == others[g.second.layers[0]] for g in found.groups)


def test_what_may_be_no_pair_is_none_wherever_it_stands() -> None:
    """As of layers whose nodes are known to be others: like work at like places, and nothing else to be seen."""
    shapes = [WIDE, ((32, 16, 16), (8, 16, 16))] * 3
    one, two = (
        engine(*(conv(f"{e}{i}", f"{e}v{i}" if i else "x", f"{e}v{i + 1}", s) for i, s in enumerate(shapes)))
        for e in "ab"
    )
    signs = compute_signatures((one, two))
    ids = [{y.id: None for y in e.layers} for e in (one, two)]
    found = align((one, two), signs, (ids[0], ids[1]), may=lambda a, b: (a, b) != ("a2", "b2"))
    alike = {(m.first, m.second) for m in found}
    assert (("a2",), ("b2",)) not in alike
    assert {(("a0",), ("b0",)), (("a5",), ("b5",))} <= alike
    assert [] == align((one, two), signs, (ids[0], ids[1]), may=lambda a, b: False)
