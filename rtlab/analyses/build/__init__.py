"""How the engine was built, as its log tells: passes, decisions, tactics, memory."""

from __future__ import annotations

from rtlab.backends.readers import reading
from rtlab.core.buildlog import BuildLog
from rtlab.core.facts import VariantResult
from rtlab.core.memo import memoized


@memoized
def get_build_log(facts: VariantResult) -> BuildLog | None:
    """What the builder told of the build: passes, decisions, tactics, memory; None where it left no log.

    Raises:
        ReadError: nothing in it tells of a build.
    """
    return (
        reading.parse_log(facts.engine.log)
        if facts.build_log is None and facts.engine.log
        else facts.build_log
    )
