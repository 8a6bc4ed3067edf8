"""Timing: medians, shares, and how times of one engine read on another."""

from __future__ import annotations

import dataclasses
import datetime

import numpy as np
import pytest

from rtlab.analyses.timing.times import map_times_to_layers, map_times_to_nodes, summarize_profile
from rtlab.core.engine import Engine, Layer
from rtlab.core.trace import Profile
from rtlab.core.variant import Target
from rtlab.relation.mapping import Mapping, Pair


def engine(*ids: str) -> Engine:
    return Engine("test", "1", Target("cpu"), tuple(Layer(i, i, "k", n) for n, i in enumerate(ids)))


def profile(**samples: list[float]) -> Profile:
    arrays = {k: np.asarray(v, dtype=float) for k, v in samples.items()}
    now = datetime.datetime(2026, 1, 1, tzinfo=datetime.timezone.utc)
    return Profile("Test 1", "chip", arrays, np.array([5.0, 6.0, 7.0]), warmup=1, taken=now)


def pairs(*items: tuple[str, str]) -> Mapping:
    return Mapping(tuple(Pair(n, x, "declared") for n, x in items), ())


def test_the_median_resists_an_outlier() -> None:
    found = summarize_profile(profile(a=[1.0, 1.0, 100.0], b=[3.0, 3.0, 3.0]), engine("a", "b"))
    assert [1.0, 3.0] == [t.median for t in found.layers]
    assert 0.25 == found.layers[0].share
    assert 6.0 == found.total


def test_layers_with_unlike_numbers_of_samples_are_reduced_each_by_its_own() -> None:
    samples = {"a": [0.1, 0.7, 0.05], "b": [0.2], "c": [0.3, 0.3], "d": [0.6, 0.5, 0.8], "none": []}
    found = summarize_profile(profile(**samples), engine("d", "c", "b", "a", "none"))
    assert ["d", "c", "b", "a"] == [t.layer for t in found.layers]
    assert [float(np.median(samples[t.layer])) for t in found.layers] == [t.median for t in found.layers]
    quartiles = {k: np.percentile(v, [25, 75]) for k, v in samples.items() if len(v) > 1}
    spreads = {k: float(high - low) / 2 for k, (low, high) in quartiles.items()}
    assert [spreads.get(t.layer) for t in found.layers] == [t.spread for t in found.layers]
    assert sum(float(np.median(v)) for v in samples.values() if v) == found.summed


def test_a_node_of_several_layers_shares_its_time_with_all_of_their_nodes() -> None:
    times = summarize_profile(profile(a=[2.0], b=[4.0]), engine("a", "b"))
    made = [(f"n{i}", "a") for i in range(1000)] + [("n0", "b"), ("last", "b")]
    read = map_times_to_nodes(times, pairs(*made))
    # All are joined by the first node, so that they have one time together.
    for node in ("n0", "n999", "last"):
        assert (6.0, 1001, ("a", "b")) == (read[node].median, read[node].shared, read[node].layers)


def test_what_serves_several_nodes_does_not_join_their_times() -> None:
    """One Q for both products; one bias of a product in a layer of its own, which reads no time where it is shown."""
    times = summarize_profile(profile(q=[0.5], a=[1.0], b=[2.0], c=[0.25]), engine("q", "a", "b", "c"))
    roles = [
        ("one", "q", "Q"),
        ("two", "q", "Q"),
        ("one", "a", "work"),
        ("two", "b", "work"),
        ("two", "c", "bias"),
    ]
    mapping = Mapping(tuple(Pair(n, y, "declared", "", r) for n, y, r in roles), ())
    read = map_times_to_nodes(times, mapping)
    assert {"one": (1.0, 1, ("a",)), "two": (2.25, 1, ("b", "c"))} == {
        n: (t.median, t.shared, t.layers) for n, t in read.items()
    }
    shown = map_times_to_layers(times, pairs(("one", "a"), ("two", "b")), mapping)
    assert {"a": 1.0, "b": 2.0} == {y: t.median for y, t in shown.items()}


