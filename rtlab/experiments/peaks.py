"""What this machine's CPU reaches through ONNX Runtime: roofs to judge measured times against."""

from __future__ import annotations

import platform
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from rtlab.backends.reference import evaluator
from rtlab.core.model import wrap
from rtlab.core.peaks import Peaks
from rtlab.core.progress import Silent
from rtlab.core.protocols import BuildRequest, Progress
from rtlab.core.variant import Variant

#: Rows, columns and depth of the product, and numbers of the tensor that is moved: well beyond any cache.
_PRODUCT, _MOVED = 1536, 1 << 24
_RUNS, _WARMUP = 5, 2


def measured_peaks(
    progress: Progress | None = None, *, product: int = _PRODUCT, moved: int = _MOVED
) -> Peaks:
    """Measure the CPU's roofs as studies use it: the same runner, the same threads. Takes about two seconds.

    The fastest of five runs counts: of a square product in FP32 and in INT8, and for the bandwidth of a ReLU, which
    reads and writes each number once.

    Args:
        progress: Where the three steps are reported.
        product: Rows, columns and depth of the products.
        moved: How many numbers of FP32 the ReLU moves.

    Raises:
        BackendError: ONNX Runtime does not work here.
        Cancelled: it was stopped.
    """
    progress = progress or Silent()
    rng = np.random.default_rng(0)
    square = rng.random((product, product), np.float32)
    bytes_ = rng.integers(0, 255, (product, product), np.uint8)
    work = 2.0 * product**3
    cores = {
        "fp32": work / _seconds(_model("MatMul", square, square), {"x": square}, progress),
        "int8": work
        / _seconds(_model("MatMulInteger", bytes_, bytes_.astype(np.int8)), {"x": bytes_}, progress),
    }
    line = rng.random(moved, np.float32) - np.float32(0.5)
    bandwidth = 2 * line.nbytes / _seconds(_model("Relu", line, None), {"x": line}, progress)
    runner = evaluator()
    name = platform.processor() or platform.machine()
    return Peaks(
        name="this CPU",
        bandwidth=bandwidth,
        cores=cores,
        source=f"{runner.source} on {name}: MatMul, MatMulInteger and Relu, the best of {_RUNS}",
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


def _seconds(proto: onnx.ModelProto, inputs: dict[str, Any], progress: Progress) -> float:
    """The fastest run of a model's one node."""
    runner = evaluator()
    op = proto.graph.node[0].op_type
    engine = runner.build(BuildRequest(wrap(proto, name=f"peak of {op}"), Variant.of("fp32")), progress)
    try:
        profile = runner.profile(engine, inputs, progress, runs=_RUNS, warmup=_WARMUP)
    finally:
        runner.release(engine)
    slowest = max(engine.layers, key=lambda layer: float(np.median(profile.samples.get(layer.id, [0.0]))))
    return float(profile.samples[slowest.id].min()) / 1e3
