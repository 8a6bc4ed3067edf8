"""When each layer runs on which stream, and who waits for whom."""

from __future__ import annotations

from rtlab.core.facts import VariantResult
from rtlab.core.peaks import Peaks
from rtlab.questions import fusion, timing
from rtlab.questions.roofline import roofs
from rtlab.questions.schedule import streams
from rtlab.questions.schedule.streams import Schedule


def of(facts: VariantResult, gpu: str | Peaks | None = None) -> Schedule:
    """When each layer runs on which stream, and who waits for whom.

    Args:
        facts: The variant.
        gpu: Durations are estimated for it; by default the engine's own measured times, else every layer alike.

    Raises:
        VariantError: the processor is not known.
        ModelError: a dimension has no size.
    """
    engine = facts.engine
    if gpu is not None:
        estimated = roofs.estimates(engine, fusion.mapping(facts), facts.source, gpu)
        return streams.schedule(engine, estimated, origin="estimated")
    if measured_times := timing.milliseconds(facts):
        return streams.schedule(engine, measured_times, origin="measured")
    return streams.schedule(engine, streams.unit_durations(engine), origin="")
