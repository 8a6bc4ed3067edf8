from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
import pytest

from observed import collect, observed
from rtlab.core.progress import Silent
from rtlab.core.ranges import Range, Ranges
from rtlab.errors import CalibrationError, Cancelled
from rtlab.quantize.ranges import Collector


def drawn(seed: int, rows: int) -> np.ndarray:
    """Values of eight columns, half of them zero."""
    return np.maximum(np.random.default_rng(seed).standard_normal((rows, 8)), 0).astype(np.float32)


def assert_same(one: Ranges, two: Ranges) -> None:
    assert (one.samples, one.stride, one.values.keys()) == (two.samples, two.stride, two.values.keys())
    for name, a in one.values.items():
        b = two.values[name]
        expected = (a.min, a.max, a.count, a.zeros, a.small, a.top)
        assert expected == (b.min, b.max, b.count, b.zeros, b.small, b.top)
        np.testing.assert_array_equal(a.counts, b.counts)


def observe(*arrays: Iterable[float]) -> Range:
    return observed(*arrays).values["x"]


def test_every_element_is_counted_once_where_numpy_would_count_it():
    rng = np.random.default_rng(1)
    x = np.concatenate([rng.laplace(size=150_000), np.zeros(30_000), [-0.0, 1e-12, -1e-30]])
    x = x.astype(np.float32)
    seen = observe(x)
    magnitudes = np.abs(x.astype(np.float64))
    expected = np.histogram(magnitudes[magnitudes >= seen.edges[0]], bins=seen.edges)[0]
    assert x.size == seen.count
    assert 30_001 == seen.zeros
    assert int(((magnitudes > 0) & (magnitudes < seen.edges[0])).sum()) == seen.small
    np.testing.assert_array_equal(expected, seen.counts)


@pytest.mark.parametrize("unit", [1e-37, 1e-20, 1.0, 1e20, 3e38])
def test_the_bins_follow_the_value_at_any_magnitude(unit: float):
    x = (np.linspace(0.01, 1, 1000) * unit).astype(np.float32)
    seen = observe(x)
    assert 1000 == seen.count == seen.zeros + seen.small + int(seen.counts.sum())
    assert 0 == seen.zeros
    assert seen.edges[np.flatnonzero(seen.counts)[-1]] <= seen.amax


def test_merging_keeps_a_value_that_only_one_side_saw():
    merged = Ranges({"a": observe([1.0])}).merge(Ranges({"b": observe([2.0])}))
    assert {"a": 1.0, "b": 2.0} == {k: v.amax for k, v in merged.values.items()}


@pytest.mark.parametrize(("bad", "word"), [(np.nan, "NaN"), (np.inf, "infinity"), (-np.inf, "infinity")])
def test_a_value_that_is_not_finite_is_named(bad: float, word: str):
    x = np.ones(100_000, np.float32)
    x[99_999] = bad
    with pytest.raises(CalibrationError, match=rf'value "x": it holds {word} in sample 100006\.'):
        observe(np.ones(7), x)


def test_any_layout_and_float_type_is_read():
    x = np.arange(24, dtype=np.float16).reshape(2, 3, 4).transpose(2, 0, 1)
    assert (23.0, 24, 1) == ((s := observe(x)).amax, s.count, s.zeros)


class CancelsAfter(Silent):
    """Is cancelled from elsewhere when a number of batches is done."""

    def __init__(self, batches: int) -> None:
        super().__init__()
        self.left = batches

    def advance(self, steps: int = 1) -> None:
        self.left -= 1
        if not self.left:
            self.cancel()


def test_cancelling_stops_before_the_next_batch_and_keeps_what_was_seen():
    ran: list[Mapping[str, np.ndarray]] = []
    collector = Collector(["x"])
    with pytest.raises(Cancelled):
        collector.run([{"x": np.ones(3, np.float32)}] * 5, lambda b: ran.append(b) or b, CancelsAfter(2))
    assert 2 == len(ran)
    assert (6, 6) == (collector.samples, collector.ranges.values["x"].count)


def test_going_on_after_cancel_gives_the_same_as_one_pass():
    batches = [{"x": drawn(i, 40)} for i in range(9)]
    collector = Collector(["x"])
    with pytest.raises(Cancelled):
        collector.run(batches, dict, CancelsAfter(4))
    collector.run(batches[4:], dict, Silent())
    assert_same(collect(["x"], batches, dict), collector.ranges)


