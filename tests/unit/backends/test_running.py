"""The parent's side of running engines: a real child process around stand-ins of the bindings, and the real RTX one."""

from __future__ import annotations

import ctypes
import dataclasses
import importlib
import os
import time
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import fake_trt
from fake_trt import Spec, layers_of, plan
from rtlab.backends.live import child, driver
from rtlab.backends.live.running import EngineRunner, joined
from rtlab.core.engine import Layer
from rtlab.core.progress import Silent
from rtlab.core.protocols import BuildRequest, Limits, Runner
from rtlab.errors import Cancelled, ReadError, RunError, Unavailable

needs_lists = pytest.mark.skipif(
    not fake_trt.LISTS.is_dir(), reason="no ../shared/reference beside the checkout"
)
X = np.array([[1, -2, 3, -4]], np.float32)


class Fake(EngineRunner):
    """A backend over a stand-in; the device is given, because there is none here."""

    name, product = "fake", "TensorRT"
    cuda = libraries = "fake_trt"
    device = driver.Device("Fake GPU", 86, "12.9")

    def __init__(self, binding: str = "fake_trt.trt10") -> None:
        super().__init__()
        self.binding = binding


@pytest.fixture
def backend():
    made = Fake()
    yield made
    for engine, _ in list(made._sessions.values()):
        made.release(engine)


def spec(binding: str = "fake_trt.trt10", **changed: object) -> Spec:
    graph = helper.make_graph(
        [
            helper.make_node("Add", ["x", "x"], ["t"], "double"),
            helper.make_node("Relu", ["t"], ["y"], "relu"),
        ],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 4])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 4])],
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10)
    usual: dict[str, object] = {
        "rows": (("double", 0.25), ("relu", 0.5), ("ghost", 0.125)),
        "profiles": ({"x": ((1, 4), (1, 4), (8, 4))},),
        "inner": ("t",),
    }
    era = 11 if binding.endswith("11") else 10
    usual["layers"] = layers_of(made, [["double"], ["relu"]], era=era)
    return Spec(binding, made.SerializeToString(), **usual | changed)


@needs_lists
@pytest.mark.parametrize("binding", fake_trt.BINDINGS)
def test_a_plan_is_opened_profiled_run_counted_and_saved_in_a_child(binding, tmp_path):
    """The whole way of a user, through the process that would hold the GPU."""
    backend = Fake(binding)
    file = tmp_path / "engine.plan"
    file.write_bytes(plan(spec(binding)))
    engine = backend.open_plan(file)
    try:
        assert ["double", "relu"] == [y.name for y in engine.layers]
        assert ("x", "fp32") == (engine.inputs[0].name, engine.inputs[0].dtype)
        assert ["y"] == [t.name for t in engine.outputs]
        assert (fake_trt.api(binding).version, "Fake GPU", "sm86") == (
            engine.version,
            engine.device,
            str(engine.target),
        )
        assert {"activation": 4096, "weights": 1000} == dict(engine.totals)
        assert ((("x", ((1, 4), (1, 4), (8, 4))),),) == engine.profiles

        profile = backend.profile(engine, {"x": X}, Silent(), runs=4, warmup=1)
        assert {y.id for y in engine.layers} == set(profile.samples)
        assert {(4,)} == {a.shape for a in profile.samples.values()} == {profile.total.shape}
        assert ("GPU", 4, 1, "Fake GPU") == (profile.processor, profile.runs, profile.warmup, profile.device)
        assert "before: 1410 MHz, memory 1215 MHz" in profile.note
        assert '1 timed names are no layers (0.128 ms): "ghost"' in profile.note

        found = backend.outputs(engine, {"x": X}, ("t", "y"))
        np.testing.assert_array_equal(2 * X, found["t"])
        np.testing.assert_array_equal(np.maximum(2 * X, 0), found["y"])

        counted = backend.throughput(engine, {"x": np.repeat(X, 2, 0)}, Silent(), streams=2, seconds=0.05)
        assert (2, 2) == (counted.streams, counted.batch)
        assert counted.inferences / counted.seconds == counted.rate

        saved = tmp_path / "again.plan"
        backend.save(engine, saved)
        assert file.read_bytes() == saved.read_bytes()
        assert engine.layers == backend.open_plan(saved.read_bytes()).layers
    finally:
        backend.release(engine)


