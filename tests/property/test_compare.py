"""Laws of the comparison of two engines of one model."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

import strategies
from rtlab.analyses.difference import Difference, Side, compute_difference
from rtlab.relation.relate import relate
from rtlab.relation.roles import SERVING


@st.composite
def pairs(draw: st.DrawFn) -> tuple:
    """A model, and two engines of it with times, as different builders could make them."""
    model = draw(strategies.models(bodies=True))
    sides = []
    for name in ("a", "b"):
        engine = draw(strategies.engines(model))
        times = {y.id: draw(st.floats(0, 10, allow_subnormal=False)) for y in engine.layers}
        whole = draw(st.none() | st.floats(0.1, 100))
        sides.append(Side(name, engine, relate(model, model, engine), times, whole))
    return model, *sides


def oracle(first: Side, second: Side) -> list[set[str]]:
    """Groups of nodes by merging sets until nothing changes, for nodes that have a layer."""
    groups: list[set[str]] = []
    for side in (first, second):
        pairs = side.mapping.pairs
        computed = {p.node for p in pairs if p.role not in SERVING}
        for layer in side.engine.layers:
            # A layer that only serves a node, such as by its Q, does not join it with what the layer computes.
            own = [p for p in pairs if p.layer == layer.id]
            nodes = {p.node for p in own if p.role not in SERVING or p.node not in computed}
            if nodes := nodes or {p.node for p in own[:1]}:
                touched = [g for g in groups if g & nodes]
                groups = [g for g in groups if not g & nodes] + [nodes.union(*touched)]
    return groups


def every_layer_once(found: Difference) -> None:
    for side, half in ((found.first, "first"), (found.second, "second")):
        counted = Counter(i for g in found.groups for i in getattr(g, half).layers)
        assert Counter(y.id for y in side.engine.layers) == counted


def compared() -> st.SearchStrategy[tuple[Side, Side, Difference]]:
    return pairs().map(lambda case: (*case[1:], compute_difference(*case[1:], case[0])))


@given(compared())
def test_every_layer_of_both_engines_is_in_one_group(case):
    every_layer_once(case[-1])


@given(compared())
def test_groups_are_the_least_sets_of_nodes_that_both_engines_separate(case):
    first, second, found = case
    groups = {frozenset(g.nodes) for g in found.groups if g.nodes}
    assert {frozenset(g) for g in oracle(first, second)} == groups


@given(compared())
def test_the_differences_add_up_to_the_difference_of_the_whole(case):
    first, second, found = case
    if found.rest is None:
        assert not (first.times and second.times)
        return
    before, after = found.totals
    assert after == pytest.approx(before + sum(g.delta or 0.0 for g in found.groups) + found.rest, abs=1e-9)


@given(pairs())
def test_an_engine_differs_from_itself_in_nothing(case):
    model, first, _ = case
    found = compute_difference(first, first, model)
    assert {0.0} >= {g.delta for g in found.groups if first.times}
    assert [g.first for g in found.groups] == [g.second for g in found.groups]
    assert {"the same layers"} >= {g.cause for g in found.groups}


@given(pairs())
def test_turned_around_every_difference_has_the_other_sign(case):
    model, first, second = case
    there, back = compute_difference(first, second, model), compute_difference(second, first, model)
    told = {(g.first, g.second) for g in there.groups}
    assert told == {(g.second, g.first) for g in back.groups}
