"""A recurrence and the layers that compute it, with what tells so."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated

from rtlab.core.schema import UNSENT, FieldMeta

if TYPE_CHECKING:
    from rtlab.analyses.recurrence.fused_cells import FusedRecurrence, Piece

_FORMS = {"whole": "one layer", "unknown": "not reported"}
_WHY = "Inferred from the flow of data, shapes and kernels' names."


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

    products: Annotated[
        str, FieldMeta("Products", origin="estimated", note=f"Before by the definition. {_WHY}")
    ]
    operations: Annotated[int, FieldMeta("Operations before", note="{self.parts} by the definition.")]
    count: Annotated[
        int,
        FieldMeta("Layers", origin="reported", note=f"Layers of {{self.compiler}} that belong to it. {_WHY}"),
    ]
    launches: Annotated[
        int,
        FieldMeta(
            "Layers that run", origin="estimated", note="Those that compute, in all turns of the loop."
        ),
    ]
    each: Annotated[
        str, FieldMeta("Layers per step", origin="estimated", note="Layers that run, divided by the steps.")
    ]
    form: Annotated[str, FieldMeta("Steps", origin="estimated", note="{self.evidence}")]
    merged: Annotated[
        str,
        FieldMeta(
            "Gates merged",
            origin="estimated",
            note="From the width of the weights that a product reads.",
        ),
    ]
    hoisted: Annotated[
        str,
        FieldMeta(
            "Input hoisted", origin="estimated", note="Whether one product makes the inputs of all steps."
        ),
    ]
    work: Annotated[str, FieldMeta("Products' work", origin="estimated", note="The same before and after.")]
    parts: Annotated[str, UNSENT]
    compiler: Annotated[str, UNSENT]
    evidence: Annotated[str, UNSENT]
    layers: tuple[RecurrentLayer, ...]


def summarize_recurrence(fused_node: FusedRecurrence, compiler: str, places: Sequence[str]) -> RecurrentNode:
    """What became of a node that stands at ``places``, as its panel and its table tell it."""
    before = fused_node.before
    loop = f"loop, {fused_node.turns} turns of {fused_node.body}"
    return RecurrentNode(
        products=f"{before.products} → {'?' if fused_node.products is None else fused_node.products}",
        operations=before.operations,
        count=len(fused_node.pieces),
        launches=fused_node.launches,
        each="not reported" if fused_node.form in _FORMS else f"{fused_node.per_step:.3g}",
        form=loop if fused_node.form == "loop" else _FORMS.get(fused_node.form, "unrolled"),
        merged=_format_flag(fused_node.merged),
        hoisted=_format_flag(fused_node.hoisted),
        work=f"{before.flops / 1e6:.3g} MFLOP",
        parts=f"{before.products} products and {before.elementwise} elementwise operations",
        compiler=compiler,
        evidence=fused_node.evidence[-1] if fused_node.evidence else _WHY,
        layers=tuple(_layer(piece, places) for piece in fused_node.pieces),
    )


def _format_flag(value: bool | None) -> str:  # noqa: FBT001 - a value to write, no switch
    return "not reported" if value is None else "yes" if value else "no"


def _layer(piece: Piece, places: Sequence[str]) -> RecurrentLayer:
    steps = sorted({s for part in piece.parts for s in part.steps})
    # The figure's word for what the layer reads of the step before.
    roles = [(p.role.replace("recurrent", "state"), p.gates) for p in piece.parts]
    label = "declared" if piece.declared else "inferred"
    reasons = " ".join(dict.fromkeys([piece.why, *(p.evidence for p in piece.parts)]))
    also = f" It also computes {', '.join(piece.also)}." if piece.also else ""
    return RecurrentLayer(
        layer=piece.layer,
        name=piece.layer.rpartition(":")[2],
        steps=format_steps(steps),
        work=" + ".join(f"{role} ({gates} gates)" if gates > 1 else role for role, gates in roles),
        runs=piece.runs,
        how=f"{label}: {reasons}{also}",
        nodes=tuple(places),
    )


def stretches(steps: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Numbers that follow each other, as first and count."""
    start = last = None
    for step in steps:
        if start is None or last is None:
            start = last = step
        elif step == last + 1:
            last = step
        else:
            yield start, last - start + 1
            start = last = step
    if start is not None and last is not None:
        yield start, last - start + 1


def format_steps(steps: Sequence[int]) -> str:
    """Steps as a person writes them: ``0 to 7``, ``3``, ``0, 8, 16, 24``."""
    parts = [str(a) if n == 1 else f"{a} to {a + n - 1}" for a, n in stretches(steps)]
    return ", ".join(parts) if len(parts) < 6 else f"{', '.join(parts[:3])}, ... {parts[-1]}"
