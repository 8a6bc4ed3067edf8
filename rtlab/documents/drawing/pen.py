"""What writes SVG: shapes and texts, in the colours of a light or a dark ground."""

from __future__ import annotations

import dataclasses
import html
import re
import unicodedata
from collections.abc import Iterator, Sequence

FAMILY = "system-ui, -apple-system, 'Segoe UI', 'DejaVu Sans', sans-serif"
#: What XML cannot hold, escaped or not.
_FORBIDDEN = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")
#: Widths of letters by the size of their font, about those of the usual sans-serif faces.
_NARROW, _WIDE = frozenset("ijlft.,:;|!'()[]I/ "), frozenset("mwMW@%—")
_TAG = re.compile(r"</?(?:b|i|em|strong|sub|sup|span)(?: [^>]*)?>")
#: The least ratio of contrast of a mark to its ground.
_CONTRAST = 3.0
_NAMED = {"gray": "#808080", "grey": "#808080", "white": "#ffffff", "black": "#000000"}
_DASHES = {"dash": (6, 4), "dot": (2, 3), "dashdot": (6, 3, 2, 3), "longdash": (10, 5)}

Rgba = tuple[float, float, float, float]


def escaped(text: str) -> str:
    """A text for XML, also within quotes; what XML cannot hold becomes the replacement character."""
    return html.escape(_FORBIDDEN.sub("\ufffd", text))


def words(text: object) -> list[str]:
    """The lines of a text as Plotly takes it, without what steers its looks."""
    return [html.unescape(_TAG.sub("", line)) for line in re.split(r"<br ?/?>", str(text))]


def width_of(text: str, size: float, *, bold: bool = False) -> float:
    """About how wide a text is at most; no browser is there to measure it."""
    parts = (
        0.38 if c in _NARROW else 0.96 if c in _WIDE else 1.0 if unicodedata.east_asian_width(c) in "WF" else 0.63
        for c in text
    )  # fmt: skip
    return size * sum(parts) * (1.1 if bold else 1.0)


def cut(text: str, size: float, most: float) -> str:
    """A text that is at most so wide, cut in its middle: names of one engine begin and end differently."""
    if width_of(text, size) <= most:
        return text
    keep = len(text)
    while keep > 2 and width_of(shown := f"{text[: (keep + 1) // 2]}…{text[-(keep // 2) :]}", size) > most:
        keep -= 1
    return shown if keep > 2 else "…"


def wrapped(text: str, size: float, most: float) -> list[str]:
    """A text in lines of at most so much width; a word that is longer is divided."""
    lines, line = [], ""
    # A space that may not be broken joins a sign to its word.
    for word in re.split(r"[ \t\r\n]+", text.strip()):
        rest = word
        while rest:
            tried = f"{line} {rest}" if line else rest
            if width_of(tried, size) <= most:
                line, rest = tried, ""
            elif line:
                lines.append(line)
                line = ""
            else:
                fits = max(
                    1, next((n for n in range(len(rest), 0, -1) if width_of(rest[:n], size) <= most), 1)
                )
                lines.append(rest[:fits])
                rest = rest[fits:]
    return [*lines, line] if line else lines


def rgba(colour: str) -> Rgba:
    """Red, green and blue from 0 to 255, and opacity."""
    text = _NAMED.get(colour, colour).strip()
    if found := re.fullmatch(r"rgba?\(([^)]*)\)", text):
        parts = [float(p) for p in found[1].split(",")]
        return parts[0], parts[1], parts[2], parts[3] if len(parts) > 3 else 1.0
    if re.fullmatch(r"#[0-9a-fA-F]{6}", text):
        return int(text[1:3], 16), int(text[3:5], 16), int(text[5:7], 16), 1.0
    if re.fullmatch(r"#[0-9a-fA-F]{3}", text):
        return int(text[1] * 2, 16), int(text[2] * 2, 16), int(text[3] * 2, 16), 1.0
    return 128.0, 128.0, 128.0, 1.0


def _luminance(colour: Sequence[float]) -> float:
    parts = [c / 255 for c in colour[:3]]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@dataclasses.dataclass(frozen=True)
class Paper:
    """The colours that a picture is drawn in."""

    ground: str
    card: str
    ink: str
    muted: str
    line: str

    def on(self, colour: str) -> Rgba:
        """A colour that stands out from the ground: on a dark one a lighter shade of it where need be."""
        red, green, blue, opacity = rgba(colour)
        # Its own are as they are.
        if colour in {self.ground, self.card, self.line}:
            return red, green, blue, opacity
        ground = _luminance(rgba(self.ground))
        if ground > 0.5 or opacity < 1:
            return red, green, blue, opacity
        mixed, share = (red, green, blue), 0.0
        while (_luminance(mixed) + 0.05) / (ground + 0.05) < _CONTRAST and share < 1:
            share += 0.1
            mixed = (
                red + share * (255 - red),
                green + share * (255 - green),
                blue + share * (255 - blue),
            )
        return *mixed, opacity


LIGHT = Paper("#ffffff", "#ffffff", "#1f2430", "#5b6270", "#d7dae0")
DARK = Paper("#15181e", "#1d2129", "#e4e7ee", "#a3abba", "#3a404c")


