"""What the layers of an engine are, and where its time goes."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, cast

from rtlab import questions
from rtlab.documents.contract import Coverage, Reformat, Slice, Summary, Transition
from rtlab.questions.engine import breakdown
from rtlab.relation.coverage import coverage

if TYPE_CHECKING:
    from rtlab.core.facts import Facts
    from rtlab.core.model import Model


def summary(result: Facts, model: Model | None = None) -> Summary:
    """Kinds, precisions, transitions, reformats, and how far the mapping explains the engine.

    Times are those of this engine. Where another engine ran in its place, they belong to other layers and are left out.

    Args:
        result: The variant.
        model: The source model that is shown; by default the one that the engine was built from.
    """
    engine, times = result.engine, questions.timing.own(result)
    home = result.prepared.model if model is None else model
    return Summary(
        kinds=[_slice(s) for s in breakdown.by_kind(engine, times)],
        precisions=[_slice(s) for s in breakdown.by_precision(engine, times)],
        transitions=[
            Transition(before=t.before, after=t.after, layers=len(t.layers), time=t.milliseconds)
            for t in breakdown.transitions(engine, times)
        ],
        reformats=[
            Reformat(
                layer=r.layer,
                tensor=r.tensor,
                before=r.before,
                after=r.after,
                producer=r.producer,
                consumer=r.consumer,
                cause=r.cause,
                fix=r.fix,
                time=r.milliseconds,
            )
            for r in questions.reformats.of(result)
        ],
        coverage=cast(
            "Coverage", dataclasses.asdict(coverage(questions.fusion.mapping(result), home, engine))
        ),
        processor=times.processor if times else "",
        source=times.origin if times else "",
        total=times.total if times else None,
        summed=times.summed if times and times.layers else None,
        ratio=times.ratio if times else None,
    )


def _slice(found: breakdown.Slice) -> Slice:
    return Slice(
        name=found.name,
        layers=len(found.layers),
        time=found.milliseconds,
        share=None if found.share is None else 100 * found.share,
    )
