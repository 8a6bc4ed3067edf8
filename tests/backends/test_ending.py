"""Runs of ONNX Runtime that would never end: Cancel ends them, and so does their limit, and nothing else suffers."""

from __future__ import annotations

import subprocess
import sys
import threading
import time

import numpy as np
import onnx
import psutil
import pytest
from onnx import TensorProto, helper, numpy_helper

from endless import STEPS, endless
from rtlab import Study, backends
from rtlab.backends.bench import OrtBench
from rtlab.backends.live.apart import Errand, _Child
from rtlab.core.data import CalibrationData
from rtlab.core.model import load
from rtlab.core.progress import Silent
from rtlab.core.protocols import BuildRequest, Limits
from rtlab.core.stage import Stage
from rtlab.core.variant import Variant
from rtlab.errors import Cancelled, RunError
from rtlab.experiments.experiment import Allowance, Rig, carry_out
from rtlab.experiments.tuning import CpuTuning
from rtlab.testing import tiny_model

#: Seconds after which a test that hangs says so; nothing is timed here.
GUARD = 30.0


@pytest.fixture(params=[False, True], ids=["steps from an input", "constant steps"])
def model(request):
    return load(endless(constant=request.param), name="endless")


@pytest.fixture
def batch(model):
    feed = {"x": np.arange(4, dtype=np.float32)[None], "n": np.array(STEPS, np.int64)}
    return {name: feed[name] for name in model.inputs}


@pytest.fixture
def runner():
    return backends.get("onnxruntime")


@pytest.fixture(autouse=True)
def nothing_is_left():
    """Whatever a run began is over with it, and what is left of it waits for work."""
    before = {p.pid for p in psutil.Process().children(recursive=True)}
    yield
    end = time.monotonic() + GUARD
    while any(t.name == "rtlab-run" for t in threading.enumerate()):
        assert time.monotonic() < end, "a thread runs on"
        time.sleep(0.01)
    assert not [c for c in _Child._all if c.session.busy]
    after = {p.pid for p in psutil.Process().children(recursive=True)}
    assert after <= before | {c.session.pid for c in _Child._all}


def engine(runner, model):
    return runner.build(BuildRequest(model, Variant.of("fp32")), Silent())


class Pressed(Silent):
    """Somebody who waits until something runs, and then presses Cancel in another thread."""

    def __init__(self) -> None:
        super().__init__()
        self._timer = threading.Timer(0.2, self.cancel)
        self._timer.start()


class PressedThen(Silent):
    """Somebody who presses Cancel soon after a phase begins."""

    def __init__(self, phase: str) -> None:
        super().__init__()
        self._awaited = phase

    def phase(self, name: str, total: int | None = None) -> None:
        if name == self._awaited:
            threading.Timer(0.2, self.cancel).start()


def ended(call):
    """The error that a call ends with, or fails the test where it does not end."""
    caught: list[BaseException] = []

    def run() -> None:
        try:
            call()
        except BaseException as error:  # noqa: BLE001 - whatever it is, the test must hear of it
            caught.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(GUARD)
    assert not thread.is_alive(), "it runs on"
    (error,) = caught
    return error


def reads(runner, model, batch, **options) -> None:
    with runner.reading(model, ["r", "y"], **options) as fetch:
        fetch(batch)


CALLS = {
    "outputs": lambda r, m, e, b, p, s: r.outputs(e, b, progress=p, limit_s=s),
    "inner values": lambda r, m, e, b, p, s: r.outputs(e, b, ["r"], progress=p, limit_s=s),
    "profile": lambda r, m, e, b, p, s: r.profile(e, b, p, limit_s=s),
    "a short profile": lambda r, m, e, b, p, s: r.profile(e, b, p, seconds=0.01, limit_s=s),
    "unfused": lambda r, m, e, b, p, s: r.unfused(e, b, p, limit_s=s),
    "reading": lambda r, m, e, b, p, s: reads(r, m, b, progress=p, limit_s=s),
}


@pytest.mark.parametrize("call", CALLS)
def test_cancel_ends_a_loop_of_2_to_the_62_steps(runner, model, batch, call) -> None:
    """A stranger's model may run until the end of the world; the notebook must not."""
    made = engine(runner, model)
    error = ended(lambda: CALLS[call](runner, model, made, batch, Pressed(), None))
    assert "Stopped the run: cancelled by the user. Start it again when you like." == str(error)
    assert isinstance(error, Cancelled)


@pytest.mark.parametrize("call", CALLS)
def test_a_run_ends_at_its_limit(runner, model, batch, call) -> None:
    """Whoever left the room comes back to words."""
    made = engine(runner, model)
    error = ended(lambda: CALLS[call](runner, model, made, batch, Silent(), 0.5))
    verb = "profile" if "profile" in call else "run"
    assert (
        f'Backend "onnxruntime" cannot {verb}: it was not finished after 0.5 s, which is the limit. '
        "Raise it with limits=rtlab.Limits(seconds=...), or choose smaller batches." == str(error)
    )
    assert isinstance(error, RunError)


