"""A still picture of a model and its engine, for notebooks that are seen without a kernel."""

from __future__ import annotations

import base64
import html
from collections.abc import Mapping
from typing import TYPE_CHECKING

from rtlab.analyses.cards.card import format_box_name
from rtlab.analyses.cards.picture import Box, Graph
from rtlab.analyses.fusion import map_nodes
from rtlab.web.page.graph import engine_graph, source_graph
from rtlab.web.page.table import study_html

if TYPE_CHECKING:
    from rtlab.analyses.study_state import StudyState
    from rtlab.core.facts import VariantResult
    from rtlab.core.model import Model

#: Nodes and layers together up to which a picture is drawn: a notebook keeps some 150 bytes of each.
MOST_BOXES = 300
_ROW, _HEIGHT, _GAP, _LETTER, _MARGIN = 30, 20, 10, 6.2, 8
_LONGEST = 32
_FONT = 'font-family="system-ui,sans-serif" font-size="11"'


def draw_still(study: StudyState, variant: str = "") -> str:
    """The summary of a study with a picture of its model and of one engine, as HTML; nodes have their layer's colour.

    Args:
        study: What is built of it is shown.
        variant: Its engine is drawn; without one the model alone.
    """
    result = study.results.get(variant)
    count = len(study.model.nodes) + (len(result.engine.layers) if result is not None else 0)
    if count > MOST_BOXES:
        picture = f"<p>A picture of {count} nodes and layers is not kept: run the cell to see the graphs.</p>"
    else:
        picture = _draw_graphs(study.model, result)
    return f"{study_html(study)}{picture}"


def _draw_graphs(model: Model, result: VariantResult | None) -> str:
    """The graphs of a model and of its engine, as far as there are any."""
    graphs, colours = [], dict[str, str]()
    if model.nodes:
        graphs.append(source_graph(model))
    if result is not None and result.engine.layers:
        mapping = map_nodes(result)
        graphs.append(engine_graph(result, model, mapping))
        for layer in result.engine.layers:
            colours[layer.id] = f"hsl({layer.index * 47 % 360} 55% 80%)"
            colours |= dict.fromkeys(mapping.nodes(layer.id), colours[layer.id])
    legend = "<br><small>A node has the colour of the layer that runs it.</small>" if colours else ""
    return _embed(graphs, colours) + legend


def _embed(graphs: list[Graph], colours: Mapping[str, str]) -> str:
    """The graphs side by side, as an image in the page's own text: nothing in it runs."""
    parts, left, height = [], 0.0, 0.0
    for graph in graphs:
        text, width, tall = _draw(graph, colours)
        title = html.escape(f"{graph['title']} · {graph['subtitle']}")
        head = f'<text x="{_MARGIN}" y="14" font-weight="600">{title}</text>'
        parts.append(f'<g transform="translate({left:.0f} 0)">{head}{text}</g>')
        left, height = left + max(width, _LETTER * len(title)) + 3 * _MARGIN, max(height, tall)
    svg = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{left:.0f}" height="{height:.0f}" {_FONT} fill="#222">'
        f'<rect width="100%" height="100%" fill="#fff"/>{"".join(parts)}</svg>'
    )
    data = base64.b64encode(svg.encode()).decode()
    words = " and ".join(g["title"] for g in graphs)
    return f'<img alt="{html.escape(words)}" style="max-width:100%" src="data:image/svg+xml;base64,{data}">'


def _draw(graph: Graph, colours: Mapping[str, str]) -> tuple[str, float, float]:
    """A graph in rows from top to bottom, with its width and height in pixels."""
    boxes = {at: box for at, box in enumerate(graph["boxes"]) if box["parent"] < 0}
    readers: dict[int, list[int]] = {at: [] for at in boxes}
    sources: dict[int, list[int]] = {at: [] for at in boxes}
    for edge in graph["edges"]:
        # An edge into a body leads to its owner, and one within it is not drawn.
        source, target = (_owner(graph["boxes"], edge[end]) for end in ("source", "target"))
        if source != target:
            readers[source].append(target)
            sources[target].append(source)
    rows = _rows(boxes, readers, sources)
    labels = {at: _label(box) for at, box in boxes.items()}
    widths = {at: _LETTER * len(label) + 12 for at, label in labels.items()}
    spans = [sum(widths[at] for at in row) + _GAP * (len(row) - 1) for row in rows]
    whole = max(spans, default=0.0)
    centre: dict[int, tuple[float, float]] = {}
    for depth, (row, span) in enumerate(zip(rows, spans, strict=True)):
        left = _MARGIN + (whole - span) / 2
        for at in row:
            centre[at] = (left + widths[at] / 2, 26 + depth * _ROW + _HEIGHT / 2)
            left += widths[at] + _GAP
    lines = [
        f"M{centre[a][0]:.0f} {centre[a][1] + _HEIGHT / 2:.0f}L{centre[b][0]:.0f} {centre[b][1] - _HEIGHT / 2:.0f}"
        for a, several in readers.items()
        for b in several
    ]
    shapes = [f'<path d="{"".join(lines)}" stroke="#999" fill="none"/>']
    for at, box in boxes.items():
        (x, y), fill = centre[at], colours.get(box["id"], "#eee")
        corner = f'x="{x - widths[at] / 2:.0f}" y="{y - _HEIGHT / 2:.0f}"'
        shapes.append(f'<rect {corner} width="{widths[at]:.0f}" height="{_HEIGHT}" rx="3" fill="{fill}"/>')
        shapes.append(
            f'<text x="{x:.0f}" y="{y + 4:.0f}" text-anchor="middle">{html.escape(labels[at])}</text>'
        )
    return "".join(shapes), whole + 2 * _MARGIN, 26 + len(rows) * _ROW + _MARGIN


def _label(box: Box) -> str:
    text = format_box_name(box, 4) if box["chips"] else box["op"] if box["kind"] == "node" else box["title"]
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"


def _owner(boxes: list[Box], at: int) -> int:
    """The box of the main graph in which a box stands."""
    while boxes[at]["parent"] >= 0:
        at = boxes[at]["parent"]
    return at


def _rows(
    boxes: Mapping[int, Box], readers: Mapping[int, list[int]], sources: Mapping[int, list[int]]
) -> list[list[int]]:
    """Boxes by the longest way from an input, in each row in the order of what they read."""
    waiting = {at: len(several) for at, several in sources.items()}
    ready, depth, order = [at for at, n in waiting.items() if not n], dict.fromkeys(boxes, 0), []
    while ready:
        at = ready.pop()
        order.append(at)
        for reader in readers[at]:
            depth[reader] = max(depth[reader], depth[at] + 1)
            waiting[reader] -= 1
            if not waiting[reader]:
                ready.append(reader)
    # What is written in a loop follows in the order of the list.
    order += sorted(boxes.keys() - set(order))
    rows: list[list[int]] = [[] for _ in range(max(depth.values(), default=-1) + 1)]
    place: dict[int, float] = {}
    for at in order:
        rows[depth[at]].append(at)
    for row in rows:
        row.sort(key=lambda at: sum(place[s] for s in sources[at] if s in place) / max(1, len(sources[at])))
        place |= {at: (i + 0.5) / len(row) for i, at in enumerate(row)}
    return [row for row in rows if row]
