"""Nouns as tables, by hand: units, titles of ids, links, and what is not known."""

from __future__ import annotations

import dataclasses
import math
from typing import Annotated

import pytest

from rtlab.core.schema import Meaning
from rtlab.documents.answer import Answer, NounTable, aligned


@dataclasses.dataclass(frozen=True)
class Move:
    """A step that moves something."""

    layer: Annotated[str, Meaning("Layer", links="layers")]
    nodes: Annotated[tuple[str, ...], Meaning("Nodes", links="nodes")]
    milliseconds: Annotated[float | None, Meaning("Time", "ms", "{self.origin}")]
    share: Annotated[float | None, Meaning("Share", "%", "estimated")]
    sqnr: Annotated[float, Meaning("SQNR", "dB", infinite=True)]
    last: Annotated[bool, Meaning("Last")]
    why: Annotated[str, Meaning("Why")]
    origin: str = "reported"
    beside: Annotated[tuple[str, ...], Meaning(links="others")] = ()


MOVES = (
    Move("0:a", ("n", "m"), 0.5, 0.25, math.inf, last=False, why="", beside=("9:z",)),
    Move("1:b", (), None, None, -3.0, last=True, why="x\x1b[2Jy"),
)
TABLE = NounTable(Move, MOVES, {"0:a": "Conv", "1:b": "Pool"}, lambda layer: [f"of {layer}"], "none")


def test_columns_have_the_unit_that_reads_best_and_the_noun_s_own_origin() -> None:
    assert [
        ("Layer", "", False, ""), ("Nodes", "", True, ""), ("Time", "µs", True, "reported"),
        ("Share", "%", True, "estimated"), ("SQNR", "dB", True, ""), ("Last", "", False, ""), ("Why", "", False, ""),
    ] == [(c["title"], c["unit"], c["numeric"], c["origin"]) for c in TABLE.columns()]  # fmt: skip


def test_cells_are_in_the_unit_of_their_column() -> None:
    first, second = TABLE.rows()
    assert ["Conv", 2, 500.0, 25.0, None, "", ""] == first["cells"]
    assert ["Pool", 0, None, None, -3.0, "yes", "x\x1b[2Jy"] == second["cells"]
    assert (["0:a", "1:b"], "") == ([first["key"], second["key"]], first["note"])
    long = NounTable(Move, (dataclasses.replace(MOVES[0], milliseconds=1.5),))
    assert ("ms", 1.5) == (long.columns()[2]["unit"], long.rows()[0]["cells"][2])


def test_a_row_leads_to_its_own_nodes_else_to_those_of_its_layer() -> None:
    assert {
        "0:a": {"nodes": ["n", "m"], "layers": ["0:a"], "others": ["9:z"]},
        "1:b": {"nodes": ["of 1:b"], "layers": ["1:b"], "others": []},
    } == TABLE.links()


def test_text_has_units_and_nothing_that_steers_a_terminal() -> None:
    head, rows = TABLE.cells()
    assert ["layer", "nodes", "time, reported", "share, estimated", "sqnr", "last", "why"] == head
    assert "<th>Time, reported</th><th>Share, estimated</th>" in TABLE.html()
    # Of the second nobody knows a time: a heading would claim one.
    assert ["time", "share"] == NounTable(Move, MOVES[1:]).cells()[0][2:4]
    assert ["Conv", "2", "500 µs", "25 %", "—", "no", "none"] == rows[0]
    assert ["layer", "Pool"] == [TABLE.text().splitlines()[i].split()[0] for i in (0, 2)]
    assert "\x1b" not in TABLE.text()
    assert "a" * 59 + "…" == aligned(["h"], [["a" * 61]]).splitlines()[1]


def test_a_frame_has_numbers_as_they_are() -> None:
    frame = TABLE.frame()
    assert 0.5 == frame.milliseconds[0]
    assert math.isinf(frame.sqnr[0])
    assert {"milliseconds": "ms", "share": "%", "sqnr": "dB"} == frame.attrs["units"]
    assert {"milliseconds": "reported", "share": "estimated"} == frame.attrs["origins"]


