"""What the charts show, as plain rows; ``explorer.charts`` draws them."""

from __future__ import annotations

import dataclasses

from rtlab.questions.cards.card import name
from rtlab.view.contract import EngineView

#: Words of a card that a bar tells on hover.
_OPERATORS = 4


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
                Bar(box["id"], name(box, _OPERATORS), reading["value"], reading["spread"],
                    "<br>".join(filter(None, (box["title"] if box["chips"] else "", reading["note"]))), step,
                    reading["shared"])
            )  # fmt: skip
    return tuple(made)


def brief(bar: Bar, most: int = 13) -> str:
    """A name below a bar, set close and cut where there is no room for all of it."""
    close = bar.label.replace(" · ", "·")
    return close if len(close) <= most else f"{close[: most - 1]}…"
