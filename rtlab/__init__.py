"""rtlab shows what NVIDIA TensorRT does to an ONNX model.

Names are resolved on first use, so that ``import rtlab`` costs almost nothing.
"""

from __future__ import annotations

import contextlib
import logging
import os
import typing
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rtlab import compilers, errors, samples, testing
    from rtlab.analyses.calibration.observed_ranges import Calibration
    from rtlab.api import Result, Study, available, explore, open, read  # noqa: A004 - the field's word
    from rtlab.core.data import CalibrationData
    from rtlab.core.engine import Engine, Layer
    from rtlab.core.finding import Finding
    from rtlab.core.images import Preprocessing
    from rtlab.core.metrics import Metric
    from rtlab.core.model import Model, load
    from rtlab.core.node import Node
    from rtlab.core.options import BuildOptions
    from rtlab.core.peaks import Peaks
    from rtlab.core.protocols import Limits
    from rtlab.core.task import Task
    from rtlab.core.value import Value
    from rtlab.core.variant import Calibrator, Precision, Target, Variant
    from rtlab.quantize.cache import CalibrationCache
    from rtlab.relation.mapping import Mapping
    from rtlab.stores import Grid, Store, Sweep, grid

__version__ = "0.1.0"

# Models are confidential: ONNX Runtime 1.31 looks up a host to report to as soon as it is imported, in children too.
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")

# Records are the program's to show; without this, Python prints warnings of a library that nobody listens to.
logging.getLogger(__name__).addHandler(logging.NullHandler())

__all__ = [
    "BuildOptions",
    "Calibration",
    "CalibrationCache",
    "CalibrationData",
    "Calibrator",
    "Engine",
    "Finding",
    "Grid",
    "Layer",
    "Limits",
    "Mapping",
    "Metric",
    "Model",
    "Node",
    "Peaks",
    "Precision",
    "Preprocessing",
    "Result",
    "Store",
    "Study",
    "Sweep",
    "Target",
    "Task",
    "Value",
    "Variant",
    "available",
    "compilers",
    "errors",
    "explore",
    "grid",
    "load",
    "open",
    "read",
    "samples",
    "testing",
]


def __getattr__(name: str) -> Any:  # noqa: C901, PLR0912 - a case for each module that a name may come from
    home: ModuleType
    match name:
        case "Calibration" | "Result" | "Study" | "available" | "explore" | "open" | "read":
            from rtlab import api as home
        case "Grid" | "Store" | "Sweep" | "grid":
            from rtlab import stores as home
        case "Model" | "load":
            from rtlab.core import model as home
        case "BuildOptions" | "Calibrator":
            from rtlab.core import variant as home
        case "CalibrationCache":
            from rtlab.quantize import cache as home
        case "Finding":
            from rtlab.core import finding as home
        case "CalibrationData":
            from rtlab.core import data as home
        case "Engine" | "Layer" | "Limits" | "Precision" | "Target" | "Variant":
            from rtlab.core import protocols as home
        case "Mapping":
            from rtlab.relation import mapping as home
        case "Node" | "Value":
            from rtlab.core import node as home
        case "Peaks":
            from rtlab.core import peaks as home
        case "Preprocessing":
            from rtlab.core import images as home
        case "Metric" | "Task":
            from rtlab.core import task as home
        # "from rtlab import samples" would ask this very function.
        case "compilers":
            import rtlab.compilers as home
        case "errors":
            import rtlab.errors as home
        case "samples":
            import rtlab.samples as home
        case "testing":
            import rtlab.testing as home
        case _:
            raise AttributeError(f'module "rtlab" has no attribute "{name}"')
    if name == home.__name__.rpartition(".")[2]:
        return home
    found = getattr(home, name)
    # Types of fields are resolved here, since their names are not in the module that ``__module__`` names.
    with contextlib.suppress(NameError):
        found.__annotations__ = typing.get_type_hints(found, include_extras=True)
    found.__module__ = "rtlab"
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
