from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import published
from activations import FAMILIES
from activations import drawn as activation
from observed import observed
from rtlab.core import calibrators
from rtlab.core.calibrators import compute_kl_divergence, resample_linear
from rtlab.core.ranges import BINS, Range
from rtlab.core.scale import Scale
from rtlab.core.variant import CALIBRATORS, Calibrator
from rtlab.quantize.thresholds import display, scales

ENTROPY_BINS, ENTROPY_LEVELS = 2048, 128

DISTRIBUTIONS = {
    "normal": lambda r: r.standard_normal(300_000),
    "relu": lambda r: np.maximum(r.standard_normal(300_000), 0),
    "laplace": lambda r: r.laplace(size=300_000),
    "heavy": lambda r: r.standard_t(3, size=300_000),
    "uniform": lambda r: r.uniform(-1, 1, 300_000),
}


def drawn(name: str) -> tuple[np.ndarray, Range]:
    x = DISTRIBUTIONS[name](np.random.default_rng(5)).astype(np.float32)
    return x, observed(x).values["x"]


@pytest.mark.parametrize("seed", range(6))
def test_divergence_equals_the_published_one(seed: int):
    rng = np.random.default_rng(seed)
    histogram = rng.poisson(200 * np.exp(-np.arange(90) / rng.uniform(5, 60))).astype(float)
    histogram[rng.random(90) < 0.2] = 0
    histogram[: 20 * (seed % 2)] = 0
    histogram[89] = 1
    expected, actual = published.divergences(histogram, 12), compute_kl_divergence(histogram, levels=12)
    assert np.isinf(expected).any()
    np.testing.assert_allclose(expected, actual, rtol=1e-9, atol=1e-12)
    assert int(np.argmin(expected)) == int(np.argmin(actual))


@pytest.mark.parametrize("zeros", [True, False], ids=["entropy", "entropy2"])
@pytest.mark.parametrize("family", FAMILIES)
def test_entropy_finds_what_the_published_search_finds_on_the_elements(family: str, zeros: bool):
    x = activation(family, seed=3)
    seen = observed(x).values["x"]
    divergences = published.divergences(published.histogram(x, ENTROPY_BINS, zeros=zeros), ENTROPY_LEVELS)
    found = (calibrators.entropy if zeros else calibrators.entropy2)(seen)
    chosen = round(found / seen.amax * ENTROPY_BINS) - ENTROPY_LEVELS
    # A logarithmic histogram may put an element into the neighbouring bin, which decides where a long tail has gaps;
    # and where the minimum is flat, candidates change places: the divergence that is reached is what counts.
    reached = divergences[max(chosen - 1, 0) : chosen + 2].min()
    assert reached <= divergences.min() * 1.05 + 1e-12
    if divergences[-1] <= divergences.min():
        assert seen.amax == found


@pytest.mark.parametrize("search", [calibrators.entropy, calibrators.entropy2])
@pytest.mark.parametrize("family", ["constant", "mask", "one-hot", "integers 0..16", "sixteen levels"])
def test_an_entropy_search_keeps_all_of_few_levels(family: str, search: Callable[[Range], float]):
    seen = observed(activation(family, seed=1)).values["x"]
    assert seen.amax == search(seen)


def test_of_equal_divergences_the_largest_threshold_is_kept():
    """Two values: clipping to the smaller loses nothing that the search can see; so says NVIDIA's code."""
    seen = observed(np.array([0.5, 1.0] * 40)).values["x"]
    found = compute_kl_divergence(resample_linear(seen, ENTROPY_BINS))
    assert 2 == np.count_nonzero(found <= found.min() + 1e-12)
    assert 1.0 == calibrators.entropy2(seen) == published.threshold(np.array([0.5, 1.0] * 40), zeros=False)


def test_an_entropy_search_never_clips_into_a_gap():
    """One stray element far out forbids it, as published: the bins before it are empty, and Q may not be zero there."""
    rng = np.random.default_rng(0)
    x = np.append(rng.standard_normal(100_000), 200.0)
    seen = observed(x).values["x"]
    assert 200.0 == calibrators.minmax(seen) == published.threshold(x, zeros=False)
    assert 200.0 == calibrators.entropy2(seen)
    assert calibrators.percentile(seen) < 20


