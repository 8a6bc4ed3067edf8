"""What a builder can be told, by its release: a remedy must not name a flag that the user's TensorRT lacks.

Precision flags left with TensorRT 11, whose networks are typed by the model alone, as those of TensorRT-RTX always
were. ``--memPoolSize`` came with 8.4 in place of ``--workspace``, ``--builderOptimizationLevel`` with 8.6.
"""

from __future__ import annotations

import re

from rtlab.core.engine import Engine

_RELEASE = re.compile(r"(\d+)\.(\d+)")
_LAST_FLAGS = 10


def release(engine: Engine) -> tuple[int, int] | None:
    """Major and minor number of the TensorRT that built it; None where its files do not tell, and for RTX."""
    match = _RELEASE.match(engine.version)
    return (int(match[1]), int(match[2])) if match and engine.maker.flags else None


def is_typed_by_model(engine: Engine) -> bool | None:
    """Whether the model alone decides the types; None where the release is not told."""
    if engine.maker.typed:
        return True
    version = release(engine)
    return None if version is None else version[0] > _LAST_FLAGS


def retype(engine: Engine) -> str:
    """How layers get another floating type, to follow "Change the type"."""
    flags = "--layerPrecisions with --precisionConstraints=obey"
    model_typed = is_typed_by_model(engine)
    if model_typed:
        return "by a Cast in the model"
    return f"by a Cast in the model or{', up to TensorRT 10,' if model_typed is None else ''} by {flags}"


def allow_half(engine: Engine) -> str:
    """How floating point becomes FP16, as a command: for some layers, where the builder was allowed to use it."""
    model_typed = is_typed_by_model(engine)
    if model_typed:
        return "cast it in the model"
    if any(t.dtype == "fp16" for y in engine.layers for t in (*y.inputs, *y.outputs)):
        return f"other layers use it, so ask for it here {retype(engine)}"
    return (
        "build with --fp16"
        if model_typed is False
        else "build with --fp16, or cast it in the model from TensorRT 11 on"
    )


def more_kernels(engine: Engine) -> str:
    """How more kernels are tried, as a command."""
    if not engine.maker.flags:
        return "raise the workspace limit and builder_optimization_level"
    version = release(engine)
    if version is None:
        return "allow more workspace and, from TensorRT 8.6 on, raise --builderOptimizationLevel"
    if version < (8, 4):
        return "allow more --workspace"
    level = " and raise --builderOptimizationLevel" if version >= (8, 6) else ""
    return f"allow more --memPoolSize=workspace:...{level}"


def io_format(engine: Engine, side: str, dtype: str, layout: str) -> str:
    """How an input or output of the engine gets a layout, as a command."""
    if not engine.maker.flags:
        return f"set allowed_formats of the {side} to {layout}"
    return f"build with --{side}IOFormats={dtype}:{layout}"
