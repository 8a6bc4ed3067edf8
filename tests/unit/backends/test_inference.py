"""Sessions that are timed, where the profiler may keep a few runs only."""

from __future__ import annotations

import gc
import weakref
from pathlib import Path

import numpy as np
import onnxruntime
import pytest

import nets
from rtlab.backends import extra_outputs
from rtlab.backends.compiler_info import ONNX_RUNTIME
from rtlab.backends.onnxruntime import OnnxRuntime
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
        self._alive: list[weakref.ref[onnxruntime.InferenceSession]] = []
        made, ran = inference.create_session, inference._run
        # What earlier tests left is looked through once, and not with every session.
        gc.collect()
        gc.freeze()

        def session(order: SessionSpec, options: object) -> object:
            found = made(order, options)
            gc.collect()
            self._alive = [a for a in self._alive if a() is not None] + [weakref.ref(found)]
            self.most_alive = max(self.most_alive, len(self._alive))
            self.runs.append([bool(order.profile), 0])
            return found

        def run(*args: object) -> list[object]:
            self.runs[-1][1] += 1
            return ran(*args)

        monkeypatch.setattr(inference, "create_session", session)
        monkeypatch.setattr(inference, "_run", run)

    def profiled(self) -> list[int]:
        """How often each session with the profiler ran."""
        return [runs for profiled, runs in self.runs if profiled]


def orders(folder: Path) -> tuple[SessionSpec, SessionSpec]:
    with extra_outputs.open_session_model(nets.chain(*NAMES)) as data:
        plain = SessionSpec(data, "Cannot time", 1, level="basic")
        return plain, SessionSpec(data, "Cannot time", 1, level="basic", profile=str(folder / "profile"))


def test_the_profiler_keeps_no_more_runs_than_it_may(monkeypatch, tmp_path) -> None:
    """It keeps 3 KB of each kernel that ran: 35 runs of 5,000 nodes were 500 MB."""
    counted = Counted(monkeypatch)
    times, told = inference.time_sessions((*orders(tmp_path), BATCH, 7, 5, None, 3), Silent())
    # Three turns of three runs, three and one; each session begins with one that is not timed.
    assert [3, 2, 3, 2, 2] == counted.profiled()
    assert 7 == len(times.milliseconds[1])
    assert dict.fromkeys(NAMES, 7) == {name: len(kernel.milliseconds) for name, kernel in told.items()}
    assert times.warmups == (len(counted.runs) - len(counted.profiled()), 5)
    assert [] == list(tmp_path.iterdir())


@pytest.mark.parametrize(("most", "first"), [(3, 1), (None, 5)], ids=["a few", "all"])
def test_runs_before_timing_are_left_out_of_every_session(monkeypatch, tmp_path, most, first) -> None:
    counted, made = Counted(monkeypatch), inference._end_profiling

    def marked(session: object) -> object:
        found = made(session)
        for kernel in found.values():
            assert most or 7 + 5 == len(kernel.milliseconds)
            kernel.milliseconds[:first] = type(kernel.milliseconds)("d", [-1.0] * first)
        return found

    monkeypatch.setattr(inference, "_end_profiling", marked)
    times, told = inference.time_sessions((*orders(tmp_path), BATCH, 7, 5, None, most), Silent())
    assert all(7 == len(kernel.milliseconds) and min(kernel.milliseconds) >= 0 for kernel in told.values())
    # Nothing is made anew for small graphs.
    assert most or (2, 2, (5, 5)) == (len(counted.runs), counted.most_alive, times.warmups)


@pytest.mark.parametrize(
    ("layers", "kept"),
    [
        (100, None),  # 35 runs of 300 kB
        (319, None),  # 32 MiB hold 35.06 runs of 957 kB
        (320, 34),  # and 34.95 of 960 kB
        (1_000, 11),
        (5_000, 3),  # two would be 30 MB, but one that is not timed and two that are is the least
        (20_000, 3),
    ],
)
def test_what_the_profiler_keeps_is_bounded_by_bytes(layers: int, kept: int | None) -> None:
    """3,000 bytes of each kernel that ran, 32 MiB at a time."""
    listed = tuple(Layer(f"{i}:n", "n", "Neg", i) for i in range(layers))
    engine = Engine("onnxruntime", "", Target("cpu"), listed, runnable=nets.chain("a"), maker=ONNX_RUNTIME)
    assert kept == OnnxRuntime()._limit_profiled_runs(engine, 35)
