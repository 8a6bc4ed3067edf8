"""What runs here, and the model itself in fp32 on the CPU, which other variants are compared with."""

from __future__ import annotations

from typing import Any, cast

from rtlab import backends
from rtlab.core.engine import Engine
from rtlab.core.model import Model
from rtlab.core.protocols import Builder, BuildRequest, Progress, Runner
from rtlab.core.variant import Variant
from rtlab.errors import Unavailable


def runner_of(name: str) -> Any:
    """The backend of this name, which can run here.

    Raises:
        Unavailable: it cannot.
    """
    backend = backends.get(name)
    here = backend.availability()
    if not here.ok or not isinstance(backend, Runner):
        raise Unavailable(f'Backend "{name}" cannot run: {here.reason or "it does not run engines."}')
    return backend


def reference(model: Model, progress: Progress) -> Engine:
    """The model in fp32 for the CPU, every value of which can be read."""
    builder = cast("Builder", runner_of("onnxruntime"))
    return builder.build(BuildRequest(model, Variant.of("fp32"), level="basic"), progress)
