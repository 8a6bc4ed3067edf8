"""Runs of ONNX Runtime that would never end: Cancel ends them, and so does their limit, and nothing else suffers."""

from __future__ import annotations

import threading
import time

import numpy as np
import onnx
import psutil
import pytest
from onnx import TensorProto, helper, numpy_helper

from rtlab import Study, backends
from rtlab.core.data import CalibrationData
from rtlab.core.model import load
from rtlab.core.progress import Silent
from rtlab.core.protocols import BuildRequest
from rtlab.core.variant import Variant
from rtlab.errors import Cancelled, RunError
from rtlab.testing import tiny_model

#: Seconds after which a test that hangs says so; nothing is timed here.
GUARD = 30.0
STEPS = 2**62


def endless(*, constant: bool, empty: bool = False) -> onnx.ModelProto:
    """``z = 2 * (2 * x + STEPS)``, one by one; the number of steps is a constant or the input ``n``."""
    value = helper.make_tensor_value_info
    step = [
        helper.make_node("Identity", ["on"], ["go"], name="go"),
        helper.make_node("Add", ["sum", "one"], ["more"], name="add"),
    ]
    body = helper.make_graph(
        [] if empty else step,
        "body",
        [
            value("i", TensorProto.INT64, []),
            value("on", TensorProto.BOOL, []),
            value("sum", TensorProto.FLOAT, [1, 4]),
        ],
        [
            value("on" if empty else "go", TensorProto.BOOL, []),
            value("sum" if empty else "more", TensorProto.FLOAT, [1, 4]),
        ],
        [] if empty else [numpy_helper.from_array(np.ones(4, np.float32), "one")],
    )
    steps = numpy_helper.from_array(np.array(STEPS, np.int64), "n")
    graph = helper.make_graph(
        [
            helper.make_node("MatMul", ["x", "w"], ["r"], name="double"),
            helper.make_node("Loop", ["n", "", "r"], ["y"], name="loop", body=body),
            helper.make_node("MatMul", ["y", "w"], ["z"], name="again"),
        ],
        "endless",
        [
            value("x", TensorProto.FLOAT, [1, 4]),
            *([] if constant else [value("n", TensorProto.INT64, [])]),
        ],
        [value("z", TensorProto.FLOAT, [1, 4])],
        [numpy_helper.from_array(2 * np.eye(4, dtype=np.float32), "w"), *([steps] if constant else [])],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


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
    """Threads and processes of a run are gone soon after it."""
    before = len(psutil.Process().children(recursive=True))
    yield
    end = time.monotonic() + GUARD
    while any(t.name == "rtlab-run" for t in threading.enumerate()):
        assert time.monotonic() < end, "a thread runs on"
        time.sleep(0.01)
    assert before == len(psutil.Process().children(recursive=True))


def engine(runner, model):
    return runner.build(BuildRequest(model, Variant.of("fp32")), Silent())


class Pressed(Silent):
    """Somebody who waits until something runs, and then presses Cancel in another thread."""

    def __init__(self) -> None:
        super().__init__()
        self._timer = threading.Timer(0.2, self.cancel)
        self._timer.start()


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
    "outputs": lambda r, m, b, p, s: r.outputs(engine(r, m), b, progress=p, limit_s=s),
    "inner values": lambda r, m, b, p, s: r.outputs(engine(r, m), b, ["r"], progress=p, limit_s=s),
    "profile": lambda r, m, b, p, s: r.profile(engine(r, m), b, p, limit_s=s),
    "a short profile": lambda r, m, b, p, s: r.profile(engine(r, m), b, p, seconds=0.01, limit_s=s),
    "unfused": lambda r, m, b, p, s: r.unfused(engine(r, m), b, p, limit_s=s),
    "reading": lambda r, m, b, p, s: reads(r, m, b, progress=p, limit_s=s),
}


@pytest.mark.parametrize("call", CALLS)
def test_cancel_ends_a_loop_of_2_to_the_62_steps(runner, model, batch, call) -> None:
    """A stranger's model may run until the end of the world; the notebook must not."""
    error = ended(lambda: CALLS[call](runner, model, batch, Pressed(), None))
    assert "Stopped the run: cancelled by the user. Start it again when you like." == str(error)
    assert isinstance(error, Cancelled)


@pytest.mark.parametrize("call", CALLS)
def test_a_run_ends_at_its_limit(runner, model, batch, call) -> None:
    """Whoever left the room comes back to words."""
    error = ended(lambda: CALLS[call](runner, model, batch, Silent(), 0.5))
    verb = "profile" if "profile" in call else "run"
    assert (
        f'Backend "onnxruntime" cannot {verb}: it was not finished after 0.5 s, which is the limit. '
        "Raise it with limits=rtlab.Limits(seconds=...), or choose smaller batches." == str(error)
    )
    assert isinstance(error, RunError)


def test_later_runs_are_as_good_as_ever(runner, model, batch) -> None:
    """With the same engine, whose session was ended, and with another one."""
    one = engine(runner, model)
    if "n" in batch:
        for _ in range(2):
            ended(lambda: runner.outputs(one, batch, progress=Pressed()))
            found = runner.outputs(one, {**batch, "n": np.array(3, np.int64)})
            np.testing.assert_array_equal(2 * (2 * batch["x"] + 3), found["z"])
    else:
        assert isinstance(ended(lambda: runner.outputs(one, batch, progress=Pressed())), Cancelled)
    other = engine(runner, tiny_model())
    x = np.ones((2, 3, 8, 8), np.float32)
    assert (2, 4) == runner.outputs(other, {"x": x})["y"].shape


def test_a_study_that_would_never_end_can_be_stopped(model, batch) -> None:
    """Calibrating, and everything that a run of a study measures."""
    data = CalibrationData({name: np.atleast_1d(array) for name, array in batch.items()})
    for call in (
        lambda: Study(model, data=data).observe(progress=Pressed()),
        lambda: run(Study(model, data=data)),
    ):
        assert isinstance(ended(call), Cancelled)


def run(study: Study) -> None:
    study.add("fp32")
    study.run(progress=Pressed())
