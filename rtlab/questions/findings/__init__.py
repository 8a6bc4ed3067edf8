"""What is worth changing about an engine, the most costly first."""

from __future__ import annotations

from rtlab.core.answers import kept
from rtlab.core.facts import Facts
from rtlab.core.finding import Finding
from rtlab.questions import build, fusion, reformats, roofline, timing
from rtlab.questions.findings import rank


@kept
def of(facts: Facts) -> tuple[Finding, ...]:
    """What is worth changing about the engine, the most costly first."""
    return rank.findings(
        facts.engine,
        fusion.mapping(facts),
        facts.source,
        timing.own(facts),
        build.log(facts),
        flow=reformats.flow(facts.engine),
        estimate=roofline.estimate(facts),
    )
