"""Sessions of ONNX Runtime."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import onnxruntime

from rtlab.backends.onnxruntime import OnnxRuntime
from rtlab.core.model import Model
from rtlab.core.progress import Silent
from rtlab.core.protocols import BuildRequest
from rtlab.core.variant import Variant


def opened(content: bytes, level: str = "DISABLE_ALL") -> onnxruntime.InferenceSession:
    """On one thread, without a word."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level, options.intra_op_num_threads = 4, 1
    options.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, f"ORT_{level}")
    return onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])


def run(content: bytes, feed: dict[str, np.ndarray], names: list[str] | None = None) -> list[np.ndarray]:
    return opened(content).run(names, feed)


def copy_values(
    values: Sequence[Mapping[str, np.ndarray]], samples: int
) -> tuple[list[dict[str, np.ndarray]], int]:
    """What a reduction gets, whole; it lies beside the tests so that a child process finds it."""
    return [{name: np.array(array) for name, array in outputs.items()} for outputs in values], samples


def computed(
    model: Model, feed: Mapping[str, np.ndarray], names: Sequence[str] = ()
) -> Mapping[str, np.ndarray]:
    """Values by rtlab's own backend at level BASIC."""
    backend = OnnxRuntime(threads=1)
    engine = backend.build(BuildRequest(model, Variant.of("fp32"), level="basic"), Silent())
    return backend.outputs(engine, feed, names)