def test_a_bad_batch_is_not_counted_in_part():
    good, bad = {"a": drawn(0, 40), "b": drawn(1, 40)}, {"a": drawn(2, 40), "b": drawn(3, 40)}
    bad["b"][17, 3] = np.nan
    collector = Collector(["a", "b"])
    with pytest.raises(CalibrationError, match=r'"b": it holds NaN in sample 57\.'):
        collector.run([good, bad], dict, Silent())
    assert_same(collect(["a", "b"], [good], dict), collector.ranges)
    with pytest.raises(CalibrationError, match=r'"b": it holds NaN in sample 57\.'):
        collector.run([bad], dict, Silent())


def test_samples_are_counted_and_add_up():
    collector = Collector(["x"])
    collector.run([{"x": drawn(0, 5)}, {"x": drawn(1, 3)}], dict, Silent())
    assert 8 == collector.samples == collector.ranges.samples
    assert 16 == collector.ranges.merge(collector.ranges).samples
    collector.run([{"x": drawn(0, 5)}] * 2, dict, Silent(), lambda _: 1)
    assert 10 == collector.samples


MAPS = [(16, 112, 112), (160, 14, 15), (40, 28, 28), (12, 50, 60)]


@pytest.mark.parametrize("shape", MAPS)
def test_what_is_read_of_a_map_meets_every_column_and_stands_for_all(shape: tuple[int, int, int]):
    """A step that divides a row's length reads the same columns in every row, and never the others."""
    rows, columns = shape[1:]
    x = np.broadcast_to(np.arange(1, columns + 1, dtype=np.float32), (2, *shape))
    found = collect(["x"], [{"x": x}], dict)
    assert 4 == found.stride
    seen = found.values["x"]
    bins = np.searchsorted(seen.edges, np.arange(1, columns + 1), "right") - 1
    counts = seen.counts[bins]
    met = counts[-min(columns, 40) :]  # large numbers have a bin each
    assert met.min() > 0
    assert met.max() / met.min() <= 1.5 if rows > 20 else met.max() / met.min() <= 2
    assert x.size == pytest.approx(seen.count, rel=0.03)


@pytest.mark.parametrize("shape", [*MAPS, (3, 7, 5)])
def test_the_order_of_a_map_in_memory_changes_nothing(shape: tuple[int, int, int]):
    x = np.random.default_rng(3).standard_normal((2, *shape)).astype(np.float32)
    last = np.ascontiguousarray(x.transpose(0, 2, 3, 1)).transpose(0, 3, 1, 2)
    assert not last.flags.c_contiguous
    assert_same(collect(["x"], [{"x": x}], dict), collect(["x"], [{"x": last}], dict))


def test_shapes_may_change_between_batches():
    """Peers' histograms break on pictures of several sizes (onnxruntime issue 18792)."""
    parts = [drawn(0, 40), drawn(1, 17)[:, :5], np.float32(3.5), np.zeros((0, 7), np.float32)]
    collector = Collector(["x"])
    collector.run([{"x": np.asarray(p)} for p in parts], dict, Silent())
    flat = np.concatenate([np.ravel(p) for p in parts])
    whole, got = observe(flat), collector.ranges.values["x"]
    assert (whole.min, whole.max, whole.count) == (got.min, got.max, got.count)
    np.testing.assert_array_equal(whole.counts, got.counts)


def test_stride_one_counts_every_element():
    x = np.random.default_rng(0).standard_normal((2, 16, 64, 64)).astype(np.float32)
    collector = Collector(["x"], stride=1)
    collector.run([{"x": x}], dict, Silent())
    flat, got = observe(x.reshape(-1)), collector.ranges.values["x"]
    assert (1, flat.count) == (collector.ranges.stride, got.count)
    np.testing.assert_array_equal(flat.counts, got.counts)


def test_ranges_that_were_read_stay_as_they_were_when_more_is_seen() -> None:
    collector = Collector(["x"], stride=1)
    step = np.ones((1, 4), np.float32)
    collector.run([{"x": step}], lambda _: {}, Silent())
    first = collector.ranges
    collector.run([{"x": 3 * step}], lambda _: {}, Silent())
    second = collector.ranges

    assert (1, 1.0, 4) == (first.samples, first.values["x"].max, first.values["x"].counts.sum())
    assert (2, 3.0, 8) == (second.samples, second.values["x"].max, second.values["x"].counts.sum())
