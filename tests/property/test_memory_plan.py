"""Laws of memory plans on random engines, checked by a simulation that knows nothing of clocks.

The author of an engine decides who reads what on which stream and where streams wait; the checker follows the order
between steps as a graph, and looks at every pair of tensors byte by byte.
"""

from __future__ import annotations

import dataclasses
import itertools

import networkx as nx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rtlab.analyses.memory.plan import (
    Life,
    compute_alive_bytes,
    compute_lifetimes,
    place_tensors,
    plan_engine_memory,
)
from rtlab.backends.compiler_info import TENSORRT_RTX
from rtlab.core.engine import Engine, Layer, Tensor
from rtlab.core.model import make_empty_model
from rtlab.core.variant import Target


@dataclasses.dataclass
class Truth:
    """An engine, and by tensor the steps that use it, as its author made it; ``order`` leads from step to step."""

    engine: Engine
    uses: dict[str, list[int]]
    sizes: dict[str, int]
    order: nx.DiGraph


@st.composite
def truths(draw: st.DrawFn, most_streams: int = 4) -> Truth:
    """Engines of several streams with signals and waits before what is read from another stream."""
    streams = draw(st.integers(1, most_streams))
    layers: list[Layer] = []
    order: nx.DiGraph = nx.DiGraph()
    last: dict[int, int] = {}
    written: dict[str, int] = {}
    uses: dict[str, list[int]] = {}
    sizes: dict[str, int] = {}
    events = 0

    def put(kind: str, stream: int, event: int | None = None, reads=(), writes=()) -> int:
        at = len(layers)
        ends = tuple(reads), tuple(writes)
        layers.append(Layer(str(at), f"l{at}", kind, at, *ends, stream=stream, event=event))
        order.add_node(at)
        if stream in last:
            order.add_edge(last[stream], at)
        last[stream] = at
        return at

    for number in range(draw(st.integers(1, 14))):
        stream = draw(st.integers(0, streams - 1))
        chosen = draw(st.lists(st.sampled_from(sorted(written)), max_size=3, unique=True)) if written else []
        for name in chosen:
            other = written[name]
            if other != stream:
                signal = put("signal", other, events)
                wait = put("wait", stream, events)
                order.add_edge(signal, wait)
                events += 1
        name = f"t{number}"
        sizes[name] = draw(st.sampled_from([0, 1, 100, 256, 300, 1000, 5000]))
        made = Tensor(name, "int8", (sizes[name],))
        at = put("kgen", stream, None, [Tensor(n, "int8", (sizes[n],)) for n in chosen], [made])
        written[name] = stream
        uses[name] = [at]
        for n in chosen:
            uses[n].append(at)
    engine = Engine("tensorrt-rtx", "1", Target("sm86"), tuple(layers), maker=TENSORRT_RTX)
    return Truth(engine, uses, sizes, order)


def apart(truth: Truth, first: str, second: str, reach: dict[int, set[int]]) -> bool:
    """Whether all that uses one tensor is done before any that uses the other begins."""
    return all(b in reach[a] for a in truth.uses[first] for b in truth.uses[second])


@settings(max_examples=150, deadline=None)
@given(truths(), st.sampled_from([1, 256, 512]))
def test_no_two_tensors_that_may_be_alive_at_a_time_share_a_byte(truth: Truth, align: int) -> None:
    """Every pair, under every order of execution that streams and events leave open."""
    found = plan_engine_memory(truth.engine, make_empty_model(), align=align)
    reach = {n: nx.descendants(truth.order, n) for n in truth.order}
    placed = [(a.value, a.offset, a.nbytes) for a in found.allocations]
    assert {name for name, _, _ in placed} == set(truth.sizes)
    for i, (one, at, size) in enumerate(placed):
        assert size == truth.sizes[one]
        assert at % align == 0
        assert at >= 0
        assert at + size <= found.peak
        for other, begin, length in placed[:i]:
            free = apart(truth, one, other, reach) or apart(truth, other, one, reach)
            shared = max(at, begin) < min(at + size, begin + length)
            assert free or not shared, (one, other)


@settings(max_examples=100, deadline=None)
@given(truths())
def test_tensors_are_kept_apart_only_where_the_order_asks_for_it(truth: Truth) -> None:
    lives = {life.id: life for life in compute_lifetimes(truth.engine)}
    reach = {n: nx.descendants(truth.order, n) for n in truth.order}
    for one, other in itertools.permutations(lives, 2):
        assert lives[one].frees(lives[other]) == apart(truth, one, other, reach)


@settings(max_examples=100, deadline=None)
@given(truths())
def test_a_plan_lies_between_its_bound_and_naive_allocation(truth: Truth) -> None:
    found = plan_engine_memory(truth.engine, make_empty_model())
    one = plan_engine_memory(truth.engine, make_empty_model(), one_stream=True)
    assert found.bound <= found.peak <= found.naive
    assert one.bound == (one.alive.max() if len(one.alive) else 0)
    assert found.bound >= one.bound
    assert (found.alive == one.alive).all()


@st.composite
def intervals(draw: st.DrawFn) -> tuple[list[Life], list[int]]:
    """Tensors of one stream, only by first and last step."""
    lives, sizes = [], []
    for i in range(draw(st.integers(0, 24))):
        first = draw(st.integers(0, 15))
        last = first + draw(st.integers(0, 6))
        lives.append(Life(str(i), str(i), "arena", (first,), (last,), (), first, last, (first,), (last + 1,)))
        sizes.append(draw(st.integers(0, 2000)))
    return lives, sizes


@pytest.mark.slow
@settings(max_examples=300, deadline=None)
@given(intervals(), st.sampled_from([1, 64, 256]))
def test_every_step_and_byte_has_one_owner(drawn: tuple[list[Life], list[int]], align: int) -> None:
    """Each step's memory is painted block by block; the bound is the fullest step."""
    lives, sizes = drawn
    arena, again = place_tensors(lives, sizes, align=align), place_tensors(lives, sizes, align=align)
    blocks = [-(-size // align) for size in sizes]
    fullest = 0
    for step in range(25):
        here = [i for i, life in enumerate(lives) if life.first <= step <= life.last]
        starts = {i: arena.offsets[i] // align for i in here}
        owners = [b for i, start in starts.items() for b in range(start, start + blocks[i])]
        assert len(owners) == len(set(owners))
        fullest = max(fullest, len(owners))
    assert arena.bound == fullest * align == compute_alive_bytes(lives, blocks).max(initial=0) * align
    assert arena.size >= arena.bound
    assert arena == again
