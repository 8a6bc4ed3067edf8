from __future__ import annotations

import re
from collections.abc import Iterable

import numpy as np
import pytest

from rtlab.core.progress import Silent
from rtlab.errors import CalibrationError, Cancelled
from rtlab.quantize.ranges import BINS, Collector, Range, Ranges


def collect(values, batches, fetch, progress=None) -> Ranges:
    collector = Collector(values)
    collector.run(batches, fetch, progress or Silent())
    return collector.ranges


def observe(*arrays: Iterable[float]) -> Range:
    """Collect one value over the given batches."""
    batches = [{"x": np.asarray(a, np.float32)} for a in arrays]
    return collect(["x"], batches, dict).values["x"]


def test_minimum_and_maximum_are_exact():
    """A minmax scale is a promise that nothing saturates; one lost bit would break it."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal(200_000).astype(np.float32) * np.float32(3.7)
    seen = observe(x[:70_001], x[70_001:])
    assert float(x.min()) == seen.min
    assert float(x.max()) == seen.max
    assert float(np.abs(x).max()) == seen.amax


def test_every_element_is_counted_once_where_numpy_would_count_it():
    """The histogram is the only thing that calibrators see."""
    rng = np.random.default_rng(1)
    x = np.concatenate([rng.laplace(size=150_000), np.zeros(30_000), [-0.0, 1e-12, -1e-30]]).astype(
        np.float32
    )
    seen = observe(x)
    magnitudes = np.abs(x.astype(np.float64))
    expected = np.histogram(magnitudes[magnitudes >= seen.edges[0]], bins=seen.edges)[0]
    assert x.size == seen.count
    assert 30_001 == seen.zeros
    assert int(((magnitudes > 0) & (magnitudes < seen.edges[0])).sum()) == seen.small
    np.testing.assert_array_equal(expected, seen.counts)


@pytest.mark.parametrize("unit", [1e-37, 1e-20, 1.0, 1e20, 3e38])
def test_the_bins_follow_the_value_at_any_magnitude(unit: float):
    """Activations in odd units must not fall out of the histogram."""
    x = (np.linspace(0.01, 1, 1000) * unit).astype(np.float32)
    seen = observe(x)
    assert 1000 == seen.count == seen.zeros + seen.small + int(seen.counts.sum())
    assert 0 == seen.zeros
    assert seen.edges[np.flatnonzero(seen.counts)[-1]] <= seen.amax


def test_a_value_of_subnormals_is_counted():
    """The smallest floats have no octaves of their own, and must still not crash or vanish."""
    x = np.array([1e-45, 1e-40, 0.0], np.float32)
    seen = observe(x)
    assert (3, 1, float(np.float32(1e-40))) == (seen.count, seen.zeros, seen.amax)


def test_a_later_larger_batch_moves_the_bins_without_losing_counts():
    """The peers fix their bins on the first batch and can never look beyond it."""
    small, large = np.full(1000, 0.001, np.float32), np.full(1000, 900.0, np.float32)
    once, twice = observe(np.concatenate([small, large])), observe(small, large)
    np.testing.assert_array_equal(once.counts, twice.counts)
    assert once.small == twice.small
    assert 900.0 == twice.amax


def test_merging_two_passes_equals_one_pass():
    """Calibration on several machines adds up."""
    rng = np.random.default_rng(2)
    parts = [rng.standard_normal(5000).astype(np.float32) * s for s in (1e-6, 1.0, 1e5)]
    whole = observe(*parts)
    one, two, three = (Ranges({"x": observe(p)}) for p in parts)
    for merged in (one.merge(two).merge(three), three.merge(one.merge(two))):
        got = merged.values["x"]
        assert (whole.min, whole.max, whole.count, whole.small) == (got.min, got.max, got.count, got.small)
        np.testing.assert_array_equal(whole.counts, got.counts)


def test_merging_keeps_a_value_that_only_one_side_saw():
    """A model calibrated in two halves has values in only one of them."""
    merged = Ranges({"a": observe([1.0])}).merge(Ranges({"b": observe([2.0])}))
    assert {"a": 1.0, "b": 2.0} == {k: v.amax for k, v in merged.values.items()}


@pytest.mark.parametrize(("bad", "word"), [(np.nan, "NaN"), (np.inf, "infinity"), (-np.inf, "infinity")])
def test_a_value_that_is_not_finite_is_named(bad: float, word: str):
    """A scale made of NaN would silence the model without a word."""
    x = np.ones(100_000, np.float32)
    x[99_999] = bad
    with pytest.raises(CalibrationError, match=rf'Cannot calibrate value "x": it holds {word} .* FP32 first'):
        observe(np.ones(7), x)


def test_a_value_the_runner_does_not_return_is_named():
    """The usual mistake when wiring a runner by hand."""
    with pytest.raises(
        CalibrationError, match=r'Cannot calibrate value "y": the runner returned .* without it'
    ):
        collect(["y"], [{"x": np.ones(1, np.float32)}], lambda _: {})


def test_no_batch_is_an_error_not_an_empty_result():
    """Scales of nothing would look like scales."""
    with pytest.raises(CalibrationError, match="the data holds no batch"):
        collect(["x"], [], dict)


def test_model_inputs_are_read_from_the_batch():
    """Runners return what nodes write; the first convolution reads a model input."""
    seen = collect(["x", "y"], [{"x": np.float32([2])}], lambda b: {"y": 3 * b["x"]})
    assert {"x": 2.0, "y": 6.0} == {k: v.amax for k, v in seen.values.items()}


def test_any_layout_and_float_type_is_read():
    """Runners return transposed views and half floats."""
    x = np.arange(24, dtype=np.float16).reshape(2, 3, 4).transpose(2, 0, 1)
    assert (23.0, 24, 1) == ((s := observe(x)).amax, s.count, s.zeros)


def test_an_empty_tensor_counts_nothing():
    """A detector that finds nothing in a picture returns zero rows."""
    seen = observe(np.zeros((0, 4)), [1.0])
    assert (1, 1.0) == (seen.count, seen.amax)


def test_cancelling_stops_before_the_next_batch_and_keeps_nothing():
    """Cancel must be prompt, and half a calibration must not be mistaken for one."""
    progress, ran = Silent(), []

    def fetch(batch: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        ran.append(1)
        progress.cancel()
        return batch

    with pytest.raises(Cancelled, match=re.escape("cancelled by the user")):
        collect(["x"], [{"x": np.ones(3, np.float32)}] * 5, fetch, progress)
    assert 1 == len(ran)


def test_an_error_of_the_runner_comes_through():
    """The runner's own message says what is wrong with the data."""

    def fetch(_: object) -> dict[str, np.ndarray]:
        message = "bad input"
        raise ValueError(message)

    with pytest.raises(ValueError, match="bad input"):
        collect(["x"], [{"x": np.ones(3)}], fetch)


def test_memory_does_not_grow_with_the_number_of_batches():
    """Peers keep 111 MB per image; here a histogram is all that stays."""
    import tracemalloc

    def peak(count: int) -> int:
        rng = np.random.default_rng(0)
        batches = ({"x": rng.standard_normal(300_000).astype(np.float32)} for _ in range(count))
        tracemalloc.start()
        collect(["x"], batches, dict)
        top = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return top

    peak(2)
    assert peak(40) < 1.2 * peak(4) + 8 * BINS
