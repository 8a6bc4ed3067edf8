"""What is printed: milliseconds and microseconds, shares and percent, each by arithmetic by hand."""

from __future__ import annotations

import dataclasses
from typing import Annotated, Any

import numpy as np
import pytest

from rtlab.core.engine import Engine, Layer
from rtlab.core.schema import Meaning
from rtlab.core.variant import Target
from rtlab.documents.answer import NounTable
from rtlab.documents.numbers import number, time_unit
from rtlab.questions.engine.breakdown import by_kind
from rtlab.questions.findings.rules.reading import Reading
from rtlab.questions.samples.spread import spread
from rtlab.questions.timing.times import LayerTime, Shared, Timing
from rtlab.view.overlays import _times


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (0.5, "ms", "500 µs"), (0.001234, "ms", "1.23 µs"), (1.0, "ms", "1 ms"), (12.345, "ms", "12.3 ms"),
        (-0.25, "ms", "−250 µs"), (0.0, "ms", "0 ms"), (1234.0, "ms", "1,230 ms"), (None, "ms", "—"),
    ],
)  # fmt: skip
def test_times_below_a_millisecond_are_printed_in_microseconds(
    value: float | None, unit: str, text: str
) -> None:
    assert number(value, unit) == text
    assert (time_unit(0.999), time_unit(1.0)) == (("µs", 1000.0), ("ms", 1.0))


@dataclasses.dataclass(frozen=True)
class Row:
    """A time, a share and a size."""

    time: Annotated[float, Meaning("Time", "ms", "measured")]
    share: Annotated[float, Meaning("Share", "%", "measured")]
    size: Annotated[int, Meaning("Size", "B", "reported")]


@pytest.mark.parametrize(("most", "unit", "factor"), [(0.5, "µs", 1000.0), (2.0, "ms", 1.0)])
def test_a_table_scales_times_shares_and_sizes_by_their_units(most: float, unit: str, factor: float) -> None:
    table = NounTable(Row, [Row(most, 0.25, 3 << 20), Row(0.1, 0.005, 1 << 10)])
    columns = {c["title"]: c for c in table.columns()}
    assert [columns[t]["unit"] for t in ("Time", "Share", "Size")] == [unit, "%", "MiB"]
    first, second = (row["cells"] for row in table.rows())
    assert first == pytest.approx([most * factor, 25.0, 3.0])
    assert second == pytest.approx([0.1 * factor, 0.5, 2.0**-10])
    assert table.cells()[1][1] == ["100 µs", "0.5 %", "1 KiB"]


def engine(*names: str) -> Engine:
    return Engine("tensorrt", "10", Target("sm86"), tuple(Layer(n, n, n[0], i) for i, n in enumerate(names)))


def timing(*medians: float, total: float | None = None, processor: Any = "GPU") -> Timing:
    summed = sum(medians)
    layers = tuple(
        LayerTime(n, m, m / 10, m / summed) for n, m in zip(("a1", "b1", "a2"), medians, strict=False)
    )
    return Timing("s", "d", None, 9, total, None, summed, layers, processor=processor)


def test_kinds_of_layers_have_their_share_of_the_sum_the_longest_first() -> None:
    found = by_kind(engine("a1", "b1", "a2"), timing(1.0, 5.0, 2.0))
    assert [(s.name, s.layers, s.milliseconds, s.share) for s in found] == [
        ("b", ("b1",), 5.0, 0.625), ("a", ("a1", "a2"), 3.0, 0.375)
    ]  # fmt: skip
    assert [(s.name, s.milliseconds, s.share) for s in by_kind(engine("a1", "b1", "a2"))] == [
        ("a", None, None), ("b", None, None)
    ]  # fmt: skip


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
def test_an_overlay_of_a_cpu_is_scaled_to_the_inference_and_shares_are_in_percent(
    processor: str, scale: float
) -> None:
    times = timing(1.0, 5.0, 2.0, total=2.0, processor=processor)
    shared = {t.layer: Shared(t.median, t.spread, t.share, 1, (t.layer,)) for t in times.layers}
    time, share = _times(times, shared, shared)
    assert [v["value"] for v in time["layers"].values()] == pytest.approx([scale, 5 * scale, 2 * scale])
    assert [v["spread"] for v in time["nodes"].values()] == pytest.approx(
        [0.1 * scale, 0.5 * scale, 0.2 * scale]
    )
    assert [v["value"] for v in share["nodes"].values()] == pytest.approx([12.5, 62.5, 25.0])
    assert (time["unit"], share["unit"]) == ("ms", "%")


@pytest.mark.parametrize(("factor", "text"), [(1.0, "up to 9 ms"), (0.01, "up to 90 µs")])
def test_samples_that_stand_apart_are_told_in_the_unit_of_their_median(factor: float, text: str) -> None:
    found = spread(factor * np.array([1.0, 2, 3, 4, 3, 9, 2, 4, 3]))
    assert found is not None
    assert any(text in s and "1 of 9" in s for s in found.sentences())
