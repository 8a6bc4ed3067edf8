"""The question of the Engine tab, which the page draws."""

from __future__ import annotations

from rtlab.analyses.engine.summary import Summary, summary
from rtlab.analyses.panel_context import PanelSpec

ENGINE = PanelSpec(
    "engine",
    tab="engine",
    label="Engine",
    title="What the layers are",
    lead="Layers by kind and by precision with their time, what changes types, and what only moves data.",
    noun=lambda context: summary(context.result, context.model),
    payload_type=Summary,
)
