"""Why the guilty places of a variant lose accuracy."""

from __future__ import annotations

import dataclasses
from typing import Annotated

from rtlab.core.finding import Finding
from rtlab.core.schema import Meaning
from rtlab.questions.sensitivity import Sensitivity


@dataclasses.dataclass(frozen=True)
class AccuracyDiagnosis:
    """Why a variant loses accuracy, place by place, the most guilty first.

    ``guilty`` are the nodes that were looked at, by what they cost; ``unexplained`` those of them about whose numbers
    nothing is unusual: so few bits alone are what they lose by. ``source`` is what computed the reference.
    """

    variant: Annotated[str, Meaning("Variant", links="variants")]
    findings: tuple[Finding, ...]
    guilty: Annotated[tuple[str, ...], Meaning("Looked at", links="nodes")]
    unexplained: Annotated[tuple[str, ...], Meaning("Unexplained", links="nodes", omit=True)]
    samples: Annotated[int, Meaning("Samples")]
    source: Annotated[str, Meaning("Source")]

    def of(self, node: str) -> tuple[Finding, ...]:
        """The findings about a node, the cause that explains most first."""
        return tuple(f for f in self.findings if f.nodes and f.nodes[0] == node)

    def explained(self, found: Sensitivity) -> Sensitivity:
        """A ranking of the guilty with the causes beside them."""
        rows = (dataclasses.replace(g, causes=tuple(f.title for f in self.of(g.node))) for g in found.ranking)
        return dataclasses.replace(found, ranking=tuple(rows))

    def __repr__(self) -> str:
        first = f", first: {self.findings[0].title}" if self.findings else ""
        return f"<Diagnosis {self.variant}: {len(self.findings)} findings about {len(self.guilty)} places{first}>"
