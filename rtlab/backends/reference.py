"""What runs here, and the model itself in fp32 on the CPU, which other variants are compared with."""

from __future__ import annotations

from typing import cast

from rtlab import backends
from rtlab.backends.roles import role
from rtlab.core.engine import Engine
from rtlab.core.model import Model
from rtlab.core.protocols import BuildRequest, Evaluator, Progress, Runner
from rtlab.core.variant import Variant
from rtlab.errors import Unavailable

#: What computes references, emulations and what calibration observes: it is wherever rtlab is.
_EVALUATOR = "onnxruntime"


def runner_of(name: str) -> Runner:
    """The backend of this name, which can run here.

    Raises:
        Unavailable: it cannot.
    """
    here = backends.get(name).availability()
    if not here.ok:
        raise Unavailable(f'Backend "{name}" cannot run: {here.reason}')
    return cast("Runner", role(name, "runs", "run"))


def evaluator() -> Evaluator:
    """What computes any value of any model here.

    Raises:
        Unavailable: it is not installed.
    """
    return cast("Evaluator", runner_of(_EVALUATOR))


def stand_in() -> str | None:
    """The name of what runs a model in the place of an engine that cannot run here; None where that is missing."""
    return _EVALUATOR if backends.get(_EVALUATOR).availability().ok else None


def reference(model: Model, progress: Progress) -> Engine:
    """The model in fp32 for the CPU, every value of which can be read."""
    return evaluator().build(BuildRequest(model, Variant.of("fp32"), level="basic"), progress)
