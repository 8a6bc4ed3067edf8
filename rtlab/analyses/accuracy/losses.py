"""Errors value by value, beside the chart that the page draws of them."""

from __future__ import annotations

import dataclasses
from typing import Annotated

from rtlab.analyses.accuracy import ValueDelta, compute_accuracy
from rtlab.analyses.panel_context import PanelContext
from rtlab.analyses.score import describe_score, find_reference
from rtlab.core.data import RANDOM
from rtlab.core.schema import FieldMeta
from rtlab.errors import RunError


@dataclasses.dataclass(frozen=True)
class Losses:
    """How far the values of a variant lie from those of fp32, those with the lowest SQNR first.

    ``outputs`` is the part of an output that lost most, where the whole hides it; ``score`` is the task's metric in
    words. Both are None without one.
    """

    outputs: Annotated[str | None, FieldMeta("Outputs", origin="measured", omit=True)]

    samples: Annotated[int, FieldMeta("Samples")]
    source: Annotated[str, FieldMeta("Source")]
    score: Annotated[str | None, FieldMeta("Task", origin="measured", omit=True)]
    values: tuple[ValueDelta, ...]


def analyze_accuracy(context: PanelContext) -> Losses:
    """The errors of a variant.

    Raises:
        RunError: none of its values was compared.
    """
    result = context.result
    errors, score = compute_accuracy(result), result.score
    baseline = context.baseline or find_reference(context.study, result)
    if errors is None:
        advice = (
            "Files contain no errors: build the model here to compare it."
            if result.recorded
            else f'Run study.measure("{result.name}"), which compares its values.'
        )
        raise RunError(
            f'Cannot show the errors of "{result.name}": none of its values was compared. {advice}'
        )
    return Losses(
        errors.headline or None,
        errors.samples,
        f"{errors.source}, {RANDOM}" if errors.synthetic else errors.source,
        f"{score.name} {describe_score(result, baseline)}" if score else None,
        errors.worst(len(errors.values)),
    )
