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
    ``panels`` shows one of them at a time; ``layers`` among them is the chart of the layers.
    """

    name: Tab
    label: str
    part: str
    panels: tuple[str, ...] = ()


TABS = (
    PageTab(Tab("timing"), "Timing", "analysis", ("layers", "roofline", "samples", "batches")),
    PageTab(Tab("compare"), "Compare", "analysis", ("difference", "variants")),
    PageTab(Tab("memory"), "Memory", "analysis", ("memory",)),
    PageTab(Tab("streams"), "Streams", "analysis", ("schedule",)),
    PageTab(Tab("tuning"), "Tuning", "analysis", ("formulations",)),
    PageTab(Tab("recurrence"), "Recurrence", "analysis", ("recurrence",)),
    PageTab(Tab("accuracy"), "Accuracy", ""),
    PageTab(Tab("engine"), "Engine", "engine"),
    PageTab(Tab("build"), "Build", "build"),
    PageTab(Tab("calibration"), "Calibration", "calibration"),
    PageTab(Tab("findings"), "Findings", "findings"),
    PageTab(Tab("table"), "Table", "table"),
)
#: Opened at first.
FIRST = TABS[0].name
