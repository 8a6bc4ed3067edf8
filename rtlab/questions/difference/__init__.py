"""Where the time went from one variant to another."""

from __future__ import annotations

from rtlab.core.facts import Facts
from rtlab.core.peaks import Peaks
from rtlab.documents.numbers import number
from rtlab.errors import VariantError
from rtlab.questions import fusion, roofline, timing
from rtlab.questions.difference import diff
from rtlab.questions.difference.diff import Difference, Side
from rtlab.questions.roofline.estimate_error import usual


def side(facts: Facts, gpu: str | Peaks | None = None) -> Side:
    """The variant in a comparison: the engine that was timed, else the one that was built.

    With a GPU it is the engine that was built, with times that are estimated for it.

    Raises:
        VariantError: the processor is not known.
        ModelError: a dimension has no size.
    """
    if gpu is not None:
        found = roofline.of(facts, gpu)
        known = found.milliseconds(facts.engine) if found.known.enough else {}
        withheld = "" if found.known.enough else found.withheld
        return Side(facts.name, facts.engine, fusion.mapping(facts), known, None, "estimated", withheld)
    times = timing.of(facts)
    if facts.measured is None or times is None:
        return Side(facts.name, facts.engine, fusion.mapping(facts))
    known = {t.layer: t.median for t in times.layers}
    return Side(facts.name, facts.measured, fusion.measured(facts), known, times.total)


def of(before: Facts, after: Facts, *, gpu: str | Peaks | None = None) -> Difference:
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
    sides = [side(f, usual(f.engine) if gpu == "target" else gpu) for f in (before, after)]
    found = diff.difference(sides[0], sides[1], before.source)
    if not found.overlap.enough:
        raise VariantError(
            f'Cannot compare "{before.name}" with "{after.name}": of the layers that multiply, only {found.overlap} '
            "have one of the same kernel and shapes in the other engine, so they are of different models. Compare "
            "engines of one model, or give its ONNX file to both with model=, or --model on the command line."
        )
    return found


def unexplained(found: Difference) -> str:
    """Why layers do not explain a difference, and what to do; empty where they do."""
    if not found.unexplained:
        return ""
    first, second = found.first, found.second
    sums = " and ".join(f"{s.summed / s.whole:.2g}" for s in (first, second) if s.summed and s.whole)
    return (
        f"The layers cannot tell where {number(found.delta, 'ms', signed=True)} come from: "
        f"{number(found.rest, 'ms', signed=True)} lie outside of them. Timed one by one, with the cost of timing each, "
        f"they sum to {sums} times the whole inferences. Choose estimated times, or build both for a larger batch or "
        "input."
    )