def short(value: float) -> str:
    """A coordinate: two digits behind the point are less than a pixel of any screen."""
    return f"{value:.2f}".rstrip("0").rstrip(".").replace("-0", "0") if abs(value) < 0.005 else (
        f"{value:.2f}".rstrip("0").rstrip(".")
    )  # fmt: skip


class Pen:
    """Writes down shapes and texts; coordinates are pixels from the upper left."""

    def __init__(self, paper: Paper) -> None:
        self.paper = paper
        self.parts: list[str] = []

    def rect(
        self,
        box: tuple[float, float, float, float],
        fill: str,
        *,
        opacity: float = 1.0,
        outline: tuple[str, float] | None = None,
        radius: float = 0.0,
        hatched: bool = False,
        about: str = "",
    ) -> None:
        """A rectangle: left, top, width and height. ``about`` is said of it on hover, and kept as an attribute."""
        x, y, width, height = map(short, box)
        at = f'x="{x}" y="{y}" width="{width}" height="{height}"' + (
            f' rx="{short(radius)}"' if radius else ""
        )
        line = self._stroke(*outline) if outline and outline[1] else ""
        told = f"<title>{escaped(about)}</title>" if about else ""
        body = f"<rect {at}{self._paint('fill', fill, opacity)}{line}"
        self.parts.append(f"{body}>{told}</rect>" if told else f"{body}/>")
        if hatched:
            self.parts.append(f'<rect {at} fill="url(#hatch)"/>')

    def path(
        self,
        path: str,
        *,
        fill: str | None = None,
        stroke: str | None = None,
        width: float = 1.0,
        dash: str = "",
        opacity: float = 1.0,
    ) -> None:
        """Any path, filled, drawn or both."""
        inside = self._paint("fill", fill, opacity) if fill else ' fill="none"'
        line = self._stroke(stroke, width, dash, opacity) if stroke and width else ""
        self.parts.append(f'<path d="{path}"{inside}{line}/>')

    def line(
        self,
        start: tuple[float, float],
        end: tuple[float, float],
        colour: str,
        width: float = 1.0,
        dash: str = "",
    ) -> None:
        """A straight line."""
        (x, y), (to, down) = start, end
        self.path(f"M{short(x)} {short(y)}L{short(to)} {short(down)}", stroke=colour, width=width, dash=dash)

    def text(
        self,
        at: tuple[float, float],
        said: str,
        *,
        size: float = 11.0,
        anchor: str = "start",
        colour: str = "",
        bold: bool = False,
        italic: bool = False,
        turned: float = 0.0,
    ) -> None:
        """One line of text, by its base line."""
        if not said:
            return
        x, y = map(short, at)
        look = f' font-size="{short(size)}"' + (f' text-anchor="{anchor}"' if anchor != "start" else "")
        look += ' font-weight="600"' if bold else ""
        look += ' font-style="italic"' if italic else ""
        look += f' transform="rotate({short(turned)} {x} {y})"' if turned else ""
        fill = self._paint("fill", colour or self.paper.ink, 1.0)
        self.parts.append(f'<text x="{x}" y="{y}"{look}{fill} xml:space="preserve">{escaped(said)}</text>')

    def clipped(self, name: str, box: tuple[float, float, float, float]) -> Iterator[None]:
        """What is drawn meanwhile is cut at a rectangle; ``name`` is its own in the picture."""
        x, y, width, height = map(short, box)
        self.parts.append(
            f'<clipPath id="{name}"><rect x="{x}" y="{y}" width="{width}" height="{height}"/></clipPath>'
            f'<g clip-path="url(#{name})">'
        )
        yield
        self.parts.append("</g>")

    def _paint(self, what: str, colour: str, opacity: float) -> str:
        red, green, blue, own = self.paper.on(colour)
        text = "#" + "".join(f"{max(0, min(255, round(c))):02x}" for c in (red, green, blue))
        seen = own * opacity
        return f' {what}="{text}"' + (f' {what}-opacity="{short(seen)}"' if seen < 1 else "")

    def _stroke(self, colour: str, width: float, dash: str = "", opacity: float = 1.0) -> str:
        dashes = " ".join(map(str, _DASHES.get(dash, ())))
        dashed = f' stroke-dasharray="{dashes}"' if dashes else ""
        return f'{self._paint("stroke", colour, opacity)} stroke-width="{short(width)}"{dashed}'


def document(pen: Pen, width: float, height: float, title: str) -> str:
    """The whole picture; ``title`` says what it is to who does not see it."""
    size = f'width="{short(width)}" height="{short(height)}" viewBox="0 0 {short(width)} {short(height)}"'
    red, green, blue, _ = rgba(pen.paper.card)
    ground = f"#{int(red):02x}{int(green):02x}{int(blue):02x}"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="{escaped(FAMILY)}" role="img">'
        f"<title>{escaped(title)}</title>"
        '<defs><pattern id="hatch" width="7" height="7" patternUnits="userSpaceOnUse">'
        f'<path d="M-1 8L8 -1M-4 4L4 -4M3 11L11 3" stroke="{ground}" stroke-opacity="0.7"/></pattern></defs>'
        f'<rect width="{short(width)}" height="{short(height)}" fill="{pen.paper.ground}"/>'
        f"{''.join(pen.parts)}</svg>\n"
    )
