"""What forcing another tactic would cost, counted by hand and on recorded logs."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rtlab.backends.log.verbose import parse
from rtlab.core.buildlog import BuildLog, TacticTime, Tuning
from rtlab.questions.build.tactics import Candidate, Contest, contests, prices, second_best, total

# Recordings live beside the checkout, not in it.
LOGS = Path(__file__).parents[5] / "shared" / "recorded" / "build-logs"
recorded = pytest.mark.skipif(not LOGS.is_dir(), reason="no ../shared/recorded beside the checkout")


def contest(layer: str, *rows: tuple[str, float]) -> Contest:
    """Candidates by formats and milliseconds, given in order."""
    found = tuple(
        Candidate(TacticTime(hex(i), f"t{i}", time), "Cask", formats, cached=False)
        for i, (formats, time) in enumerate(rows)
    )
    return Contest(layer, found, len(found))


def test_the_price_of_a_tactic_is_what_it_adds() -> None:
    """Per layer, and of an engine of all the fastest; other formats are told."""
    one, two = contest("one", ("a", 1.0), ("a", 1.5), ("b", 3.0)), contest("two", ("a", 4.0))
    engine = total((one, two))
    assert 5.0 == engine
    cheap, dear = prices(one, engine)
    assert ("t1", 0.5, 0.5, 0.1, False) == (
        cheap.candidate.name, cheap.milliseconds, cheap.of_layer, cheap.of_engine, cheap.reformats,
    )  # fmt: skip
    assert ("t2", 2.0, 2.0, 0.4, True) == (
        dear.candidate.name, dear.milliseconds, dear.of_layer, dear.of_engine, dear.reformats,
    )  # fmt: skip
    assert () == prices(two, engine)
    assert 0.5 == second_best((one, two))


@pytest.mark.parametrize("least", [0.0, 5e-324])
def test_layers_that_take_no_time_have_no_shares(least: float) -> None:
    (price,) = prices(contest("one", ("a", least), ("a", 0.5)), least)
    assert (0.5, None, None) == (price.milliseconds, price.of_layer, price.of_engine)


@given(
    st.lists(
        st.lists(st.tuples(st.sampled_from("ab"), st.floats(0, 10)), min_size=1, max_size=5),
        min_size=1,
        max_size=5,
    )
)
def test_prices_add_up(rows: list[list[tuple[str, float]]]) -> None:
    """No price is negative, the runner-up is the cheapest, and shares are of the same whole."""
    log = BuildLog(
        tunings=tuple(
            Tuning(f"layer {i}", "Cask", formats, (TacticTime("0x1", "", time),), "0x1", 1, 1)
            for i, table in enumerate(rows)
            for formats, time in table
        )
    )
    found = contests(log)
    assert len(rows) == len(found)
    engine = total(found)
    seconds = 0.0
    for one in found:
        mine = prices(one, engine)
        assert len(one.candidates) - 1 == len(mine)
        costs = [p.milliseconds for p in mine]
        assert sorted(costs) == costs
        assert not costs or costs[0] >= 0
        seconds += costs[0] if costs else 0.0
        for price in mine:
            if price.of_engine is not None:
                assert price.milliseconds == pytest.approx(price.of_engine * engine)
    assert second_best(found) == pytest.approx(seconds)


@recorded
def test_a_recorded_build_would_pay_for_its_second_best() -> None:
    """The first layer by the lines of the log itself."""
    found = contests(parse(LOGS / "mnist-trt10.16-h100-level5.log").log)
    with_choice = [c for c in found if c.runner_up is not None and not c.operator]
    assert with_choice
    engine = total(found)
    assert (
        0 < second_best(found) == pytest.approx(sum(prices(c, engine)[0].milliseconds for c in with_choice))
    )
    for one in with_choice:
        assert one.margin is not None
        assert prices(one, engine)[0].of_layer == pytest.approx(one.margin - 1)
