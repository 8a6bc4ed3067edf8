"""A recurrence step by step: what the definition asks for, and which layers of the engine compute it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from rtlab.analyses.panel_context import PanelContext, PanelParts
from rtlab.analyses.recurrence import find_fused_recurrences
from rtlab.analyses.recurrence.answer import RecurrentNode, format_steps, stretches, summarize_recurrence
from rtlab.analyses.recurrence.fused_cells import FusedRecurrence, Piece, Recurrence
from rtlab.documents.contract import Figure
from rtlab.documents.figure import BETTER, FAINT, MAIN, OTHER, axis, figure
from rtlab.documents.panel import link, make_select
from rtlab.errors import ModelError

if TYPE_CHECKING:
    from rtlab.core.model import Model
    from rtlab.relation.rnn_steps import Part

#: Operators that carry a state from step to step.
_RECURRENT = frozenset({"LSTM", "GRU", "RNN"})
#: Rows of the lower part, by role, and their colours; the row tells what the colour does.
_ROLES = {
    "input product": ("input product", MAIN),
    "recurrent product": ("state product", OTHER),
    "pointwise": ("pointwise", BETTER),
    "whole": ("one layer", MAIN),
    "data": ("data, bias", "#7f7f7f"),
    "bias": ("data, bias", "#7f7f7f"),
    "unknown": ("unknown", "#b8860b"),
}
#: More steps than this are drawn as one bar in the upper part, with nothing to choose.
_FEW = 64
#: Up to so many steps there is room for numbers.
_NUMBERED = 32
#: Every row has its name, however low the figure is.
_EVERY: dict[str, Any] = {"dtick": 1, "tickfont": {"size": 9}, "showgrid": False}


def analyze_recurrence(context: PanelContext) -> RecurrentNode:
    """What became of one recurrent node.

    Raises:
        ModelError: the model has none.
    """
    at = _at(context, _get_fused_nodes(context))
    return summarize_recurrence(at, context.result.engine.title, context.model.where(at.before.node))


def build_recurrence_panel(context: PanelContext) -> PanelParts:
    """The same step by step, before and after this variant's compiler.

    Raises:
        ModelError: the model has no recurrent node.
    """
    model, compiler, fused_nodes = context.model, context.result.engine.title, _get_fused_nodes(context)
    names = {f.before.node: model.node(f.before.node).title for f in fused_nodes}
    at = _at(context, fused_nodes)
    direction = context.settings.get("direction") or ""
    settings = []
    if len(fused_nodes) > 1:
        settings.append(
            make_select("node", "Recurrence", "Which recurrent node is shown.", names, at.before.node)
        )
    if at.before.directions > 1:
        both = {"forward": "forward", "backward": "backward"}
        direction = direction if direction in both else "forward"
        settings.append(
            make_select(
                "direction",
                "Direction above",
                "Which direction of the definition stands above.",
                both,
                direction,
            )
        )
    backward = at.before.direction == "reverse" or direction == "backward"
    places = list(model.where(at.before.node))
    bars = list(_bars(at))
    before = [f"before#{i}" for i in range((2 * len(at.before.gates) + 1) * at.before.steps)]
    return PanelParts(
        result=summarize_recurrence(at, compiler, places),
        links={
            **{key: link(places, [piece.layer]) for key, piece, *_ in bars},
            **({key: link(places) for key in before} if at.before.steps <= _FEW else {}),
        },
        title=f"Time fusion: {names[at.before.node]}",
        settings=settings,
        figures=[_grid(at, bars, backward=backward)],
        notes=_notes(at, compiler),
    )


def _get_fused_nodes(context: PanelContext) -> tuple[FusedRecurrence, ...]:
    fused_nodes = find_fused_recurrences(context.result)
    if not fused_nodes:
        raise ModelError(
            'This model has no LSTM, GRU or RNN. Open the sample "digits_lstm" or "digits_gru" to see steps '
            'unrolled and gates merged, for example with rtlab.samples.load("digits_lstm").'
        )
    return fused_nodes


def _at(context: PanelContext, fused_nodes: Sequence[FusedRecurrence]) -> FusedRecurrence:
    """The one that was chosen, else the first."""
    return next((f for f in fused_nodes if f.before.node == context.settings.get("node")), fused_nodes[0])


def _bars(fused_node: FusedRecurrence) -> Iterator[tuple[str, Piece, Part, int, int]]:
    """Rectangles of the lower part: a key, the layer, its work, the first step and how many at a stretch."""
    for piece in fused_node.pieces:
        count = 0
        for part in piece.parts:
            if part.role not in _ROLES:
                continue
            for first, length in stretches(part.steps or tuple(range(fused_node.before.steps))):
                yield f"{piece.layer}#{count}", piece, part, first, length
                count += 1


def _grid(
    fused_node: FusedRecurrence, bars: Sequence[tuple[str, Piece, Part, int, int]], *, backward: bool
) -> Figure:
    before = fused_node.before
    few = before.steps <= _FEW
    gap = 0.08 if few else 0.0
    rows: list[tuple[str, str, str]] = []
    for what, colour in (("input", MAIN), ("state", OTHER)):
        rows += [(f"{what} · {g}", colour, f"product of the {what} for gate {g}") for g in before.gates]
    each = before.elementwise // max(1, before.steps * before.directions)
    rows.append((f"pointwise ({each})", BETTER, f"{each} elementwise operations"))
    wide = 1 if few else before.steps
    cells = [(name, colour, text, s) for name, colour, text in rows for s in range(0, before.steps, wide)]
    read = range(before.steps)[::-1] if backward else range(before.steps)
    above: dict[str, Any] = {
        "type": "bar",
        "orientation": "h",
        "name": "before",
        "y": [c[0] for c in cells],
        "base": [c[3] - 0.5 + gap / 2 for c in cells],
        "x": [wide - gap] * len(cells),
        "marker": {"color": [c[1] for c in cells], "opacity": 0.55},
        "text": [
            f"step {c[3]}, which reads position {read[c[3]]}: {c[2]}" if few else f"each step: {c[2]}"
            for c in cells
        ],
        "textposition": "none",
        "hovertemplate": "%{text}<extra>before</extra>",
        "yaxis": "y2",
    }
    if few:
        above["ids"] = [f"before#{i}" for i in range(len(cells))]
    order = list(dict.fromkeys(_ROLES[b[2].role][0] for b in bars))
    order.sort(key=[v[0] for v in _ROLES.values()].index)
    labels = {
        row: _label(row, [b[2].gates for b in bars if _ROLES[b[2].role][0] == row], before) for row in order
    }
    below = {
        "type": "bar",
        "orientation": "h",
        "name": "after",
        "y": [labels[_ROLES[b[2].role][0]] for b in bars],
        "base": [b[3] - 0.5 + gap / 2 for b in bars],
        "x": [b[4] - gap for b in bars],
        "ids": [b[0] for b in bars],
        "marker": {"color": [_ROLES[b[2].role][1] for b in bars], "line": {"color": FAINT, "width": 1}},
        # One number in several rows is one layer.
        "text": [_number(b[1]) if before.steps <= _NUMBERED else "" for b in bars],
        "textposition": "inside",
        "insidetextanchor": "middle",
        "textangle": 0,
        "textfont": {"color": "#ffffff", "size": 9},
        "constraintext": "none",
        "hovertext": [_hover(b[1], b[2]) for b in bars],
        "hovertemplate": "%{hovertext}<extra>after</extra>",
    }
    share = max(0.2, len(order) / (len(order) + len(rows)))
    title = (
        f"{before.op} of {before.steps} steps: {before.products} products before, "
        f"{'an unknown number' if fused_node.products is None else fused_node.products} after."
    )
    return figure(
        title,
        [above, below],
        height=max(260, 22 * (len(rows) + len(order)) + 70),
        barmode="overlay",
        xaxis=axis("step, in the order of computation", range=[-0.6, before.steps - 0.4], showgrid=False),
        yaxis=axis(
            "after",
            domain=[0, share - 0.02],
            categoryorder="array",
            categoryarray=[labels[row] for row in order][::-1],
            **_EVERY,
        ),
        yaxis2=axis(
            "before",
            domain=[share + 0.02, 1],
            categoryorder="array",
            categoryarray=[r[0] for r in rows][::-1],
            **_EVERY,
        ),
    )


def _label(row: str, gates: Sequence[int], before: Recurrence) -> str:
    """A row of the lower part, with what its products merge."""
    merged = len(before.gates) > 1 and set(gates) == {len(before.gates)}
    return f"{row} · {' '.join(before.gates)}" if merged else row


def _number(piece: Piece) -> str:
    """The number at the end of a layer's name, which is its place in the listing."""
    return piece.layer.rpartition("_")[2] if piece.layer.rpartition("_")[2].isdigit() else ""


def _hover(piece: Piece, part: Part) -> str:
    name = piece.layer.rpartition(":")[2]
    steps = format_steps(part.steps) or "all steps"
    gates = f", {part.gates} gates" if part.gates else ""
    return f"{name if len(name) < 70 else name[:67] + '...'}<br>{part.role}{gates}, {steps}<br>inferred"


def _notes(fused_node: FusedRecurrence, compiler: str) -> list[str]:
    notes = [f"{compiler}: {text}" for text in fused_node.evidence]
    unknown = sum(any(q.role == "unknown" for q in p.parts) for p in fused_node.pieces)
    if unknown:
        many = "layers belong to it, and nothing shows what they compute"
        one = "layer belongs to it, and nothing shows what it computes"
        notes.append(f"{unknown} {many if unknown > 1 else one}.")
    if not fused_node.pieces:
        notes.append("No layer of this engine could be told to belong to it.")
    return notes


def has_recurrent_nodes(model: Model) -> bool:
    """Whether a model has a recurrent node."""
    return any(n.op in _RECURRENT for n in model.nodes)
