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
    pen.text((_EDGE, y), cut(panel["title"], 17.0, room), size=17.0, bold=True)
    y = _lines(pen, about, y + 20.0, room, muted=False)
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
    """The numbers as cards, as many in a row as have room."""
    if not panel["facts"]:
        return y
    x = _EDGE
    for fact in panel["facts"]:
        sign = SIGNS.get(fact["origin"], "")
        value = cut(f"{sign} {fact['value']}".strip(), 13.0, room - 20.0)
        key = cut(fact["key"], 11.0, room - 20.0)
        wide = max(width_of(key, 11.0), width_of(value, 13.0, bold=True)) + 18.0
        if x > _EDGE and x + wide > _EDGE + room:
            x, y = _EDGE, y + _CARD + 6.0
        pen.rect((x, y, wide, _CARD), pen.paper.card, outline=(pen.paper.line, 1.0), radius=4.0)
        pen.text((x + 9.0, y + 15.0), key, size=11.0, colour=pen.paper.muted)
        guessed = fact["origin"] in {"estimated", "predicted"}
        pen.text((x + 9.0, y + 32.0), value, size=13.0, bold=True, italic=guessed)
        x += wide + 6.0
    return y + _CARD + 14.0


def _cell(value: Any) -> str:
    if value is None or value == "":
        return "—"
    return number(float(value)) if isinstance(value, (int, float)) else str(value)


def _table(pen: Pen, panel: Panel, y: float, room: float) -> float:
    """The first rows, under headings that tell unit and origin."""
    columns, rows = panel["columns"], panel["rows"]
    if not rows or not columns:
        return y
    heads = [_headed(c) for c in columns]
    cells = [[_cell(v) for v in row["cells"]] for row in rows[:ROWS]]
    widths = _widths(
        [
            _GAP + max(width_of(part, _TEXT) for part in (*head.split(" "), *(row[k] for row in cells)))
            for k, head in enumerate(heads)
        ],
        room,
    )
    lines = [wrapped(head, _TEXT, wide - _GAP) for head, wide in zip(heads, widths, strict=True)]
    for k in range(most := max(map(len, lines))):
        # A short heading stands right above its column.
        texts = [line[k - most + len(line)] if k >= most - len(line) else "" for line in lines]
        y = _row(pen, texts, panel, y, widths, head=True)
    pen.line((_EDGE, y + 4.0), (_EDGE + room, y + 4.0), pen.paper.line)
    for row in cells:
        y = _row(pen, row, panel, y + 2.0, widths)
        pen.line((_EDGE, y + 4.0), (_EDGE + room, y + 4.0), pen.paper.line)
    y += _LINE + 6.0
    if len(rows) > ROWS:
        y = _lines(pen, f"and {len(rows) - ROWS:,} more rows", y, room)
    return y + 4.0


def _widths(wanted: Sequence[float], room: float) -> list[float]:
    """Widths of columns that have room together: the widest give way first."""
    low, high = 0.0, max(wanted)
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (middle, high) if sum(min(w, middle) for w in wanted) <= room else (low, middle)
    return [min(w, high) for w in wanted]


def _row(
    pen: Pen, texts: Sequence[str], panel: Panel, y: float, widths: Sequence[float], *, head: bool = False
) -> float:
    """One line of a table; numbers stand at the right."""
    x = _EDGE
    for text, column, wide in zip(texts, panel["columns"], widths, strict=True):
        right = column["numeric"]
        pen.text(
            (x + wide - _GAP if right else x, y + _LINE),
            cut(text, _TEXT, wide - _GAP),
            size=_TEXT,
            anchor="end" if right else "start",
            colour=pen.paper.muted if head else "",
            italic=not head and column["origin"] in {"estimated", "predicted"},
        )
        x += wide
    return y + _LINE


def _headed(column: Mapping[str, Any]) -> str:
    title = f"{column['title']}, {column['unit']}" if column["unit"] else column["title"]
    sign = SIGNS.get(column["origin"], "")
    return f"{sign}\u00a0{title}" if sign else title
