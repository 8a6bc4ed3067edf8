"""The question of the Findings tab, which the page draws."""

from __future__ import annotations

from rtlab.questions.findings.listed import Findings, findings
from rtlab.questions.scene import Question

FINDINGS = Question(
    "findings",
    tab="findings",
    label="Findings",
    title="What is worth changing",
    lead="What to change about the engine and about the model's own quantization, and why.",
    noun=lambda scene: findings(scene.model, scene.facts, scene.study.facts.values()),
    sent=Findings,
)
