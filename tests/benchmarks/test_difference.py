"""What it costs to set two large engines side by side that share no name."""

from __future__ import annotations

import difflib
import sys
import time

from rtlab.analyses.difference import Difference, Side, compute_difference
from rtlab.core.engine import Engine
from rtlab.core.model import make_empty_model
from twins import Habits, build, network

_HERE = Habits(shorts=0.5, splits=0.1, batch=32)
_THERE = Habits(shorts=0.5, pools=True, quantizes=0.3, precision="int8", counts=3)


def pair(layers: int) -> tuple[Engine, Engine, dict[str, frozenset[str]], dict[str, frozenset[str]]]:
    """Two engines of one network: other fusions, another precision, another export."""
    ops = network(layers * 3 // 10)
    one, runs = build(ops, _HERE, "a", 1)
    two, others = build(ops, _THERE, "b", 2)
    return one, two, runs, others


def compared(one: Engine, two: Engine) -> Difference:
    times = [{y.id: 0.001 * (1 + y.index % 7) for y in e.layers} for e in (one, two)]
    return compute_difference(
        Side("a", one, None, times[0]), Side("b", two, None, times[1]), make_empty_model()
    )


def best(function, *given, rounds: int) -> float:
    taken = []
    for _ in range(rounds):
        began = time.perf_counter()
        function(*given)
        taken.append(time.perf_counter() - began)
    return min(taken)


def rows(engine: Engine) -> list[tuple[object, ...]]:
    """What a person would lay side by side: kind, kernel and shapes of each layer."""
    return [
        (y.kind, str(y.attributes.get("Kernel")), y.inputs[0].shape[1:], y.outputs[0].shape[1:])
        for y in engine.layers
    ]


def lined_up(one: Engine, two: Engine) -> None:
    difflib.SequenceMatcher(None, rows(one), rows(two), autojunk=False).get_matching_blocks()


def test_two_engines_of_5000_layers_are_compared_faster_than_difflib_lines_them_up(benchmark, care) -> None:
    """Half a second asked: difflib lines up the same rows in the same order, and does nothing else."""
    # The whole size in a smoke run too: difflib takes the square of it, and is no peer where that is small.
    one, two, runs, others = pair(5_000)
    compared(one, two)
    found = benchmark.pedantic(compared, (one, two), rounds=care.size(5, 1))
    for group in found.groups:
        mine, theirs = (
            frozenset().union(*(told.get(i, frozenset()) for i in half.layers))
            for told, half in ((runs, group.first), (others, group.second))
        )
        assert mine == theirs
    taken = [
        (best(compared, one, two, rounds=1), best(lined_up, one, two, rounds=1))
        for _ in range(care.size(5, 2))
    ]
    seconds, peer = (min(times) for times in zip(*taken, strict=True))
    measured = {
        "layers": [len(one.layers), len(two.layers)],
        "seconds": round(seconds, 3),
        "difflib": round(peer, 3),
        "times_difflib": round(seconds / peer, 2),
    }
    benchmark.extra_info |= measured
    sys.stdout.write(f"{measured}\n")
    assert seconds < care.most(1.0) * peer, measured


def test_a_comparison_takes_as_much_longer_as_there_are_layers(care) -> None:
    """Ten times the layers, at most twice as long for each."""
    large, small = (pair(n)[:2] for n in care.size((5_000, 500), (1_000, 200)))
    each = [best(compared, *engines, rounds=5) / len(engines[0].layers) for engines in (large, small)]
    assert each[0] < care.most(2.0) * each[1]
