"""A result as facts, a table, a frame, text and HTML, from the declarations of its dataclass's fields."""

from __future__ import annotations

import dataclasses
import functools
import html
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, get_args, get_origin

from rtlab.core.schema import Field, Origin, fields, format_text, is_noun
from rtlab.documents.contract import Column, Fact, Link, Row
from rtlab.documents.numbers import choose_byte_unit, choose_time_unit, format_bytes, format_number
from rtlab.documents.panel import fact, link
from rtlab.documents.serialization import to_builtins

if TYPE_CHECKING:
    import pandas as pd

#: Letters of a cell in a terminal.
_WIDEST = 60
#: A table of more rows than ``_LONG`` shows its first ``_FIRST`` in a notebook.
_LONG, _FIRST = 25, 15


@dataclasses.dataclass(frozen=True)
class ResultTable:
    """Dataclasses of one type, a row each: fields with a title are the columns, a field ``note`` is the hover.

    ``titles`` are the titles of linked ids, ``nodes`` returns the nodes of a layer; ``placeholder`` replaces an empty
    text. Times, bytes and shares have a fitting unit, or that of ``units``: by the declared one, name and factor.
    ``of`` is the result with the rows, for headings.
    """

    kind: type
    items: Sequence[Any]
    titles: Mapping[str, str] = dataclasses.field(default_factory=dict)
    nodes: Callable[[str], Iterable[str]] = lambda _: ()
    placeholder: str = "—"
    units: Mapping[str, tuple[str, float]] = dataclasses.field(default_factory=dict)
    of: Any = None
    predicted: bool = False

    @functools.cached_property
    def fields(self) -> tuple[Field, ...]:
        """Those that are shown."""
        titled = (f for f in fields(self.kind) if f.meaning.title)
        return tuple(
            f
            for f in titled
            if not f.meaning.omit or any(getattr(n, f.name) not in (None, "") for n in self.items)
        )

    def columns(self) -> list[Column]:
        """For a panel."""
        return [
            Column(
                title=format_text(f.meaning.title, of=self.of),
                unit=self._unit(f)[0],
                numeric=_is_numeric(f),
                origin=self._origin(f) or "",
            )
            for f in self.fields
        ]

    def rows(self) -> list[Row]:
        """For a panel, under the keys of ``links``."""
        scaled = [(f, self._unit(f)[1]) for f in self.fields]
        return [
            Row(
                key=key,
                cells=[
                    self._cell(getattr(row, f.name), factor, tristate=f.type is not bool)
                    for f, factor in scaled
                ],
                note=getattr(row, "note", ""),
            )
            for key, row in zip(self.keys(), self.items, strict=True)
        ]

    def keys(self) -> list[str]:
        """Keys of rows: the layer, node or variant of each where these differ, else their number."""
        one = next((f.name for f in fields(self.kind) if f.meaning.links and f.type is str), "")
        named = [str(getattr(row, one)) for row in self.items] if one else []
        return named if len({*named}) == len(self.items) else [f"row {i}" for i in range(len(self.items))]

    def links(self) -> dict[str, Link]:
        """Links of the rows that have some, by key."""
        pairs = zip(self.keys(), map(self._link, self.items), strict=True)
        return {key: row_link for key, row_link in pairs if any(row_link.values())}

    def frame(self) -> pd.DataFrame:
        """A row each with every field, numbers as they are, NA for None; ``attrs`` tells units and origins."""
        import pandas as pd

        frame_fields = [f for f in fields(self.kind) if not _get_row_type(f) and not is_noun(f.type)]
        columns, units, origins = {}, {}, {}
        for f in frame_fields:
            columns[f.name] = pd.Series([_value(getattr(row, f.name)) for row in self.items], dtype=_dtype(f))
            if unit := format_text(f.meaning.unit, of=self.of):
                units[f.name] = unit
            if origin := ", ".join(sorted(filter(None, self._origins(f)))):
                origins[f.name] = origin
        frame: pd.DataFrame = pd.DataFrame(columns)
        frame.attrs = {"units": units, "origins": origins}
        return frame

    def cells(self) -> tuple[list[str], list[list[str]]]:
        """Headings, with where their numbers are from, and rows as text, every number with its unit."""
        # Names of variants keep their letters.
        small = (format_text(f.meaning.title.lower(), of=self.of) for f in self.fields)
        head = [_format_heading(title, c["origin"]) for title, c in zip(small, self.columns(), strict=True)]
        cell_formats = [(f, format_text(f.meaning.unit, of=self.of), self._origins(f)) for f in self.fields]
        return head, [[self._text(row, *one) for one in cell_formats] for row in self.items]

    def text(self) -> str:
        """In aligned columns, for a terminal."""
        return align_columns(*self.cells())

    def html(self, rest: str = "") -> str:
        """For a notebook: a long table ends after its first rows, with how many there are and where the ``rest`` is."""
        _, rows = self.cells()
        head = "".join(
            f"<th>{html.escape(_format_heading(c['title'], c['origin']))}</th>" for c in self.columns()
        )
        first_rows = rows if len(rows) <= _LONG else rows[:_FIRST]
        body = "".join(f"<tr>{''.join(f'<td>{html.escape(c)}</td>' for c in row)}</tr>" for row in first_rows)
        more = f"The first {len(first_rows)} of {len(rows)} rows{rest}.<br>" if first_rows != rows else ""
        return f"<table><tr>{head}</tr>{body}</table>{more}"

    def _origins(self, field: Field) -> set[Origin | None]:
        """Where the numbers of a column are from; what is not known is from nowhere."""
        origins = (field.origin(n, self.of) for n in self.items if getattr(n, field.name) is not None)
        return {o and _resolve_origin(o, self.predicted) for o in origins}

    def _origin(self, field: Field) -> Origin | None:
        """The only one; where there are several, each cell says its own."""
        origins = self._origins(field)
        return origins.pop() if len(origins) == 1 else None

    def _unit(self, field: Field) -> tuple[str, float]:
        """The unit of a column, and by what its values are multiplied."""
        unit = format_text(field.meaning.unit, of=self.of)
        if unit in self.units:
            return self.units[unit]
        if unit == "%":
            return "%", 100.0
        if unit not in {"ms", "B"}:
            return unit, 1.0
        # Times are compared along a row, sizes down a column.
        same = [f.name for f in self.fields if f is field or f.meaning.unit == field.meaning.unit != "B"]
        most = max(
            (abs(v) for n in self.items for name in same if (v := getattr(n, name)) is not None), default=0
        )
        if unit == "ms":
            return choose_time_unit(most)
        name, scale = choose_byte_unit(most)
        return name, 1 / scale

    def _cell(self, value: Any, factor: float, *, tristate: bool) -> str | float | None:
        if isinstance(value, bool):
            # Where it may be unknown too, a no has to be told from that.
            return "yes" if value else "no" if tristate else ""
        if isinstance(value, (int, float)):
            scaled: float | None = to_builtins(value * factor)
            return scaled
        if value is None:
            return None
        return len(value) if isinstance(value, tuple) else self.titles.get(str(value), str(value))

    def _text(self, row: Any, field: Field, unit: str, origins: set[Origin | None]) -> str:
        value = getattr(row, field.name)
        text = self.placeholder if value == "" else _format_value(value, unit)
        origin = field.origin(row, self.of) if len(origins) > 1 else None
        return (
            f"{text} ({_resolve_origin(origin, self.predicted)})" if origin else self.titles.get(text, text)
        )

    def _link(self, row: Any) -> Link:
        ids: dict[str, list[str]] = {"nodes": [], "layers": [], "others": [], "variants": []}
        for f in fields(self.kind):
            if f.meaning.links:
                value = getattr(row, f.name)
                ids[f.meaning.links] += filter(None, [value] if isinstance(value, str) else value)
        nodes = ids["nodes"] or [n for layer in ids["layers"] for n in self.nodes(layer)]
        return link(dict.fromkeys(nodes), ids["layers"], ids["others"])


