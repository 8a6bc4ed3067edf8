"""Which nodes share a step with others than before, against every pair of nodes asked by itself."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from onnx import TensorProto, helper

import rtlab
from rtlab.analyses import bisection
from rtlab.core.engine import Engine, Layer
from rtlab.core.variant import Target
from rtlab.relation.mapping import Mapping, Pair


def model(count: int) -> rtlab.Model:
    nodes = [helper.make_node("Relu", [f"v{i}"], [f"v{i + 1}"], name=f"n{i}") for i in range(count)]
    ends = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [1, 4]) for n in ("v0", f"v{count}")]
    graph = helper.make_graph(nodes, "row", ends[:1], ends[1:])
    return rtlab.load(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9))


def side(*steps: str, serves: str = "") -> tuple[Mapping, Engine]:
    """An engine whose steps run these nodes, as "n0 n1".

    ``serves`` as "n0 n2": the step of the first quantizes for the second.
    """
    told = [step.split() for step in steps]
    layers = tuple(Layer(f"y{i}", f"y{i}", "k", i) for i in range(len(told)))
    pairs = [Pair(n, f"y{i}", "declared") for i, step in enumerate(told) for n in step]
    if serves:
        runs, reads = serves.split()
        at = next(i for i, step in enumerate(told) if runs in step)
        pairs.append(Pair(reads, f"y{at}", "declared", role="Q"))
    return Mapping(tuple(pairs), ()), Engine("b", "1", Target("cpu"), layers)


def places(count: int, one, two) -> list[bisection.Regrouping]:
    return bisection.find_regroupings(model(count), (one[0], two[0]), (one[1], two[1]))


def test_a_step_that_quantizes_for_a_node_does_not_run_it() -> None:
    one = side("n0 n1", "n2 n3")
    assert [] == places(4, one, side("n0 n1", "n2 n3", serves="n0 n2"))
    (place,) = places(4, one, side("n0", "n1", "n2 n3", serves="n1 n2"))
    assert (("n0", "n1"), (("n0", "n1"),), ()) == (place.nodes, place.split_pairs, place.merged_pairs)


def test_two_places_are_two_and_a_chain_of_changes_is_one() -> None:
    one = side("n0 n1", "n2 n3", "n4", "n5")
    found = places(6, one, side("n0", "n1", "n2 n3", "n4 n5"))
    assert [("n0", "n1"), ("n4", "n5")] == [p.nodes for p in found]
    assert [((("n0", "n1"),), ()), ((), (("n4", "n5"),))] == [(p.split_pairs, p.merged_pairs) for p in found]
    (place,) = places(6, one, side("n0", "n1 n2", "n3 n4", "n5"))
    assert ("n0", "n1", "n2", "n3", "n4") == place.nodes


def test_a_node_that_one_engine_has_no_step_for_changes_nobody() -> None:
    assert [] == places(3, side("n0 n1 n2"), side("n0 n2"))


@pytest.mark.parametrize("seed", range(8))
def test_a_node_is_in_a_place_exactly_where_one_pair_with_it_changed(seed: int) -> None:
    rng, count = np.random.default_rng(seed), 12

    def drawn() -> tuple[str, ...]:
        cuts = sorted(rng.choice(range(1, count), 6, replace=False))
        return tuple(" ".join(f"n{i}" for i in range(a, b)) for a, b in itertools.pairwise([0, *cuts, count]))

    one, two = drawn(), drawn()
    homes = [{n: i for i, step in enumerate(s) for n in step.split()} for s in (one, two)]
    changed = {
        frozenset(pair)
        for pair in itertools.combinations(homes[0], 2)
        if len({h[pair[0]] == h[pair[1]] for h in homes}) == 2
    }
    found = places(count, side(*one), side(*two))
    assert set().union(*changed) == {n for p in found for n in p.nodes}
    # No changed pair crosses two places, and each place hangs together by changed pairs.
    home = {n: i for i, p in enumerate(found) for n in p.nodes}
    assert all(len({home[n] for n in pair}) == 1 for pair in changed)
    for place in found:
        reached, todo = {place.nodes[0]}, [place.nodes[0]]
        while todo:
            mates = {m for pair in changed if todo[-1] in pair for m in pair} - reached
            todo.pop()
            reached |= mates
            todo += mates
        assert {*place.nodes} == reached
