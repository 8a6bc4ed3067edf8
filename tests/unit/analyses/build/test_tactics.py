"""What forcing another tactic would cost, counted by hand."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rtlab.analyses.build.tactics import (
    Candidate,
    Contest,
    compute_prices,
    find_contests,
    sum_fastest_times,
    sum_runner_up_losses,
)
from rtlab.backends.readers.log.verbose import parse
from rtlab.core.buildlog import BuildLog, TacticTime, Tuning


def contest(layer: str, *rows: tuple[str, float]) -> Contest:
    """Candidates by formats and milliseconds, given in order."""
    found = tuple(
        Candidate(TacticTime(hex(i), f"t{i}", time), "Cask", formats, cached=False)
        for i, (formats, time) in enumerate(rows)
    )
    return Contest(layer, found, len(found))


def test_the_price_of_a_tactic_is_what_it_adds() -> None:
    one, two = contest("one", ("a", 1.0), ("a", 1.5), ("b", 3.0)), contest("two", ("a", 4.0))
    engine = sum_fastest_times((one, two))
    assert 5.0 == engine
    assert [("t1", 0.5, 0.5, 0.1, False), ("t2", 2.0, 2.0, 0.4, True)] == [
        (p.candidate.name, p.milliseconds, p.of_layer, p.of_engine, p.reformats)
        for p in compute_prices(one, engine)
    ]
    assert () == compute_prices(two, engine)
    assert 0.5 == sum_runner_up_losses((one, two))


@pytest.mark.parametrize("least", [0.0, 5e-324])
def test_layers_that_take_no_time_have_no_shares(least: float) -> None:
    (price,) = compute_prices(contest("one", ("a", least), ("a", 0.5)), least)
    assert (0.5, None, None) == (price.milliseconds, price.of_layer, price.of_engine)


_table = st.lists(st.tuples(st.sampled_from("ab"), st.floats(0, 10)), min_size=1, max_size=5)


@given(st.lists(_table, min_size=1, max_size=5))
def test_prices_add_up(rows: list[list[tuple[str, float]]]) -> None:
    tables = (
        Tuning(f"layer {i}", "Cask", formats, (TacticTime("0x1", "", time),), "0x1", 1, 1)
        for i, table in enumerate(rows)
        for formats, time in table
    )
    found = find_contests(BuildLog(tunings=tuple(tables)))
    assert len(rows) == len(found)
    engine = sum_fastest_times(found)
    seconds = 0.0
    for one in found:
        mine = compute_prices(one, engine)
        assert len(one.candidates) - 1 == len(mine)
        costs = [p.milliseconds for p in mine]
        assert sorted(costs) == costs
        assert not costs or costs[0] >= 0
        seconds += costs[0] if costs else 0.0
        for price in mine:
            if price.of_engine is not None:
                assert price.milliseconds == pytest.approx(price.of_engine * engine)
    assert sum_runner_up_losses(found) == pytest.approx(seconds)


def test_a_contest_counts_every_tactic_once_and_tells_the_margin() -> None:
    section = (
        "*************** Autotuning format combination: Float(1) -> Float(1) ***************\n"
        "--------------- Timing Runner: a (R)\nTactic: 0x1 Time: 0.5\nTactic: 0x2 Time: 0.75\n"
        "Fastest Tactic: 0x1 Time: 0.5\n"
        "--------------- Timing Runner: a (S)\nTactic: 0x1 Time: 0.6\nFastest Tactic: 0x1 Time: 0.6\n"
    )
    cached = "a [Float(1) -> Float(1)] got cached result: R, tactic 0x1, 0.5 ms\n"
    (found,) = find_contests(parse(f"Original: 1 layers\nAfter x: 1 layers\n{section}{section}{cached}").log)
    assert (3, 1.2, False) == (found.count, found.margin, found.winner.cached)
    assert [("R", "0x1"), ("S", "0x1"), ("R", "0x2")] == [
        (c.runner, c.tactic.tactic) for c in found.candidates
    ]
    (alone,) = find_contests(parse(f"Original: 1 layers\nAfter x: 1 layers\n{cached}").log)
    assert (None, 1, True) == (alone.margin, alone.count, alone.winner.cached)
