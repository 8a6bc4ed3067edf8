"""Which kernels take the time: by hand, and of every recorded engine."""

from __future__ import annotations

import dataclasses
from collections import Counter

import pytest

import recorded
from rtlab import Study
from rtlab.errors import ReadError
from rtlab.questions import kernels
from rtlab.testing import tiny_model


@recorded.each
def test_every_layer_of_a_recorded_engine_is_counted_once(folder) -> None:
    result = Study(tiny_model()).read("elsewhere", **recorded.files(folder))
    tactics = Counter(y.tactic for y in result.engine.layers)
    if set(tactics) == {""}:
        with pytest.raises(ReadError, match=r"no layer of .* names one"):
            kernels.of(result.facts)
        return
    found = kernels.of(result.facts)
    assert tactics.pop("", 0) == found.untold
    assert tactics == {k.name: len(k.layers) for k in found.kernels}
    assert sum(tactics.values()) == found.layers
    if result.own_times is None or not result.own_times.layers:
        assert {None} == {found.half, *(k.milliseconds for k in found.kernels)}
        return
    times = sorted((k.milliseconds or 0.0 for k in found.kernels), reverse=True)
    assert sum(times[: found.half]) >= sum(times) / 2 > sum(times[: (found.half or 0) - 1])


def test_half_of_the_time_counts_the_slowest_kernels() -> None:
    """Times 5, 3, 2, 1 and 1: five are less than six, and eight are more."""
    shares = tuple(kernels.KernelShare(f"k{t}", (), t, t / 12) for t in (5.0, 3.0, 2.0, 1.0, 1.0))
    assert 2 == kernels._half(shares)
    assert 1 == kernels._half(shares[:1])
    assert kernels._half(tuple(dataclasses.replace(k, milliseconds=None) for k in shares)) is None
