"""The parent's side of running engines, over stand-ins and in children; calls on threads; the GPU of a driver."""

from __future__ import annotations

import ctypes
import dataclasses
import importlib
import os
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import fake_trt
import tensorrt_api
from fake_gpu import DEVICE, needs_api
from fake_trt import Spec, layers_of, plan
from nets import graph_proto
from rtlab.backends.tensorrt import TensorRTRTX
from rtlab.backends.workers import driver, inference, process
from rtlab.backends.workers.driver import Device
from rtlab.backends.workers.process import Bounds, ChildWork
from rtlab.backends.workers.running import EngineRunner, assign_times
from rtlab.backends.workers.session_child import BUILDING, RUNNING
from rtlab.core.engine import Layer
from rtlab.core.model import load
from rtlab.core.progress import Silent
from rtlab.core.protocols import BuildRequest, Limits
from rtlab.core.variant import Target, Variant
from rtlab.errors import BuildError, Cancelled, ReadError, RunError, Unavailable

without_gpu = pytest.mark.skipif(
    driver.device() is not None, reason="a GPU is here, and this says what happens without one"
)
X = np.array([[1, -2, 3, -4]], np.float32)


class Fake(EngineRunner):
    """A backend over a stand-in; the device is given, because there is none here."""

    name, product = "fake", "TensorRT"
    cuda = "fake_trt"
    device = DEVICE

    def __init__(self, binding: str = "fake_trt.trt10") -> None:
        super().__init__()
        self.binding = binding


@pytest.fixture
def backend():
    made = Fake()
    yield made
    for engine, _ in list(made._sessions.values()):
        made.release(engine)


def network() -> onnx.ModelProto:
    nodes = [
        helper.make_node("Add", ["x", "x"], ["t"], "double"),
        helper.make_node("Relu", ["t"], ["y"], "relu"),
    ]
    return graph_proto(nodes, *([(n, TensorProto.FLOAT, ["n", 4])] for n in "xy"), {})


def spec(binding: str = "fake_trt.trt10", **changed: object) -> Spec:
    usual: dict[str, object] = {
        "rows": (("double", 0.25), ("relu", 0.5), ("ghost", 0.125)),
        "profiles": ({"x": ((1, 4), (1, 4), (8, 4))},),
        "inner": ("t",),
        "layers": layers_of(network(), [["double"], ["relu"]], era=11 if binding.endswith("11") else 10),
    }
    return Spec(binding, network().SerializeToString(), **usual | changed)


def check_the_whole_way(backend: Fake, folder: Path) -> None:
    """Open, profile, run, count and save."""
    file = folder / "engine.plan"
    file.write_bytes(plan(spec(backend.binding)))
    engine = backend.open_plan(file)
    try:
        assert ["double", "relu"] == [y.name for y in engine.layers]
        edges = (*engine.inputs, *engine.outputs)
        assert [("x", "fp32"), ("y", "fp32")] == [(t.name, t.dtype) for t in edges]
        version = fake_trt.api(backend.binding).version
        assert (version, "Fake GPU", "sm86") == (engine.version, engine.device, str(engine.target))
        assert {"activation": 4096, "weights": 1000} == dict(engine.totals)
        assert ((("x", ((1, 4), (1, 4), (8, 4))),),) == engine.profiles

        profile = backend.profile(engine, {"x": X}, Silent(), runs=4, warmup=1)
        assert {y.id for y in engine.layers} == set(profile.samples)
        assert {(4,)} == {a.shape for a in profile.samples.values()} == {profile.total.shape}
        assert ("GPU", 4, 1, "Fake GPU") == (profile.processor, profile.runs, profile.warmup, profile.device)
        assert '(0.128 ms): "ghost"' in profile.note

        found = backend.outputs(engine, {"x": X}, ("t", "y"))
        np.testing.assert_array_equal(2 * X, found["t"])
        np.testing.assert_array_equal(np.maximum(2 * X, 0), found["y"])

        counted = backend.throughput(engine, {"x": np.repeat(X, 2, 0)}, Silent(), streams=2, seconds=0.05)
        assert (2, 2) == (counted.streams, counted.batch)
        assert counted.inferences / counted.seconds == counted.rate

        backend.save(engine, folder / "again.plan")
        assert file.read_bytes() == (folder / "again.plan").read_bytes()
        assert engine.layers == backend.open_plan(file.read_bytes()).layers
    finally:
        backend.release(engine)


@needs_api
@pytest.mark.parametrize("binding", fake_trt.BINDINGS)
def test_a_plan_is_opened_profiled_run_counted_and_saved(binding, tmp_path):
    check_the_whole_way(Fake(binding), tmp_path)


@pytest.mark.slow
@pytest.mark.own_child
@needs_api
def test_a_plan_is_opened_profiled_run_counted_and_saved_in_a_child(tmp_path):
    backend = Fake()
    check_the_whole_way(backend, tmp_path)
    engine, progress = backend.open_plan(plan(spec())), Silent()
    backend.outputs(engine, {"x": X})
    progress.cancel()
    with pytest.raises(Cancelled):
        backend.throughput(engine, {"x": X}, progress, seconds=60)
    assert {} == backend._sessions


