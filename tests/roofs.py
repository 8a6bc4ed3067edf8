"""Recorded engines with the time of each layer, and what their layers do."""

from __future__ import annotations

from pathlib import Path

from recorded import NAMES_ONLY, REAL, files, read
from rtlab.core.model import Model, absent, load
from rtlab.core.peaks import Peaks, peaks
from rtlab.relation.layerwork import LayerWork, layer_works
from rtlab.relation.relate import relate


def profiled() -> list[Path]:
    """The recordings that hold the time of each layer, and tell what it does and on which GPU."""
    return [f for f in REAL if "profile" in files(f) and f.name not in NAMES_ONLY]


def structure(folder: Path) -> Model:
    """The ONNX model beside an engine, or one without nodes."""
    path = folder / "model.structure-only.onnx"
    return load(path, name=folder.name, weights=False) if path.exists() else absent()


def judged_layers(folder: Path) -> tuple[dict[str, LayerWork], Peaks, dict[str, float]]:
    """What the layers of an engine do, the GPU, and the milliseconds of those that took any."""
    engine, times = read(folder)
    assert times is not None
    model = structure(folder)
    works = layer_works(engine, relate(model, model, engine), model)
    measured = {t.layer: t.median for t in times.layers if t.median > 0 and not works[t.layer].still}
    return works, peaks(engine.device), measured
