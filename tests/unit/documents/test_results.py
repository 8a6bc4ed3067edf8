"""Nouns as tables, by hand: units, titles of ids, and what is not known; and ticks of figures."""

from __future__ import annotations

import dataclasses
import math
from typing import Annotated

import pytest

from rtlab.core.schema import FieldMeta
from rtlab.documents.figure import make_log_ticks
from rtlab.documents.results import ResultTable, ResultView, align_columns


@dataclasses.dataclass(frozen=True)
class Move:
    """A step that moves something."""

    layer: Annotated[str, FieldMeta("Layer", links="layers")]
    nodes: Annotated[tuple[str, ...], FieldMeta("Nodes", links="nodes")]
    milliseconds: Annotated[float | None, FieldMeta("Time", "ms", "{self.origin}")]
    share: Annotated[float | None, FieldMeta("Share", "%", "estimated")]
    sqnr: Annotated[float, FieldMeta("SQNR", "dB", infinite=True)]
    last: Annotated[bool, FieldMeta("Last")]
    why: Annotated[str, FieldMeta("Why")]
    origin: str = "reported"
    beside: Annotated[tuple[str, ...], FieldMeta(links="others")] = ()


MOVES = (
    Move("0:a", ("n", "m"), 0.5, 0.25, math.inf, last=False, why="", beside=("9:z",)),
    Move("1:b", (), None, None, -3.0, last=True, why="x\x1b[2Jy"),
)
TABLE = ResultTable(Move, MOVES, {"0:a": "Conv", "1:b": "Pool"}, lambda layer: [f"of {layer}"], "none")


def test_cells_are_in_the_unit_of_their_column() -> None:
    first, second = TABLE.rows()
    assert ["Conv", 2, 500.0, 25.0, None, "", ""] == first["cells"]
    assert ["Pool", 0, None, None, -3.0, "yes", "x\x1b[2Jy"] == second["cells"]
    assert (["0:a", "1:b"], "") == ([first["key"], second["key"]], first["note"])
    long = ResultTable(Move, (dataclasses.replace(MOVES[0], milliseconds=1.5),))
    assert ("ms", 1.5) == (long.columns()[2]["unit"], long.rows()[0]["cells"][2])


def test_text_has_units_and_nothing_that_steers_a_terminal() -> None:
    head, rows = TABLE.cells()
    assert ["layer", "nodes", "time, reported", "share, estimated", "sqnr", "last", "why"] == head
    # Of the second nobody knows a time: a heading would claim one.
    assert ["time", "share"] == ResultTable(Move, MOVES[1:]).cells()[0][2:4]
    assert ["Conv", "2", "500 µs", "25 %", "—", "no", "none"] == rows[0]
    assert ["layer", "Pool"] == [TABLE.text().splitlines()[i].split()[0] for i in (0, 2)]
    assert "\x1b" not in TABLE.text()
    assert "a" * 59 + "…" == align_columns(["h"], [["a" * 61]]).splitlines()[1]


@dataclasses.dataclass(frozen=True)
class Held:
    """Two sizes and two times."""

    large: Annotated[int, FieldMeta("Large", "B")]
    small: Annotated[int, FieldMeta("Small", "B")]
    long: Annotated[float, FieldMeta("Long", "ms")]
    short: Annotated[float, FieldMeta("Short", "ms")]


def test_times_of_a_row_share_a_unit_and_sizes_have_that_of_their_column() -> None:
    table = ResultTable(Held, (Held(3 << 20, 2 << 10, 2.0, 0.5), Held(1 << 10, 1 << 10, 1.0, 0.5)))
    assert ["MiB", "KiB", "ms", "ms"] == [c["unit"] for c in table.columns()]
    assert [3.0, 2.0, 2.0, 0.5] == table.rows()[0]["cells"]


def test_an_answer_without_rows_is_facts() -> None:
    told = ResultView("One", MOVES[0])
    assert told.table is None
    assert "Time: 500 µs (reported)" in repr(told).splitlines()
    # What are few are named; many are counted, and none are.
    assert "Nodes: n, m" in repr(told).splitlines()
    many = dataclasses.replace(MOVES[0], nodes=tuple(f"a node {i}" for i in range(30)))
    assert "Nodes: 30" in repr(ResultView("One", many)).splitlines()
    assert "Nodes: 0" in repr(ResultView("One", MOVES[1])).splitlines()
    assert 1 == len(told.frame())
    assert "&lt;b&gt;" in ResultView("<b>", MOVES[0])._repr_html_()
    with pytest.raises(TypeError, match="it is no noun"):
        repr(ResultView("None", 3))


@pytest.mark.parametrize(
    ("least", "most", "within"),
    [
        (0.4, 3.0, ["0.5", "1", "2"]), (1.0, 1.35, ["1", "1.1", "1.2", "1.3"]),
        (0.97, 1.04, ["0.98", "1", "1.02", "1.04"]), (880.0, 910.0, ["880", "890", "900", "910"]),
        (150.0, 36_000.0, ["200", "500", "1,000", "2,000", "5,000", "10,000", "20,000"]),
        (100.0, 1e6, ["100", "1,000", "10,000", "100,000", "1,000,000"]), (1.0, 1.0, ["1"]),
    ],
)  # fmt: skip
def test_ticks_of_a_logarithmic_axis_are_whole_numbers_and_few(least, most, within) -> None:
    """Plotly by itself writes 5, 2, 10k, 5, 2: the reader would have to guess the tens."""
    ticks = make_log_ticks(least, most)
    shown = zip(ticks["tickvals"], ticks["ticktext"], strict=True)
    assert within == [text for value, text in shown if least <= value <= most]
