"""Two engines compared by nodes: fusions and names differ, the work is the same."""

from __future__ import annotations

import dataclasses
import itertools

import pytest

import recorded
import rtlab
from rtlab.backends.makers import TENSORRT
from rtlab.core.engine import Engine, Layer, Tensor
from rtlab.core.model import absent, load
from rtlab.core.variant import Target
from rtlab.errors import VariantError
from rtlab.questions.difference.diff import Side, difference
from rtlab.questions.panels import answer
from rtlab.questions.scene import Scene
from rtlab.relation.mapping import Mapping, Pair
from strategies import chain


def engine(*names: str, kind: str = "kgen", precision: str = "fp32") -> Engine:
    layers = tuple(
        Layer(n, n, kind, i, outputs=(Tensor(f"{n} out", precision, (1,)),)) for i, n in enumerate(names)
    )
    return Engine("tensorrt", "10", Target("sm86"), layers, maker=TENSORRT)


@pytest.fixture
def model():
    return load(chain(3))


def side(name: str, built: Engine, nodes: dict[str, list[str]], times: dict[str, float], whole=None) -> Side:
    pairs = tuple(Pair(n, y, "declared") for y, listed in nodes.items() for n in listed)
    return Side(name, built, Mapping(pairs, ()), times, whole)


def test_a_fused_layer_is_set_against_the_layers_it_replaces(model) -> None:
    """One engine fuses the first two nodes, the other the last two: only together can they be compared."""
    a, b, c = (n.id for n in model.nodes)
    first = side("x", engine("p", "q"), {"p": [a, b], "q": [c]}, {"p": 2.0, "q": 1.0}, 3.0)
    second = side("y", engine("r", "s"), {"r": [a], "s": [b, c]}, {"r": 0.5, "s": 0.75}, 1.5)
    (group,) = difference(first, second, model).groups
    assert (a, b, c) == group.nodes
    assert (("p", "q"), ("r", "s")) == (group.first.layers, group.second.layers)
    assert group.delta == pytest.approx(-1.75)


def test_what_the_layers_do_not_explain_is_told_apart(model) -> None:
    """The sum of the layers overstates the latency by another amount in each engine."""
    a, b, c = (n.id for n in model.nodes)
    first = side("x", engine("p"), {"p": [a, b, c]}, {"p": 2.0}, 3.0)
    second = side("y", engine("q"), {"q": [a, b, c]}, {"q": 1.0}, 2.5)
    found = difference(first, second, model)
    assert (-0.5, 0.5) == (found.delta, found.rest)


def test_what_makes_times_incomparable_is_told(model) -> None:
    """Times of two processors, or of two batches, differ whatever the compiler did."""
    nodes = {"p": [n.id for n in model.nodes]}
    batches = [(Tensor("x", "fp32", (n, 3)),) for n in (1, 8)]
    here, there = (dataclasses.replace(engine("p"), device=d, inputs=batches[0]) for d in ("A", "B"))
    large = dataclasses.replace(here, inputs=batches[1])

    def doubts(one: Engine, two: Engine, **more) -> tuple[str, ...]:
        first, second = (
            dataclasses.replace(side(n, e, nodes, {"p": 2.0}), **more)
            for n, e in (("one", one), ("two", two))
        )
        return difference(first, second, model).doubts

    assert () == doubts(here, here)
    (found,) = doubts(here, there)
    assert "two processors, A and B" in found
    (found,) = doubts(here, large)
    assert "One inference of one is a batch of 1, one of two a batch of 8" in found
    assert () == doubts(here, there, origin="estimated")
    assert () == doubts(here, there, times={})
    assert () == doubts(here, dataclasses.replace(engine("p"), target=Target("unknown")))


def test_layers_that_only_move_data_are_one_group_of_their_own(model) -> None:
    """INT8 that wins in convolutions and loses in reformats must show both."""
    a, b, c = (n.id for n in model.nodes)
    first = side("x", engine("p"), {"p": [a, b, c]}, {"p": 2.0})
    copies = (
        "Reformatting CopyNode for Input Tensor 0 to q",
        "Reformatting CopyNode for Output Tensor 0 to q",
    )
    second = side(
        "y", engine(copies[0], "q", copies[1]), {"q": [a, b, c]}, {copies[0]: 0.25, "q": 1.0, copies[1]: 0.5}
    )
    work, moves = difference(first, second, model).groups
    assert ("nodes", -1.0) == (work.basis, work.delta)
    assert ("moves", 0.75, (), copies) == (moves.basis, moves.delta, moves.first.layers, moves.second.layers)


def test_without_times_layers_are_still_compared(model) -> None:
    """Engines that were only built say what was fused, and nothing of milliseconds."""
    a, b, c = (n.id for n in model.nodes)
    found = difference(
        side("x", engine("p", "q", "r"), {"p": [a], "q": [b], "r": [c]}, {}),
        side("y", engine("s"), {"s": [a, b, c]}, {}),
        model,
    )
    assert (None, None, None) == (found.totals, found.delta, found.rest)
    assert ["3 layers became 1"] == [g.cause for g in found.groups]


@recorded.present
def test_fp32_and_fp16_of_one_export_are_joined_by_the_names_of_their_nodes() -> None:
    """Without a model, the layers' names tell the nodes; all of the gain is in the convolutions."""
    sides = []
    for precision in ("fp32", "fp16"):
        built, times = recorded.read(f"trex-resnet18-pytorch-a100-{precision}")
        sides.append(Side(precision, built, None, {t.layer: t.median for t in times.layers}, times.total))
    found = difference(*sides, absent())
    convolutions = [g for g in found.groups if g.title.startswith("Conv")]
    assert 20 == len(convolutions)
    assert {"names"} == {g.basis for g in convolutions}
    assert all(g.delta < 0 and "fp32 became fp16" in g.cause for g in convolutions)
    assert found.largest(1)[0].title == "Conv_0"


