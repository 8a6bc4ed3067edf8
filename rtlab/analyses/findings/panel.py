"""The question of the Findings tab, which the page draws."""

from __future__ import annotations

from rtlab.analyses.findings.analysis import Findings, findings
from rtlab.analyses.panel_context import PanelSpec

FINDINGS = PanelSpec(
    "findings",
    tab="findings",
    label="Findings",
    title="What is worth changing",
    lead="What to change about the engine and about the model's own quantization, and why.",
    noun=lambda context: findings(context.model, context.facts, context.study.results.values()),
    payload_type=Findings,
)
