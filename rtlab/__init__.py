"""rtlab shows what NVIDIA TensorRT does to an ONNX model.

Names are resolved on first use, so that ``import rtlab`` costs almost nothing.
"""

from __future__ import annotations

import importlib
import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rtlab import errors, samples, testing
    from rtlab.analysis.mapping import Mapping
    from rtlab.core.data import CalibrationData, Task
    from rtlab.core.engine import Engine, Layer
    from rtlab.core.finding import Finding
    from rtlab.core.images import Preprocessing
    from rtlab.core.model import Model, load
    from rtlab.core.node import Node
    from rtlab.core.options import BuildOptions
    from rtlab.core.peaks import Peaks
    from rtlab.core.protocols import Limits
    from rtlab.core.value import Value
    from rtlab.core.variant import Calibrator, Precision, Target, Variant
    from rtlab.quantize.cache import CalibrationCache
    from rtlab.study import Calibration, Result, Study, available, explore, read

__version__ = "0.1.0"

# Models are confidential: ONNX Runtime 1.31 looks up a host to report to as soon as it is imported, in children too.
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")

_HOMES = {
    "BuildOptions": "core.options",
    "Calibration": "study",
    "CalibrationCache": "quantize.cache",
    "Calibrator": "core.variant",
    "CalibrationData": "core.data",
    "Engine": "core.engine",
    "Finding": "core.finding",
    "Layer": "core.engine",
    "Limits": "core.protocols",
    "Mapping": "analysis.mapping",
    "Model": "core.model",
    "Node": "core.model",
    "Peaks": "core.peaks",
    "Precision": "core.variant",
    "Preprocessing": "core.images",
    "Result": "study",
    "Study": "study",
    "Target": "core.variant",
    "Task": "core.data",
    "Value": "core.model",
    "Variant": "core.variant",
    "available": "study",
    "explore": "study",
    "load": "core.model",
    "read": "study",
}
_MODULES = ("errors", "samples", "testing")

__all__ = [
    "BuildOptions",
    "Calibration",
    "CalibrationCache",
    "CalibrationData",
    "Calibrator",
    "Engine",
    "Finding",
    "Layer",
    "Limits",
    "Mapping",
    "Model",
    "Node",
    "Peaks",
    "Precision",
    "Preprocessing",
    "Result",
    "Study",
    "Target",
    "Task",
    "Value",
    "Variant",
    "available",
    "errors",
    "explore",
    "load",
    "read",
    "samples",
    "testing",
]


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return importlib.import_module(f"rtlab.{name}")
    if name not in _HOMES:
        raise AttributeError(f'module "rtlab" has no attribute "{name}"')
    found = getattr(importlib.import_module(f"rtlab.{_HOMES[name]}"), name)
    # Deeper paths are private: what a user sees and pickles names the public place.
    found.__module__ = "rtlab"
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
