"""Common parts of figures, which are plain JSON for Plotly in the page: its Python classes are slow."""

from __future__ import annotations

import math
from typing import Any

from rtlab.documents.contract import Figure

FONT = {"family": "system-ui, sans-serif", "size": 11}
#: Colours of a variant, of the compared one, and of the background.
MAIN, OTHER, FAINT = "#31688e", "#d95f02", "rgba(128,128,128,0.25)"
#: Better and worse, told apart by sign and place as well.
BETTER, WORSE = "#2a8a57", "#c0392b"

#: What stands before numbers, by their origin.
SIGNS = {"measured": "●", "reported": "◐", "estimated": "○", "predicted": "◌"}

#: Below this ratio of the most to the least a logarithmic axis has ticks at equal distances, so many at most.
_NARROW, _TICKS = 4, 5
#: From so many powers of ten on, a logarithmic axis has no ticks between them.
_DECADES = 2.5


def layout(title: str = "", **more: Any) -> dict[str, Any]:
    """The layout of a figure that the page gives its size; ``more`` are keys of Plotly's own."""
    return {
        "title": {"text": title, "font": {"size": 12}, "x": 0, "xref": "paper", "y": 0.98, "yanchor": "top"},
        "margin": {"l": 8, "r": 12, "t": 26, "b": 8},
        "font": FONT,
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "showlegend": False,
        "hoverlabel": {"font": FONT},
        "bargap": 0.25,
        **more,
    }


def axis(title: str = "", **more: Any) -> dict[str, Any]:
    """An axis with its title, and with faint lines across."""
    return {
        "title": {"text": title, "standoff": 4},
        "automargin": True,
        "zeroline": False,
        "gridcolor": FAINT,
        **more,
    }


def legend(**more: Any) -> dict[str, Any]:
    """A legend in a row above the plot, without a ground of its own; for a figure that has no title."""
    place = {"orientation": "h", "x": 0, "y": 1.02, "yanchor": "bottom"}
    return {**place, "bgcolor": "rgba(0,0,0,0)", "itemsizing": "constant", **more}


def make_horizontal_line(at: float, **line: Any) -> dict[str, Any]:
    """A line across the whole plot at one value of its y axis; ``line`` is Plotly's own."""
    return {"type": "line", "xref": "paper", "x0": 0, "x1": 1, "y0": at, "y1": at, "line": line}


def make_log_ticks(least: float, most: float) -> dict[str, Any]:
    """The ticks of a logarithmic axis as whole numbers: Plotly writes a bare 2 and 5 between powers of ten."""
    if most < _NARROW * least:
        # Powers of ten and their parts are too far from each other here.
        step = 10.0 ** math.floor(math.log10(max(most - least, least / 100)))
        step *= next(m for m in (0.2, 0.5, 1, 2) if (most - least) / (m * step) <= _TICKS)
        values = [i * step for i in range(math.floor(least / step), math.ceil(most / step) + 1) if i > 0]
        return {"type": "log", "tickvals": values, "ticktext": [f"{v:,.4g}" for v in values]}
    decades = range(math.floor(math.log10(least)), math.ceil(math.log10(most)) + 1)
    steps = (1, 2, 5) if math.log10(most / least) < _DECADES else (1,)
    values = [step * 10.0**d for d in decades for step in steps]
    return {"type": "log", "tickvals": values, "ticktext": [f"{v:,.10g}" for v in values]}


def figure(alt_text: str, data: list[Any], /, *, height: int = 0, **more: Any) -> Figure:
    """A figure of a panel: ``alt_text`` is read to those who do not see it; ``more`` is what ``layout`` takes."""
    return Figure(title=alt_text, height=height, data=data, layout=layout(**more))
