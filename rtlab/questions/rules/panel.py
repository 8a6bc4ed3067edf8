"""The question of what a compiler fuses, a table below the missed fusions."""

from __future__ import annotations

from rtlab.questions.rules import of
from rtlab.questions.scene import Question

RULES = Question(
    "rules",
    tab="fusion",
    label="Rules",
    title="What this compiler fuses",
    lead=(
        "Small graphs with one fusion each, built by this compiler, beside what TensorRT's documentation says of them. "
        "A rule that holds in a small graph may still be spoilt by what stands around it in a model."
    ),
    told="Which fusions this compiler makes of small graphs, beside what is documented.",
    noun=lambda scene: of(scene.result.engine),
)
