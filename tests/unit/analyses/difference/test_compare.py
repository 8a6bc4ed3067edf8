"""Two engines compared by nodes: fusions and names differ, the work is the same."""

from __future__ import annotations

import dataclasses
import itertools

import pytest

import engines
import rtlab
from rtlab.analyses.difference import Side, compute_difference
from rtlab.analyses.panel_context import PanelContext
from rtlab.analyses.panels import render_panel
from rtlab.backends.compiler_info import TENSORRT
from rtlab.core.engine import Engine, Layer, Tensor
from rtlab.core.model import load, make_empty_model
from rtlab.core.variant import Target
from rtlab.errors import VariantError
from rtlab.relation.mapping import Mapping, Pair
from strategies import chain


def engine(*names: str) -> Engine:
    layers = (
        Layer(n, n, "kgen", i, outputs=(Tensor(f"{n} out", "fp32", (1,)),)) for i, n in enumerate(names)
    )
    return Engine("tensorrt", "10", Target("sm86"), tuple(layers), maker=TENSORRT)


SAME = "the same layers"


@pytest.fixture
def model():
    return load(chain(3))


def side(name: str, built: Engine, nodes: dict[str, list[str]], times: dict[str, float], whole=None) -> Side:
    pairs = tuple(Pair(n, y, "declared") for y, listed in nodes.items() for n in listed)
    return Side(name, built, Mapping(pairs, ()), times, whole)


def test_a_fused_layer_is_set_against_the_layers_it_replaces(model) -> None:
    a, b, c = (n.id for n in model.nodes)
    first = side("x", engine("p", "q"), {"p": [a, b], "q": [c]}, {"p": 2.0, "q": 1.0}, 3.0)
    second = side("y", engine("r", "s"), {"r": [a], "s": [b, c]}, {"r": 0.5, "s": 0.75}, 1.5)
    (group,) = compute_difference(first, second, model).groups
    assert (a, b, c) == group.nodes
    assert (("p", "q"), ("r", "s")) == (group.first.layers, group.second.layers)
    assert group.delta == pytest.approx(-1.75)


def test_what_makes_times_incomparable_is_told(model) -> None:
    nodes = {"p": [n.id for n in model.nodes]}
    batches = [(Tensor("x", "fp32", (n, 3)),) for n in (1, 8)]
    here, there = (dataclasses.replace(engine("p"), device=d, inputs=batches[0]) for d in ("A", "B"))
    large = dataclasses.replace(here, inputs=batches[1])

    def doubts(one: Engine, two: Engine, **more) -> tuple[str, ...]:
        sides = (dataclasses.replace(side("one", e, nodes, {"p": 2.0}), **more) for e in (one, two))
        return compute_difference(*sides, model).warnings

    assert () == doubts(here, here)
    assert [1, 1] == [len(doubts(here, other)) for other in (there, large)]
    assert () == doubts(here, there, origin="estimated")
    assert () == doubts(here, there, times={})
    assert () == doubts(here, dataclasses.replace(engine("p"), target=Target("unknown")))


def test_layers_that_only_move_data_are_one_group_of_their_own(model) -> None:
    a, b, c = (n.id for n in model.nodes)
    first = side("x", engine("p"), {"p": [a, b, c]}, {"p": 2.0})
    copies = tuple(f"Reformatting CopyNode for {end} Tensor 0 to q" for end in ("Input", "Output"))
    times = {copies[0]: 0.25, "q": 1.0, copies[1]: 0.5}
    second = side("y", engine(copies[0], "q", copies[1]), {"q": [a, b, c]}, times)
    work, moves = compute_difference(first, second, model).groups
    assert ("nodes", -1.0) == (work.basis, work.delta)
    assert ("moves", 0.75, (), copies) == (moves.basis, moves.delta, moves.first.layers, moves.second.layers)


def test_without_times_layers_are_still_compared(model) -> None:
    a, b, c = (n.id for n in model.nodes)
    first = side("x", engine("p", "q", "r"), {"p": [a], "q": [b], "r": [c]}, {})
    found = compute_difference(first, side("y", engine("s"), {"s": [a, b, c]}, {}), model)
    assert (None, None, None) == (found.totals, found.delta, found.rest)
    assert ["3 layers became 1"] == [g.cause for g in found.groups]


