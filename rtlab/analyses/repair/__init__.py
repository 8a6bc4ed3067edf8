"""What gives a variant's accuracy back, the cheapest first, with every point that was verified on the way."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Annotated, Any

from rtlab.core.bootstrap import INCLUDES_ZERO, TOO_FEW
from rtlab.core.phrases import pluralize
from rtlab.core.schema import UNSENT, FieldMeta
from rtlab.documents.results import ResultTable


@dataclasses.dataclass(frozen=True)
class RepairChange:
    """One change of the variant, in words, and the nodes that it is about; none where it is about all."""

    what: Annotated[str, FieldMeta("Change")]
    nodes: Annotated[tuple[str, ...], FieldMeta("Nodes", links="nodes")] = ()


@dataclasses.dataclass(frozen=True)
class RepairPoint:
    """What was tried and run: its score on the samples that the choice is made by, and what the GPU would take.

    ``drop`` is how far it stays behind fp32, in the unit of the score, negative where it is better; ``kept_high`` is
    the number of nodes left in a higher precision. ``milliseconds`` are estimated for the variant's target, None where
    there is no estimate. ``enough`` says whether it is within what was asked for, or whether the samples cannot tell.
    """

    what: Annotated[str, FieldMeta("Tried")]
    score: Annotated[float, FieldMeta("{of.metric}, {of.unit}", origin="measured", infinite=True)]
    drop: Annotated[float, FieldMeta("Behind fp32", "{of.points_unit}", "measured", infinite=True)]
    kept_high: Annotated[int, FieldMeta("Nodes in higher precision")]
    milliseconds: Annotated[float | None, FieldMeta("Time", "ms", "estimated", omit=True)]
    enough: Annotated[bool, FieldMeta("Enough")]


@dataclasses.dataclass(frozen=True)
class AccuracyRepair:
    """What was found against the loss of accuracy of a variant.

    ``baseline``, ``before`` and ``after`` are the scores of fp32, the variant and the repaired one on ``reported``
    samples that had no part in the choice, which was made on ``chosen`` others; on these, and none reported, where the
    search was stopped. ``changes`` lead from one to the other; ``kept_high`` are nodes that need a higher precision.
    ``runs`` is how many variants were run on samples, the two that it began with apart. ``enough`` says whether the
    repaired one is within ``max_drop``, or as near as the samples can tell; ``told`` is the difference to fp32.
    """

    variant: Annotated[str, FieldMeta("Variant", links="variants")]
    repaired: Annotated[str, FieldMeta("Repaired")]
    metric: Annotated[str, FieldMeta("Task")]
    unit: str
    max_drop: Annotated[float, FieldMeta("May stay behind", "{self.points_unit}")]
    baseline: Annotated[float, FieldMeta("fp32, {self.unit}", origin="measured")]
    before: Annotated[float, FieldMeta("Before, {self.unit}", origin="measured", infinite=True)]
    after: Annotated[float, FieldMeta("After, {self.unit}", origin="measured", infinite=True)]
    told: Annotated[str, FieldMeta("Difference", origin="measured")]
    changes: tuple[RepairChange, ...]
    kept_high: Annotated[tuple[str, ...], FieldMeta("In higher precision", links="nodes")]
    enough: Annotated[bool, FieldMeta("Enough")]
    runs: Annotated[int, FieldMeta("Runs")]
    chosen: Annotated[int, FieldMeta("Chosen on")]
    reported: Annotated[int, FieldMeta("Reported on")]
    points: tuple[RepairPoint, ...]
    seconds: Annotated[float, FieldMeta("Took", "s", "measured")]
    source: Annotated[str, FieldMeta("Source")]
    choice: Annotated[Mapping[str, Any], UNSENT] = dataclasses.field(default_factory=dict, repr=False)

    @property
    def points_unit(self) -> str:
        """The unit of a difference of scores."""
        return "points" if self.unit == "%" else self.unit

    @property
    def words(self) -> str:
        """What was done, in a sentence."""
        if not self.changes:
            lead = "Its score is within the limit" if self.enough else "Nothing was found that helps"
            return f'{lead}: "{self.variant}" is {self.told}{self._unsure}.'
        done, high = "; ".join(c.what for c in self.changes), len(self.kept_high)
        count = pluralize(high, "node is", "nodes are") if high else "no node is"
        return f"{done}: {count} in higher precision, {self.told}{self._unsure}."

    @property
    def _unsure(self) -> str:
        """Why a larger drop than was asked for is enough; empty where it is none, or not enough."""
        exceeds_limit = abs(self.baseline - self.after) > self.max_drop
        if not (self.enough and exceeds_limit and self.told.endswith((INCLUDES_ZERO, TOO_FEW))):
            return ""
        drop = f"{max(0.0, self.max_drop):g} {self.points_unit}".strip()
        return f"; enough all the same, for a drop of more than {drop} is not for sure"

    def text(self) -> str:
        """For a terminal."""
        basis = f"chosen on {self.chosen} samples, reported on {self.reported} others, {pluralize(self.runs, 'run')}"
        tried = f"Tried, on the {self.chosen} samples that it was chosen on:"
        return f"{self.words}\n{basis}\n\n{tried}\n{ResultTable(RepairPoint, self.points, of=self).text()}"

    def __repr__(self) -> str:
        before = f"{self.before:.4g}" if math.isfinite(self.before) else "no numbers"
        way = f"{before} to {self.after:.4g} {self.unit}".strip()
        return f"<Repair {self.variant}: {way}, {pluralize(self.runs, 'run')}, {self.words}>"
