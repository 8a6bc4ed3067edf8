"""Where the time went from one variant to another."""

from __future__ import annotations

from rtlab.analyses import fusion, roofline, timing
from rtlab.analyses.difference import compare
from rtlab.analyses.difference.compare import Difference, Side
from rtlab.analyses.roofline.estimate_error import pick_default_gpu
from rtlab.core.facts import VariantResult
from rtlab.core.peaks import Peaks
from rtlab.documents.numbers import format_number
from rtlab.errors import VariantError


def build_side(facts: VariantResult, gpu: str | Peaks | None = None) -> Side:
    """The variant in a comparison: the engine that was timed, else the one that was built.

    With a GPU it is the engine that was built, with times that are estimated for it.

    Raises:
        VariantError: the processor is not known.
        ModelError: a dimension has no size.
    """
    if gpu is not None:
        estimate = roofline.compute_roofline(facts, gpu)
        layer_times = estimate.milliseconds(facts.engine) if estimate.coverage.enough else {}
        withheld = "" if estimate.coverage.enough else estimate.withheld
        return Side(
            facts.name, facts.engine, fusion.map_nodes(facts), layer_times, None, "estimated", withheld
        )
    times = timing.compute_timing(facts)
    if facts.measured is None or times is None:
        return Side(facts.name, facts.engine, fusion.map_nodes(facts))
    layer_times = {t.layer: t.median for t in times.layers}
    return Side(facts.name, facts.measured, fusion.map_measured_engine(facts), layer_times, times.total)


def compare_variants(
    before: VariantResult, after: VariantResult, *, gpu: str | Peaks | None = None
) -> Difference:
    """Where the time went from one variant to another, by groups of ONNX nodes.

    Args:
        before: The variant before.
        after: The variant after.
        gpu: In place of what was measured, times of both engines are estimated for this GPU; ``"target"`` takes for
            each one of the GPUs that it was built for.

    Raises:
        VariantError: the GPU is not known, or the engines are of different models.
        ModelError: a dimension has no size.
    """
    sides = [build_side(f, pick_default_gpu(f.engine) if gpu == "target" else gpu) for f in (before, after)]
    difference = compare.compute_difference(sides[0], sides[1], before.source)
    if not difference.overlap.is_enough:
        raise VariantError(
            f'Cannot compare "{before.name}" with "{after.name}": of the layers that multiply, only '
            f"{difference.overlap} have one of the same kernel and shapes in the other engine, so they are of "
            "different models. Compare engines of one model, or give its ONNX file to both with model=, or --model "
            "on the command line."
        )
    return difference


def explain_rest(difference: Difference) -> str:
    """Why layers do not explain a difference, and what to do; empty where they do."""
    if not difference.unexplained:
        return ""
    first, second = difference.first, difference.second
    sums = " and ".join(
        f"{s.layer_sum / s.latency:.2g}" for s in (first, second) if s.layer_sum and s.latency
    )
    return (
        f"The layers cannot show where {format_number(difference.delta, 'ms', signed=True)} come from: "
        f"{format_number(difference.rest, 'ms', signed=True)} lie outside of them. Timed one by one, with the cost "
        f"of timing each, they sum to {sums} times the whole inferences. Choose estimated times, or build both for a "
        "larger batch or input."
    )