@pytest.mark.parametrize(
    ("before", "after", "bases", "delta", "changed"),
    [
        # One list of names: 72 µs in place of 100, and two copies of 8 among them.
        ("written-fp32", "written-fp16", {"names"}, -28, 7),
        # Names of its own: kernels and shapes tell the convolutions, and what stands between them the rest.
        ("written-fp32", "written-int8", {"shapes", "neighbours"}, -12, 5),
    ],
)
def test_precisions_of_one_network_are_joined_without_their_model(before, after, bases, delta, changed):
    sides = []
    for folder in (before, after):
        built, times = engines.read(folder)
        if "shapes" in bases:
            anew = (dataclasses.replace(y, name=f"{folder} {y.index}", origins=()) for y in built.layers)
            built = dataclasses.replace(built, layers=tuple(anew))
        sides.append(Side(folder, built, None, {t.layer: t.median for t in times.layers}, times.total))
    found = compute_difference(*sides, make_empty_model())
    groups = [g for g in found.groups if g.basis != "moves"]
    assert [7, 7] == [len(groups), sum(len(g.first.layers) == len(g.second.layers) == 1 for g in groups)]
    assert bases == {g.basis for g in groups}
    assert delta == pytest.approx(1e3 * sum(g.delta for g in found.groups))
    # Whole inferences take four fifths of their layers.
    assert 0.8 * delta == pytest.approx(1e3 * found.delta)
    assert changed == sum("fp32 became" in g.cause for g in groups)
    assert (4, 4) == found.overlap.paired_counts == found.overlap.total_counts


def test_engines_of_two_models_are_not_compared() -> None:
    study = rtlab.Study(make_empty_model())
    for name, folder in (("residual", engines.RESIDUAL), ("mobile", engines.MOBILE)):
        study.read(name, *(p for k, p in engines.files(folder).items() if k != "times"))
    with pytest.raises(VariantError, match="only 0 of 9 and 0 of 53"):
        study.difference("residual", "mobile")
    shown = render_panel(
        "difference", PanelContext(study.state, study["mobile"].facts, study["residual"].facts)
    )
    assert shown["problem"]
    assert "from" in {s["key"] for s in shown["settings"]}


def test_only_engines_of_one_model_are_alike_enough() -> None:
    alike = {"written-fp32", "written-fp16", "written-int8"}
    sides = [Side(f.name, engines.read(f)[0]) for f in engines.ENGINES if f.name not in engines.NAMES_ONLY]
    for one, two in itertools.combinations(sides, 2):
        found = compute_difference(one, two, make_empty_model()).overlap
        assert found.is_enough == ({one.name, two.name} <= alike), (one.name, two.name)
        assert found.share == (1.0 if found.is_enough else 0.0)


def test_layers_without_nodes_stand_beside_what_does_the_same_work(model) -> None:
    a, b, c = (n.id for n in model.nodes)
    first = side("x", engine("p", "q"), {"p": [a], "q": [b, c]}, {"p": 2.0, "q": 1.0})
    second = side("y", engine("r", "s"), {"s": [b, c]}, {"r": 0.5, "s": 0.75})
    groups = compute_difference(first, second, model).groups
    found = {(g.first.layers, g.second.layers, g.basis, g.nodes) for g in groups}
    assert {(("p",), ("r",), "kinds", (a,)), (("q",), ("s",), "nodes", (b, c))} == found
    apart = side("y", engine("r", "s"), {"r": [b], "s": [c]}, {"r": 0.5, "s": 0.75})
    assert {"alone", "nodes"} == {g.basis for g in compute_difference(first, apart, model).groups}


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
    found = compute_difference(*sides, model)
    assert (rest, whole[0] and whole[1] - whole[0]) == (found.rest, found.delta)


@pytest.mark.parametrize(
    ("before", "after", "cause"),
    [("", "", SAME), ("", "t", SAME), ("t", "", SAME), ("t", "t", SAME), ("t", "u", "another tactic")],
)
def test_a_tactic_is_another_where_both_are_told(model, before, after, cause) -> None:
    sides = []
    for name, tactic in (("p", before), ("p", after)):
        plain = engine(name)
        built = dataclasses.replace(plain, layers=(dataclasses.replace(plain.layers[0], tactic=tactic),))
        sides.append(side(name, built, {name: [n.id for n in model.nodes]}, {name: 1.0}))
    assert [cause] == [g.cause for g in compute_difference(*sides, model).groups]