@dataclasses.dataclass(frozen=True)
class Lap:
    """A row whose number is measured or guessed."""

    length: Annotated[float, Meaning("{of.first} LAP", "{of.unit}", "{self.origin}")]
    extra: Annotated[int | None, Meaning("Extra {of.first}", omit=True)]
    origin: str
    note: str = ""


@dataclasses.dataclass(frozen=True)
class Race:
    """What its columns are called is told by itself."""

    best: Annotated[
        float, Meaning("Best of {self.first}", "{self.unit}", "{self.kind}", note="{self.unit} it is")
    ]
    first: str
    unit: str
    kind: str
    laps: tuple[Lap, ...]
    notes: tuple[str, ...] = ("It rained.",)


def test_texts_of_a_declaration_name_fields_of_the_noun_and_of_the_one_around() -> None:
    race = Race(
        2.0, "Ann", "turns", "estimated", (Lap(3.0, None, "measured", "dry"), Lap(4.0, None, "measured"))
    )
    told = Answer("Race", race)
    assert [("Ann LAP", "turns", "measured")] == [
        (c["title"], c["unit"], c["origin"]) for c in told.parts()["columns"]
    ]
    (fact,) = told.parts()["facts"]
    assert ("Best of Ann", "2 turns", "estimated", "turns it is") == (
        fact["key"], fact["value"], fact["origin"], fact["note"],
    )  # fmt: skip
    assert ["dry", ""] == [r["note"] for r in told.parts()["rows"]]
    assert ({"length": "turns"}, {"length": "measured"}) == (
        told.frame().attrs["units"], told.frame().attrs["origins"],
    )  # fmt: skip
    # A name keeps its letters where headings are small.
    assert ["Race", "Best of Ann: 2 turns (estimated)", "", "Ann lap, measured", "3 turns"] == repr(
        told
    ).splitlines()[:5]
    assert ["", "It rained."] == repr(told).splitlines()[-2:]
    assert told._repr_html_().endswith("<br>It rained.")


@dataclasses.dataclass(frozen=True)
class Held:
    """Two sizes and two times."""

    large: Annotated[int, Meaning("Large", "B")]
    small: Annotated[int, Meaning("Small", "B")]
    long: Annotated[float, Meaning("Long", "ms")]
    short: Annotated[float, Meaning("Short", "ms")]


def test_times_of_a_row_share_a_unit_and_sizes_have_that_of_their_column() -> None:
    """A difference is read beside what it is of; weights say nothing of activations."""
    table = NounTable(Held, (Held(3 << 20, 2 << 10, 2.0, 0.5), Held(1 << 10, 1 << 10, 1.0, 0.5)))
    assert ["MiB", "KiB", "ms", "ms"] == [c["unit"] for c in table.columns()]
    assert [3.0, 2.0, 2.0, 0.5] == table.rows()[0]["cells"]


def test_a_column_of_two_origins_says_in_each_cell_which() -> None:
    """A heading would claim one of them for both."""
    race = Race(2.0, "Ann", "ms", "", (Lap(3.0, 5, "measured"), Lap(4.0, None, "estimated")))
    table = Answer("Race", race).table
    assert ["", ""] == [c["origin"] for c in table.columns()]
    assert (["Ann lap", "extra Ann"], [["3 ms (measured)", "5"], ["4 ms (estimated)", "—"]]) == table.cells()
    assert {"length": "estimated, measured"} == table.frame().attrs["origins"]


def test_an_answer_without_rows_is_facts() -> None:
    told = Answer("One", MOVES[0])
    assert told.table is None
    assert ["facts", "notes"] == list(told.parts())
    assert "Time: 500 µs (reported)" in repr(told).splitlines()
    # What are few are named; many are counted, and none are.
    assert "Nodes: n, m" in repr(told).splitlines()
    many = dataclasses.replace(MOVES[0], nodes=tuple(f"a node {i}" for i in range(30)))
    assert "Nodes: 30" in repr(Answer("One", many)).splitlines()
    assert "Nodes: 0" in repr(Answer("One", MOVES[1])).splitlines()
    assert 1 == len(told.frame())
    assert "&lt;b&gt;" in Answer("<b>", MOVES[0])._repr_html_()
    with pytest.raises(TypeError, match="it is no noun"):
        repr(Answer("None", 3))