@needs_api
def test_only_two_engines_stay_on_the_gpu(backend):
    engines = [backend.open_plan(plan(spec())) for _ in range(3)]
    for engine in engines:
        backend.outputs(engine, {"x": X})
    assert [id(e) for e in engines[1:]] == list(backend._sessions)


@needs_api
def test_a_failure_ends_the_child_and_the_next_call_starts_anew(backend):
    engine = backend.open_plan(plan(spec()))
    with pytest.raises(RunError, match='input "z" is unknown'):
        backend.outputs(engine, {"x": X, "z": X})
    assert {} == backend._sessions
    assert ["y"] == list(backend.outputs(engine, {"x": X}))
    session = backend._sessions[id(engine)][1]
    backend.outputs(engine, {"x": X})
    assert session is backend._sessions[id(engine)][1], "loading an engine for every batch would take longer"
    assert session.alive
    backend.release(engine)
    assert not session.alive


@needs_api
def test_a_plan_that_cannot_be_opened_or_run_says_so(backend, tmp_path):
    with pytest.raises(Unavailable, match="another version") as caught:
        backend.open_plan(plan(spec(version="10.3.0")))
    assert "Version tag does not match" in caught.value.details
    with pytest.raises(RunError, match="the inspector's text is no JSON"):
        backend.open_plan(plan(spec(layers="")))
    with pytest.raises(ReadError, match=r'cannot open "none\.plan": No such file'):
        backend.open_plan(tmp_path / "none.plan")
    engine = backend.open_plan(plan(spec()))
    for streams, seconds in ((0, 1.0), (1, 0.0), (1, 1e9)):
        with pytest.raises(RunError, match="cannot be measured"):
            backend.throughput(engine, {"x": X}, Silent(), streams=streams, seconds=seconds)
    empty = dataclasses.replace(engine, plan=None)
    for act in (lambda: backend.outputs(empty, {"x": X}), lambda: backend.save(empty, tmp_path / "x.plan")):
        with pytest.raises(RunError, match="holds no plan"):
            act()


def test_times_join_by_name_in_order_and_sum_in_loops():
    layers = [Layer(f"{i}:{n}", n, "", i) for i, n in enumerate(["a", "a", "loop", "quiet"])]
    one = np.ones(3)
    times = {("a", 0): one, ("a", 1): 2 * one, ("loop", 0): one, ("loop", 1): 3 * one, ("other", 0): one}
    samples, notes = assign_times(times, layers)
    assert {"0:a": 1.0, "1:a": 2.0, "2:loop": 4.0} == {k: float(v[0]) for k, v in samples.items()}
    assert ["other" in note for note in notes] == [True]


def crash(payload: object, report: object) -> None:
    ctypes.string_at(0)


def echo(payload: object, report: object) -> tuple[object, int]:
    return payload, os.getpid()


def refuse(payload: object, report: object) -> None:
    raise ReadError("Refused as it should be.", details="more")


def sleep(payload: float, report: object) -> None:
    time.sleep(payload)


@pytest.mark.slow
@pytest.mark.own_child
@pytest.mark.skipif(os.name != "posix", reason="signals are named on POSIX")
@pytest.mark.parametrize(
    ("work", "who"),
    [(process.RUNNING, "the process that runs the engine"), (process.BUILDING, "the compiler")],
)
def test_a_child_answers_many_calls_survives_errors_and_crashes_in_words(monkeypatch, work, who):
    """This file has a name that the child can import."""
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    here = importlib.import_module(Path(__file__).stem)
    session = process.ChildProcess(1 << 26)
    bounds = Bounds("X", work, Limits(), Silent())
    first = session.call(here.echo, 1, bounds)
    with pytest.raises(ReadError) as caught:
        session.call(here.refuse, None, bounds)
    assert "more" == caught.value.details
    second = session.call(here.echo, 2, bounds)
    assert [1, 2] == [first[0], second[0]]
    assert first[1] == second[1] != os.getpid()
    with pytest.raises(work.failure, match=f"X: {who} crashed with SIGSEGV"):
        session.call(here.crash, None, bounds)
    assert not session.alive
    session = process.ChildProcess(1 << 26)
    bounds = Bounds("X", work, Limits(seconds=0.2), Silent())
    with pytest.raises(work.failure, match=r"0\.2 s, which is the limit"):
        session.call(here.sleep, 60.0, bounds)
    assert not session.alive


@pytest.mark.slow
@needs_api
@without_gpu
def test_the_real_cuda_runtime_without_a_gpu_is_unavailable(backend):
    """Polygraphy's wrapper over the real runtime, where that is installed; else what its absence becomes."""
    backend.cuda = "polygraphy.cuda"
    missing = "the CUDA runtime library is not found|no NVIDIA driver or GPU is found"
    with pytest.raises(Unavailable, match=missing):
        backend.outputs(backend.open_plan(plan(spec())), {"x": X})


class Real(EngineRunner):
    """The real TensorRT-RTX, which loads and refuses engines on a machine without a driver."""

    name, binding, product = "tensorrt-rtx", "tensorrt_rtx", "TensorRT-RTX"


