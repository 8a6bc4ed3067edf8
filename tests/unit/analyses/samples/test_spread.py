"""How times of whole inferences scatter, against times whose disturbance is known."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rtlab.analyses.samples.spread import compute_spread


def quiet(count: int, seed: int = 0) -> np.ndarray:
    """Times around 1 ms that scatter by 1 %, bounded, so that none stands apart by chance."""
    return 1.0 + 0.01 * np.random.default_rng(seed).uniform(-1, 1, count)


def reasons(samples: np.ndarray) -> dict[int, str]:
    return {o.index: o.reason for o in compute_spread(samples).outliers}


def test_quiet_times_have_no_outliers_and_no_drift() -> None:
    found = compute_spread(quiet(200))
    assert ((), 0.0, ()) == (found.outliers, found.drift, found.sentences())


@pytest.mark.parametrize(
    ("places", "reason"),
    [
        ([0, 1, 2], "start"), ([0], "start"), ([100, 101, 102, 103], "burst"), ([100, 101], "single"), ([37], "single"),
        ([31, 150], "single"),
    ],
)  # fmt: skip
def test_each_disturbance_is_told_by_where_it_stands(places, reason) -> None:
    samples = quiet(200)
    samples[[*places]] += 0.5
    assert dict.fromkeys(places, reason) == reasons(samples)


def test_a_slow_sample_among_the_first_is_no_start_if_those_before_it_were_not_slow() -> None:
    """The 114th of 3,614 inferences has nothing to do with cold caches."""
    samples = quiet(2000)
    samples[[0, 1, 3, 40]] += 0.5
    assert {0: "start", 1: "start", 3: "single", 40: "single"} == reasons(samples)


def test_a_sample_that_is_too_fast_stands_apart_too() -> None:
    samples = quiet(200)
    samples[50] = 0.5
    assert {50: "fast"} == reasons(samples)


@pytest.mark.parametrize("rise", [0.2, -0.2])
def test_a_steady_drift_is_measured(rise) -> None:
    found = compute_spread(quiet(200) + rise * np.linspace(0, 1, 200))
    assert rise == pytest.approx(found.drift * found.median, rel=0.1)


@pytest.mark.parametrize("count", [8, 100, 300, 896, 2000])
def test_the_drift_of_a_straight_line_is_its_slope(count) -> None:
    """By hand: from 1 to 1.5 - 0.5 / n ms, n steps of 0.5 / n; of many samples the parts are unequal."""
    times = 1 + 0.5 * np.arange(count) / count
    assert 0.5 / float(np.median(times)) == pytest.approx(compute_spread(times).drift, rel=1e-9)


@given(st.lists(st.floats(0, 1e6), min_size=2, max_size=60), st.randoms())
def test_quartiles_are_those_of_numpy_and_the_order_does_not_matter_for_them(times, random) -> None:
    found = compute_spread(np.asarray(times))
    random.shuffle(times)
    again = compute_spread(np.asarray(times))
    five = (found.least, found.lower, found.median, found.upper, found.most)
    assert five == (again.least, again.lower, again.median, again.upper, again.most)
    assert five == pytest.approx(np.percentile(times, [0, 25, 50, 75, 100]))
    assert all(o.time > found.upper or o.time < found.lower for o in found.outliers)


def test_one_sample_tells_nothing_and_few_are_said_to_be_few() -> None:
    assert compute_spread(np.asarray([1.0])) is None
    assert 1 == len(compute_spread(quiet(3)).sentences())
