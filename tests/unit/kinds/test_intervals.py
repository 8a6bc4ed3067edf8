"""Every interval and quartile: formulas written out, and SciPy and NumPy for the quantiles."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence

import numpy as np
import pytest
from scipy import optimize, stats

from rtlab.analyses.check import _compute_drop, _compute_median_interval
from rtlab.analyses.samples.spread import compute_spread
from rtlab.analyses.sensitivity import LOOKS, Effects, rank_effects, reliability
from rtlab.analyses.sensitivity import compute_interval as mean_interval
from rtlab.analyses.timing.times import _reduce_samples
from rtlab.core.bootstrap import FEWEST, Interval, PairedDifference, compare_paired, interval
from rtlab.core.metrics import Tally, find_metric
from rtlab.experiments.benchmark import _compute_quartiles

#: The normal quantile of 95 %, two-sided.
Z = stats.norm.ppf(0.975)
RNG = np.random.default_rng(8)


def effects(measured: list[list[float]], estimated: list[list[float]] | None = None) -> Effects:
    true = np.array(measured, float)
    guess = np.zeros((len(true), 0)) if estimated is None else np.array(estimated, float)
    places = tuple(f"p{i}" for i in range(len(true)))
    return Effects(places, guess, true, np.zeros(true.shape[1]), 1 if estimated else 0)


def test_the_interval_of_three_effects_has_two_degrees_of_freedom() -> None:
    """Of 1, 2 and 6 the mean is 3, the variance (4 + 1 + 9) / 2 = 7 and the skewness (-8 - 1 + 27) / 3 / 7^1.5.

    The ends are where Hall's statistic is Student's quantile for a chance of 5 % spent on four looks, on both sides.
    """
    (row,) = rank_effects(effects([[1, 2, 6]]), "node", {"p0": "n"}, "released")
    assert (row.effect, row.verified, row.origin) == (3.0, 3.0, "measured")
    s, g, quantile = 7**0.5, 6 / 7**1.5, stats.t.ppf(1 - 0.05 / 4 / 2, 2)

    def statistic(truth: float) -> float:
        w = (3 - truth) / s
        return 3**0.5 * (w + g * w**2 / 3 + g**2 * w**3 / 27 + g / 18)

    ends = [
        optimize.brentq(lambda truth, t=t: statistic(truth) - t, -200, 200) for t in (quantile, -quantile)
    ]
    assert (row.low, row.high) == pytest.approx(ends)
    assert row.interval == (row.low, row.high)
    # Alone, it cannot bring outputs nearer to those of fp32.
    assert rank_effects(effects([[1, 2, 6]]), "node", {"p0": "n"})[0].interval == (0.0, row.high)


def test_an_interval_without_skewness_is_student_s() -> None:
    samples = np.array([1.0, 2.0, 3.0, 4.0])
    assert mean_interval(samples) == pytest.approx(stats.t.interval(1 - 0.05 / 4, 3, 2.5, stats.sem(samples)))
    assert mean_interval(np.full(5, 2.0)) == (2.0, 2.0)


def test_a_row_that_was_run_has_the_interval_of_its_runs() -> None:
    (row,) = rank_effects(effects([[1, 2, 6]], [[90, 91, 92]]), "node", {"p0": "n"})
    assert (row.effect, row.verified, row.origin) == (91.0, 3.0, "estimated")
    assert row.low < 3 < row.high < 90


def test_a_place_that_surely_costs_score_stands_before_a_larger_divergence() -> None:
    """Of 40 samples the variant and the second place lose 30 hits; the first loses none and diverges ten times more."""
    hits, misses = np.ones(40), np.r_[np.zeros(30), np.ones(10)]
    table = effects([[10.0] * 40, [1.0] * 40])
    scores = np.stack([hits, misses, hits, misses])
    counted = dataclasses.replace(table, scores=scores, weights=np.ones(40), metric=find_metric("top-1"))
    rows = rank_effects(counted, "node", {"p0": "loud", "p1": "guilty"})
    assert [(r.node, r.score_effect) for r in rows] == [("guilty", 75.0), ("loud", 0.0)]
    # Of "released", the amounts of a place are those without it: the first wins all of them back.
    rows = rank_effects(counted, "node", {"p0": "guilty", "p1": "quiet"}, "released")
    assert [(r.node, r.score_effect) for r in rows] == [("guilty", 75.0), ("quiet", 0.0)]
    # Where the variant itself did not fall, the divergence decides.
    scores[-1] = hits
    assert rank_effects(counted, "node", {"p0": "loud", "p1": "flips"})[0].node == "loud"


#: How effects of single samples are spread.
SPREADS: dict[str, Callable[[np.random.Generator, tuple[int, ...]], np.ndarray]] = {
    "normal": lambda rng, shape: rng.standard_normal(shape),
    "exponential": lambda rng, shape: rng.exponential(size=shape),
    "chi-square of one degree": lambda rng, shape: rng.chisquare(1, shape),
    "lognormal": lambda rng, shape: rng.lognormal(0, 1.5, shape),
    "Pareto of 2.5": lambda rng, shape: rng.pareto(2.5, shape),
    "Student of 3": lambda rng, shape: rng.standard_t(3, shape),
    "one sample in ten": lambda rng, shape: (rng.random(shape) < 0.1) * rng.exponential(size=shape),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", [*SPREADS])
def test_intervals_hold_the_value_over_all_samples_whenever_the_ranking_stops(name: str) -> None:
    """Ten places and 4096 samples in 200 draws; the search stops where the ranking looks reliable."""
    rng, held, before = np.random.default_rng(4), [], []
    for _ in range(200):
        size = np.geomspace(1, 100, 10)[:, None]
        table = size * (SPREADS[name](rng, (10, 4096)) + (name in {"normal", "Student of 3"}))
        truth = table.mean(axis=1)

        def stop(sizes: Sequence[int], table: np.ndarray = table) -> np.ndarray:
            ends = (n for n in sizes if (reliability(table[:, :n]) or 0) >= 0.95)
            return table[:, : next(ends, table.shape[1])]

        ends = np.array([mean_interval(row) for row in stop(LOOKS)])
        held.append((ends[:, 0] <= truth) & (truth <= ends[:, 1]))
        old = stop([8 << i for i in range(9)])
        before.append(abs(old.mean(axis=1) - truth) <= 1.96 * stats.sem(old, axis=1))
    shares = np.mean(held), np.mean(before)
    assert shares[0] >= 0.9, shares
    assert shares[0] > shares[1], shares


def test_one_effect_alone_has_no_interval_and_missing_samples_do_not_count() -> None:
    held = effects([[1, np.nan, np.nan], [5, 7, np.nan]])
    two, one = rank_effects(held, "quantizer", {"p0": "n", "p1": "m"}, "released")
    assert math.isnan(one.low)
    assert math.isnan(one.high)
    assert (two.effect, two.quantizer, two.node) == (6.0, "p1", "m")
    assert two.high - two.low == pytest.approx(2 * stats.t.ppf(1 - 0.05 / 8, 1) * stats.sem([5, 7]), rel=1e-6)


def test_places_are_ranked_by_what_was_measured_where_it_was() -> None:
    """Estimates are 9, 2 and 3; runs say 1 of the first."""
    found = effects([[1, 1], [np.nan] * 2, [np.nan] * 2], [[9, 9], [2, 2], [3, 3]])
    rows = rank_effects(found, "node", {f"p{i}": f"n{i}" for i in range(3)})
    assert [(r.rank, r.node, r.best_effect, r.origin) for r in rows] == [
        (1, "n2", 3.0, "estimated"), (2, "n1", 2.0, "estimated"), (3, "n0", 1.0, "estimated")
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("low", "high", "samples", "sure"),
    [(0.5, 2, 9, True), (-2, -0.5, 9, True), (-1, 1, 9, False), (0, 1, 9, False), (0.1, 1, FEWEST - 1, False)],
)  # fmt: skip
def test_a_difference_is_sure_where_its_interval_is_on_one_side_of_zero(low, high, samples, sure) -> None:
    assert PairedDifference(1.0, Interval(low, high, ""), samples).sure is sure
    assert not PairedDifference(1.0, None, samples).sure


def tally(
    amounts: list[float], weights: list[float] | None = None, link: str = "mean", **more: object
) -> Tally:
    given = np.array(amounts, float)
    w = np.ones(len(given)) if weights is None else np.array(weights, float)
    return Tally(0.0, given, w, link, **more)


@pytest.mark.parametrize(
    ("link", "score"),
    [
        ("mean", lambda r: r), ("share", lambda r: 100 * r), ("exp", math.exp),
        ("decibel", lambda r: -10 * math.log10(r)),
    ],
)  # fmt: skip
def test_a_paired_difference_is_the_second_less_the_first_of_the_same_link(link: str, score: object) -> None:
    """Sums of amounts over sums of weights: 9 / 6 and 6 / 5."""
    first, second = tally([2, 3, 4], [1, 2, 3], link), tally([1, 2, 3], [1, 1, 3], link)
    found = compare_paired(first, second)
    assert found is not None
    assert found.difference == pytest.approx(score(6 / 5) - score(9 / 6))  # type: ignore[operator]
    assert found.lost is found.won is found.p is None
    assert compare_paired(first, tally([1], [0], link)) is None
    picked = compare_paired(first, tally([1, 2, 3], [1, 1, 3], link, picked=True))
    assert picked is not None
    assert picked.interval is None
    assert interval(tally([1, 0, 1], link="share", picked=True)) is None


def test_the_bootstrap_of_many_values_is_that_of_their_mean() -> None:
    """Of 400 normal values BCa and Student's interval hardly differ."""
    values = RNG.normal(5, 2, size=400)
    found = interval(tally(list(values)))
    assert found is not None
    ends = stats.t.interval(0.95, 399, values.mean(), stats.sem(values))
    assert (found.low, found.high) == pytest.approx(ends, abs=0.03)
    both = compare_paired(tally(list(values)), tally(list(values - 1 + 0.1 * RNG.normal(size=400))))
    assert both is not None
    assert both.interval is not None
    assert both.interval.low < -1 < both.interval.high
    assert both.interval.high - both.interval.low == pytest.approx(2 * Z * 0.1 / 20, rel=0.15)


