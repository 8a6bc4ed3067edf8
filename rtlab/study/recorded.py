"""Engines that TensorRT built on another machine."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import cast

from rtlab import backends
from rtlab.analysis import timing as _timing
from rtlab.analysis.mapping import relate
from rtlab.core.engine import Engine
from rtlab.core.model import Model
from rtlab.core.protocols import Reader
from rtlab.core.variant import Precision, Variant
from rtlab.quantize import Prepared
from rtlab.study.job import Result


def recorded(model: Model, name: str, files: Mapping[str, Path]) -> Result:
    """Read an engine's files, ``layers`` and perhaps ``profile``, ``times`` and ``metadata``, as a variant of a model.

    Raises:
        ReadError: a file is damaged, or the profile belongs to another engine.
    """
    reader = cast("Reader", backends.get("trtexec"))
    found = reader.read(files)
    engine, times = found.engine, found.profile
    mapping = relate(model, model, engine)
    if not mapping.pairs:
        note = f'No layer names a node of model "{model.name}": is it the same model?'
        engine = dataclasses.replace(engine, notes=(*engine.notes, note))
    return Result(
        name,
        Variant(_narrowest(engine), target=engine.target, backend=engine.backend),
        Prepared(model, model),
        engine,
        mapping,
        measured=engine if times else None,
        measured_mapping=mapping if times else None,
        timing=_timing.timing(times, engine) if times else None,
        recorded=True,
    )


def _narrowest(engine: Engine) -> Precision:
    """The narrowest precision among an engine's layers; fp32 where their types are not told."""
    seen = {layer.precision for layer in engine.layers}
    order = (
        Precision.FP4, Precision.INT4, Precision.FP8, Precision.INT8, Precision.FP16, Precision.BF16,
    )  # fmt: skip
    return next((p for p in order if p.value in seen), Precision.FP32)
