"""What every rule reads: the times of layers, in words."""

from __future__ import annotations

import dataclasses

import pytest

from judged import chain, timed
from rtlab.analyses.findings.reading import Reading, count_channels
from rtlab.analyses.roofline.estimate import Point, Roofline
from rtlab.core.engine import Tensor
from rtlab.core.peaks import resolve_peaks


def test_layers_without_a_time_cost_nothing_that_is_known() -> None:
    found = chain(3)
    times = timed(found, 10.0, 20.0, 30.0)
    half = dataclasses.replace(times, layers=times.layers[:2])
    reading = Reading(found, timing=half)
    first, second, third = found.layers
    assert "Cost unknown: no times." == reading.cost([third])
    # 30 of 60 microseconds.
    assert " 30 µs, 50 % " in reading.cost([first, second])
    assert (30.0, 0.5) == (reading.microseconds([first, second]), reading.share([first, second]))
    assert reading.microseconds([third]) is None
    assert "Cost unknown: no times." == Reading(found).cost([first])


def test_where_nothing_was_measured_the_estimate_that_is_on_screen_is_the_cost() -> None:
    """Of three layers that take 10, 20 and 70 microseconds by estimate, the first two take 30 %."""
    found = chain(3)
    first, second, third = found.layers

    def point(layer: str, time: float | None) -> Point:
        counts = (None, None) if time is None else (1, 1)
        return Point(layer, counts[0], counts[0], counts[1], 0, "fp32", "cores", "memory", time, time)

    points = (point(y.id, t) for y, t in zip(found.layers, (0.01, 0.02, 0.07), strict=True))
    roof = Roofline(resolve_peaks("RTX 3090"), 1, tuple(points), 0)
    reading = Reading(found, estimate=roof)
    assert " 30 µs, 30 % of the sum of all layers (estimated for RTX 3090)" in reading.cost([first, second])
    # Time at stake is what was measured, and nothing was.
    assert reading.microseconds([first, second]) is None
    # An estimate stands in for no layer that a profile lacks, nor half of one for the whole.
    times = timed(found, 10.0, 20.0, 30.0)
    half = dataclasses.replace(times, layers=times.layers[:2])
    assert "Cost unknown: no times." == Reading(found, timing=half, estimate=roof).cost([third])
    partly = dataclasses.replace(roof, layers=(roof.layers[0], point(second.id, None)))
    assert "no estimate of all" in Reading(found, estimate=partly).cost([first, second])


def test_a_share_decides_where_times_are_known() -> None:
    found = chain(2)
    known, unknown = Reading(found, timing=timed(found, 25.0, 75.0)), Reading(found)
    assert [True, True, False] == [known.matters(found.layers[:1], least) for least in (0.1, 0.25, 0.26)]
    assert unknown.matters(found.layers[:1], 1.0)
    assert not unknown.matters([], 0.0)


@pytest.mark.parametrize(
    ("shape", "expected"),
    [(None, None), ((), None), ((8, 64), None), ((8, -1, 7, 7), None), ((8, 64, 7), 64), ((8, 64, 7, 7), 64)],
)
def test_channels_are_the_second_of_three_sizes_or_more(shape, expected) -> None:
    assert expected == count_channels(Tensor("t", "fp16", shape))
    assert count_channels(None) is None
