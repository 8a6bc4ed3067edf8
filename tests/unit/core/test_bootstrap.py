"""Intervals and tests against published examples, and how often intervals hold what they promise."""

import numpy as np
import pytest
from scipy import stats

from rtlab.core.bootstrap import compare_paired, interval, mcnemar, paired_shares, wilson
from rtlab.core.metrics import Tally


@pytest.mark.parametrize(
    ("hits", "samples", "low", "high"),
    [(81, 263, 25.53, 36.62), (15, 148, 6.24, 16.05), (0, 20, 0.00, 16.11), (1, 29, 0.61, 17.18)],
)
def test_wilson_gives_the_published_intervals(hits, samples, low, high):
    """Newcombe (1998), Two-sided confidence intervals for the single proportion, Table I, method 3."""
    found = wilson(hits, samples)
    assert (low, high) == (round(found.low, 2), round(found.high, 2))


def test_mcnemar_gives_the_published_p():
    """Agresti's 1600 voters, of whom 150 left the prime minister and 86 came: 3.716e-05, as R's exact2x2 prints it."""
    assert 3.716e-05 == pytest.approx(mcnemar(150, 86), rel=1e-4)
    assert mcnemar(86, 150) == mcnemar(150, 86)


def test_mcnemar_by_hand():
    """Six heads of six: 2 / 64; nothing differs: nothing is against both being equal."""
    assert 2 / 64 == pytest.approx(mcnemar(6, 0))
    assert 1.0 == mcnemar(0, 0) == pytest.approx(mcnemar(3, 3))


def test_the_difference_of_shares_by_hand():
    """P = 3 / 102, q = 13 / 102; the difference is -10 / 102, its variance (16 / 102 - (10 / 102)²) / 102."""
    middle, half = -10 / 102, 1.959964 * ((16 / 102 - (10 / 102) ** 2) / 102) ** 0.5
    found = paired_shares(12, 2, 100)
    assert (100 * (middle - half), 100 * (middle + half)) == pytest.approx((found.low, found.high), abs=1e-4)


def test_hits_are_paired_sample_by_sample():
    """Of ten samples the second variant loses three and wins one: 20 points below, and too few to tell."""
    first = hits(1, 1, 1, 1, 1, 1, 1, 0, 0, 0)
    second = hits(0, 0, 0, 1, 1, 1, 1, 1, 0, 0)
    found = compare_paired(first, second)
    assert (3, 1, 10) == (found.lost, found.won, found.samples)
    assert -20.0 == pytest.approx(found.difference)
    assert 0.625 == pytest.approx(found.p), "two tails of 4 coins: (1 + 4) / 16 each"
    assert found.interval.low < 0 < found.interval.high
    assert not found.sure


def test_fewer_than_eight_samples_conclude_nothing():
    """All seven lost is no chance; eight are the first number at which anything is said."""
    seven = compare_paired(hits(*[1] * 7), hits(*[0] * 7))
    assert seven.interval.high < 0
    assert not seven.sure
    assert compare_paired(hits(*[1] * 8), hits(*[0] * 8)).sure


def test_wilson_holds_what_it_promises():
    """How often it has the true share in it, by adding up the binomial distribution: no simulation is needed."""
    for share, samples in ((0.72, 100), (0.9, 200), (0.991, 899), (0.5, 30)):
        counts = np.arange(samples + 1)
        inside = [i.low / 100 <= share <= i.high / 100 for i in (wilson(int(k), samples) for k in counts)]
        assert 0.92 < stats.binom.pmf(counts, samples, share)[inside].sum() < 0.98


@pytest.mark.parametrize(
    ("lost", "won", "samples"), [(0.10, 0.02, 100), (0.27, 0.001, 899), (0.03, 0.03, 300)]
)
def test_the_difference_of_shares_holds_what_it_promises(lost, won, samples):
    draws = np.random.default_rng(5).multinomial(samples, [lost, won, 1 - lost - won], size=2000)
    found = [paired_shares(int(b), int(c), samples) for b, c, _ in draws]
    assert 0.92 < np.mean([i.low <= 100 * (won - lost) <= i.high for i in found]) < 0.98


def test_the_bootstrap_holds_what_it_promises():
    """Of skewed values, whose mean is known: exp(1 / 8)."""
    draws = np.random.default_rng(6).lognormal(0.0, 0.5, size=(300, 80))
    found = [interval(values(row)) for row in draws]
    assert 0.92 < np.mean([i.low <= np.exp(0.125) <= i.high for i in found]) < 0.98


def test_the_bootstrap_leans_as_its_values_do():
    """Corrected for bias and skew: as SciPy's own with ten times as many other draws, and not as plain percentiles."""
    skewed = np.random.default_rng(3).lognormal(0.0, 1.0, size=40)
    found = interval(values(skewed))
    other = {
        method: stats.bootstrap(
            (skewed,), np.mean, n_resamples=20000, method=method, random_state=np.random.default_rng(4)
        ).confidence_interval
        for method in ("BCa", "percentile", "basic")
    }
    near = {m: abs(i.low - found.low) + abs(i.high - found.high) for m, i in other.items()}
    assert near["BCa"] < 0.3 * min(near["percentile"], near["basic"])


def test_a_ratio_is_drawn_with_its_weights():
    length = np.arange(1.0, 41.0)
    found = interval(Tally(50.0, length / 2, length, "share"))
    assert (50.0, 50.0) == pytest.approx((found.low, found.high))


def test_decibels_keep_their_order():
    errors = np.linspace(0.001, 0.002, 50)
    found = interval(Tally(0.0, errors, np.ones(50), "decibel"))
    assert found.low < -10 * np.log10(errors.mean()) < found.high


def test_a_paired_difference_is_narrower_than_both_scores():
    before = np.random.default_rng(7).normal(5.0, 2.0, 200)
    after = before - 0.1 + np.random.default_rng(8).normal(0, 0.05, 200)
    found = compare_paired(values(before), values(after))
    assert found.sure
    assert found.interval.low < -0.1 < found.interval.high
    alone = interval(values(before))
    assert found.interval.high - found.interval.low < (alone.high - alone.low) / 10


def hits(*found):
    """A tally of hits and misses."""
    amounts = np.array(found, np.float64)
    return Tally(100 * amounts.mean(), amounts, np.ones(len(amounts)), "share")


def values(found):
    """A tally of one value for each sample."""
    return Tally(float(found.mean()), found, np.ones(len(found)))