def align_columns(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Cells in columns for a terminal; what steers one is taken out, and a long cell is cut."""
    lines = [["".join(c if c.isprintable() else " " for c in cell) for cell in row] for row in (head, *rows)]
    widths = [min(_WIDEST, max(len(r[i]) for r in lines)) for i in range(len(head))]
    cut = ([c if len(c) <= _WIDEST else f"{c[: _WIDEST - 1]}…" for c in row] for row in lines)
    return "\n".join("  ".join(f"{c:<{w}}" for c, w in zip(row, widths, strict=True)).rstrip() for row in cut)


def _resolve_origin(origin: Origin, predicted: bool) -> Origin:  # noqa: FBT001 - of this module
    """Where a number is from: of an engine that rules made, nothing is reported."""
    return "predicted" if predicted and origin == "reported" else origin


def list_facts(result: Any, *, predicted: bool = False) -> list[Fact]:
    """The fields of a result that declare a title and are no table, as facts of a panel."""
    fact_list = []
    for f in (f for f in fields(type(result)) if f.meaning.title and not _get_row_type(f)):
        value = getattr(result, f.name)
        if value is None and f.meaning.omit:
            continue
        title, unit, note = (
            format_text(text, result) for text in (f.meaning.title, f.meaning.unit, f.meaning.note)
        )
        origin = f.origin(result)
        # A column counts, so that it can be sorted; a fact has the room to name what are few.
        named = ", ".join(map(str, value)) if isinstance(value, tuple) else ""
        words = named if 0 < len(named) <= _WIDEST else _format_value(value, unit)
        fact_list.append(fact(title, words, _resolve_origin(origin, predicted) if origin else None, note))
    return fact_list


@dataclasses.dataclass(frozen=True, repr=False)
class ResultView:
    """The view of an analysis's result; ``titles``, ``nodes`` and ``predicted`` are those of ``ResultTable``.

    Fields of the result are facts, fields of several rows tables: the first one, and others with a title; then the
    sentences of its field ``notes``. ``frame()`` is the first table for pandas, ``plain()`` all of it as JSON.
    """

    title: str
    result: Any
    titles: Mapping[str, str] = dataclasses.field(default_factory=dict)
    nodes: Callable[[str], Iterable[str]] = lambda _: ()
    predicted: bool = False

    @property
    def table(self) -> ResultTable | None:
        """The first one; None where there is none."""
        return next(iter(self._tables.values()), None)

    @property
    def _tables(self) -> dict[str, ResultTable]:
        """Those that are shown, by their titles: the first one, and what has a title."""
        inner = [(f, kind) for f in fields(type(self.result)) if (kind := _get_row_type(f)) is not None]
        return {
            f.meaning.title: ResultTable(
                kind,
                getattr(self.result, f.name),
                self.titles,
                self.nodes,
                of=self.result,
                predicted=self.predicted,
            )
            for f, kind in inner
            if f.meaning.title or f is inner[0][0]
        }

    @property
    def facts(self) -> list[Fact]:
        """Those of a panel."""
        return list_facts(self.result, predicted=self.predicted)

    @property
    def notes(self) -> list[str]:
        """The sentences below the table."""
        return list(getattr(self.result, "notes", ()))

    def frame(self) -> pd.DataFrame:
        """The table for pandas: numbers as they are, ``attrs`` tells units and origins; one row without a table."""
        return (
            self.table or ResultTable(type(self.result), (self.result,), predicted=self.predicted)
        ).frame()

    def plain(self) -> Any:
        """As builtins, for JSON."""
        return to_builtins(self.result)

    def __repr__(self) -> str:
        lines = [self.title, *(f"{f['key']}: {_format_fact(f)}" for f in self.facts)]
        for title, table in self._tables.items():
            lines += ["", *filter(None, [title]), table.text()]
        return "\n".join([*lines, *([""] if self.notes else []), *self.notes])

    def _repr_html_(self) -> str:
        fact_lines = "<br>".join(html.escape(f"{f['key']}: {_format_fact(f)}") for f in self.facts)
        tables = "".join(
            f"{f'<br><b>{html.escape(title)}</b>' if title else ''}{table.html('; print the answer for all')}"
            for title, table in self._tables.items()
        )
        notes = "".join(f"<br>{html.escape(n)}" for n in self.notes)
        return f"<b>{html.escape(self.title)}</b><br>{fact_lines}{tables}{notes}"


def _format_heading(title: str, origin: str) -> str:
    """The heading of a column whose cells bear their units."""
    return f"{title}, {origin}" if origin else title


def _format_fact(panel_fact: Fact) -> str:
    return f"{panel_fact['value']} ({panel_fact['origin']})" if panel_fact["origin"] else panel_fact["value"]


def _get_row_type(field: Field) -> type | None:
    """The type of the rows in a field; None of any other field."""
    inside = next(iter(get_args(field.type)), None)
    return inside if get_origin(field.type) is tuple and is_noun(inside) else None


def _is_numeric(field: Field) -> bool:
    kinds = {field.type, *get_args(field.type)}
    several = bool(field.meaning.links) and field.type is not str
    return several or (bool(kinds & {int, float}) and bool not in kinds)


def _dtype(field: Field) -> str | None:
    """What pandas holds a field as; None where it finds that out itself."""
    kinds = {field.type, *get_args(field.type)}
    if get_origin(field.type) is tuple:
        return "object"
    if float in kinds:
        return "float64"
    missing = type(None) in kinds
    if bool in kinds:
        return "boolean" if missing else "bool"
    return ("Int64" if missing else "int64") if int in kinds else None


def _value(value: Any) -> Any:
    """As a frame holds it."""
    return value if isinstance(value, (int, float, tuple, type(None))) else str(value)


def _format_value(value: Any, unit: str) -> str:
    """A value as text with its unit; an em dash where there is none."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if value is None or not isinstance(value, (int, float)):
        empty = value is None or value == ""
        return "—" if empty else f"{len(value):,}" if isinstance(value, tuple) else str(value)
    if unit == "B":
        return format_bytes(int(value))
    if isinstance(value, int) and not unit:
        return f"{value:,}"
    return format_number(to_builtins(100.0 * value if unit == "%" else value), unit)
