"""What is worth changing about an engine, the most costly first."""

from __future__ import annotations

from rtlab.core.facts import VariantResult
from rtlab.core.finding import Finding
from rtlab.core.memo import memoized
from rtlab.questions import build, fusion, reformats, roofline, timing
from rtlab.questions.findings import rank


@memoized
def of(facts: VariantResult) -> tuple[Finding, ...]:
    """What is worth changing about the engine, the most costly first."""
    return rank.findings(
        facts.engine,
        fusion.mapping(facts),
        facts.source,
        timing.get_engine_timing(facts),
        build.get_build_log(facts),
        flow=reformats.flow(facts.engine),
        estimate=roofline.estimate(facts),
    )
