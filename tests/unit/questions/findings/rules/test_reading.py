"""What every rule reads: the times of layers, in words."""

from __future__ import annotations

import dataclasses

import pytest

from judged import chain, timed
from rtlab.core.engine import Tensor
from rtlab.core.peaks import peaks
from rtlab.questions.findings.rules.reading import Reading, channels
from rtlab.questions.roofline.roofs import Point, Roofline


def test_layers_without_a_time_cost_nothing_that_is_known() -> None:
    """A profile may lack layers that the file of layers has; those beside them keep their times."""
    found = chain(3)
    times = timed(found, 10.0, 20.0, 30.0)
    half = dataclasses.replace(times, layers=times.layers[:2])
    reading = Reading(found, timing=half)
    first, second, third = found.layers
    assert "Cost unknown: no times." == reading.cost([third])
    # 30 of 60 microseconds.
    told = "These 2 layers take 30 µs, 50 % of the sum of all layers (measured, trtexec)."
    assert told == reading.cost([first, second, third][:2])
    assert f"{told[:-1]}, all of which could go." == reading.cost([first, second], saved=True)
    assert (30.0, None, 0.5) == (
        reading.microseconds([first, second]),
        reading.microseconds([third]),
        reading.share([first, second]),
    )
    assert "Cost unknown: no times." == Reading(found).cost([first])


def test_where_nothing_was_measured_the_estimate_that_is_on_screen_is_the_cost() -> None:
    """Of three layers that take 10, 20 and 70 microseconds by estimate, the first two take 30 %."""
    found = chain(3)
    first, second, third = found.layers

    def point(layer: str, time: float | None) -> Point:
        counts = (None, None) if time is None else (1, 1)
        return Point(layer, counts[0], counts[0], counts[1], 0, "fp32", "cores", "memory", time, time)

    roof = Roofline(
        peaks("RTX 3090"), 1, (point(first.id, 0.01), point(second.id, 0.02), point(third.id, 0.07)), 0
    )
    told = "These 2 layers take 30 µs, 30 % of the sum of all layers (estimated for RTX 3090)."
    reading = Reading(found, estimate=roof)
    assert told == reading.cost([first, second])
    # Time at stake is what was measured, and nothing was.
    assert reading.microseconds([first, second]) is None
    # An estimate stands in for no layer that a profile lacks, nor half of one for the whole.
    times = timed(found, 10.0, 20.0, 30.0)
    half = dataclasses.replace(times, layers=times.layers[:2])
    assert "Cost unknown: no times." == Reading(found, timing=half, estimate=roof).cost([third])
    partly = dataclasses.replace(roof, layers=(roof.layers[0], point(second.id, None)))
    assert "no estimate of all" in Reading(found, estimate=partly).cost([first, second])


def test_what_changes_a_layout_too_is_not_said_to_go() -> None:
    """A conversion that also makes 32 channels lie side by side leaves that to do, to a copy perhaps."""
    found = chain(3)
    laid = tuple(
        dataclasses.replace(
            y,
            inputs=(Tensor("i", "fp32", (1, 32), "Row major linear FP32"),),
            outputs=(Tensor("o", "int8", (1, 32), after),),
        )
        for y, after in zip(
            found.layers,
            ("Row major Int8 format", "Thirty-two wide channel vectorized row major Int8 format", ""),
            strict=True,
        )
    )
    engine = dataclasses.replace(found, layers=laid)
    reading = Reading(engine, timing=timed(engine, 3.0, 44.0, 0.3))
    kept, moved, untold = laid
    assert reading.cost([kept, untold], saved=True).endswith(", all of which could go.")
    assert ", of which 3.3 µs could go; the other 44 µs change layouts too" in reading.cost(
        [*laid], saved=True
    )
    assert "; how much could go is not known: it also changes the layout" in reading.cost([moved], saved=True)
    assert "could" not in reading.cost([moved])


def test_a_share_decides_where_times_are_known() -> None:
    """Without times, every layer may matter."""
    found = chain(2)
    known, unknown = Reading(found, timing=timed(found, 25.0, 75.0)), Reading(found)
    assert [True, True, False] == [known.matters(found.layers[:1], least) for least in (0.1, 0.25, 0.26)]
    assert unknown.matters(found.layers[:1], 1.0)
    assert not unknown.matters([], 0.0)


@pytest.mark.parametrize(
    ("tensor", "expected"),
    [
        (None, None),
        (Tensor("t", "fp16"), None),
        (Tensor("t", "fp16", ()), None),
        (Tensor("t", "fp16", (8, 64)), None),
        (Tensor("t", "fp16", (8, -1, 7, 7)), None),
        (Tensor("t", "fp16", (8, 64, 7)), 64),
        (Tensor("t", "fp16", (8, 64, 7, 7)), 64),
    ],
)
def test_channels_are_the_second_of_three_sizes_or_more(tensor, expected) -> None:
    """Two sizes are rows and columns of a product."""
    assert expected == channels(tensor)
