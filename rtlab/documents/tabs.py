"""The tabs at the bottom of the Explorer, in their order: what each is called, and what it shows."""

from __future__ import annotations

import dataclasses
from typing import NewType

#: The name of one of ``TABS``.
Tab = NewType("Tab", str)


@dataclasses.dataclass(frozen=True)
class PageTab:
    """A tab.

    ``part`` is the file in ``widgets/src/tabs`` that draws it, empty where the page has no need of one. A tab with
    panels shows one of them at a time: those that the page draws itself are ``panels`` here, as the charts of the
    layers and of the errors; the others name their tab where they are declared (``rtlab.questions.panels``).
    """

    name: Tab
    label: str
    part: str
    panels: tuple[str, ...] = ()


TABS = (
    PageTab(Tab("timing"), "Timing", "analysis", ("layers",)),
    PageTab(Tab("compare"), "Compare", "analysis"),
    PageTab(Tab("why"), "Fusion", "analysis"),
    PageTab(Tab("memory"), "Memory", "analysis"),
    PageTab(Tab("streams"), "Streams", "analysis"),
    PageTab(Tab("tuning"), "Tuning", "analysis"),
    PageTab(Tab("recurrence"), "Recurrence", "analysis"),
    PageTab(Tab("accuracy"), "Accuracy", "analysis", ("errors",)),
    PageTab(Tab("engine"), "Engine", "engine"),
    PageTab(Tab("build"), "Build", "build"),
    PageTab(Tab("calibration"), "Calibration", "calibration"),
    PageTab(Tab("findings"), "Findings", "findings"),
    PageTab(Tab("table"), "Table", "table"),
    PageTab(Tab("recipe"), "Reproduce", "analysis"),
)
#: Opened at first.
FIRST = TABS[0].name