def test_a_crowd_near_zero_moves_entropy2_and_not_entropy():
    """The one difference between the two: the first bin takes the count of the second. Both against the elements."""
    rng = np.random.default_rng(0)
    x = np.concatenate([1e-4 * rng.standard_normal(200_000), rng.standard_normal(20_000)]).astype(np.float32)
    seen = observed(x).values["x"]
    first, second = (published.threshold(x, zeros=zeros) for zeros in (True, False))
    assert second < first / 10
    assert calibrators.entropy(seen) == pytest.approx(first, rel=0.05)
    assert calibrators.entropy2(seen) == pytest.approx(second, rel=0.05)


def test_zeros_do_not_decide_where_an_entropy_search_clips():
    rng = np.random.default_rng(0)
    x = np.abs(rng.standard_normal(200_000))
    without, with_zeros = observed(x).values["x"], observed(np.append(x, np.zeros(10**6))).values["x"]
    assert calibrators.entropy2(without) == calibrators.entropy2(with_zeros)
    assert calibrators.entropy(without) == calibrators.entropy(with_zeros)


@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_percentile_is_the_quantile_of_the_data(name: str):
    """The histogram resolves a quantile to one bin, 1/1,024 of an octave."""
    x, seen = drawn(name)
    expected = float(np.quantile(np.abs(x), 0.9999))
    assert expected == pytest.approx(calibrators.percentile(seen), rel=5e-3)


@pytest.mark.parametrize("share", [0.25, 0.5, 1.0])
def test_a_percentile_inside_a_bin_lies_where_its_share_of_the_elements_does(share: float):
    """Four elements in the first bin, nothing below it: a quarter of them lies in its first quarter."""
    counts = np.zeros(BINS, np.int64)
    counts[0] = 4
    seen = Range(0.0, 1.0, 4, 0, 0, 126, counts)
    low, high = seen.edges[:2]
    assert low + share * (high - low) == pytest.approx(calibrators.percentile(seen, p=100 * share), rel=1e-9)


def test_scale_is_amax_over_127_in_float32():
    """The bits in a TensorRT calibration cache are those of this quotient: 6 becomes 3d418306."""
    assert "3d418306" == np.float32(Scale(6.0).scale).tobytes()[::-1].hex()
    assert "3c010204" == np.float32(Scale(1.0).scale).tobytes()[::-1].hex()


@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_resampling_keeps_every_count(name: str):
    x, seen = drawn(name)
    for bins in (1, 64, 2048):
        counts = resample_linear(seen, bins)
        assert int(np.count_nonzero(x)) == int(counts.sum())
        assert 0 <= counts.min()
        exact = np.histogram(np.abs(x[x != 0]).astype(np.float64), bins=bins, range=(0, seen.amax))[0]
        assert np.abs(counts - exact).sum() <= 0.05 * exact.sum()


def test_a_value_of_few_levels_keeps_each_in_one_bin():
    levels = np.arange(1, 256) / 255
    counts = resample_linear(observed(np.repeat(levels, 9)).values["x"], ENTROPY_BINS)
    assert 255 == np.count_nonzero(counts)
    assert {9.0} == set(counts[counts > 0])


def test_display_spreads_magnitudes_over_equal_bins():
    x = np.concatenate([np.zeros(10), np.linspace(-4, 4, 800)])
    edges, counts = display(observed(x), "x", bins=8)
    np.testing.assert_allclose(np.linspace(0, 4, 9), edges)
    assert 810 == counts.sum()
    assert [110] + [100] * 7 == pytest.approx(list(counts), abs=2)


@pytest.mark.parametrize("method", CALIBRATORS)
def test_a_value_of_zeros_has_a_sane_scale_and_a_note(method: Calibrator):
    scale = scales(observed(np.zeros(50)), method)["x"]
    assert 1 / 127 == pytest.approx(scale.scale)
    assert 'value "x" was zero in all 50 elements: any scale represents it' == scale.note