@recorded.present
def test_an_export_that_numbers_its_nodes_anew_is_joined_by_kernels_and_neighbours() -> None:
    """The INT8 engine of this network is no faster than FP16: it wins in convolutions what its Q layers cost."""
    sides = []
    for folder in ("trex-resnet18-pytorch-a100-fp16", "trex-resnet18-pytorch-a100-int8-qat"):
        built, times = recorded.read(folder)
        sides.append(Side(folder, built, None, {t.layer: t.median for t in times.layers}, times.total))
    found = difference(*sides, absent())
    convolutions = [g for g in found.groups if g.first.layers and g.title.startswith("Conv")]
    assert 20 == len(convolutions)
    assert {"shapes", "neighbours"} == {g.basis for g in convolutions}
    # Every pair has one kernel and output shape, which independent numbering cannot give by chance.
    for g in convolutions:
        a, b = (s.engine.layer(h.layers[-1]) for s, h in ((found.first, g.first), (found.second, g.second)))
        assert a.outputs[0].shape == b.outputs[0].shape
        assert a.attributes["Kernel"] == b.attributes["Kernel"]
    added = [g for g in found.groups if g.title.startswith("QuantizeLinear")]
    assert {"converts"} == {g.basis for g in added}
    assert sum(g.delta for g in added) > 0.2
    assert sum(g.delta for g in convolutions if g.title != "Conv_0") < -0.2
    assert (21, 21) == found.overlap.paired == found.overlap.of


@recorded.present
def test_engines_of_two_models_are_not_compared() -> None:
    """No group of ResNet18 beside MobileNetV2 would mean anything; what they share is said."""
    study = rtlab.Study(absent())
    for name, folder in (
        ("res", "trex-resnet18-pytorch-a100-fp16"),
        ("mobile", "trex-mobilenetv2-titanrtx-int8-qat"),
    ):
        study.read(name, *(p for k, p in recorded.files(recorded.FOLDER / folder).items() if k != "times"))
    with pytest.raises(VariantError) as told:
        study.difference("res", "mobile")
    assert 'Cannot compare "res" with "mobile"' in str(told.value)
    assert "only 0 of 21 and 0 of 53 have one of the same kernel and shapes" in str(told.value)
    assert "model=" in str(told.value)
    shown = answer("difference", Scene(study.snapshot(), study["mobile"].facts, study["res"].facts))
    assert str(told.value) == shown["problem"]
    assert "from" in {s["key"] for s in shown["settings"]}


@recorded.present
def test_no_two_recorded_engines_of_two_models_are_alike_enough() -> None:
    """And every two of one model are: nothing between a half and all is recorded."""
    families = ("resnet18", "resnet50", "mobilenet", "alexnet", "mnist", "written", "detr")
    sides = [Side(f.name, recorded.read(f)[0]) for f in recorded.REAL]
    for one, two in itertools.combinations(sides, 2):
        same = any(f in one.name and f in two.name for f in families)
        found = difference(one, two, absent())
        assert same == found.overlap.enough, (one.name, two.name, found.overlap)
        assert not same or found.overlap.share == 1.0


def test_layers_without_nodes_stand_beside_what_does_the_same_work(model) -> None:
    """An engine from elsewhere may bear names that tell nothing of the model; nodes that are told stay apart."""
    a, b, c = (n.id for n in model.nodes)
    first = side("x", engine("p", "q"), {"p": [a], "q": [b, c]}, {"p": 2.0, "q": 1.0})
    second = side("y", engine("r", "s"), {"s": [b, c]}, {"r": 0.5, "s": 0.75})
    found = {
        (g.first.layers, g.second.layers, g.basis, g.nodes) for g in difference(first, second, model).groups
    }
    assert {(("p",), ("r",), "kinds", (a,)), (("q",), ("s",), "nodes", (b, c))} == found
    apart = side("y", engine("r", "s"), {"r": [b], "s": [c]}, {"r": 0.5, "s": 0.75})
    assert {"alone", "nodes"} == {g.basis for g in difference(first, apart, model).groups}


@pytest.mark.parametrize(
    ("times", "whole", "rest"),
    [
        # A millisecond less for all, two less in the layers: one more outside of them.
        (({"p": 4.0}, {"q": 2.0}), (5.0, 4.0), 1.0),
        # Latencies alone: what the layers take of them is not known, and not all of it lies outside.
        (({}, {}), (5.0, 4.0), None),
        (({"p": 4.0}, {}), (5.0, 4.0), None),
        (({}, {}), (None, None), None),
    ],
)
def test_what_no_layer_accounts_for_is_known_where_both_have_times(model, times, whole, rest) -> None:
    nodes = [n.id for n in model.nodes]
    sides = [side(n, engine(n), {n: nodes}, t, w) for n, t, w in zip("pq", times, whole, strict=True)]
    assert rest == difference(*sides, model).rest


@pytest.mark.parametrize(
    ("before", "after", "cause"),
    [("", "", "the same layers"), ("", "t", "the same layers"), ("t", "", "the same layers"),
     ("t", "t", "the same layers"), ("t", "u", "another tactic")],
)  # fmt: skip
def test_a_tactic_is_another_where_both_are_told(model, before, after, cause) -> None:
    """A file of names tells no tactics, which is no change of them."""
    sides = []
    for name, tactic in (("p", before), ("p", after)):
        plain = engine(name)
        built = dataclasses.replace(plain, layers=(dataclasses.replace(plain.layers[0], tactic=tactic),))
        sides.append(side(name, built, {name: [n.id for n in model.nodes]}, {name: 1.0}))
    assert [cause] == [g.cause for g in difference(*sides, model).groups]
