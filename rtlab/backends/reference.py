"""What runs here."""

from __future__ import annotations

from typing import cast

from rtlab import backends
from rtlab.backends.capabilities import require_capability
from rtlab.core.protocols import Evaluator, Runner
from rtlab.errors import Unavailable

#: What computes references, emulations and what calibration observes: it is wherever rtlab is.
_EVALUATOR = "onnxruntime"


def get_runner(name: str) -> Runner:
    """The backend of this name, which can run here; raises ``Unavailable`` where it cannot."""
    availability = backends.get(name).availability()
    if not availability.ok:
        raise Unavailable(f'Backend "{name}" cannot run: {availability.reason}')
    return cast("Runner", require_capability(name, "runs", "run"))


def get_evaluator() -> Evaluator:
    """What computes any value of any model here; raises ``Unavailable`` where it is not installed."""
    return cast("Evaluator", get_runner(_EVALUATOR))


def get_stand_in() -> str | None:
    """The name of what runs a model in the place of an engine that cannot run here; None where that is missing."""
    return _EVALUATOR if backends.get(_EVALUATOR).availability().ok else None
