"""How soon a run that would never end is over after Cancel, and what it costs the others that it could be."""

from __future__ import annotations

import random
import statistics
import threading
import time

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from benchmarks.test_sensitivity import opened
from nets import graph
from rtlab import Study, samples
from rtlab.backends.onnxruntime import OnnxRuntime
from rtlab.core.model import Model
from rtlab.core.progress import Silent
from rtlab.core.protocols import BuildRequest
from rtlab.core.variant import Variant
from rtlab.errors import Cancelled
from rtlab.testing import tiny_model


def net(nodes: list[onnx.NodeProto], weights: dict[str, object]) -> Model:
    """From ``x`` of shape ``(1, 4)`` to ``y``."""
    return graph(nodes, [("x", TensorProto.FLOAT, [1, 4])], [("y", TensorProto.FLOAT, [1, "n"])], weights)


def loop() -> Model:
    """2^62 steps."""
    node, boolean, real = helper.make_node, (TensorProto.BOOL, []), (TensorProto.FLOAT, [1, 4])
    ends = [("i", TensorProto.INT64, []), ("on", *boolean), ("s", *real)], [("go", *boolean), ("t", *real)]
    steps = [node("Identity", ["on"], ["go"]), node("Add", ["s", "x"], ["t"])]
    inputs, outputs = ([helper.make_tensor_value_info(*one) for one in some] for some in ends)
    body = helper.make_graph(steps, "body", inputs, outputs)
    nodes = [node("MatMul", ["x", "w"], ["r"]), node("Loop", ["n", "", "r"], ["y"], body=body)]
    return net(nodes, {"n": 2**62, "w": np.eye(4, dtype=np.float32)})


def product() -> Model:
    """One product of some seconds, during which ONNX Runtime looks at nothing."""
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["one"]),
        helper.make_node("Expand", ["one", "size"], ["wide"]),
        helper.make_node("MatMul", ["wide", "wide"], ["all"]),
        helper.make_node("ReduceMax", ["all"], ["y"], axes=[0]),
    ]
    return net(nodes, {"size": [8000, 8000], "w": np.ones((4, 1), np.float32)})


def reads(runner: OnnxRuntime, model: Model, progress: Silent) -> None:
    with runner.reading(model, ["y"], progress=progress) as fetch:
        fetch({"x": np.ones((1, 4), np.float32)})


@pytest.mark.parametrize("model", [loop, product], ids=lambda m: m.__name__)
@pytest.mark.parametrize("call", ["outputs", "profile", "reading"])
def test_cancel_is_over_within_a_second(benchmark, care, call: str, model) -> None:
    """From the press to the end of the call, in seconds; the bound is what people take for at once."""
    runner, endless = OnnxRuntime(), model()
    engine = runner.build(BuildRequest(endless, Variant.of("fp32")), Silent())
    x = {"x": np.ones((1, 4), np.float32)}
    calls = {
        "outputs": lambda p: runner.outputs(engine, x, progress=p),
        "profile": lambda p: runner.profile(engine, x, p),
        "reading": lambda p: reads(runner, endless, p),
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
    runner, tiny = OnnxRuntime(threads=1), tiny_model()
    engine = runner.build(BuildRequest(tiny, Variant.of("fp32")), Silent())
    x = {"x": np.ones((1, 3, 8, 8), np.float32)}
    runner.outputs(engine, x)
    session = opened(tiny.bytes(), "ORT_ENABLE_BASIC")
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


WORKS = {
    "build": {"type": "rebuild", "variant": "int8"},
    "measure": {"type": "measure", "variant": "int8"},
    "rank": {"type": "rank"},
    "observe": {"type": "observe"},
    "sensitivity": {"type": "work", "work": "sensitivity", "variant": "int8", "values": {"asks": "only"}},
    "diagnose": {"type": "work", "work": "diagnose", "variant": "int8", "values": {}},
    "repair": {"type": "work", "work": "repair", "variant": "int8", "values": {}},
    "tune": {"type": "work", "work": "tune", "variant": "int8", "values": {}},
    "sweep": {"type": "work", "work": "sweep", "variant": "int8", "values": {}},
    "open": {"type": "open", "path": "digits_vit"},
}


def test_thirty_cancels_at_random_times(benchmark, care) -> None:
    """From Cancel on the page to idle, of each kind of work, pressed at any time of its first three seconds."""
    rng = random.Random()  # noqa: S311 - times, not secrets
    took: list[tuple[float, str]] = []

    def shown():
        sample = samples.load("digits_inception")
        study = Study(sample.model, data=sample.calibration, task=sample.task)
        study.add("int8", target="cpu", backend="onnxruntime")
        return study.run(budget_s=2).explore()

    page = shown()
    for _ in range(care.size(30, 10)):
        if page.study.model.name != "digits_inception" or "int8" not in page.study.state.results:
            page = shown()
        name = list(WORKS)[len(took) % len(WORKS)]
        page._receive(page, WORKS[name], [])
        time.sleep(rng.uniform(0, care.size(3.0, 1.0)))
        pressed = time.perf_counter()
        page._receive(page, {"type": "cancel"}, [])
        page.wait(60)
        took.append((time.perf_counter() - pressed, name))
    benchmark.pedantic(lambda: None)
    benchmark.extra_info |= {"seconds": took}
    assert care.most(1.0) >= max(took)[0], sorted(took)[-5:]