@pytest.mark.own_child
@needs_lists
def test_streaming_keeps_one_child_and_release_ends_it(backend):
    """Loading an engine for every batch would take longer than the batches."""
    engine = backend.open_plan(plan(spec()))
    backend.outputs(engine, {"x": X})
    session = backend._sessions[id(engine)][1]
    backend.outputs(engine, {"x": X})
    assert session is backend._sessions[id(engine)][1]
    assert session.alive
    backend.release(engine)
    assert not session.alive
    np.testing.assert_array_equal(np.maximum(2 * X, 0), backend.outputs(engine, {"x": X})["y"])


@pytest.mark.own_child
@needs_lists
def test_only_two_engines_stay_on_the_gpu(backend):
    engines = [backend.open_plan(plan(spec())) for _ in range(3)]
    for engine in engines:
        backend.outputs(engine, {"x": X})
    assert [id(e) for e in engines[1:]] == list(backend._sessions)


@pytest.mark.own_child
@needs_lists
def test_a_failure_ends_the_child_and_the_next_call_starts_anew(backend):
    """A CUDA error stays with its process."""
    engine = backend.open_plan(plan(spec()))
    with pytest.raises(RunError, match="engine has no input"):
        backend.outputs(engine, {"x": X, "z": X})
    assert {} == backend._sessions
    assert ["y"] == list(backend.outputs(engine, {"x": X}))


@needs_lists
def test_a_plan_of_another_version_is_refused_through_the_child(backend):
    with pytest.raises(Unavailable) as caught:
        backend.open_plan(plan(spec(version="10.3.0")))
    assert str(caught.value).startswith(
        'Backend "fake" cannot open the plan: it was built with another version'
    )
    assert "Version tag does not match" in caught.value.details


@needs_lists
def test_inspector_text_that_is_no_json_is_an_error_with_the_text(backend):
    with pytest.raises(RunError) as caught:
        backend.open_plan(plan(spec(layers="")))
    assert "the inspector's text is no JSON" in str(caught.value)


@needs_lists
@pytest.mark.skipif(
    driver.device() is not None, reason="a GPU is here, and this tells what happens without one"
)
def test_the_real_cuda_runtime_without_a_gpu_is_unavailable(backend):
    """Polygraphy's wrapper over the real runtime, where that is installed; else what its absence becomes."""
    backend.cuda = "polygraphy.cuda"
    missing = "the CUDA runtime library is not found|no NVIDIA driver or GPU is found"
    with pytest.raises(Unavailable, match=missing):
        backend.outputs(backend.open_plan(plan(spec())), {"x": X})


def test_a_missing_file_is_a_read_error(backend, tmp_path):
    with pytest.raises(
        ReadError, match=r'cannot open "none\.plan": No such file or directory\. Check the path\.'
    ):
        backend.open_plan(tmp_path / "none.plan")


@needs_lists
def test_an_engine_without_a_plan_cannot_run_or_be_saved(backend, tmp_path):
    engine = dataclasses.replace(backend.open_plan(plan(spec())), plan=None)
    with pytest.raises(
        RunError, match=r"the engine holds no plan to run\. Build it again with keep_plan=True"
    ):
        backend.outputs(engine, {"x": X})
    with pytest.raises(RunError, match="holds no plan"):
        backend.save(engine, tmp_path / "x.plan")


@needs_lists
@pytest.mark.parametrize(("streams", "seconds"), [(0, 1.0), (1, 0.0), (1, 1e9)])
def test_throughput_that_makes_no_sense_is_refused(backend, streams, seconds):
    engine = backend.open_plan(plan(spec()))
    with pytest.raises(RunError, match=r"cannot be measured\. Choose at least one stream"):
        backend.throughput(engine, {"x": X}, Silent(), streams=streams, seconds=seconds)


@pytest.mark.own_child
@needs_lists
def test_cancelling_ends_the_child_at_once(backend):
    engine = backend.open_plan(plan(spec()))
    progress = Silent()
    progress.cancel()
    with pytest.raises(Cancelled):
        backend.throughput(engine, {"x": X}, progress, seconds=60)
    assert {} == backend._sessions


def test_it_is_a_runner():
    assert isinstance(Fake(), Runner)


