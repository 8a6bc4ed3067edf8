"""Placements that heuristics alone leave wide of the bound, and tensors without size."""

from __future__ import annotations

import numpy as np

from rtlab.analysis.arena import Arena, place
from rtlab.analysis.lifetimes import Life


def life(name: int, first: int, last: int) -> Life:
    return Life(str(name), str(name), "arena", (first,), (last,), (), first, last, (first,), (last + 1,))


def test_a_search_closes_the_gaps_that_heuristics_leave() -> None:
    """600 tensors with long ones among them: the first placement is 11 % above the bound."""
    rng = np.random.default_rng(2)
    durations = rng.choice([1, 1, 1, 1, 2, 3, 8, 40], 600)
    sizes = rng.integers(1, 400, 600).tolist()
    lives = [life(i, i, i + int(duration)) for i, duration in enumerate(durations)]
    found = place(lives, sizes, align=1)
    assert found.bound <= found.size <= 1.05 * found.bound


def test_tensors_without_bytes_need_no_memory() -> None:
    assert place([life(0, 0, 3), life(1, 1, 2)], [0, 0]) == Arena((0, 0), 0, 0)
    assert place([life(0, 0, 3), life(1, 1, 2)], [0, 5]) == Arena((0, 0), 256, 256)
    assert place([], []) == Arena((), 0, 0)
