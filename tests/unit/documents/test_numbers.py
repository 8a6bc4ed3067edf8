"""Numbers, columns and figures as text, by hand; and what of a value crosses to JSON."""

from __future__ import annotations

import dataclasses
import datetime
import enum
import math
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Annotated, Any, Literal

import numpy as np
import pytest

from rtlab.core.schema import FieldMeta
from rtlab.core.variant import Precision
from rtlab.documents import figure, results, serialization
from rtlab.documents.numbers import (
    choose_byte_unit,
    choose_time_unit,
    format_bytes,
    format_number,
    get_layer_heading,
    get_layer_noun,
    shorten_name,
)
from rtlab.documents.results import ResultTable, ResultView


@pytest.mark.parametrize(
    ("value", "unit", "signed", "text"),
    [
        (None, "ms", False, "—"), (0.0, "ms", False, "0 ms"), (0.9994, "ms", False, "999 µs"),
        (1.0, "ms", False, "1 ms"), (-0.5, "ms", False, "−500 µs"), (-1.0, "ms", True, "−1 ms"),
        (0.5, "ms", True, "+500 µs"), (0.5, "dB", False, "0.5 dB"), (999.4, "", False, "999"),
        (1100.0, "ms", False, "1,100 ms"), (1100.0, "", True, "+1,100"), (-1100.0, "", True, "−1,100"),
        (9_990_000.0, "", False, "9,990,000"), (10_000_000.0, "", False, "1e+07"), (1e-5, "dB", False, "1e−05 dB"),
        (math.inf, "dB", False, "inf dB"),
    ],
)  # fmt: skip
def test_a_number_has_three_digits_and_a_unit(value, unit, signed, text) -> None:
    assert text == format_number(value, unit, signed=signed)


@pytest.mark.parametrize(
    ("nbytes", "signed", "text"),
    [
        (None, False, "—"), (0, False, "0 bytes"), (1023, False, "1023 bytes"), (1023, True, "+1023 bytes"),
        (-1023, False, "−1023 bytes"), (1024, False, "1 KiB"), (-1024, True, "−1 KiB"),
        ((1 << 20) - 1, False, "1,020 KiB"), (1 << 20, True, "+1 MiB"), (3 << 29, False, "1.5 GiB"),
        (1 << 42, False, "4,100 GiB"),
    ],
)  # fmt: skip
def test_bytes_are_in_the_binary_unit_that_reads_best(nbytes, signed, text) -> None:
    assert text == format_bytes(nbytes, signed=signed)


def test_units_change_at_their_own_size() -> None:
    sizes = {
        0: "KiB",
        1023: "KiB",
        (1 << 20) - 1: "KiB",
        1 << 20: "MiB",
        (1 << 30) - 1: "MiB",
        1 << 30: "GiB",
    }
    assert sizes == {n: choose_byte_unit(n)[0] for n in sizes}
    assert [2.0**10, 2.0**20, 2.0**30] == [choose_byte_unit(1 << b)[1] for b in (10, 20, 30)]
    assert [("µs", 1e3), ("µs", 1e3), ("ms", 1.0)] == [choose_time_unit(t) for t in (0, 0.999, 1)]


@pytest.mark.parametrize(
    ("name", "most", "text"),
    [("a" * 70, 70, "a" * 70), ("abcd", 4, "abcd"), ("abcdef", 4, "ab…ef"), ("abcdefgh", 6, "abc…fgh")],
)
def test_a_name_is_cut_in_its_middle(name: str, most: int, text: str) -> None:
    assert text == shorten_name(name, most)
    assert "a" * 35 + "…" + "a" * 35 == shorten_name("a" * 71)


def test_a_step_is_called_as_its_maker_does() -> None:
    told: list[Any] = [SimpleNamespace(maker=SimpleNamespace(step=s), detail="layer") for s in ("node", "")]
    assert [("node", "Nodes"), ("layer", "Layers")] == [
        (get_layer_noun(e), get_layer_heading(e)) for e in told
    ]


class Colour(enum.Enum):
    RED = "red"


@dataclasses.dataclass(frozen=True)
class Part:
    """A part of a whole."""

    name: Annotated[str, FieldMeta("Name")]
    size: Annotated[int | None, FieldMeta("Size", "B", "estimated")] = None
    flag: Annotated[bool | None, FieldMeta("Flag")] = None
    note: str = ""


@dataclasses.dataclass(frozen=True)
class Whole:
    """A whole with two tables."""

    total: Annotated[float | None, FieldMeta("Total", "ms", "measured", omit=True)]
    parts: Annotated[tuple[Part, ...], FieldMeta()]
    others: Annotated[tuple[Part, ...], FieldMeta("Others")]
    hidden: Annotated[tuple[Part, ...], FieldMeta()] = ()
    notes: tuple[str, ...] = ()


@pytest.mark.parametrize(
    ("value", "plain"),
    [
        (math.nan, None), (-math.inf, None), (np.float64(1.5), 1.5), (Colour.RED, "red"), (True, True), (None, None),
        ({1: math.inf}, {"1": None}), ({3}, [3]), ((1, (2,)), [1, [2]]), (Precision.FP16, "fp16"),
        (datetime.date(2026, 1, 2), "2026-01-02"),
        (datetime.datetime(2026, 1, 2, tzinfo=datetime.timezone.utc), "2026-01-02T00:00:00+00:00"),
        (Part("a", 3, note="n"), {"name": "a", "size": 3, "flag": None, "note": "n"}),
    ],
)  # fmt: skip
def test_a_value_crosses_as_builtins(value: Any, plain: Any) -> None:
    assert plain == serialization.to_builtins(value)
    assert type(plain) is type(serialization.to_builtins(value))


