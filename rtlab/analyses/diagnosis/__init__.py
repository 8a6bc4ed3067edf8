"""Why the guilty places of a variant lose accuracy."""

from __future__ import annotations

import dataclasses
from typing import Annotated

from rtlab.analyses.sensitivity import Sensitivity
from rtlab.core.finding import Finding
from rtlab.core.schema import FieldMeta


@dataclasses.dataclass(frozen=True)
class AccuracyDiagnosis:
    """Why a variant loses accuracy, place by place, the most guilty first.

    ``guilty`` are the nodes that were looked at, by what they cost; ``unexplained`` those of them about whose numbers
    nothing is unusual: so few bits alone are what they lose by. ``source`` is what computed the reference.
    """

    variant: Annotated[str, FieldMeta("Variant", links="variants")]
    findings: tuple[Finding, ...]
    guilty: Annotated[tuple[str, ...], FieldMeta("Examined", links="nodes")]
    unexplained: Annotated[tuple[str, ...], FieldMeta("Unexplained", links="nodes", omit=True)]
    samples: Annotated[int, FieldMeta("Samples")]
    source: Annotated[str, FieldMeta("Source")]

    def of(self, node: str) -> tuple[Finding, ...]:
        """The findings about a node, the cause that explains most first."""
        return tuple(f for f in self.findings if f.nodes and f.nodes[0] == node)

    def add_causes(self, sensitivity: Sensitivity) -> Sensitivity:
        """A ranking of the guilty with the causes beside them."""
        rows = (
            dataclasses.replace(g, causes=tuple(f.title for f in self.of(g.node)))
            for g in sensitivity.ranking
        )
        return dataclasses.replace(sensitivity, ranking=tuple(rows))

    def __repr__(self) -> str:
        first = f", first: {self.findings[0].title}" if self.findings else ""
        return f"<Diagnosis {self.variant}: {len(self.findings)} findings about {len(self.guilty)} places{first}>"
