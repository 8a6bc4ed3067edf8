"""A recurrence step by step: what the definition specifies, and which layers of the engine compute it."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, Any

from rtlab.analyses.panel_context import PanelContext, PanelParts
from rtlab.analyses.recurrence.fused_cells import (
    GATES,
    FusedRecurrence,
    Piece,
    find_fused_recurrences,
)
from rtlab.core.phrases import pluralize
from rtlab.core.schema import UNSENT, FieldMeta
from rtlab.documents.contract import Figure
from rtlab.documents.figure import BETTER, FAINT, MAIN, OTHER, axis, figure
from rtlab.documents.numbers import shorten_name
from rtlab.documents.panel import link, make_select
from rtlab.errors import ModelError

if TYPE_CHECKING:
    from rtlab.core.model import Model
    from rtlab.relation.rnn_steps import Part

#: A rectangle of the lower part: a key, the layer, its work, the first step and how many at a stretch.
_Bar = tuple[str, Piece, "Part", int, int]
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


_FORMS = {"whole": "one layer", "unknown": "not reported"}
_WHY = "Inferred from the flow of data, shapes and kernels' names."
_PRODUCTS = f"Before by the definition. {_WHY}"
_COUNT = f"Layers of {{self.compiler}} that belong to it. {_WHY}"
_LAUNCHES = "Those that compute, in all turns of the loop."
_MERGED = "From the width of the weights that a product reads."
_HOISTED = "Whether one product makes the inputs of all steps."


@dataclasses.dataclass(frozen=True)
class RecurrentLayer:
    """A layer of a recurrence: the steps that it computes, in words, and what of them."""

    layer: Annotated[str, FieldMeta(links="layers")]
    name: Annotated[str, FieldMeta("Layer")]
    steps: Annotated[str, FieldMeta("Steps")]
    work: Annotated[str, FieldMeta("Work")]
    runs: Annotated[int, FieldMeta("Runs")]
    how: Annotated[str, FieldMeta("How we know")]
    nodes: Annotated[tuple[str, ...], FieldMeta(links="nodes")]

    @property
    def note(self) -> str:
        """The layer in full."""
        return self.layer


@dataclasses.dataclass(frozen=True)
class RecurrentNode:
    """What became of a recurrent node; what is inferred says so."""

    products: Annotated[str, FieldMeta("Products", origin="estimated", note=_PRODUCTS)]
    operations: Annotated[int, FieldMeta("Operations before", note="{self.parts} by the definition.")]
    count: Annotated[int, FieldMeta("Layers", origin="reported", note=_COUNT)]
    launches: Annotated[int, FieldMeta("Layers that run", origin="estimated", note=_LAUNCHES)]
    form: Annotated[str, FieldMeta("Steps", origin="estimated", note="{self.evidence}")]
    merged: Annotated[str, FieldMeta("Gates merged", origin="estimated", note=_MERGED)]
    hoisted: Annotated[str, FieldMeta("Input hoisted", origin="estimated", note=_HOISTED)]
    parts: Annotated[str, UNSENT]
    compiler: Annotated[str, UNSENT]
    evidence: Annotated[str, UNSENT]
    layers: tuple[RecurrentLayer, ...]


def analyze_recurrence(context: PanelContext) -> RecurrentNode:
    """What became of one recurrent node.

    Raises:
        ModelError: the model has none.
    """
    return _summarize_recurrence(context, _choose_node(context, _list_fused_nodes(context)))


def build_recurrence_panel(context: PanelContext) -> PanelParts:
    """The same step by step, before and after this variant's compiler.

    Raises:
        ModelError: the model has no recurrent node.
    """
    fused_nodes = _list_fused_nodes(context)
    names = {f.before.node: context.model.node(f.before.node).title for f in fused_nodes}
    chosen = _choose_node(context, fused_nodes)
    node, steps = chosen.before.node, chosen.before.steps
    places = context.model.where(node)
    bars = list(_list_bars(chosen))
    cells = range((2 * len(chosen.before.gates) + 1) * steps) if steps <= _FEW else ()
    select = make_select("node", "Recurrence", "Which recurrent node is shown.", names, node)
    return PanelParts(
        result=_summarize_recurrence(context, chosen),
        links={
            **{key: link(places, [piece.layer]) for key, piece, *_ in bars},
            **{f"before#{i}": link(places) for i in cells},
        },
        title=f"Time fusion: {names[node]}",
        settings=[select] if len(fused_nodes) > 1 else [],
        figures=[_draw_grid(chosen, bars)],
        notes=_notes(chosen, context.result.engine.title),
    )


def has_recurrent_nodes(model: Model) -> bool:
    """Whether a model has a recurrent node."""
    return any(n.op in GATES for n in model.nodes)


def _list_fused_nodes(context: PanelContext) -> tuple[FusedRecurrence, ...]:
    fused_nodes = find_fused_recurrences(context.result)
    if not fused_nodes:
        raise ModelError(
            'This model has no LSTM, GRU or RNN. Open the sample "digits_lstm" or "digits_gru" to see steps '
            'unrolled and gates merged, for example with rtlab.samples.load("digits_lstm").'
        )
    return fused_nodes


def _choose_node(context: PanelContext, fused_nodes: Sequence[FusedRecurrence]) -> FusedRecurrence:
    """The one that was chosen, else the first."""
    return next((f for f in fused_nodes if f.before.node == context.settings.get("node")), fused_nodes[0])


def _summarize_recurrence(context: PanelContext, fused_node: FusedRecurrence) -> RecurrentNode:
    places = context.model.where(fused_node.before.node)
    before = fused_node.before
    loop = f"loop, {fused_node.turns} turns of {fused_node.body}"
    return RecurrentNode(
        products=f"{before.products} → {'?' if fused_node.products is None else fused_node.products}",
        operations=before.operations,
        count=len(fused_node.pieces),
        launches=fused_node.launches,
        form=loop if fused_node.form == "loop" else _FORMS.get(fused_node.form, "unrolled"),
        merged=_format_flag(fused_node.merged),
        hoisted=_format_flag(fused_node.hoisted),
        parts=f"{before.products} products and {before.elementwise} elementwise operations",
        compiler=context.result.engine.title,
        evidence=fused_node.evidence[-1] if fused_node.evidence else _WHY,
        layers=tuple(_summarize_layer(piece, places) for piece in fused_node.pieces),
    )


def _format_flag(value: bool | None) -> str:  # noqa: FBT001 - a value to write, no switch
    return "not reported" if value is None else "yes" if value else "no"


def _summarize_layer(piece: Piece, places: Sequence[str]) -> RecurrentLayer:
    steps = sorted({s for part in piece.parts for s in part.steps})
    # The figure's word for what the layer reads of the step before.
    roles = [(p.role.replace("recurrent", "state"), p.gates) for p in piece.parts]
    label = "declared" if piece.declared else "inferred"
    reasons = " ".join(dict.fromkeys([piece.why, *(p.evidence for p in piece.parts)]))
    also = f" It also computes {', '.join(piece.also)}." if piece.also else ""
    return RecurrentLayer(
        layer=piece.layer,
        name=piece.layer.rpartition(":")[2],
        steps=_format_steps(steps),
        work=" + ".join(f"{role} ({gates} gates)" if gates > 1 else role for role, gates in roles),
        runs=piece.runs,
        how=f"{label}: {reasons}{also}",
        nodes=tuple(places),
    )


def _group_steps(steps: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Steps that follow each other, as first and count."""
    for _, run in itertools.groupby(enumerate(steps), key=lambda p: p[1] - p[0]):
        numbers = [step for _, step in run]
        yield numbers[0], len(numbers)


