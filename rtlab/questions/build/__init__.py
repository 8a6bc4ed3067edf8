"""How the engine was built, as its log tells: passes, decisions, tactics, memory."""

from __future__ import annotations

from rtlab.backends.files import reading
from rtlab.core.answers import kept
from rtlab.core.buildlog import BuildLog
from rtlab.core.facts import Facts


@kept
def log(facts: Facts) -> BuildLog | None:
    """What the builder told of the build: passes, decisions, tactics, memory; None where it left no log.

    Raises:
        ReadError: nothing in it tells of a build.
    """
    return reading.log(facts.engine.log) if facts.told is None and facts.engine.log else facts.told
