"""What is printed: milliseconds and microseconds, shares and percent, each by arithmetic by hand."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rtlab.analyses.findings.reading import Reading
from rtlab.analyses.timing.times import LayerTime, Timing, share_times
from rtlab.core.engine import Engine, Layer
from rtlab.core.variant import Target
from rtlab.documents.numbers import choose_byte_unit, choose_time_unit, format_bytes, format_number
from rtlab.web.page.graph import _times


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (0.5, "ms", "500 µs"), (0.001234, "ms", "1.23 µs"), (1.0, "ms", "1 ms"), (12.345, "ms", "12.3 ms"),
        (-0.25, "ms", "−250 µs"), (0.0, "ms", "0 ms"), (-123_456.0, "ms", "−123,000 ms"), (None, "ms", "—"),
        (1100.0, "MB", "1,100 MB"), (999.7, "", "1,000"), (1.2e9, "", "1.2e+09"),
    ],
)  # fmt: skip
def test_numbers_have_three_digits_and_times_below_a_millisecond_are_in_microseconds(
    value, unit, text
) -> None:
    assert format_number(value, unit) == text
    assert (choose_time_unit(0.999), choose_time_unit(1.0)) == (("µs", 1000.0), ("ms", 1.0))


@given(st.integers(1_024, 10**12 - 1))
def test_what_is_told_of_bytes_is_within_half_a_percent(nbytes: int) -> None:
    told, unit = format_bytes(nbytes).replace(",", "").split()
    name, size = choose_byte_unit(nbytes)
    assert (unit, True) == (name, math.isclose(float(told) * size, nbytes, rel_tol=0.005))


def engine(*names: str) -> Engine:
    return Engine("tensorrt", "10", Target("sm86"), tuple(Layer(n, n, n[0], i) for i, n in enumerate(names)))


def timing(*medians: float, total: float | None = None, processor: Any = "GPU") -> Timing:
    summed = sum(medians)
    named = zip(("a1", "b1", "a2"), medians, strict=False)
    layers = tuple(LayerTime(n, m, m / 10, m / summed) for n, m in named)
    return Timing("s", "d", None, 9, total, summed, layers, processor=processor)


def test_a_finding_tells_its_layers_in_microseconds_and_in_percent_of_the_sum() -> None:
    made, times = engine("a1", "b1", "a2"), timing(1.0, 5.0, 2.0)
    reading = Reading.__new__(Reading)
    object.__setattr__(reading, "timing", times)
    object.__setattr__(reading, "times", {t.layer: t.median for t in times.layers})
    layers = [made.layers[0], made.layers[2]]
    assert (reading.microseconds(layers), reading.share(layers)) == (3000.0, 0.375)
    assert "38 %" in reading.cost(layers)
    assert (reading.matters(layers, 0.375), reading.matters(layers, 0.376)) == (True, False)


@pytest.mark.parametrize(("processor", "scale"), [("GPU", 1.0), ("CPU", 0.25)])
def test_an_overlay_of_a_cpu_is_scaled_to_the_inference(processor, scale) -> None:
    times = timing(1.0, 5.0, 2.0, total=2.0, processor=processor)
    shared = share_times(times, {t.layer: (t.layer,) for t in times.layers})
    time = _times(times, shared, shared)
    assert [v["value"] for v in time["layers"].values()] == pytest.approx([scale, 5 * scale, 2 * scale])
    spreads = [v["spread"] for v in time["nodes"].values()]
    assert spreads == pytest.approx([0.1 * scale, 0.5 * scale, 0.2 * scale])
    assert "ms" == time["unit"]
