"""Placements that heuristics alone leave wide of the bound, and tensors without size."""

from __future__ import annotations

import random

from rtlab.analysis.arena import Arena, place
from rtlab.analysis.lifetimes import Life


def life(name: int, first: int, last: int) -> Life:
    return Life(str(name), str(name), "arena", (first,), (last,), (), first, last, (first,), (last + 1,))


def test_a_search_closes_the_gaps_that_heuristics_leave() -> None:
    """600 tensors with long ones among them: the first placement is a sixth above the bound."""
    rng = random.Random(600)
    lives, sizes = [], []
    for i in range(600):
        duration = rng.choice([1, 1, 1, 1, 2, 3, 8, 40])
        sizes.append(rng.randint(1, 400))
        lives.append(life(i, i, i + duration))
    found = place(lives, sizes, align=1)
    assert found.bound <= found.size <= 1.07 * found.bound


def test_tensors_without_bytes_need_no_memory() -> None:
    assert place([life(0, 0, 3), life(1, 1, 2)], [0, 0]) == Arena((0, 0), 0, 0)
    assert place([life(0, 0, 3), life(1, 1, 2)], [0, 5]) == Arena((0, 0), 256, 256)
    assert place([], []) == Arena((), 0, 0)