def test_times_join_by_name_in_order_and_sum_in_loops():
    layers = [Layer(f"{i}:{n}", n, "", i) for i, n in enumerate(["a", "a", "loop", "quiet"])]
    one = np.ones(3)
    samples, notes = joined(
        {("a", 0): one, ("a", 1): 2 * one, ("loop", 0): one, ("loop", 1): 3 * one, ("other", 0): one}, layers
    )
    assert {"0:a": 1.0, "1:a": 2.0, "2:loop": 4.0} == {k: float(v[0]) for k, v in samples.items()}
    assert ['1 timed names are no layers (1 ms): "other"', '1 layers report no time: "quiet"'] == notes


def crash(payload: object, report: object) -> None:
    ctypes.string_at(0)


def echo(payload: object, report: object) -> tuple[object, int]:
    return payload, os.getpid()


def refuse(payload: object, report: object) -> None:
    raise ReadError("Refused as it should be.", details="more")


def sleep(payload: float, report: object) -> None:
    time.sleep(payload)


def _session(limits: Limits, work: child.ChildWork = child.RUNNING) -> child.ChildProcess:
    return child.ChildProcess(dataclasses.replace(limits, stack=1 << 26), work=work)


@pytest.fixture
def here(monkeypatch):
    """This file under a name that the child can import."""
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    return importlib.import_module(Path(__file__).stem)


def test_a_session_answers_many_calls_in_one_process_and_survives_errors(here):
    session = _session(Limits())
    try:
        first = session.call(here.echo, 1, progress=Silent(), doing="X")
        with pytest.raises(ReadError) as caught:
            session.call(here.refuse, None, progress=Silent(), doing="X")
        assert "more" == caught.value.details
        second = session.call(here.echo, 2, progress=Silent(), doing="X")
    finally:
        session.close()
    assert [1, 2] == [first[0], second[0]]
    assert first[1] == second[1] != os.getpid()
    assert not session.alive


@pytest.mark.skipif(os.name != "posix", reason="signals are named on POSIX")
@pytest.mark.parametrize(
    ("work", "who"),
    [(child.RUNNING, "the process that runs the engine"), (child.BUILDING, "the compiler")],
)
def test_a_crash_is_the_kind_of_error_that_was_asked_for(here, work, who):
    session = _session(Limits(), work)
    with pytest.raises(work.failure, match=f"X: {who} crashed with SIGSEGV"):
        session.call(here.crash, None, progress=Silent(), doing="X")
    assert not session.alive


def test_a_call_beyond_its_time_ends_the_child(here):
    session = _session(Limits(seconds=0.2))
    with pytest.raises(RunError, match=r"X: it was not finished after 0\.2 s, which is the limit"):
        session.call(here.sleep, 60.0, progress=Silent(), doing="X")
    assert not session.alive


class Real(EngineRunner):
    """The real TensorRT-RTX, which loads and refuses engines on a machine without a driver."""

    name, binding, product = "tensorrt-rtx", "tensorrt_rtx", "TensorRT-RTX"


@pytest.fixture(scope="module")
def real_plan(tmp_path_factory) -> bytes:
    pytest.importorskip("importlib.util").find_spec("tensorrt_rtx") or pytest.skip(
        "tensorrt-rtx is not installed"
    )
    if driver.device() is not None:
        pytest.skip("a GPU is here, and these tests tell what happens without one")
    from rtlab.backends.tensorrt_rtx import TensorRTRTX
    from rtlab.core.model import load
    from rtlab.core.variant import Target, Variant

    file = tmp_path_factory.mktemp("real") / "m.onnx"
    onnx.save(onnx.load_from_string(spec().model), file)
    request = BuildRequest(load(file), Variant("fp32", target=Target("sm86")), keep_plan=True)
    built = TensorRTRTX().build(request, Silent())
    assert built.plan is not None
    return built.plan


def test_the_real_binding_without_a_driver_is_unavailable(real_plan):
    with pytest.raises(Unavailable) as caught:
        Real().open_plan(real_plan)
    assert "cannot open the plan: no NVIDIA driver or GPU is found" in str(caught.value)
    assert "cudaError 35" in caught.value.details


@pytest.mark.parametrize("damage", ["cut", "text", "empty"])
def test_the_real_binding_tells_what_is_no_plan(real_plan, damage):
    data = {"cut": real_plan[:1000], "text": b"x" * 5000, "empty": b""}[damage]
    with pytest.raises(ReadError, match="it is no whole plan of TensorRT-RTX"):
        Real().open_plan(data)
