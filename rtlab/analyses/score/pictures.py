"""Samples that flipped as pictures, side by side, with their numbers as people write them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import numpy as np

from rtlab.documents.contract import Figure
from rtlab.documents.figure import axis, figure
from rtlab.errors import VariantError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from rtlab.analyses.panel_context import PanelContext
    from rtlab.analyses.score.flips import FlippedSample

#: Pictures in a row and rows of them; pixels of each at most, along one side.
_ACROSS, _ROWS, _PIXELS = 8, 2, 48
#: The least side of what is taken for a picture.
_SMALLEST = 4
#: Room below a picture for its words, and between two, as a share of its side.
_BELOW, _BETWEEN = 0.5, 0.12


def parse_sample_numbers(text: str) -> tuple[int, ...]:
    """Numbers as people write them: "3, 17-20" or "3 17 18".

    Raises:
        VariantError: a word is no number and no range of them.
    """
    numbers: list[int] = []
    for word in filter(None, re.split(r"[,;\s]+", text)):
        ends = re.fullmatch(r"(\d{1,9})(?:[-–](\d{1,9}))?", word)
        if ends is None:
            raise VariantError(f'Cannot choose samples: "{word}" is no number. Write such as 3, 17-20.')
        first, last = int(ends[1]), int(ends[2] or ends[1])
        if not 0 <= last - first < 1_000_000:
            raise VariantError(
                f'Cannot choose samples: "{word}" is no range. Write the smaller number first.'
            )
        numbers += range(first, last + 1)
    return tuple(dict.fromkeys(numbers))


def draw_pictures(
    context: PanelContext, flipped_samples: Sequence[FlippedSample], before: str, after: str
) -> list[Figure]:
    """The first samples of a list, where the model sees pictures or other arrays of two dimensions.

    ``before`` and ``after`` are the titles of both variants.
    """
    task, numbers = context.study.scored_task, context.study.selected_samples
    samples = flipped_samples[: _ACROSS * _ROWS]
    if task is None or not samples:
        return []
    at = {number: i for i, number in enumerate(numbers)}
    rows = [at.get(f.sample, 0) if numbers else f.sample for f in samples]
    arrays = (a for a in task.data.arrays.values() if len(a) > max(rows))
    array = next((a for a in arrays if _picture(np.asarray(a[rows[0]])) is not None), None)
    if array is None:
        return []
    tiles = [tile for i in rows if (tile := _picture(np.asarray(array[i]))) is not None]
    if len({t.shape for t in tiles}) != 1 or len(tiles) != len(samples):
        return []
    return [_sheet(tiles, samples, before, after)]


def _picture(sample: NDArray[Any]) -> NDArray[np.float64] | None:
    """A sample as brightness, of shape ``(H, W)`` or ``(H, W, 3)`` from 0 to 1; None where it is none."""
    if sample.dtype.kind not in "biuf":
        return None
    row = sample.squeeze()
    if row.ndim == 3 and row.shape[0] == 3:
        row = np.moveaxis(row, 0, -1)
    if row.ndim not in (2, 3) or (row.ndim == 3 and row.shape[-1] != 3) or min(row.shape[:2]) < _SMALLEST:
        return None
    step = -(-max(row.shape[:2]) // _PIXELS)
    part = row[::step, ::step].astype(np.float64)
    low, high = np.nanmin(part), np.nanmax(part)
    bright: NDArray[np.float64] = (
        np.nan_to_num((part - low) / (high - low)) if high > low else np.zeros_like(part)
    )
    return bright


def _sheet(
    tiles: Sequence[NDArray[np.float64]], samples: Sequence[FlippedSample], before: str, after: str
) -> Figure:
    """All of them on one sheet, what both variants say below each."""
    high, wide = tiles[0].shape[:2]
    across = min(_ACROSS, len(tiles))
    columns, rows = round(wide * (1 + _BETWEEN)), round(high * (1 + _BELOW))
    data, words, dots = [], [], []
    for k, (tile, flip) in enumerate(zip(tiles, samples, strict=True)):
        x_offset, y_offset = (k % across) * columns, (k // across) * rows
        data.append(_draw_tile(tile, x_offset, y_offset))
        words.append(
            {
                "x": x_offset + wide / 2,
                "y": y_offset + high + 0.02 * high,
                "text": _caption(flip),
                "showarrow": False,
                "yanchor": "top",
                "font": {"size": 11},
            }
        )
        label_text = f"sample {flip.sample}<br>label {flip.label}" if flip.label else f"sample {flip.sample}"
        hover_text = f"{label_text}<br>{before}: {flip.before}<br>{after}: {flip.after}"
        dots.append((x_offset + wide / 2, y_offset + high / 2, hover_text))
    data.append(
        {
            "type": "scatter",
            "mode": "markers",
            "x": [x for x, _, _ in dots],
            "y": [y for _, y, _ in dots],
            "marker": {"size": 24, "opacity": 0},
            "hovertext": [hover_text for _, _, hover_text in dots],
            "hovertemplate": "%{hovertext}<extra></extra>",
        }
    )
    bare: dict[str, Any] = {"showgrid": False, "showticklabels": False, "ticks": "", "fixedrange": True}
    deep = -(-len(tiles) // across) * rows
    return figure(
        f"The first {len(tiles)} listed samples, with the answers of {before} and {after}",
        data,
        title=f"The first {len(tiles)}: what {before} says, and {after}",
        annotations=words,
        xaxis=axis(**bare, range=[-1, across * columns], constrain="domain"),
        yaxis=axis(**bare, range=[deep, -1], scaleanchor="x", constrain="domain"),
    )


def _caption(flip: FlippedSample) -> str:
    """Both answers, as short as a picture is wide."""
    before, after = (text if len(text) <= 8 else f"{text[:7]}…" for text in (flip.before, flip.after))
    return f"{before} → {after}"


def _draw_tile(tile: NDArray[np.float64], x_offset: int, y_offset: int) -> dict[str, Any]:
    """A picture as Plotly draws it: grey levels, or colours."""
    if tile.ndim == 3:
        return {
            "type": "image",
            "x0": x_offset + 0.5,
            "y0": y_offset + 0.5,
            "z": np.rint(255 * tile).astype(int).tolist(),
            "hoverinfo": "skip",
        }
    return {
        "type": "heatmap",
        "x0": x_offset + 0.5,
        "y0": y_offset + 0.5,
        "dx": 1,
        "dy": 1,
        "z": np.round(tile, 2).tolist(),
        "zmin": 0,
        "zmax": 1,
        "colorscale": [[0, "#000"], [1, "#fff"]],
        "showscale": False,
        "hoverinfo": "skip",
    }
