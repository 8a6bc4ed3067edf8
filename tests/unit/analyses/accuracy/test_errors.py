"""Accuracy: the streaming sums equal the textbook formulas."""

from __future__ import annotations

import math

import numpy as np
import pytest

from rtlab.analyses.accuracy import Accuracy, Comparison, ValueDelta, list_comparable_values, summarize_errors
from rtlab.core.slices import Slice
from rtlab.testing import tiny_model


def compare(x: np.ndarray, y: np.ndarray, cuts: int = 3):
    comparison = Comparison(tiny_model(), ["stem"])
    for a, b in zip(np.array_split(x, cuts), np.array_split(y, cuts), strict=True):
        comparison.add({"stem": a}, {"stem": b}, len(a))
    return summarize_errors(comparison.to_errors("test"), tiny_model()).values[0]


def test_sqnr_rmse_and_cosine_equal_their_definitions() -> None:
    """Independent oracle: NumPy over the whole arrays in double precision."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((7, 40_000)).astype(np.float32)
    y = (x + 0.01 * rng.standard_normal(x.shape)).astype(np.float32)
    found, whole = compare(x, y), compare(x, y, cuts=1)
    assert pytest.approx(whole.sqnr) == found.sqnr
    x64, y64 = x.astype(np.float64), y.astype(np.float64)
    assert pytest.approx(10 * np.log10((x64**2).sum() / ((x64 - y64) ** 2).sum()), abs=1e-3) == found.sqnr
    assert pytest.approx(np.sqrt(((x64 - y64) ** 2).mean()), rel=1e-4) == found.rmse
    cosine = (x64 * y64).sum() / np.sqrt((x64**2).sum() * (y64**2).sum())
    assert pytest.approx(cosine, rel=1e-6) == found.cosine
    assert pytest.approx(np.abs(x - y).max()) == found.max_abs
    assert x.size == found.elements


def test_equal_values_have_infinite_sqnr() -> None:
    x = np.ones((2, 3), np.float32)
    assert math.inf == compare(x, x, cuts=1).sqnr


def test_an_overflow_is_counted_and_never_hidden_in_a_mean() -> None:
    x = np.ones((1, 4), np.float32)
    y = x.copy()
    y[0, 2] = np.inf
    found = compare(x, y, cuts=1)
    assert (1, -math.inf, math.inf) == (found.overflowed, found.sqnr, found.max_abs)
    # The three that are left are equal.
    assert math.isnan(found.cosine)


def test_what_became_zero_is_counted_and_what_was_zero_is_not() -> None:
    """By hand: of five numbers, two that were not zero are."""
    x = np.array([[1e-8, 0.0, 3.0, -2e-9, 5.0]], np.float32)
    found = compare(x, np.array([[0.0, 0.0, 3.0, -0.0, 5.0]], np.float32), cuts=1)
    assert (2, 5, 0) == (found.underflowed, found.elements, found.overflowed)


def test_infinities_of_fp32_are_counted_and_are_no_errors() -> None:
    x = np.array([[1.0, -np.inf, np.inf, 2.0, -np.inf]], np.float32)
    y = np.array([[1.0, -np.inf, np.inf, 2.5, 0.0]], np.float32)
    same = compare(x, x, cuts=1)
    assert (3, 0, math.inf) == (same.infinite, same.overflowed, same.sqnr)
    found = compare(x, y, cuts=1)
    assert (3, 1, 5) == (found.infinite, found.overflowed, found.elements)


def test_only_floating_values_of_both_models_are_compared() -> None:
    model = tiny_model()
    assert "y" == list_comparable_values(model, model)[-1]
    assert len(model.top) == len(list_comparable_values(model, model))


@pytest.mark.parametrize("size", [-3.4e38, 1e30, 1e-30])
def test_numbers_whose_squares_float32_cannot_hold_are_compared_too(size: float) -> None:
    """Attention masks hold -3.4e38; its square is infinite, and cosine and SQNR were no numbers."""
    x = np.full((4, 8), size, np.float32)
    y = (x * np.float32(0.5)).astype(np.float32)
    found = compare(x, y)
    assert pytest.approx(20 * math.log10(2), abs=1e-4) == found.sqnr
    assert pytest.approx(1.0) == found.cosine
    assert pytest.approx(abs(size) / 2, rel=1e-5) == found.rmse


def test_the_result_does_not_depend_on_the_batches() -> None:
    """The user may have any number of samples at hand."""
    rng = np.random.default_rng(1)
    x, y = rng.standard_normal((2, 12, 50)).astype(np.float32)
    assert pytest.approx(compare(x, y, cuts=1).sqnr) == compare(x, y, cuts=12).sqnr


def test_the_outcome_is_that_of_the_output_and_not_of_the_worst_inner_value() -> None:
    """By hand: a hundredth of the amplitude is 40 dB, and a tenth 20 dB."""
    model = tiny_model()
    (output,) = model.outputs
    comparison = Comparison(model, ["stem", output])
    x = np.ones((2, 4), np.float32)
    comparison.add({"stem": x, output: x}, {"stem": 1.1 * x, output: 1.01 * x}, 2)
    found = summarize_errors(comparison.to_errors("test"), model)
    assert found.output is not None
    assert (output, pytest.approx(40, abs=0.01)) == (found.output.output, found.output.sqnr)
    assert f"{output}: 40.0 dB" == found.outcome
    assert "stem" == found.worst(1)[0].value
    inner = Comparison(model, ["stem"])
    inner.add({"stem": x}, {"stem": 1.1 * x}, 2)
    nothing = summarize_errors(inner.to_errors("test"), model)
    assert (None, "") == (nothing.output, nothing.outcome)


def test_the_outcome_is_that_of_the_worst_output_or_of_its_worst_part() -> None:
    whole = {"scores": 40.0, "boxes": 30.0, "inner": 1.0}
    values = tuple(ValueDelta(n, n, 0.0, 0.0, 1.0, sqnr, 8, 0) for n, sqnr in whole.items())
    outputs = ("scores", "boxes")
    plain = Accuracy("", 1, values, outputs=outputs)
    assert ("boxes", "boxes: 30.0 dB") == (plain.output.output, plain.outcome)  # type: ignore[union-attr]
    part = Slice("scores", 1, (4, 5), 12.0)
    parted = Accuracy("", 1, values, parts=(part,), outputs=outputs)
    assert part == parted.output
    assert "channels 4 to 5 of scores: 12.0 dB; the whole output: 40.0 dB" == parted.outcome