def test_a_node_whose_layers_have_no_times_has_none() -> None:
    times = summarize_profile(profile(a=[2.0]), engine("a", "b"))
    mapping = pairs(("conv", "a"), ("relu", "b"))
    assert ["conv"] == list(map_times_to_nodes(times, mapping))
    assert ["conv"] == list(map_times_to_layers(times, mapping, pairs(("conv", "conv"), ("relu", "relu"))))


def test_times_join_by_node_and_say_when_layers_share_them() -> None:
    times = summarize_profile(profile(a=[2.0], b=[4.0]), engine("a", "b"))
    measured = pairs(("conv", "a"), ("relu", "a"), ("pool", "b"))
    shown = pairs(("conv", "X"), ("relu", "Y"), ("pool", "Y"))
    read = map_times_to_layers(times, measured, shown)
    assert read["X"] == read["Y"]
    assert (6.0, 2, ("a", "b")) == (read["X"].median, read["X"].shared, read["X"].layers)


def test_spreads_add_in_squares() -> None:
    times = summarize_profile(profile(a=[0.0, 3.0, 6.0], b=[0.0, 4.0, 8.0]), engine("a", "b"))
    read = map_times_to_layers(times, pairs(("n", "a"), ("n", "b")), pairs(("n", "X")))
    alone = [t.spread for t in times.layers]
    # They sum to 7 and the whole takes less.
    assert pytest.approx(np.hypot(*alone) * times.scale) == read["X"].spread


def test_the_ratio_tells_how_far_the_layers_overstate_the_latency() -> None:
    found = summarize_profile(profile(a=[2.0], b=[7.0]), engine("a", "b"))
    assert 1.5 == found.ratio
    assert dataclasses.replace(found, total=None).ratio is None
    assert dataclasses.replace(found, layers=(), summed=0.0).ratio is None


def test_percentiles_of_whole_inferences_are_numpys_own_and_only_those_that_samples_can_tell() -> None:
    """A 99th percentile of thirty runs would be their slowest."""
    rng = np.random.default_rng(0)
    for count in (1, 9, 10, 30, 100, 500):
        total = rng.gamma(2.0, 1.0, count)
        told = summarize_profile(Profile("x", "gpu", {}, total, warmup=0, taken=None), engine()).percentiles
        assert {p for p in (50, 90, 95, 99) if count * (100 - p) / 100 >= 1} == set(told)
        assert all(pytest.approx(np.percentile(total, p)) == t for p, t in told.items())


@pytest.mark.parametrize(
    ("each", "processor", "scale"),
    [
        # The whole takes 6: layers that sum to 18 are scaled to a third.
        ([6.0, 12.0], "CPU", 1 / 3),
        # A tenth more is no matter, and less than the whole is no cost of timing.
        ([3.0, 3.6], "CPU", 1.0), ([1.0, 2.0], "CPU", 1.0),
        # A GPU's profiler leaves launches out, which a factor would hide.
        ([6.0, 12.0], "GPU", 1.0),
    ],
)  # fmt: skip
def test_layers_of_a_cpu_are_scaled_to_the_inference_where_timing_them_costs_more(each, processor, scale):
    given = dataclasses.replace(profile(a=[each[0]] * 3, b=[each[1]] * 3), processor=processor)
    found = summarize_profile(given, engine("a", "b"))
    assert scale == pytest.approx(found.scale)
    assert (scale != 1) == bool(found.scaled)
    assert each == [t.median for t in found.layers]
    if found.scaled:
        assert 6.0 == pytest.approx(found.scale * found.summed)


def test_layers_without_a_whole_are_not_scaled() -> None:
    given = dataclasses.replace(profile(a=[6.0] * 3), total=np.empty(0))
    assert 1.0 == summarize_profile(given, engine("a")).scale


def test_a_spread_is_half_of_what_lies_between_the_quartiles() -> None:
    """Of 1 to 9 the quartiles are 3 and 7; layers of one length are reduced together."""
    found = summarize_profile(
        profile(a=[float(i) for i in range(1, 10)], b=[2.0 * i for i in range(1, 10)]), engine("a", "b")
    )
    assert [2.0, 4.0] == [t.spread for t in found.layers]
