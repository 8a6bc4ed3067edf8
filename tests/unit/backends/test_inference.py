"""Sessions that are timed, where the profiler may keep a few runs only."""

from __future__ import annotations

import gc
import weakref
from pathlib import Path

import numpy as np
import onnxruntime
import pytest

import nets
from rtlab.backends.compiler_info import ONNX_RUNTIME
from rtlab.backends.onnxruntime import OnnxRuntime, open_session_model
from rtlab.backends.workers import inference
from rtlab.backends.workers.inference import SessionSpec
from rtlab.core.engine import Engine, Layer
from rtlab.core.progress import Silent
from rtlab.core.variant import Target

NAMES = ("first", "second", "third")
BATCH = {"x": np.zeros((1, 4), np.float32)}


class Counted:
    """Sessions of ONNX Runtime that are counted while they are made, run and let go."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        #: Of each session whether it has the profiler, and how often it ran.
        self.runs: list[list[int]] = []
        self.most_alive = 0
        self._made: dict[int, int] = {}
        self._alive: list[weakref.ref[onnxruntime.InferenceSession]] = []
        made, ran = inference.create_session, inference._run
        # What earlier tests left is looked through once, and not with every session.
        gc.collect()
        gc.freeze()

        def session(order: SessionSpec) -> object:
            found = made(order)
            gc.collect()
            self._alive = [a for a in self._alive if a() is not None] + [weakref.ref(found)]
            self.most_alive = max(self.most_alive, len(self._alive))
            self._made[id(found)] = len(self.runs)
            self.runs.append([bool(order.profile), 0])
            return found

        def run(used: object, *args: object) -> list[object]:
            self.runs[self._made[id(used)]][1] += 1
            return ran(used, *args)

        monkeypatch.setattr(inference, "create_session", session)
        monkeypatch.setattr(inference, "_run", run)

    def profiled(self) -> list[int]:
        """How often each session with the profiler ran."""
        return [runs for profiled, runs in self.runs if profiled]


def orders(folder: Path) -> tuple[SessionSpec, SessionSpec]:
    with open_session_model(nets.chain(*NAMES)) as data:
        plain = SessionSpec(data, "Cannot time", 1, level="basic")
        return plain, SessionSpec(data, "Cannot time", 1, level="basic", profile=str(folder / "profile"))


@pytest.mark.parametrize(
    ("most", "runs", "both"),
    [(3, [3, 3, 3, 2], True), (8, [8], True), (100, [8], True), (100, [8], False)],
)
def test_the_profiler_keeps_no_more_runs_than_it_may(monkeypatch, tmp_path, most, runs, both) -> None:
    """It keeps 3 KB of each kernel that ran: 35 runs of 5,000 nodes were 500 MB."""
    counted = Counted(monkeypatch)
    times, told = inference.time_sessions((*orders(tmp_path), BATCH, 7, 5, None, most, both), Silent())
    # Each session begins with a run that is not timed.
    assert runs == counted.profiled()
    assert 7 == len(times.milliseconds[1])
    assert dict.fromkeys(NAMES, 7) == {name: len(kernel.milliseconds) for name, kernel in told.items()}
    # Of a large model there is one session at a time.
    assert (5, 2 if both and most > 3 else 1) == (times.warmup, counted.most_alive)
    assert [] == list(tmp_path.iterdir())


def test_the_first_run_of_every_session_is_left_out(monkeypatch, tmp_path) -> None:
    counted, read = Counted(monkeypatch), inference.optimized.collect_kernel_times

    def marked(events: object) -> object:
        found = read(events)
        for kernel in found.values():
            kernel.milliseconds[0] = -1.0
        return found

    monkeypatch.setattr(inference.optimized, "collect_kernel_times", marked)
    _, told = inference.time_sessions((*orders(tmp_path), BATCH, 7, 5, None, 3, True), Silent())
    assert all(7 == len(kernel.milliseconds) and min(kernel.milliseconds) >= 0 for kernel in told.values())
    assert 5 == len(counted.runs)


def test_sessions_of_a_large_model_have_half_of_the_time_each(monkeypatch, tmp_path) -> None:
    """One after the other: the first leaves the second what it does not use."""
    budgets, alternate = [], inference.alternate

    def observed(*works: object, seconds: float, **more: object) -> object:
        budgets.append(seconds)
        return alternate(*works, seconds=seconds, **more)

    monkeypatch.setattr(inference, "alternate", observed)
    inference.time_sessions((*orders(tmp_path), BATCH, 7, 0, 60.0, 3, True), Silent())
    first, second = budgets
    assert 20 < first <= 30 < second <= 60


def test_no_second_session_is_opened_that_the_budget_does_not_reach(monkeypatch, tmp_path) -> None:
    """One took longer than what is left; where both fit into memory, or without a budget, the second has its runs."""
    counted = Counted(monkeypatch)
    for seconds, side_by_side, profiled in ((1e-6, False, []), (1e-6, True, [1]), (None, False, [3])):
        counted.runs.clear()
        payload = (*orders(tmp_path), BATCH, 3, 0, seconds, 9, side_by_side)
        times, told = inference.time_sessions(payload, Silent())
        assert bool(profiled) == bool(told)
        assert [bool(p) for p in profiled] == [bool(x) for x in counted.profiled()]
        first, second = times.milliseconds
        assert (first.size >= 1, second.size) == (True, sum(profiled))


@pytest.mark.parametrize(
    ("layers", "kept"),
    [
        (0, 36),
        (310, 36),  # 32 MiB hold 36.08 runs of 930 kB
        (311, 35),  # and 35.96 of 933 kB
        (1_000, 11),
        (5_000, 3),  # two would be 30 MB, but one that is not timed and two that are is the least
        (20_000, 3),
    ],
)
def test_what_the_profiler_keeps_is_bounded_by_bytes(layers: int, kept: int) -> None:
    """3,000 bytes of each kernel that ran, 32 MiB at a time."""
    listed = tuple(Layer(f"{i}:n", "n", "Neg", i) for i in range(layers))
    engine = Engine("onnxruntime", "", Target("cpu"), listed, runnable=nets.chain("a"), maker=ONNX_RUNTIME)
    assert kept == OnnxRuntime()._limit_profiled_runs(engine, 35)