@pytest.mark.parametrize(("higher", "low", "high", "drop"), [(True, -1, 3, 2), (False, -3, 1, -2)])
def test_harm_turns_an_interval_with_its_sign(higher: bool, low: float, high: float, drop: float) -> None:
    """A difference of -2, from -3 to 1."""
    from rtlab.core.facts import Score

    scores = [Score("s", v, "", 9, "", higher=higher) for v in (1.0, 3.0)]
    found, ends = _compute_drop(*scores, PairedDifference(-2.0, Interval(-3, 1, "m"), 9))
    assert ends is not None
    assert (found, ends.low, ends.high) == (drop, low, high)
    assert _compute_drop(*scores, None) == (drop, None)


def test_rounds_of_nine_leave_out_the_fastest_and_the_slowest() -> None:
    """Of nine values the second to the eighth hold the median with 1 - 2 (1 + 9) / 512 = 96 %, of eight with 93 %."""
    covered = {n: 1 - 2 * stats.binom.cdf(1, n, 0.5) for n in (8, 9)}
    assert covered[8] < 0.95 < covered[9]
    times = [5.0, 1.0, 9.0, 3.0, 7.0, 2.0, 8.0, 4.0, 6.0]
    assert _compute_median_interval(times) == (2.0, 8.0)
    assert _compute_median_interval(times[:8]) == (1.0, 9.0)


def test_quartiles_are_numpys_and_their_order_is_low_median_high() -> None:
    times = [4.0, 1.0, 10.0, 2.0]
    low, median, high = 1.75, 3.0, 5.5
    assert _compute_quartiles(times) == (low, median, high)
    reduced = _reduce_samples({"a": np.array(times), "b": np.array([2.0])})
    assert reduced == {"a": (median, (low, high)), "b": (2.0, None)}
    found = compute_spread(np.array(times))
    assert found is not None
    assert (found.least, found.lower, found.median, found.upper, found.most) == (1, low, median, high, 10)
