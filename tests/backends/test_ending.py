"""Runs of ONNX Runtime that would never end: Cancel ends them, and so does their limit, and nothing else suffers."""

from __future__ import annotations

import threading
import time

import numpy as np
import psutil
import pytest

from endless import STEPS, endless
from rtlab import Study, backends
from rtlab.backends.live.apart import _Child
from rtlab.core.data import CalibrationData
from rtlab.core.model import load
from rtlab.core.progress import Silent
from rtlab.core.protocols import BuildRequest
from rtlab.core.stage import Stage
from rtlab.core.variant import Variant
from rtlab.errors import Cancelled, RunError

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
    assert isinstance(error, Cancelled)


@pytest.mark.parametrize("call", CALLS)
def test_a_run_ends_at_its_limit(runner, model, batch, call) -> None:
    """Whoever left the room comes back to words."""
    made = engine(runner, model)
    error = ended(lambda: CALLS[call](runner, model, made, batch, Silent(), 0.5))
    assert "0.5 s" in str(error)
    assert isinstance(error, RunError)


def test_measuring_that_would_never_end_can_be_stopped(model, batch) -> None:
    """The engine is there by then, and stays."""
    study = Study(model, data=fed(batch))
    study.add("fp32", backend="onnxruntime")
    error = ended(lambda: study.run(progress=PressedThen("Timing on the CPU")))
    assert isinstance(error, Cancelled)
    assert ("done", "missing") == tuple(
        study["fp32"].stages[stage].state for stage in (Stage.COMPILED, Stage.TIMED)
    )


def fed(batch) -> CalibrationData:
    return CalibrationData({name: np.atleast_1d(array) for name, array in batch.items()})
