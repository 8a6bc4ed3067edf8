"""What this machine's CPU reaches through ONNX Runtime: roofs to judge measured times against."""

from __future__ import annotations

import dataclasses
import platform
from collections.abc import Iterator
from typing import Any, ClassVar

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from rtlab.core.budget import WorkContext
from rtlab.core.model import wrap
from rtlab.core.peaks import Peaks
from rtlab.core.protocols import BuildRequest, Evaluator
from rtlab.core.variant import Variant

#: Rows, columns and depth of the product, and numbers of the tensor that is moved: well beyond any cache.
_PRODUCT, _MOVED = 1536, 1 << 24
_RUNS, _WARMUP = 5, 2


@dataclasses.dataclass(frozen=True)
class CpuPeaks:
    """Measure the CPU's roofs as studies use it: the same runner, the same threads. Takes about two seconds.

    The fastest of five runs counts: of a square product in FP32 and in INT8, with ``product`` rows, columns and depth,
    and for the bandwidth of a ReLU, which reads and writes each of ``moved`` numbers once.
    """

    product: int = _PRODUCT
    moved: int = _MOVED
    partial: ClassVar[bool] = False

    def steps(self, context: WorkContext[Evaluator]) -> Iterator[Peaks]:
        """All at once: a roof alone judges nothing."""
        rng, side = np.random.default_rng(0), (self.product, self.product)
        square = rng.random(side, np.float32)
        bytes_ = rng.integers(0, 255, side, np.uint8)
        line = rng.random(self.moved, np.float32) - np.float32(0.5)
        work = 2.0 * self.product**3
        fp32 = work / _measure_seconds("MatMul", square, square, context)
        int8 = work / _measure_seconds("MatMulInteger", bytes_, bytes_.astype(np.int8), context)
        bandwidth = 2 * line.nbytes / _measure_seconds("Relu", line, None, context)
        name = platform.processor() or platform.machine()
        yield Peaks(
            name="this CPU",
            bandwidth=bandwidth,
            cores={"fp32": fp32, "int8": int8},
            source=f"{context.tool.source} on {name}: MatMul, MatMulInteger and Relu, the best of {_RUNS}",
            origin="measured",
        )


def _model(op: str, x: np.ndarray[Any, Any], weights: np.ndarray[Any, Any] | None) -> onnx.ModelProto:
    kind = helper.np_dtype_to_tensor_dtype(x.dtype)
    result = TensorProto.INT32 if op == "MatMulInteger" else kind
    constants = [] if weights is None else [numpy_helper.from_array(weights, "w")]
    graph = helper.make_graph(
        [helper.make_node(op, ["x", *(["w"] if constants else [])], ["y"], name=op)],
        "peak",
        [helper.make_tensor_value_info("x", kind, x.shape)],
        [helper.make_tensor_value_info("y", result, x.shape)],
        constants,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def _measure_seconds(
    op: str, x: np.ndarray[Any, Any], weights: np.ndarray[Any, Any] | None, context: WorkContext[Evaluator]
) -> float:
    """The fastest run of one node."""
    runner, model = context.tool, wrap(_model(op, x, weights), name=f"peak of {op}")
    engine = runner.build(BuildRequest(model, Variant.of("fp32")), context)
    try:
        profile = runner.profile(engine, {"x": x}, context, runs=_RUNS, warmup=_WARMUP)
    finally:
        runner.release(engine)
    context.count(builds=1, runs=_WARMUP + _RUNS)
    slowest = max(engine.layers, key=lambda layer: float(np.median(profile.samples.get(layer.id, [0.0]))))
    return float(profile.samples[slowest.id].min()) / 1e3
