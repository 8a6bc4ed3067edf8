from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import published
from observed import observed
from rtlab.core.ranges import Range
from rtlab.core.variant import Calibrator, Precision
from rtlab.quantize.thresholds import scales, thresholds

DISTRIBUTIONS = {
    "normal": lambda r: r.standard_normal(200_000),
    "relu": lambda r: np.maximum(r.standard_normal(200_000), 0),
    "heavy": lambda r: r.standard_t(3, size=200_000),
    "uniform": lambda r: r.uniform(-1, 1, 200_000) * 1e-6,
    "outlier": lambda r: np.append(r.standard_normal(200_000), [300.0, -250.0]),
    "relu6": lambda r: np.clip(3 * r.standard_normal(200_000), 0, 6),
}
GRIDS = [Precision.INT8, Precision.FP8]


def drawn(name: str) -> np.ndarray:
    return DISTRIBUTIONS[name](np.random.default_rng(7)).astype(np.float32)


def seen_of(x: np.ndarray) -> Range:
    return observed(x).values["x"]


def quantized(x: np.ndarray, amax: float, precision: Precision) -> np.ndarray:
    """What Q/DQ makes of an array, by the definitions of the types and not by rtlab's."""
    if precision is Precision.INT8:
        step = amax / 127
        return step * np.clip(np.rint(x / step), -127, 127)
    step = amax / 448
    small = np.clip(x / step, -448, 448).astype(ml_dtypes.float8_e4m3fn)
    return step * small.astype(np.float64)


def decibel(x: np.ndarray, amax: float, precision: Precision) -> float:
    x = x.astype(np.float64)
    return float(10 * np.log10(np.sum(x**2) / np.sum((x - quantized(x, amax, precision)) ** 2)))


@pytest.mark.parametrize("precision", GRIDS)
@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_sqnr_is_that_of_quantizing_the_array(name: str, precision: Precision):
    x = drawn(name)
    for found in thresholds(seen_of(x), precision=precision):
        assert decibel(x, found.amax, precision) == pytest.approx(found.sqnr, abs=0.2)


@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_clipped_is_the_share_of_the_array_beyond_the_threshold(name: str):
    x = drawn(name)
    for found in thresholds(seen_of(x)):
        expected = float(np.mean(np.abs(x.astype(np.float64)) > found.amax))
        assert expected == pytest.approx(found.clipped, abs=2e-5, rel=0.02)


@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_thresholds_are_those_that_scales_are_made_of(name: str):
    seen = observed(drawn(name))
    for precision in GRIDS:
        for found in thresholds(seen.values["x"], precision=precision):
            assert scales(seen, found.calibrator, precision=precision)["x"].amax == found.amax


@pytest.mark.parametrize("calibrator", ["entropy", "entropy2"])
@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_entropy_thresholds_are_those_of_an_exhaustive_search(name: str, calibrator: str):
    """A search that skips candidates is no search; this one agrees with all of them tried one by one."""
    x, chosen = drawn(name), Calibrator.of(calibrator)
    seen, bins, levels = seen_of(x), 2048, 128
    found = thresholds(seen, [chosen])[0].amax
    counts = published.histogram(x, bins, zeros=str(chosen.method) == "entropy")
    raw = published.divergences(counts, levels)
    at = round(found / seen.amax * bins) - levels
    assert found == pytest.approx((at + levels) * seen.amax / bins)
    # Of the raw array: the logarithmic histogram may move elements between neighbours, not the result.
    assert raw[max(at - 1, 0) : at + 2].min() <= raw.min() * 1.02 + 1e-6


@pytest.mark.parametrize("precision", GRIDS)
@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_mse_threshold_is_the_best_of_all_candidates_on_the_array(name: str, precision: Precision):
    x = drawn(name)
    amax = float(np.abs(x).max())
    tried = {amax * k / 128: decibel(x, amax * k / 128, precision) for k in range(1, 129)}
    found = thresholds(seen_of(x), [Calibrator.MSE], precision=precision)[0]
    assert any(found.amax == pytest.approx(t) for t in tried)
    assert max(tried.values()) == pytest.approx(decibel(x, found.amax, precision), abs=0.02)


def test_parameters_are_honoured():
    x = drawn("heavy")
    seen = seen_of(x)
    found = {c: thresholds(seen, [Calibrator.of(c)])[0].amax for c in ("percentile(99)", "percentile(100)")}
    assert float(np.quantile(np.abs(x), 0.99)) == pytest.approx(found["percentile(99)"], rel=2e-3)
    assert float(np.abs(x).max()) == found["percentile(100)"]


def test_fp8_divides_by_448():
    seen = observed(np.array([3.5, -7.0]))
    found = scales(seen, Calibrator.MINMAX, precision=Precision.FP8)["x"]
    assert (7.0, 448.0, float(np.float32(7) / np.float32(448))) == (found.amax, found.largest, found.scale)


@pytest.mark.parametrize("precision", GRIDS)
@pytest.mark.parametrize(
    "x", [[0.0] * 9, [3.0], [-3.0] * 50, [1e-45, 0.0], [1e-40, -3e-39], [3e38, 1.0], [1e-30, 1e30]]
)
def test_degenerate_values_have_thresholds(x: list[float], precision: Precision):
    for found in thresholds(seen_of(np.array(x)), precision=precision):
        assert np.isfinite(found.amax)
        assert found.amax > 0
        assert 0 <= found.clipped <= 1
        assert not np.isnan(found.sqnr)


def test_zeros_lose_nothing():
    assert all((0.0, np.inf) == (t.clipped, t.sqnr) for t in thresholds(seen_of(np.zeros(9))))
