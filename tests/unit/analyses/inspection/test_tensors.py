"""Statistics of tensors, held against NumPy on the whole array."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from rtlab.analyses.inspection import tensors
from rtlab.analyses.inspection.tensors import BINS, compute_stats, summarize_magnitudes


def of(*parts: np.ndarray):
    return compute_stats(parts, name="x", kind="weight", dtype="fp32", shape=parts[0].shape, source="a test")


@given(
    arrays.arrays(np.float32, st.integers(1, 300), elements=st.floats(-1e6, 1e6, width=32)),
    st.integers(0, 300),
)
def test_statistics_are_those_of_numpy(array, cut) -> None:
    found = of(array[:cut], array[cut:])
    exact = array.astype(np.float64)
    assert (array.size, exact.min(), exact.max()) == (found.count, found.minimum, found.maximum)
    assert pytest.approx(exact.mean(), rel=1e-9, abs=1e-6) == found.mean
    assert pytest.approx(exact.std(), rel=1e-6, abs=1e-6) == found.std
    assert pytest.approx((array == 0).mean()) == found.zeros
    assert (BINS, array.size) == (len(found.counts), sum(found.counts))
    assert found.lower <= found.minimum <= found.maximum <= found.upper


@given(arrays.arrays(np.float32, st.integers(1, 50), elements=st.floats(width=32)))
def test_what_is_not_finite_is_left_out_and_counted(array) -> None:
    found, finite = of(array), np.isfinite(array)
    if not finite.any():
        assert found is None
        return
    assert finite.sum() == found.count == sum(found.counts)
    assert finite.all() == ("not finite" not in found.source)
    numbers = (found.minimum, found.maximum, found.mean, found.std, found.zeros, found.lower, found.upper)
    assert np.isfinite(numbers).all()


@pytest.mark.parametrize("dtype", ["int8", "uint8", "bool", "float16", "int64"])
def test_every_type_of_number_is_counted(dtype) -> None:
    array = np.array([[0, 1, 1], [1, 0, 1]]).astype(dtype)
    found = of(array)
    assert (6, 0.0, 1.0, "2×3") == (found.count, found.minimum, found.maximum, found.shape)
    assert pytest.approx(1 / 3) == found.zeros


def test_a_huge_tensor_is_sampled_evenly_and_says_so(monkeypatch) -> None:
    monkeypatch.setattr(tensors, "_LARGEST", 1000)
    monkeypatch.setattr(tensors, "_SAMPLED", 500)
    array = np.arange(10_000, dtype=np.float32).reshape(100, 100)
    found = of(array)
    assert 477 == found.count
    assert "477 of 10,000 elements" in found.source
    assert pytest.approx(array.mean(), rel=0.01) == found.mean
    assert found == of(array)


def test_magnitudes_without_negative_values_are_the_values() -> None:
    array = np.abs(np.random.default_rng(0).standard_normal(10_000)) * (np.arange(10_000) % 3 > 0)
    counts, edges = np.histogram(array[array > 0], 4096, (0, array.max()))
    coarse = np.histogram(array, BINS, (0, array.max()))
    found = summarize_magnitudes(
        "x", dtype="fp32", shape=(10_000,), source="a test", minimum=array.min(), maximum=array.max(),
        zeros=int((array == 0).sum()), fine=(edges, counts), coarse=coarse[::-1],
    )  # fmt: skip
    assert (10_000, "a test") == (found.count, found.source)
    assert pytest.approx((array.mean(), array.std()), rel=1e-3) == (found.mean, found.std)


def test_what_is_no_finite_number_is_left_out_and_counted() -> None:
    """Three of ten: the statistics are those of the other seven."""
    values = np.float32([1, 2, 3, 4, 5, 6, 7, np.nan, np.inf, -np.inf])
    found = of(values)
    assert "a test; 3 are not finite and left out" == found.source
    assert (7, 1.0, 7.0, 4.0, 2.0) == (found.count, found.minimum, found.maximum, found.mean, found.std)
