"""When a time is another time, and when it is noise."""

from __future__ import annotations

import numpy as np
import pytest

from rtlab.formulations.trial import Trial, TunedLayer, is_clearly_faster, notch


def trial(name: str, times: np.ndarray) -> Trial:
    low, median, high = np.percentile(times, (25, 50, 75)).tolist()
    return Trial(name, 1, median, (low, high), len(times), 0.0, 1.0, ok=True)


def test_the_notch_is_that_of_a_box_plot() -> None:
    """By hand: 1.57 × 2 / √100."""
    assert pytest.approx((9.686, 10.314)) == notch(10.0, (9.0, 11.0), 100)


def test_noise_alone_is_seldom_taken_for_a_difference() -> None:
    """Of two hundred pairs of the same distribution nearly none; of a tenth in the median nearly all."""
    rng = np.random.default_rng(0)
    wrong = right = 0
    for _ in range(200):
        one, two = rng.lognormal(0, 0.1, (2, 60))
        wrong += is_clearly_faster(trial("one", one), trial("two", two))
        right += is_clearly_faster(trial("one", one), trial("two", two * 1.1))
    assert wrong <= 4
    assert right >= 190


def test_a_layer_without_any_time_is_won_by_its_default() -> None:
    blank = Trial("direct", 1, None, None, 0, 0.0, 1.0, ok=False)
    layer = TunedLayer("n", "", "", 1, (blank,), blank)
    assert blank is layer.winner
    assert (None, None, False) == (layer.gain, layer.margin, layer.is_clear)
