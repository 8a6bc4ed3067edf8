"""When each layer runs on which stream, and who waits for whom."""

from __future__ import annotations

from rtlab.analyses import roofline, timing
from rtlab.analyses.schedule import streams
from rtlab.analyses.schedule.streams import Schedule
from rtlab.core.facts import VariantResult
from rtlab.core.peaks import Peaks


def build_schedule(facts: VariantResult, gpu: str | Peaks | None = None) -> Schedule:
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
        estimated = roofline.compute_roofline(facts, gpu).milliseconds(engine)
        return streams.compute_schedule(engine, estimated, origin="estimated")
    if measured_times := timing.get_milliseconds(facts):
        return streams.compute_schedule(engine, measured_times, origin="measured")
    return streams.compute_schedule(engine, streams.unit_durations(engine), origin="")
