"""Values that are NaN in fp32 itself, beside which no precision can be judged."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rtlab.core.finding import Finding
from rtlab.core.phrases import pluralize

if TYPE_CHECKING:
    from rtlab.analyses.accuracy.errors import Accuracy
    from rtlab.core.model import Model


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
