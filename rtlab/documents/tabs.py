"""The tabs at the bottom of the Explorer."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import NewType

#: The name of one of ``TABS``.
Tab = NewType("Tab", str)


@dataclasses.dataclass(frozen=True)
class PageTab:
    """A tab.

    ``told`` is a sentence on what it shows. ``part`` is the file in ``widgets/src/panels`` that draws it. A tab with
    panels shows one of them at a time: ``panels`` are those that the page draws itself, such as the charts of layers
    and errors; the others name their tab in ``rtlab.analyses.panels``.
    """

    name: Tab
    label: str
    told: str
    part: str
    panels: tuple[str, ...] = ()


#: What each tab shows, in their order.
_CONTENT: Mapping[str, str] = {
    "timing": "What each layer takes, what the roofline allows, and how inferences scatter.",
    "compare": "Where time went against another variant, and what became of the layers.",
    "fusion": "Why neighbours are not one layer.",
    "memory": "When each tensor lives, and how much the engine needs at once.",
    "streams": "Which layers run at the same time, and what waits for what.",
    "tuning": "How many ways there are to compute a layer, and which of them is fastest.",
    "recurrence": "How the steps of an LSTM, a GRU or another loop were joined over time.",
    "accuracy": "Which values and channels lose most, what it does to the score, and how to get it back.",
    "engine": "What the layers are by kind and precision, and what only moves data.",
    "build": "Each decision of the builder, to be stepped through and played.",
    "calibration": "Which numbers each value takes, and what each calibrator makes of them.",
    "findings": "What is worth changing, with the evidence and what it costs today.",
    "table": "Every layer in a row, to sort, to copy and to save.",
    "recipe": "How a variant was made: the lines that make it again, and all versions.",
}
#: Tabs with a file of their own in the page.
_OWN_PARTS = {"engine", "build", "calibration", "findings", "table"}
_LABELS = {"recipe": "Reproduce"}
_PANELS = {"timing": ("layers",), "accuracy": ("errors",)}
TABS = tuple(
    PageTab(
        Tab(name),
        _LABELS.get(name, name.capitalize()),
        content,
        name if name in _OWN_PARTS else "analysis",
        _PANELS.get(name, ()),
    )
    for name, content in _CONTENT.items()
)
