"""Why the guilty places of a variant lose accuracy, and which values are NaN in fp32 itself."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Annotated

from rtlab.core.finding import Finding
from rtlab.core.phrases import pluralize
from rtlab.core.schema import FieldMeta

if TYPE_CHECKING:
    from rtlab.analyses.accuracy import Accuracy
    from rtlab.analyses.sensitivity import Sensitivity
    from rtlab.core.model import Model


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


def find_undefined(errors: Accuracy, model: Model) -> Finding | None:
    """The first node, in graph order, that writes NaN in fp32 itself; None where none does."""
    first = next((v for v in errors.values if v.undefined), None)
    if first is None:
        return None
    return Finding(
        id=f"undefined:{first.node}",
        rule="undefined",
        title=f'"{model.by_id[first.node].title}" is the first node that writes NaN in fp32 itself.',
        nodes=(first.node,),
        cost="What follows is NaN too, in every precision: beside it nothing can be judged.",
        fix="Look at what it reads: 0 times infinity, infinity minus infinity and 0 / 0 have no value. In a mask write "
        "the lowest finite number of its type in the place of minus infinity.",
        evidence=f"{first.undefined} of {first.elements} elements of {first.value} are NaN, measured on "
        f"{pluralize(errors.samples, 'sample')}, {errors.source}.",
        fixable=False,
        value=first.value,
    )
