"""Which kernels take the time: by hand, and of every engine of the corpus."""

from __future__ import annotations

import dataclasses
from collections import Counter

import pytest

import engines
from rtlab import Study
from rtlab.analyses import engine as kernels
from rtlab.errors import ReadError
from rtlab.testing import tiny_model


@engines.each
def test_every_layer_of_an_engine_is_counted_once(folder) -> None:
    result = Study(tiny_model()).read("elsewhere", **engines.files(folder))
    tactics = Counter(y.tactic for y in result.engine.layers)
    if set(tactics) == {""}:
        with pytest.raises(ReadError, match="names one"):
            kernels.list_kernels(result.facts)
        return
    found = kernels.list_kernels(result.facts)
    assert tactics.pop("", 0) - result.engine.control_count == found.untold
    assert tactics == {k.name: len(k.layers) for k in found.kernels}
    assert sum(tactics.values()) == found.layers
    if result.own_times is None or not result.own_times.layers:
        assert {None} == {found.half, *(k.milliseconds for k in found.kernels)}
        return
    times = sorted((k.milliseconds or 0.0 for k in found.kernels), reverse=True)
    assert sum(times[: found.half]) >= sum(times) / 2 > sum(times[: (found.half or 0) - 1])


def test_a_name_that_stands_in_for_a_kernel_says_so() -> None:
    result = Study(tiny_model()).read("x", **engines.files(engines.RESIDUAL))
    first, second, third, *_ = result.engine.layers
    layers = (
        dataclasses.replace(first, tactic="__myelin_CASK_STUB"),
        dataclasses.replace(second, tactic="sm80_gemm"),
        dataclasses.replace(third, tactic="", kind="wait"),
    )
    engine = dataclasses.replace(result.engine, layers=layers)
    found = kernels.list_kernels(dataclasses.replace(result.facts, engine=engine))
    assert (2, 0) == (found.layers, found.untold)
    noted = {k.name: "stand-in" in k.note for k in found.kernels}
    assert {"__myelin_CASK_STUB": True, "sm80_gemm": False} == noted
    assert 1 == len(found.notes)


def test_half_of_the_time_counts_the_slowest_kernels() -> None:
    """Times 5, 3, 2, 1 and 1: five are less than six, and eight are more."""
    shares = tuple(kernels.KernelShare(f"k{t}", (), t, t / 12) for t in (5.0, 3.0, 2.0, 1.0, 1.0))
    assert 2 == kernels._half(shares)
    assert 1 == kernels._half(shares[:1])
    assert kernels._half(tuple(dataclasses.replace(k, milliseconds=None) for k in shares)) is None
