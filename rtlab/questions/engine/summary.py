"""What the layers of an engine are, and where its time goes."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Annotated

from rtlab import questions
from rtlab.core.schema import Meaning
from rtlab.questions.engine.breakdown import Slice, Transition
from rtlab.questions.reformats.reasons import Reformat
from rtlab.relation.coverage import Coverage, coverage

if TYPE_CHECKING:
    from rtlab.core.facts import Facts
    from rtlab.core.model import Model


@dataclasses.dataclass(frozen=True)
class Summary:
    """What the layers of one engine are, and where its time goes.

    ``processor`` is what the times belong to, ``source`` where they come from, both empty without times. ``total`` is
    the latency of whole inferences in milliseconds, ``summed`` the sum of the layers, ``ratio`` the second by the
    first; None where unknown.
    """

    kinds: Annotated[tuple[Slice, ...], Meaning("By kind")]
    precisions: Annotated[tuple[Slice, ...], Meaning("By precision")]
    transitions: Annotated[tuple[Transition, ...], Meaning("Between precisions")]
    reformats: Annotated[tuple[Reformat, ...], Meaning("Steps that change types or layouts alone")]
    coverage: Coverage
    processor: Annotated[str, Meaning("Timed on")]
    source: Annotated[str, Meaning("Source")]
    total: Annotated[float | None, Meaning("Latency", "ms", "measured")]
    summed: Annotated[float | None, Meaning("Sum of the layers", "ms", "measured")]
    ratio: Annotated[float | None, Meaning("Sum by latency", origin="measured")]


def summary(facts: Facts, model: Model | None = None) -> Summary:
    """Kinds, precisions, transitions, reformats, and how far the mapping explains the engine.

    Times are those of this engine. Where another engine ran in its place, they belong to other layers and are left out.

    Args:
        facts: The variant.
        model: The source model that is shown; by default the one that the engine was built from.
    """
    times = questions.timing.own(facts)
    home = facts.prepared.model if model is None else model
    known = coverage(questions.fusion.mapping(facts), home, facts.engine)
    return Summary(
        kinds=questions.engine.kinds(facts),
        precisions=questions.engine.precisions(facts),
        transitions=questions.engine.transitions(facts),
        reformats=questions.reformats.of(facts),
        # Signals and waits compute no node and are no layers to who counts what runs.
        coverage=dataclasses.replace(known, all_layers=known.all_layers - facts.engine.sync),
        processor=times.processor if times else "",
        source=times.origin if times else "",
        total=times.total if times else None,
        summed=times.summed if times and times.layers else None,
        ratio=times.ratio if times else None,
    )