@pytest.mark.slow
@pytest.mark.skipif(not tensorrt_api.AVAILABLE, reason="tensorrt_rtx is not installed")
@without_gpu
def test_the_real_binding_without_a_driver_is_unavailable_and_tells_what_is_no_plan():
    request = BuildRequest(load(network()), Variant("fp32", target=Target("sm86")), keep_plan=True)
    built = TensorRTRTX().build(request, Silent()).plan
    assert built is not None
    with pytest.raises(Unavailable, match="no NVIDIA driver or GPU is found") as caught:
        Real().open_plan(built)
    assert "cudaError 35" in caught.value.details
    for damaged in (built[:1000], b"x" * 5000, b""):
        with pytest.raises(ReadError, match="no whole plan of TensorRT-RTX"):
            Real().open_plan(damaged)


def nothing() -> None:
    """Some calls need no end."""


def within(progress: Silent | None = None, seconds: float = 60, work: ChildWork = RUNNING) -> Bounds:
    return Bounds("Backend x cannot run", work, Limits(seconds=seconds), progress or Silent())


def test_a_call_gives_what_it_returns_or_raises() -> None:
    assert 7 == inference.call_cancellable(lambda: 7, nothing, within())
    with pytest.raises(ZeroDivisionError):
        inference.call_cancellable(lambda: 1 // 0, nothing, within())


def test_a_call_that_heeds_is_waited_for_and_one_that_does_not_is_left() -> None:
    for heeds in (True, False):
        progress, stop, end = Silent(), threading.Event(), threading.Event()
        until = stop if heeds else end

        def work(until=until, progress=progress) -> bool:
            progress.cancel()
            return until.wait(30)

        with pytest.raises(Cancelled, match="Stopped the run"):
            inference.call_cancellable(work, stop.set, within(progress))
        assert stop.is_set()
        end.set()


@pytest.mark.parametrize(("work", "failure"), [(RUNNING, RunError), (BUILDING, BuildError)])
def test_a_limit_is_one_for_all_calls_within_bounds(work, failure) -> None:
    bounds = within(seconds=0.3, work=work)
    inference.call_cancellable(lambda: time.sleep(0.2), nothing, bounds)
    stop = threading.Event()
    with pytest.raises(failure, match=r"not finished after 0\.3 s"):
        inference.call_cancellable(lambda: stop.wait(30), stop.set, bounds)


class Cuda:
    """Functions of libcuda with their real arguments; ``codes`` are results other than success."""

    def __init__(self, count: int = 1, **codes: int) -> None:
        self.count, self.codes = count, codes

    def cuInit(self, flags: int) -> int:  # noqa: N802 - CUDA's name, as are those that follow
        return self.codes.get("cuInit", 0)

    def cuDeviceGetCount(self, out: Any) -> int:  # noqa: N802
        out._obj.value = self.count
        return self.codes.get("cuDeviceGetCount", 0)

    def cuDeviceGet(self, out: Any, ordinal: int) -> int:  # noqa: N802
        out._obj.value = 7
        return 0 if ordinal == 0 else 101

    def cuDeviceGetName(self, out: Any, size: int, device: Any) -> int:  # noqa: N802
        out.value = b"NVIDIA L4"[: size - 1]
        return 0 if device.value == 7 else 101

    def cuDriverGetVersion(self, out: Any) -> int:  # noqa: N802
        out._obj.value = 12080
        return 0

    def cuDeviceGetAttribute(self, out: Any, which: int, device: Any) -> int:  # noqa: N802
        out._obj.value = {75: 8, 76: 9}[which]
        return self.codes.get("cuDeviceGetAttribute", 0) or (0 if device.value == 7 else 101)

    def cuGetErrorName(self, code: int, out: Any) -> int:  # noqa: N802
        known = {100: b"CUDA_ERROR_NO_DEVICE"}
        out._obj.value = known.get(code)
        return 0 if code in known else 1


@pytest.mark.parametrize(
    ("library", "said"),
    [
        (Cuda(), ""), (None, "no NVIDIA driver is installed"), (Cuda(cuInit=100), "CUDA_ERROR_NO_DEVICE"),
        (Cuda(cuInit=999), "error 999"), (Cuda(count=0), "Check CUDA_VISIBLE_DEVICES"),
        (Cuda(cuDeviceGetAttribute=100), "does not describe its GPU"),
    ],
)  # fmt: skip
def test_a_gpu_tells_name_capability_and_cuda_or_the_reason_why_there_is_none(monkeypatch, library, said):
    monkeypatch.setattr(driver, "_driver", lambda: library)
    monkeypatch.setattr(driver, "_look", driver._look.__wrapped__)
    assert (None if said else Device("NVIDIA L4", 89, "12.8")) == driver.device()
    assert said in driver.explain_missing()
    assert bool(said) == bool(driver.explain_missing())


def test_a_library_that_is_not_there_is_no_error(monkeypatch: pytest.MonkeyPatch):

    def absent(name: str) -> Any:
        raise OSError(name)

    monkeypatch.setattr(ctypes, "CDLL", absent)
    assert driver._driver() is None
