"""Recorded engines with the time of each layer, and what their layers do."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx

from recorded import ENGINES, files, read
from rtlab.analysis.layerwork import LayerWork, layer_works
from rtlab.analysis.mapping import relate
from rtlab.core.model import Model, absent, load
from rtlab.core.peaks import Peaks, peaks


def profiled() -> list[Path]:
    """The recordings that hold the time of each layer."""
    return [f for f in ENGINES if "profile" in files(f)]


def structure(folder: Path) -> Model:
    """The ONNX model beside an engine, its weights all zero, or one without nodes."""
    path = folder / "model.structure-only.onnx"
    if not path.exists():
        return absent()
    proto = onnx.load(str(path), load_external_data=False)
    for tensor in proto.graph.initializer:
        if tensor.data_location == onnx.TensorProto.EXTERNAL:
            shape, dtype = tuple(tensor.dims), onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type)
            tensor.CopyFrom(onnx.numpy_helper.from_array(np.zeros(shape, dtype), tensor.name))
    return load(proto, name=folder.name)


def judged_layers(folder: Path) -> tuple[dict[str, LayerWork], Peaks, dict[str, float]]:
    """What the layers of an engine do, the GPU, and the milliseconds of those that took any."""
    engine, times = read(folder)
    assert times is not None
    model = structure(folder)
    works = layer_works(engine, relate(model, model, engine), model)
    measured = {t.layer: t.median for t in times.layers if t.median > 0 and not works[t.layer].still}
    return works, peaks(engine.device), measured