def test_a_run_ends_before_it_has_taken_all_memory(runner) -> None:
    """A loop that keeps what every step computes ends the notebook long before its time is over."""
    proto = endless(constant=False)
    body = next(n for n in proto.graph.node if n.op_type == "Loop").attribute[0].g
    next(n for n in proto.graph.node if n.op_type == "Loop").output.append("all")
    body.output.append(helper.make_tensor_value_info("each", TensorProto.FLOAT, [1 << 16]))
    body.node.append(helper.make_node("Expand", ["one", "wide"], ["each"], name="each"))
    body.initializer.append(numpy_helper.from_array(np.array([1 << 14, 4], np.int64), "wide"))
    del body.output[-1].type.tensor_type.shape.dim[:]
    body.output[-1].type.tensor_type.shape.dim.add().dim_value = 1 << 14
    body.output[-1].type.tensor_type.shape.dim.add().dim_value = 4
    proto.graph.output.append(helper.make_tensor_value_info("all", TensorProto.FLOAT, ["k", 1 << 14, 4]))
    model = load(proto, name="greedy")
    feed = {"x": np.arange(4, dtype=np.float32)[None], "n": np.array(STEPS, np.int64)}
    made = engine(runner, model)
    runner._errand = lambda *_: Errand("Cannot run", limits=Limits(memory=1 << 28))
    try:
        error = ended(lambda: runner.outputs(made, feed))
    finally:
        del runner._errand
    assert (
        "Cannot run: it took all the memory that is free, or that rtlab.Limits(memory=...) grants (0.25 GiB). Choose "
        "smaller batches, or another machine." == str(error)
    )


def test_measuring_that_would_never_end_can_be_stopped(model, batch) -> None:
    """The engine is there by then, and stays."""
    study = Study(model, data=fed(batch))
    study.add("fp32", backend="onnxruntime")
    error = ended(lambda: study.run(progress=PressedThen("Timing on the CPU")))
    assert "Stopped the run: cancelled by the user. Start it again when you like." == str(error)
    assert isinstance(error, Cancelled)
    assert ("done", "missing") == tuple(
        study["fp32"].stages[stage].state for stage in (Stage.COMPILED, Stage.TIMED)
    )


def fed(batch) -> CalibrationData:
    return CalibrationData({name: np.atleast_1d(array) for name, array in batch.items()})


def test_stopping_within_a_layer_keeps_the_layers_before_it(monkeypatch) -> None:
    """A formulation that does not end must not cost what others were found."""
    open_ = OrtBench.open
    progress, calls = Silent(), []

    def opened(self, model, batch, threads):
        calls.append(model)
        if len(calls) == 2:
            threading.Timer(0.2, progress.cancel).start()
            feed = {"x": np.zeros((1, 4), np.float32), "n": np.array(STEPS, np.int64)}
            open_(self, endless(constant=False).SerializeToString(), feed, threads).time()
        return open_(self, model, batch, threads)

    monkeypatch.setattr(OrtBench, "open", opened)
    x = {"x": np.ones((1, 3, 8, 8), np.float32)}
    rig = Rig(OrtBench(progress), progress, Allowance(seconds=60))
    found = carry_out(CpuTuning(tiny_model(), x, threads=(1,), candidates=()), rig)
    assert 2 == len(calls)
    assert 1 == len(found.layers)
    assert "1 of 4 distinct layers, the costliest, were tuned before it was stopped" == found.notes[0]
    assert () == found.wholes


#: A session is at work in a child process when Python ends, or waits for work; ``{}`` says how.
LEAVES = """
import contextlib, sys, threading, time
import numpy as np
from rtlab import backends, load
from rtlab.backends.live.apart import _Child
from rtlab.core.progress import Silent
from rtlab.core.protocols import BuildRequest
from rtlab.core.variant import Variant
from rtlab.errors import Cancelled

model, runner = load(sys.argv[1]), backends.get("onnxruntime")
engine = runner.build(BuildRequest(model, Variant.of("fp32")), Silent())
batch = {{"x": np.ones((1, 4), np.float32), "n": np.array(2**62, np.int64)}}
progress = Silent()
{}
(child,) = _Child._all
print(child.session.pid)
sys.exit(7)
"""
WAYS = {
    "at rest": "",
    "with a session": "runner.outputs(engine, {**batch, 'n': np.array(3, np.int64)})",
    "cancelled": """
threading.Timer(0.2, progress.cancel).start()
try:
    runner.outputs(engine, batch, progress=progress)
except Cancelled:
    pass
""",
    "left alone": """
def run():
    with contextlib.suppress(Exception):
        runner.outputs(engine, batch)
threading.Thread(target=run, daemon=True).start()
while not any(c.kept and c.session.busy for c in _Child._all):
    time.sleep(0.01)
""",
}


@pytest.mark.parametrize("way", WAYS)
def test_python_ends_as_it_would_and_takes_its_children_along(tmp_path, way) -> None:
    """Whoever cancels and closes the notebook at once is not told that the kernel died, and nothing runs on."""
    path = tmp_path / "endless.onnx"
    onnx.save(endless(constant=False), path)
    program = LEAVES.format(WAYS[way])
    done = subprocess.run(
        [sys.executable, "-c", program, path], capture_output=True, text=True, timeout=2 * GUARD, check=False
    )
    assert (7, "") == (done.returncode, done.stderr)
    end = time.monotonic() + GUARD
    while psutil.pid_exists(int(done.stdout)):
        assert time.monotonic() < end, "a process runs on"
        time.sleep(0.01)
