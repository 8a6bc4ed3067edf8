"""Every layer under the roofs of a processor, and what the engine would take there: estimates."""

from __future__ import annotations

from rtlab.analyses import fusion, timing
from rtlab.analyses.roofline import estimate
from rtlab.analyses.roofline.estimate import Roofline, describe_estimate_error, pick_default_gpu
from rtlab.core.facts import VariantResult
from rtlab.core.memo import memoized
from rtlab.core.peaks import Peaks
from rtlab.core.phrases import pluralize
from rtlab.documents.numbers import format_number
from rtlab.errors import RtlabError
from rtlab.relation.roles import SERVING


def compute_roofline(
    facts: VariantResult, gpu: str | Peaks | None = None, *, batch: int | None = None
) -> Roofline:
    """Every layer under the roofs of a processor: what bounds it, how far from that it is, an estimate of its time.

    Args:
        facts: The variant.
        gpu: A name of the table, or ``rtlab.Peaks`` of one's own; by default the engine's own GPU, or one of its
            target where it was only built.
        batch: Samples in an inference, where they are not the engine's own.

    Raises:
        VariantError: the processor is not known.
        ModelError: a dimension has no size.
    """
    chosen, engine = gpu or facts.engine.device or pick_default_gpu(facts.engine), facts.engine
    mapping, times = fusion.map_nodes(facts), timing.get_milliseconds(facts)
    return estimate.compute_engine_roofline(engine, mapping, facts.source, chosen, times, batch=batch)


@memoized
def estimate_timing(facts: VariantResult) -> Roofline | None:
    """The engine on the GPU that it was built for, estimated; None where there is no such GPU, or no sizes.

    It comes before what a CPU measured: the CPU runs other kernels, and emulates some precisions.
    """
    times = timing.compute_timing(facts)
    if facts.engine.target.sm is None or (times is not None and times.processor == "GPU"):
        return None
    try:
        gpu, mapping = pick_default_gpu(facts.engine), fusion.map_nodes(facts)
        return estimate.compute_engine_roofline(facts.engine, mapping, facts.source, gpu)
    except RtlabError:
        return None


def estimate_source(facts: VariantResult) -> str:
    """What stands beside the estimate for a variant's GPU, or why it is withheld; empty where there is none to give."""
    roofline_estimate = estimate_timing(facts)
    if roofline_estimate is None:
        return ""
    # What runs side by side ends sooner, as the schedule shows.
    several = len({y.stream for y in facts.engine.layers}) > 1
    summed, gpu = ", the sum of the layers, one after the other" * several, roofline_estimate.peaks.name
    return roofline_estimate.withheld or f"estimated for {gpu}{summed}; {describe_estimate_error(gpu)}"


def explain_longer_estimate(facts: VariantResult, before: VariantResult, title: str) -> str:
    """Why a variant's estimate is longer than that of a more precise one, called ``title``; empty where it is not."""
    estimate_before, estimate_now = estimate_timing(before), estimate_timing(facts)
    if (
        estimate_before is None
        or estimate_now is None
        or estimate_before.peaks.name != estimate_now.peaks.name
    ):
        return ""
    total_before, total = estimate_before.estimated, estimate_now.estimated
    if total_before is None or total is None or total <= total_before:
        return ""
    moves_before, moves = _sum_conversions(before, estimate_before), _sum_conversions(facts, estimate_now)
    rest_before, rest = total_before - moves_before, total - moves
    layers = f"{pluralize(facts.engine.layer_count, 'layer')} in place of {before.engine.layer_count}"
    return (
        f"{format_number(total - total_before, 'ms')} longer than {title}: {layers}; what only converts or moves "
        f"values takes {format_number(moves, 'ms')} (in {title} {format_number(moves_before, 'ms')}), all else "
        f"{format_number(rest, 'ms')} ({format_number(rest_before, 'ms')})"
    )


def _sum_conversions(facts: VariantResult, roofline_estimate: Roofline) -> float:
    """Estimated milliseconds of the layers that do no node's work."""
    working = {p.layer for p in fusion.map_nodes(facts).pairs if p.role not in SERVING}
    times = roofline_estimate.milliseconds(facts.engine)
    return sum(times.get(y.id, 0.0) for y in facts.engine.layers if y.id not in working)
