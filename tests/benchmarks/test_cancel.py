"""How soon a run that would never end is over after Cancel, and what it costs the others that it could be."""

from __future__ import annotations

import statistics
import threading
import time

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from rtlab.backends.onnxruntime import OnnxRuntime
from rtlab.core.model import Model, load
from rtlab.core.progress import Silent
from rtlab.core.protocols import BuildRequest
from rtlab.core.variant import Variant
from rtlab.errors import Cancelled
from rtlab.testing import tiny_model


def model_of(nodes: list[onnx.NodeProto], weights: list[onnx.TensorProto]) -> Model:
    """From ``x`` of shape ``(1, 4)`` to ``y``."""
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 4])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, "n"])],
        weights,
    )
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return load(proto, name="long")


def loop() -> Model:
    """2^62 steps."""
    value = helper.make_tensor_value_info
    body = helper.make_graph(
        [helper.make_node("Identity", ["on"], ["go"]), helper.make_node("Add", ["s", "x"], ["t"])],
        "body",
        [
            value("i", TensorProto.INT64, []),
            value("on", TensorProto.BOOL, []),
            value("s", TensorProto.FLOAT, [1, 4]),
        ],
        [value("go", TensorProto.BOOL, []), value("t", TensorProto.FLOAT, [1, 4])],
    )
    steps = numpy_helper.from_array(np.array(2**62), "n")
    return model_of(
        [
            helper.make_node("MatMul", ["x", "w"], ["r"]),
            helper.make_node("Loop", ["n", "", "r"], ["y"], body=body),
        ],
        [steps, numpy_helper.from_array(np.eye(4, dtype=np.float32), "w")],
    )


def product() -> Model:
    """One product of some seconds, during which ONNX Runtime looks at nothing."""
    size = numpy_helper.from_array(np.array([8000, 8000]), "size")
    column = numpy_helper.from_array(np.ones((4, 1), np.float32), "w")
    return model_of(
        [
            helper.make_node("MatMul", ["x", "w"], ["one"]),
            helper.make_node("Expand", ["one", "size"], ["wide"]),
            helper.make_node("MatMul", ["wide", "wide"], ["all"]),
            helper.make_node("ReduceMax", ["all"], ["y"], axes=[0]),
        ],
        [size, column],
    )


def reads(runner: OnnxRuntime, model: Model, progress: Silent) -> None:
    with runner.reading(model, ["y"], progress=progress) as fetch:
        fetch({"x": np.ones((1, 4), np.float32)})


@pytest.mark.parametrize("model", [loop, product], ids=lambda m: m.__name__)
@pytest.mark.parametrize("call", ["outputs", "profile", "reading"])
def test_cancel_is_over_within_a_second(benchmark, care, call: str, model) -> None:
    """From the press to the end of the call, in seconds; the bound is what people take for at once."""
    runner, net = OnnxRuntime(), model()
    engine = runner.build(BuildRequest(net, Variant.of("fp32")), Silent())
    x = {"x": np.ones((1, 4), np.float32)}
    calls = {
        "outputs": lambda p: runner.outputs(engine, x, progress=p),
        "profile": lambda p: runner.profile(engine, x, p),
        "reading": lambda p: reads(runner, net, p),
    }
    took: list[float] = []

    def cancelled() -> None:
        progress, pressed = Silent(), []

        def press() -> None:
            pressed.append(time.perf_counter())
            progress.cancel()

        threading.Timer(0.3, press).start()
        with pytest.raises(Cancelled):
            calls[call](progress)
        took.append(time.perf_counter() - pressed[0])

    benchmark.pedantic(cancelled, rounds=3)
    benchmark.extra_info |= {"seconds": took}
    assert care.most(1.0) >= statistics.median(took)


def test_a_brief_run_pays_little_for_it(benchmark, care) -> None:
    """Microseconds of one inference of ten nodes in a child, beside those of a session here; timing pays nothing.

    The least of many: a turn that another process has in between, which takes milliseconds, is no price of a child.
    """
    runner, net = OnnxRuntime(threads=1), tiny_model()
    engine = runner.build(BuildRequest(net, Variant.of("fp32")), Silent())
    x = {"x": np.ones((1, 3, 8, 8), np.float32)}
    runner.outputs(engine, x)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.graph_optimization_level = (
        1,
        onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC,
    )
    session = onnxruntime.InferenceSession(net.bytes(), options, providers=["CPUExecutionProvider"])
    bare: list[float] = []
    for _ in range(500):
        started = time.perf_counter()
        session.run(None, x)
        bare.append(time.perf_counter() - started)
    benchmark.pedantic(lambda: runner.outputs(engine, x), rounds=500, warmup_rounds=20)
    attended = benchmark.stats.stats.min
    timed = statistics.median(runner.profile(engine, x, Silent()).total) * 1e-3
    micro = {"bare": min(bare) * 1e6, "attended": attended * 1e6, "profile": timed * 1e6}
    benchmark.extra_info |= {"microseconds": micro}
    assert care.most(500e-6) >= attended - min(bare)
    assert care.most(2) >= timed / statistics.median(bare)
