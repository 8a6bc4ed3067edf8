"""What the charts show, as plain rows; ``widgets.charts`` draws them."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from rtlab.view.contract import EngineView

if TYPE_CHECKING:
    from collections.abc import Iterable


@dataclasses.dataclass(frozen=True)
class Bar:
    """One engine layer on a chart. ``value`` is in the overlay's unit and belongs to ``shared`` layers together."""

    layer: str
    label: str
    value: float
    spread: float | None
    note: str
    step: int
    shared: int = 1


def bars(view: EngineView, overlay: str) -> tuple[Bar, ...]:
    """Every layer that has this number, in execution order."""
    found = next((o for o in view["overlays"] if o["id"] == overlay), None)
    if found is None:
        return ()
    made = []
    steps = (b for b in view["graph"]["boxes"] if b["kind"] == "layer")
    for step, box in enumerate(steps):
        reading = found["layers"].get(box["id"])
        if reading is not None:
            made.append(
                Bar(box["id"], label(c["op"] for c in box["chips"]) or box["title"], reading["value"],
                    reading["spread"], "<br>".join(filter(None, (box["title"], reading["note"]))), step,
                    reading["shared"])
            )  # fmt: skip
    return tuple(made)


def brief(bar: Bar, most: int = 13) -> str:
    """A name below a bar: its operators, cut where there is no room for all."""
    return bar.label if len(bar.label) <= most else f"{bar.label[: most - 1]}…"


def label(ops: Iterable[str], most: int = 4) -> str:
    """Operators in execution order as one short text."""
    listed = list(ops)
    return "·".join(listed[:most]) + (f"·+{len(listed) - most}" if len(listed) > most else "")
