"""The tabs at the bottom of the Explorer, in their order: what each is called, and what it shows."""

from __future__ import annotations

import dataclasses
from typing import NewType

#: The name of one of ``TABS``.
Tab = NewType("Tab", str)


@dataclasses.dataclass(frozen=True)
class PageTab:
    """A tab.

    ``told`` says in a sentence what it shows. ``part`` is the file in ``widgets/src/panels`` that draws it, empty where
    the page has no need of one. A tab with panels shows one of them at a time: those that the page draws itself are
    ``panels`` here, as the charts of the layers and of the errors; the others name their tab where they are declared
    (``rtlab.analyses.panels``).
    """

    name: Tab
    label: str
    told: str
    part: str
    panels: tuple[str, ...] = ()


TABS = (
    PageTab(
        Tab("timing"),
        "Timing",
        "What each layer takes, what the roofline allows, and how inferences scatter.",
        "analysis",
        ("layers",),
    ),
    PageTab(
        Tab("compare"),
        "Compare",
        "Where time went against another variant, and what became of the layers.",
        "analysis",
    ),
    PageTab(Tab("fusion"), "Fusion", "Why neighbours are not one layer.", "analysis"),
    PageTab(
        Tab("memory"), "Memory", "When each tensor lives, and how much the engine needs at once.", "analysis"
    ),
    PageTab(
        Tab("streams"), "Streams", "Which layers run at the same time, and what waits for what.", "analysis"
    ),
    PageTab(
        Tab("tuning"),
        "Tuning",
        "How many ways there are to compute a layer, and which of them is fastest.",
        "analysis",
    ),
    PageTab(
        Tab("recurrence"),
        "Recurrence",
        "How the steps of an LSTM, a GRU or another loop were joined over time.",
        "analysis",
    ),
    PageTab(
        Tab("accuracy"),
        "Accuracy",
        "Which values and channels lose most, what it does to the score, and how to get it back.",
        "analysis",
        ("errors",),
    ),
    PageTab(
        Tab("engine"),
        "Engine",
        "What the layers are by kind and precision, and what only moves data.",
        "engine",
    ),
    PageTab(
        Tab("build"), "Build", "Each decision of the builder, to be stepped through and played.", "build"
    ),
    PageTab(
        Tab("calibration"),
        "Calibration",
        "Which numbers each value takes, and what each calibrator makes of them.",
        "calibration",
    ),
    PageTab(
        Tab("findings"),
        "Findings",
        "What is worth changing, with the evidence and what it costs today.",
        "findings",
    ),
    PageTab(Tab("table"), "Table", "Every layer in a row, to sort, to copy and to save.", "table"),
    PageTab(
        Tab("recipe"),
        "Reproduce",
        "How a variant was made: the lines that make it again, and all versions.",
        "analysis",
    ),
)
#: Opened at first.
FIRST = TABS[0].name
