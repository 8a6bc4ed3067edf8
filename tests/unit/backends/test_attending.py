"""Calls on threads of their own: what their callers see, and when both end."""

from __future__ import annotations

import subprocess
import sys
import threading
import time

import pytest

from rtlab.backends.attending import Attendant
from rtlab.backends.live.apart import BUILDING, RUNNING
from rtlab.core.progress import Silent
from rtlab.core.protocols import Limits
from rtlab.errors import BuildError, Cancelled, RunError


def nothing() -> None:
    """Some calls need no end."""


class Told(Silent):
    """Keeps what it was told, and in which threads."""

    def __init__(self) -> None:
        super().__init__()
        self.heard: list[object] = []
        self.threads: set[int] = set()

    def phase(self, name: str, total: int | None = None) -> None:
        self.heard.append((name, total))
        self.threads.add(threading.get_ident())

    def advance(self, steps: int = 1) -> None:
        self.heard.append(steps)
        self.threads.add(threading.get_ident())


def test_a_call_gives_what_it_returns_or_raises() -> None:
    """As if it were made here."""
    attendant = Attendant("Cannot run")
    assert 7 == attendant.do(lambda _: 7, nothing)
    with pytest.raises(ZeroDivisionError):
        attendant.do(lambda _: 1 // 0, nothing)


def test_progress_is_told_in_the_thread_that_waits() -> None:
    """A widget's bar is no matter for other threads."""
    told = Told()

    def work(progress) -> int:
        progress.phase("Timing", 30)
        for _ in range(30):
            progress.advance()
        return threading.get_ident()

    worker = Attendant("Cannot run", told).do(work, nothing)
    assert ("Timing", 30) == told.heard[0]
    assert 30 == sum(told.heard[1:])
    assert {threading.get_ident()} == told.threads
    assert worker != threading.get_ident()


def test_calls_in_turn_share_a_thread_and_calls_at_once_do_not() -> None:
    """A thread for each would lose what the processor has at hand."""
    attendant = Attendant("Cannot run")
    assert 1 == len({attendant.do(lambda _: threading.get_ident(), nothing) for _ in range(20)})
    meet = threading.Barrier(2)

    def outer(_) -> set[int]:
        mine = threading.get_ident()
        return {mine, Attendant("Cannot run").do(lambda _: threading.get_ident(), nothing)}

    assert 2 == len(attendant.do(outer, nothing))
    assert 2 == meet.parties


def test_a_call_that_heeds_is_waited_for_and_one_that_does_not_is_left() -> None:
    """Whoever presses Cancel must not wait for a product of minutes."""
    for heeds in (True, False):
        progress, stop, end = Silent(), threading.Event(), threading.Event()
        until = stop if heeds else end

        def work(_, until=until, progress=progress) -> bool:
            progress.cancel()
            return until.wait(30)

        with pytest.raises(Cancelled, match="Stopped the run"):
            Attendant("Cannot run", progress).do(work, stop.set)
        assert stop.is_set()
        end.set()


def test_a_call_after_a_cancel_is_not_begun() -> None:
    """A brief one would be done before anybody looks whether it is wanted."""
    progress, done = Silent(), []
    progress.cancel()
    with pytest.raises(Cancelled, match="Stopped the run"):
        Attendant("Cannot run", progress).do(done.append, nothing)
    assert [] == done


@pytest.mark.parametrize(
    ("work", "failure", "advice"),
    [(RUNNING, RunError, "smaller batches"), (BUILDING, BuildError, "a smaller part of the model")],
)
def test_a_limit_is_one_for_all_calls_of_an_attendant(work, failure, advice) -> None:
    """Opening a session and running it have the time of one run."""
    attendant = Attendant("Cannot run", limits=Limits(seconds=0.3), work=work)
    attendant.do(lambda _: time.sleep(0.2), nothing)
    stop = threading.Event()
    with pytest.raises(failure) as caught:
        attendant.do(lambda _: stop.wait(30), stop.set)
    assert (
        "Cannot run: it was not finished after 0.3 s, which is the limit. Raise it with "
        f"limits=rtlab.Limits(seconds=...), or choose {advice}." == str(caught.value)
    )


def test_python_ends_in_peace_while_a_node_is_computed_that_nobody_waits_for() -> None:
    """Else the C++ below it aborts, and a command that was cancelled seems to have crashed."""
    script = """
import numpy as np, threading
from onnx import helper, numpy_helper
from rtlab import backends
from rtlab.core.model import load
from rtlab.core.progress import Silent
from rtlab.core.protocols import BuildRequest
from rtlab.core.variant import Variant
from rtlab.errors import Cancelled

size = numpy_helper.from_array(np.array([3000, 3000]), "size")
nodes = [helper.make_node("Expand", ["x", "size"], ["w"])]
nodes += [helper.make_node("MatMul", ["w", "w"], ["p"]), helper.make_node("ReduceMax", ["p"], ["y"], keepdims=0)]
given, made = (helper.make_tensor_value_info(n, 1, s) for n, s in (("x", [1, 1]), ("y", [])))
graph = helper.make_graph(nodes, "g", [given], [made], [size])
model = load(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), name="product")
runner, progress = backends.get("onnxruntime"), Silent()
engine = runner.build(BuildRequest(model, Variant.of("fp32")), Silent())
import rtlab.backends.attending as attending
attending._GRACE = 0.0
progress.cancel()
try:
    runner.outputs(engine, {"x": np.ones((1, 1), np.float32)}, progress=progress)
except Cancelled:
    print("cancelled")
"""
    ended = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=120, check=False
    )
    assert (0, "cancelled\n", "") == (ended.returncode, ended.stdout, ended.stderr)