def _format_steps(steps: Sequence[int]) -> str:
    """Steps as text: ``0 to 7``, ``3``, ``0, 8, 16, 24``."""
    parts = [str(a) if n == 1 else f"{a} to {a + n - 1}" for a, n in _group_steps(steps)]
    return ", ".join(parts) if len(parts) < 6 else f"{', '.join(parts[:3])}, ... {parts[-1]}"


def _list_bars(fused_node: FusedRecurrence) -> Iterator[_Bar]:
    for piece in fused_node.pieces:
        count = 0
        for part in piece.parts:
            if part.role not in _ROLES:
                continue
            for first, length in _group_steps(part.steps or range(fused_node.before.steps)):
                yield f"{piece.layer}#{count}", piece, part, first, length
                count += 1


def _draw_grid(fused_node: FusedRecurrence, bars: Sequence[_Bar]) -> Figure:
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
    read = range(before.steps)[:: -1 if before.direction == "reverse" else 1]
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
    gates = {row: [b[2].gates for b in bars if _ROLES[b[2].role][0] == row] for row in order}
    # Rows whose products merge all gates name them.
    every, names = len(before.gates), " ".join(before.gates)
    labels = {row: f"{row} · {names}" if every > 1 and set(gates[row]) == {every} else row for row in order}
    numbers = [b[1].layer.rpartition("_")[2] for b in bars]
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
        "text": [n if n.isdigit() and before.steps <= _NUMBERED else "" for n in numbers],
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


def _hover(piece: Piece, part: Part) -> str:
    name = shorten_name(piece.layer.rpartition(":")[2])
    steps = _format_steps(part.steps) or "all steps"
    gates = f", {part.gates} gates" if part.gates else ""
    return f"{name}<br>{part.role}{gates}, {steps}<br>inferred"


def _notes(fused_node: FusedRecurrence, compiler: str) -> list[str]:
    notes = [f"{compiler}: {text}" for text in fused_node.evidence]
    unknown = sum(any(q.role == "unknown" for q in p.parts) for p in fused_node.pieces)
    if unknown:
        notes.append(f"Nothing shows what {pluralize(unknown, 'layer')} of it compute{'s' * (unknown == 1)}.")
    if not fused_node.pieces:
        notes.append("No layer of this engine could be told to belong to it.")
    return notes
