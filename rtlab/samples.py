"""Models to try rtlab on: small trained ones with their data, and well-known architectures made on demand.

>>> from rtlab import samples
>>> sample = samples.load("digits_inception")
>>> len(sample.calibration), len(sample.task.labels)
(898, 899)
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import onnx
from onnx import helper, numpy_helper

from rtlab.core.data import CalibrationData, Task
from rtlab.core.model import Model, load_file, wrap
from rtlab.errors import ModelError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[np.float32]