@pytest.mark.parametrize(
    ("hint", "kind"),
    [
        (int, int), (float | None, float | None), (Colour, Literal["red"]),
        (Precision | None, Literal[tuple(p.value for p in Precision)] | None),
        (tuple[int, ...], list[int]), (Mapping[str, float], dict[str, float]),
    ],
)  # fmt: skip
def test_a_type_crosses_as_a_plain_one(hint, kind) -> None:
    assert kind == serialization.get_plain_type(hint)


@pytest.mark.parametrize("hint", [object, SimpleNamespace])
def test_what_nothing_plain_stands_for_does_not_cross(hint) -> None:
    with pytest.raises(TypeError):
        serialization.get_plain_type(hint)


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (True, "", "yes"), (False, "", "no"), (None, "ms", "—"), ("", "", "—"), ("a", "", "a"), ((1, 2), "", "2"),
        (2048, "B", "2 KiB"), (12345, "", "12,345"), (12345, "x", "12,300 x"), (0.256, "%", "25.6 %"),
        (1, "%", "100 %"), (0.5, "ms", "500 µs"), (math.inf, "dB", "—"), (tuple(range(1000)), "", "1,000"),
    ],
)  # fmt: skip
def test_a_value_is_text_with_its_unit(value, unit, text) -> None:
    assert text == results._format_value(value, unit)


def whole(count: int = 2, **more: Any) -> Whole:
    return Whole(0.5, tuple(Part(f"p{i}", 1 << 10) for i in range(count)), (Part("o", flag=True),), **more)


def test_an_answer_has_its_first_table_and_those_with_a_title() -> None:
    told = ResultView("A title", whole(hidden=(Part("h"),), notes=("a note",)))
    assert told.table is not None
    assert ["p0", "p1"] == [n.name for n in told.table.items]
    lines = repr(told).splitlines()
    assert ["A title", "Total: 500 µs (measured)", ""] == lines[:3]
    assert "Others" in lines
    assert ["", "a note"] == lines[-2:]
    assert not any(y.startswith("h ") for y in lines)
    assert "" not in repr(ResultView("A title", whole())).splitlines()[-1:]
    assert not any(
        "Total" in y for y in repr(ResultView("", dataclasses.replace(whole(), total=None))).splitlines()
    )
    assert [1.0] * 2 == [r["cells"][1] for r in told.table.rows()]
    in_bytes = dataclasses.replace(told.table, units={"B": ("bytes", 1.0)})
    assert [1024.0] * 2 == [r["cells"][1] for r in in_bytes.rows()]
    assert ["Int64", "boolean"] == [str(told.frame().dtypes[n]) for n in ("size", "flag")]
    assert ({"size": "B"}, {"size": "estimated"}) == (
        told.frame().attrs["units"],
        told.frame().attrs["origins"],
    )


@pytest.mark.parametrize(("count", "shown"), [(25, 25), (26, 15)])
def test_a_long_table_ends_after_its_first_rows_in_a_notebook(count: int, shown: int) -> None:
    text = ResultTable(Part, whole(count).parts).html("; REST")
    assert shown == text.count("<td>p")
    assert (f"The first 15 of {count} rows; REST" in text) == (shown < count)


def test_what_may_be_unknown_says_no_and_columns_with_one_origin_name_it() -> None:
    table = ResultTable(Part, (Part("a", 2048, flag=False), Part("b", flag=True), Part("c")))
    assert [["a", 2.0, "no"], ["b", None, "yes"], ["c", None, None]] == [r["cells"] for r in table.rows()]
    assert ["name", "size, estimated", "flag"] == table.cells()[0]
    assert ["row 0", "row 1", "row 2"] == table.keys()
    assert {} == table.links()


@pytest.mark.parametrize(("width", "shown"), [(60, "a" * 60), (61, "a" * 59 + "…")])
def test_columns_are_aligned_and_a_long_cell_is_cut(width: int, shown: str) -> None:
    head, first, second = results.align_columns(("one", "x"), [("a" * width, "b"), ("c", "")]).splitlines()
    assert f"{shown}  b" == first
    assert f"one{' ' * 59}x" == head
    assert "c" == second


@pytest.mark.parametrize(("letters", "text"), [(60, "a" * 60), (61, "1")])
def test_a_fact_names_what_are_few(letters: int, text: str) -> None:
    @dataclasses.dataclass(frozen=True)
    class Few:
        """Some names."""

        names: Annotated[tuple[str, ...], FieldMeta("Names", links="nodes")]

    assert text == results.list_facts(Few(("a" * letters,)))[0]["value"]


@pytest.mark.parametrize(
    ("least", "most", "values"),
    [
        (1.0, 3.99, [1.0, 2.0, 3.0, 4.0]), (1.0, 4.0, [1.0, 2.0, 5.0]),
        (1.0, 316.0, [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000]),
        (1.0, 317.0, [1.0, 10.0, 100.0, 1000.0]),
    ],
)  # fmt: skip
def test_ticks_change_with_the_decades(least: float, most: float, values: list[float]) -> None:
    ticks = figure.make_log_ticks(least, most)["tickvals"]
    assert values == pytest.approx(ticks[: len(values)])
