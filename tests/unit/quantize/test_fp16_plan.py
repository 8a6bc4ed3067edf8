from __future__ import annotations

import math

import numpy as np
import onnx_ir as ir
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rtlab.core.variant import Precision
from rtlab.quantize.fp16_plan import HalfConstants

#: Zero, subnormals of FP16, halfway to its smallest, its largest, what rounds to that, beyond both types, none at all.
NUMBERS = [
    0.0, -0.0, 1.0, -0.1, 6e-8, 2.0**-25, 2.9e-8, -1e-30, 1e-45, 65504.0, 65519.0, -65520.0, 7e4, 3.38e38,
    -3.4028235e38, math.inf, -math.inf, math.nan,
]  # fmt: skip


def oracle(values: np.ndarray, half: Precision) -> np.ndarray:
    """One number at a time, in double precision, by the definition of the type."""
    found = []
    for value in values.ravel().tolist():
        with np.errstate(over="ignore"):
            one = float(np.float32(value).astype(half.stored.dtype).astype(np.float64))
        found.append(
            math.copysign(half.stored.largest, value) if math.isinf(one) and math.isfinite(value) else one
        )
    return np.array(found).reshape(values.shape)


@pytest.mark.parametrize("half", [Precision.FP16, Precision.BF16])
@settings(max_examples=60, deadline=None)
@given(st.lists(st.sampled_from(NUMBERS), min_size=0, max_size=12))
def test_a_constant_is_narrowed_counted_and_measured_as_its_numbers_one_by_one(
    half: Precision, numbers: list[float]
) -> None:
    values = np.array(numbers, np.float32)
    seen, tensor = HalfConstants({}), ir.Tensor(values)
    expected = oracle(values, half)
    np.testing.assert_array_equal(expected, seen.to_half(tensor, half).astype(np.float64))
    assert sum(bool(v) and not e for v, e in zip(numbers, expected, strict=True)) == seen.count_underflows(
        tensor, half
    )
    with np.errstate(over="ignore"):
        beyond = [
            v for v in values if np.isfinite(v) and not np.isfinite(v.astype(half.stored.dtype).astype(float))
        ]
    assert bool(beyond) == seen.overflows(tensor, half)


def test_a_scalar_stays_a_scalar() -> None:
    assert () == HalfConstants({}).to_half(ir.Tensor(np.array(2.5, np.float32)), Precision.BF16).shape
