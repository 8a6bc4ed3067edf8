"""A panel as one picture: its title, facts, figures and table, each number with its origin, and the sources below."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rtlab.core import files
from rtlab.core.optional import require
from rtlab.documents.drawing.pen import DARK, LIGHT, Pen, cut, document, width_of, wrapped
from rtlab.documents.drawing.plot import HEIGHT, draw
from rtlab.documents.figure import SIGNS
from rtlab.documents.numbers import number
from rtlab.errors import RtlabError

if TYPE_CHECKING:
    from rtlab.core.model import Model
    from rtlab.documents.contract import Panel

_EDGE, _TEXT, _LINE = 20.0, 12.0, 17.0
#: Rows of a table that a picture shows, and pixels between its columns.
ROWS, _GAP = 20, 14.0
_CARD = 40.0
#: How much wider bold type is, and what is lost of a width when a gap is added and taken off again.
_BOLD, _SLACK = 1.1, 0.01
#: The width that a text has at least, in pixels, and lines of a cell beyond which a row is no row any more.
_NAME, _TALL = 90.0, 5
_NONE = "—"


@dataclasses.dataclass(frozen=True)
class Picture:
    """A picture of a panel, as SVG: in a notebook it shows itself, ``save`` writes it, ``png`` makes pixels of it."""

    svg: str = dataclasses.field(repr=False)
    title: str = ""

    def _repr_svg_(self) -> str:
        return self.svg

    def png(self, *, scale: float = 2.0) -> bytes:
        """The picture as PNG, with so many pixels for one of the SVG.

        Raises:
            Unavailable: the package that draws pixels is not installed.
        """
        drawn = require("resvg-py", why="make a PNG").svg_to_bytes(
            svg_string=self.svg, zoom=scale, sans_serif_family="DejaVu Sans"
        )
        return bytes(drawn)

    def save(self, path: str | Path, *, model: Model | None = None) -> Path:
        """Write it as .svg or .png, by the name of the file; returns its path.

        Raises:
            RtlabError: the name has another ending, or the file cannot be written there.
            Unavailable: for PNG, the package that draws pixels is not installed.
        """
        suffix = Path(path).suffix.lower()
        if suffix not in {".svg", ".png"}:
            raise RtlabError(
                f'Cannot save a picture as "{path}": its ending names neither SVG nor PNG. Name it picture.svg or '
                "picture.png."
            )
        content = self.png() if suffix == ".png" else self.svg.encode("utf-8")
        return files.write(path, content, what="the picture", model=model)


def picture(
    panel: Panel, *, about: str, sources: Sequence[str], width: float = 960.0, dark: bool = False
) -> Picture:
    """Draw a panel.

    Args:
        panel: What it tells.
        about: Whose numbers these are: the model and the variant.
        sources: Where the numbers are from, a line each.
        width: Of the picture, in pixels.
        dark: For a dark ground.
    """
    pen = Pen(DARK if dark else LIGHT)
    room, y = width - 2 * _EDGE, _EDGE + 14.0
    for line in wrapped(panel["title"], 17.0 * _BOLD, room) or [""]:
        pen.text((_EDGE, y), line, size=17.0, bold=True)
        y += 20.0
    y = _lines(pen, about, y, room, muted=False)
    for said in filter(None, (panel["lead"], panel["problem"])):
        y = _lines(pen, said, y, room)
    y = _facts(pen, panel, y + 4.0, room)
    for k, figure in enumerate(panel["figures"]):
        tall = float(figure["height"] or HEIGHT)
        draw(pen, figure, (_EDGE, y, room, tall), f"figure{k}")
        y += tall + 14.0
    for script in panel["scripts"]:
        pen.text((_EDGE, y + _LINE), script["label"], bold=True)
        y = _lines(pen, script["text"], y + 2 * _LINE, room, apart=True)
    y = _table(pen, panel, y, room)
    for note in panel["notes"]:
        y = _lines(pen, note, y, room)
    marks = ", ".join(f"{sign} {origin}" for origin, sign in SIGNS.items())
    pen.line((_EDGE, y), (width - _EDGE, y), pen.paper.line)
    y += _LINE
    for line in (*sources, f"{marks}. rtlab"):
        y = _lines(pen, line, y, room, size=11.0)
    title = f"{panel['title']}: {about}"
    return Picture(document(pen, width, y - _LINE + _EDGE, title), title)


def _lines(
    pen: Pen,
    said: str,
    y: float,
    room: float,
    *,
    muted: bool = True,
    size: float = _TEXT,
    apart: bool = False,
) -> float:
    """A text in as many lines as it takes; returns where the next one goes. ``apart`` keeps its own lines."""
    for part in said.splitlines() if apart else [said]:
        for line in wrapped(part, size, room) or [""]:
            pen.text((_EDGE, y), line, size=size, colour=pen.paper.muted if muted else "")
            y += size + 5.0
    return y


def _facts(pen: Pen, panel: Panel, y: float, room: float) -> float:
    """The numbers as cards, as many in a row as have room; a long one takes the lines that it needs."""
    if not panel["facts"]:
        return y
    x, tall = _EDGE, _CARD
    for fact in panel["facts"]:
        sign = SIGNS.get(fact["origin"], "")
        values = wrapped(f"{sign} {fact['value']}".strip(), 13.0 * _BOLD, room - 18.0) or [""]
        keys = wrapped(fact["key"], 11.0, room - 18.0) or [""]
        widest = max(*(width_of(k, 11.0) for k in keys), *(width_of(v, 13.0, bold=True) for v in values))
        wide = min(widest + 18.0, room)
        if x > _EDGE and x + wide > _EDGE + room:
            x, y, tall = _EDGE, y + tall + 6.0, _CARD
        own = _CARD + (len(keys) - 1) * 14.0 + (len(values) - 1) * _LINE
        pen.rect((x, y, wide, own), pen.paper.card, outline=(pen.paper.line, 1.0), radius=4.0)
        guessed = fact["origin"] in {"estimated", "predicted"}
        for k, line in enumerate(keys):
            pen.text((x + 9.0, y + 15.0 + 14.0 * k), line, size=11.0, colour=pen.paper.muted)
        below = y + 32.0 + 14.0 * (len(keys) - 1)
        for k, line in enumerate(values):
            pen.text((x + 9.0, below + _LINE * k), line, size=13.0, bold=True, italic=guessed)
        x, tall = x + wide + 6.0, max(tall, own)
    return y + tall + 14.0


def _cell(value: Any, unit: str = "") -> str:
    """A value as text: what is counted in full, what is measured to three digits."""
    if value is None or value == "":
        return _NONE
    if isinstance(value, int) or (isinstance(value, float) and not unit and value.is_integer()):
        return f"{int(value):,}".replace("-", "−")
    return number(float(value)) if isinstance(value, float) else str(value)


@dataclasses.dataclass(frozen=True)
class _Column:
    """A column as it is drawn: its heading, its cells, and the widths that it needs and would like."""

    head: str
    cells: tuple[str, ...]
    right: bool
    guessed: bool

    @property
    def least(self) -> float:
        """No number is cut, and no heading within a word; a name keeps both ends, a sentence a few words a line."""
        words = [width_of(word, _TEXT) for word in self.head.split(" ")]
        cells = max(width_of(cell, _TEXT) for cell in self.cells)
        words.append(cells if self.right else min(_NAME, cells))
        return max(words) + _GAP

    @property
    def wanted(self) -> float:
        return max(self.least, _GAP + max(width_of(cell, _TEXT) for cell in self.cells))


def _table(pen: Pen, panel: Panel, y: float, room: float) -> float:
    """The first rows, under headings that tell unit and origin; rows of sentences stand as paragraphs."""
    rows = panel["rows"]
    if not rows or not panel["columns"]:
        return y
    columns = [
        _Column(
            _headed(c),
            tuple(_cell(row["cells"][k], c["unit"]) for row in rows[:ROWS]),
            c["numeric"],
            c["origin"] in {"estimated", "predicted"},
        )
        for k, c in enumerate(panel["columns"])
    ]
    parts = _parted(columns, room)
    long = [c for c in columns if not c.right and c.wanted > room / 4]
    # The first sentence is the heading of the others.
    if len(long) > 1 and any(_lengthy(part, room) for part in parts):
        y = _paragraphs(pen, long, [c for c in columns if c not in long], y + _LINE, room)
    else:
        for part in parts:
            y = _block(pen, part, y, room)
    if len(rows) > ROWS:
        y = _lines(pen, f"and {len(rows) - ROWS:,} more rows", y, room)
    return y + 4.0


def _parted(columns: Sequence[_Column], room: float) -> list[list[_Column]]:
    """Columns that have room beside each other; those that have none stand below, beside the first one again."""
    if sum(c.wanted for c in columns) > room:
        # What nothing is known of gives way first.
        columns = [c for k, c in enumerate(columns) if not k or set(c.cells) != {_NONE}]
    named = next((k for k, c in enumerate(columns[:2]) if not c.right), 0)
    first, parts = list(columns[: named + 1]), [list(columns[: named + 1])]
    for column in columns[named + 1 :]:
        if len(parts[-1]) > len(first) and sum(c.least for c in (*parts[-1], column)) > room:
            parts.append([*first])
        parts[-1].append(column)
    return parts


def _lengthy(columns: Sequence[_Column], room: float) -> bool:
    """Whether a cell takes more lines than a row of a table should."""
    widths = _widths(columns, room)
    return any(
        len(_told(cell, wide - _GAP)) > _TALL
        for column, wide in zip(columns, widths, strict=True)
        for cell in column.cells
    )


def _block(pen: Pen, columns: Sequence[_Column], y: float, room: float) -> float:
    widths = _widths(columns, room)
    heads = [wrapped(c.head, _TEXT, wide - _GAP + _SLACK) for c, wide in zip(columns, widths, strict=True)]
    most = max(map(len, heads))
    # A short heading stands right above its column.
    y = _row(pen, columns, [[""] * (most - len(h)) + h for h in heads], y, widths, head=True)
    pen.line((_EDGE, y + 4.0), (_EDGE + room, y + 4.0), pen.paper.line)
    for k in range(len(columns[0].cells)):
        texts = [
            [c.cells[k]] if c.right else _told(c.cells[k], wide - _GAP)
            for c, wide in zip(columns, widths, strict=True)
        ]
        y = _row(pen, columns, texts, y + 2.0, widths)
        pen.line((_EDGE, y + 4.0), (_EDGE + room, y + 4.0), pen.paper.line)
    return y + _LINE + 6.0


def _paragraphs(pen: Pen, long: Sequence[_Column], short: Sequence[_Column], y: float, room: float) -> float:
    """Each row as its sentences, the first of them as its heading, and its other cells in a line."""
    for k in range(len(long[0].cells)):
        for line in wrapped(long[0].cells[k], _TEXT * _BOLD, room):
            pen.text((_EDGE, y), line, size=_TEXT, bold=True)
            y += _LINE
        y = _lines(pen, " · ".join(f"{c.head}: {c.cells[k]}" for c in short), y, room)
        for column in long[1:]:
            y = _lines(pen, f"{column.head}: {column.cells[k]}", y, room, muted=False)
        pen.line((_EDGE, y - 8.0), (_EDGE + room, y - 8.0), pen.paper.line)
        y += 10.0
    return y


def _told(text: str, most: float) -> list[str]:
    """A text in lines; a name that is longer than one is cut in its middle."""
    most += _SLACK
    return wrapped(" ".join(cut(word, _TEXT, most) for word in text.split()), _TEXT, most) or [""]


def _widths(columns: Sequence[_Column], room: float) -> list[float]:
    """Widths of columns that have room together: the widest give way first, none below what it needs."""
    low, high = 0.0, max(c.wanted for c in columns)
    if sum(c.wanted for c in columns) <= room:
        return [c.wanted for c in columns]
    for _ in range(40):
        middle = (low + high) / 2
        fits = sum(max(c.least, min(c.wanted, middle)) for c in columns) <= room
        low, high = (middle, high) if fits else (low, middle)
    return [max(c.least, min(c.wanted, low)) for c in columns]


def _row(
    pen: Pen,
    columns: Sequence[_Column],
    texts: Sequence[Sequence[str]],
    y: float,
    widths: Sequence[float],
    *,
    head: bool = False,
) -> float:
    """One row of a table, as high as its longest cell; numbers stand at the right."""
    x = _EDGE
    for lines, column, wide in zip(texts, columns, widths, strict=True):
        for k, text in enumerate(lines):
            if text:
                pen.text(
                    (x + wide - _GAP if column.right else x, y + _LINE * (k + 1)),
                    text,
                    size=_TEXT,
                    anchor="end" if column.right else "start",
                    colour=pen.paper.muted if head else "",
                    italic=not head and column.guessed,
                )
        x += wide
    return y + _LINE * max(map(len, texts))


def _headed(column: Mapping[str, Any]) -> str:
    title = f"{column['title']}, {column['unit']}" if column["unit"] else column["title"]
    sign = SIGNS.get(column["origin"], "")
    return f"{sign}\u00a0{title}" if sign else title
