"""What ``auto`` takes, against an oracle that computes thresholds and their cost on the elements themselves."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pytest

import published
from activations import FAMILIES, drawn
from observed import observed
from rtlab.core.ranges import Range
from rtlab.core.variant import FIXED, Calibrator, Precision
from rtlab.quantize.thresholds import Threshold, ThresholdSearch, thresholds


def seen_of(x: np.ndarray) -> Range:
    return observed(x).values["x"]


def auto(x: np.ndarray, precision: Precision = Precision.INT8) -> Threshold:
    return thresholds(seen_of(x), [Calibrator.AUTO], precision=precision)[0]


class Cost(NamedTuple):
    """What a threshold does to the elements: its SQNR in dB, at most 65, and the share beyond it."""

    sqnr: float
    clipped: float


def cost(x: np.ndarray, amax: float) -> Cost:
    x = x.astype(np.float64)
    step = amax / 127
    noise = np.sum((x - step * np.clip(np.rint(x / step), -127, 127)) ** 2)
    ratio = 10 * np.log10(np.sum(x**2) / noise) if noise > 0 else np.inf
    return Cost(min(float(ratio), 65.0), float(np.mean(np.abs(x) > amax)))


def oracle(x: np.ndarray) -> dict[str, float]:
    """The five thresholds, each by its definition, from the elements."""
    size = np.abs(x.astype(np.float64))
    amax = float(size.max())
    tried = amax * np.arange(1, 129) / 128
    return {
        "minmax": amax,
        "entropy": published.threshold(x, zeros=True),
        "entropy2": published.threshold(x, zeros=False),
        "percentile": float(np.quantile(size, 0.9999)),
        "mse": float(tried[np.argmax([cost(x, t).sqnr for t in tried])]),
    }


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("family", FAMILIES)
def test_auto_clips_little_and_loses_little_whatever_the_data(family: str, seed: int):
    x = drawn(family, seed)
    found = auto(x)
    mine = cost(x, found.amax)
    best = max(cost(x, amax).sqnr for amax in oracle(x).values())
    # The histogram resolves a magnitude to 1/1,024 of itself: as much may lie in the bin of the threshold.
    near = np.mean(np.abs(np.abs(x) / found.amax - 1) < 2**-10) if mine.clipped else 0.0
    assert mine.clipped <= 3e-4 + near
    assert mine.sqnr >= best - 4.2
    assert "" == found.doubt


@pytest.mark.parametrize("family", ["normal", "laplace", "student", "lognormal", "relu", "gated", "bimodal"])
def test_auto_takes_the_smallest_threshold_that_passes(family: str):
    x = drawn(family, 5)
    each = oracle(x)
    costs = {name: cost(x, amax) for name, amax in each.items()}
    best = max(c.sqnr for c in costs.values())
    # With room for what a histogram cannot tell from the limit.
    passes = [n for n, c in costs.items() if c.clipped <= 2.5e-4 and c.sqnr >= best - 3.5]
    assert auto(x).amax <= min(each[n] for n in passes) * 1.01


def test_auto_keeps_rare_values_that_carry_much_and_clips_those_that_carry_little():
    rng = np.random.default_rng(0)
    bulk = rng.standard_normal(200_000)
    much, little = bulk.copy(), bulk.copy()
    much[:200] = 40
    little[:4] = 12
    kept = auto(much)
    assert kept.amax > 39
    assert "minmax" == str(kept.choice.calibrator) or kept.clipped < 1e-4
    assert auto(little).amax < 6


def test_auto_of_fp8_keeps_everything():
    """Its steps grow with the magnitude, so clipping buys nothing."""
    found = auto(drawn("student", 0), Precision.FP8)
    assert ("minmax", 0.0) == (str(found.choice.calibrator), found.clipped)
    assert "the steps of fp8 grow with the magnitude: clipping gains nothing" == found.choice.why


@pytest.mark.parametrize(
    "family", ["far from zero", "narrow", "light picture", "gated", "normal", "mask", "student"]
)
def test_a_threshold_is_doubted_exactly_where_it_loses_more_than_is_healthy(family: str):
    x = drawn(family, 0)
    whole = cost(x, float(np.abs(x).max()))
    for found in thresholds(seen_of(x), FIXED):
        mine = cost(x, found.amax)
        lost = whole.sqnr - mine.sqnr
        if abs(lost - 8) > 0.5 and abs(mine.clipped - 3e-3) > 1e-4 and abs(lost - 1) > 0.2:
            expected = lost > 8 or (mine.clipped > 3e-3 and lost > 1)
            assert expected == bool(found.doubt), found


@pytest.mark.parametrize("rare", [1, 2, 3, 4, 5, 8])
def test_a_threshold_that_clips_few_is_doubted_from_8_db_on(rare: int):
    """Of 100,000 numbers some are 40 and the others within 1, where the threshold stands.

    Minmax rounds to steps of 40/127; the threshold gives 39 of 40 away. So one element loses 3 dB, three lose 7.5 and
    four 8.8. Trained networks whose INT8 is good lose up to 7.7 in a value, so three must pass and four must not.
    """
    x = np.random.default_rng(0).uniform(-1, 1, 100_000)
    x[:rare] = 40
    lost = cost(x, 40.0).sqnr - cost(x, 1.0).sqnr
    by_hand = 10 * np.log10(rare * 39**2 / len(x) / ((40 / 127) ** 2 / 12))
    assert by_hand == pytest.approx(lost, abs=0.3)
    doubt = ThresholdSearch(seen_of(x)).describe_clipping(1.0)
    assert (rare >= 4) == bool(doubt)
    if doubt:
        assert doubt.endswith(f"loses {lost:.1f} dB against minmax")


@pytest.mark.parametrize(
    "family", ["constant", "mask", "one-hot", "integers 0..16", "sixteen levels", "padded"]
)
def test_auto_is_one_of_the_five_thresholds_and_names_it(family: str):
    seen = seen_of(drawn(family, 2))
    one, *fixed = thresholds(seen)
    assert one.choice is not None
    assert {str(t.calibrator): t.amax for t in fixed}[str(one.choice.calibrator)] == one.amax
    assert all(t.choice is None for t in fixed)


@pytest.mark.parametrize(
    "x", [[3.0], [-3.0, 3.0], [0.0, 1e-40], [1e-45], [3e38, 1.0], [1.0] * 5000, [1e-30, 1e30]]
)
def test_auto_of_degenerate_values_keeps_the_maximum(x: list[float]):
    found = auto(np.array(x))
    assert float(np.abs(np.float32(x)).max()) == found.amax
    assert "minmax" == str(found.choice.calibrator)
