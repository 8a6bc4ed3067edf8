"""When a time is another time, and when it is noise."""

from __future__ import annotations

import datetime

import numpy as np
import pytest

from rtlab.formulations.trial import ModelTrial, Trial, TunedLayer, TunedModel, is_clearly_faster, notch

TAKEN = datetime.datetime(2026, 1, 1, tzinfo=datetime.timezone.utc)


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
    layer = TunedLayer("n", "", "", (blank,), blank)
    assert blank is layer.winner
    assert (None, None, False) == (layer.gain, layer.margin, layer.is_clear)
    timed = trial("direct", np.array([1.0, 2.0]))
    assert [False] * 2 == [is_clearly_faster(*pair) for pair in ((blank, timed), (timed, blank))]


def test_a_winner_has_the_lowest_median_and_is_compared_with_others_of_its_threads() -> None:
    def timed(name: str, threads: int, median: float, *, ok: bool = True, spread: float = 0.1) -> Trial:
        return Trial(name, threads, median, (median - spread, median + spread), 100, 0.0, 1.0, ok=ok)

    direct = [timed("direct", 4, 6.0), timed("direct", 1, 9.0)]
    others = [timed("a", 4, 4.0), timed("a", 1, 3.0), timed("b", 4, 5.0), timed("c", 4, 1.0, ok=False)]
    layer = TunedLayer("n", "", "", (*direct, *others), direct[0])
    assert (others[1], others[0], None) == (layer.winner, layer.best(4), layer.best(2))
    assert [direct[1], None] == [layer.direct(threads) for threads in (1, 3)]
    assert (2.0, 5 / 3, True) == (layer.gain, layer.margin, layer.is_clear)


def test_the_best_whole_model_is_the_fastest_that_computes_the_same() -> None:
    def whole(threads: int, tuned: float, *, ok: bool) -> ModelTrial:
        return ModelTrial(threads, 5.0, (5.0, 5.0), tuned, (tuned, tuned), 9, 0.0, ok, ())

    trials = whole(1, 4.0, ok=True), whole(4, 3.0, ok=True), whole(2, 2.0, ok=False)
    model = TunedModel((), trials, "cpu", "", TAKEN, 0.0, complete=True)
    assert (trials[1], trials[1]) == (model.default, model.best)
