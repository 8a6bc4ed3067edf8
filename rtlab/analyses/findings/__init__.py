"""What is worth changing about an engine, the most costly first."""

from __future__ import annotations

from rtlab.analyses import build, fusion, roofline, timing
from rtlab.analyses.findings import rank
from rtlab.analyses.reformats.reasons import build_flow
from rtlab.core.facts import VariantResult
from rtlab.core.finding import Finding
from rtlab.core.memo import memoized


@memoized
def list_findings(facts: VariantResult) -> tuple[Finding, ...]:
    """What is worth changing about the engine, the most costly first."""
    return rank.rank_findings(
        facts.engine,
        fusion.map_nodes(facts),
        facts.source,
        timing.get_engine_timing(facts),
        build.get_build_log(facts),
        flow=build_flow(facts.engine),
        estimate=roofline.estimate_timing(facts),
    )
