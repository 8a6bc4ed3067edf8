from __future__ import annotations

import math

import ml_dtypes
import numpy as np
import pytest

from rtlab.core.precision import (
    Precision,
    compute_amax,
    compute_relative_error,
    compute_sqnr,
    quantize_linear,
)


@pytest.mark.parametrize(
    ("signal", "noise", "decibels"),
    [(100, 1, 20), (1, 10, -10), (5, 0, math.inf), (0, 0, math.inf), (0, 1, -math.inf), (1, math.inf, -math.inf)],
)  # fmt: skip
def test_sqnr_in_decibels(signal, noise, decibels) -> None:
    assert compute_sqnr(signal, noise) == pytest.approx(decibels)


def test_the_largest_magnitude_of_all_and_along_an_axis() -> None:
    numbers = np.float32([[1, -4, 2], [-0.5, 3, 0]])
    assert 4 == compute_amax(numbers)
    assert [1, 4, 2] == compute_amax(numbers, 0).tolist()
    assert [4, 3] == compute_amax(numbers, 1).tolist()
    assert 0 == compute_amax(np.zeros((0, 3)))
    assert math.isnan(compute_amax(np.float32([1, np.nan])))


def test_a_relative_error_is_of_the_largest_expected_magnitude() -> None:
    assert 0.25 == compute_relative_error(np.float32([1, -3]), np.float32([2, -4]))
    assert 2 == compute_relative_error(np.float32([2]), np.float32([0]))


@pytest.mark.parametrize(
    ("precision", "steps", "expected"),
    [
        (Precision.INT8, [0.5, 1.5, -2.5, 127.6, -200], [0, 2, -2, 127, -127]),
        (Precision.INT4, [0.5, 1.5, 7.6, -9], [0, 2, 7, -7]),
        (Precision.FP8, [17, 19, 500, -0.001], [16, 20, 448, -0.001953125]),
        (Precision.FP4, [0.25, 0.75, 2.5, 5, -7], [0, 1, 2, 4, -6]),
    ],
)
def test_rounding_is_to_nearest_with_ties_to_even_and_saturates(precision, steps, expected) -> None:
    stored = precision.stored.quantize(np.float32(steps))
    assert precision.stored.dtype == stored.dtype
    assert expected == stored.astype(np.float64).tolist()
    assert expected == precision.stored.round(np.float64(steps)).tolist()


def test_whole_numbers_with_a_zero_point() -> None:
    """By hand: -3 / 0.5 + 10 = 4, 1.25 / 0.5 = 2.5, rounded to 2; 300 is 610, beyond 255."""
    found = quantize_linear(np.float32([-3, 1.25, 300, -9]), np.float32(0.5), 10, (0, 255))
    assert [4, 12, 255, 0] == found.tolist()


def test_what_follows_from_the_type_of_a_precision() -> None:
    """ml_dtypes decodes each of the 256 codes of FP8."""
    codes = np.arange(256, dtype=np.uint8).view(ml_dtypes.float8_e4m3fn).astype(np.float64)
    assert np.unique(np.abs(codes[np.isfinite(codes)])).tolist() == Precision.FP8.stored.magnitudes.tolist()
    assert [float(i) for i in range(128)] == Precision.INT8.stored.magnitudes.tolist()
    assert [0, 0.5, 1, 1.5, 2, 3, 4, 6] == Precision.FP4.stored.magnitudes.tolist()
    bits = {"fp32": 32, "tf32": 32, "fp16": 16, "bf16": 16, "int8": 8, "fp8": 8, "int4": 4, "fp4": 4}
    assert bits == {str(p): p.stored.bits for p in Precision}
    halves = {"fp16": "65,504", "bf16": "3.39e38"}
    assert halves == {str(p): p.stored.largest_text for p in Precision if p.is_half}
