"""What a sweep says while it runs: counts, and the time left by what was measured."""

from __future__ import annotations

import concurrent.futures
import dataclasses
import io
import multiprocessing
import threading
import time
from collections.abc import Callable
from concurrent.futures import Executor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import rtlab
from rtlab.core import progress as reporters
from rtlab.core.progress import Silent, Terminal
from rtlab.errors import Cancelled, RtlabError
from rtlab.study import sweep_progress, sweep_run, sweep_task
from rtlab.study.progress import ProgressBar
from rtlab.study.sweep_progress import SweepProgress, choose_kind, count_running, format_duration
from rtlab.study.sweep_run import SweepRun
from rtlab.study.sweep_task import SweepTask
from rtlab.testing import tiny_model


class Clock:
    """Time that passes when a test says so."""

    def __init__(self) -> None:
        self.now = 100.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(sweep_progress, "time", made)
    monkeypatch.setattr(reporters, "time", made)
    return made


class Typewriter(io.StringIO):
    """A terminal that keeps what is written."""

    def isatty(self) -> bool:
        return True

    @property
    def line(self) -> str:
        return self.getvalue().rpartition("\x1b[K")[2]


def test_time_left_is_that_of_finished_tasks_of_like_kind_on_so_many_workers(clock: Clock) -> None:
    counts = SweepProgress(Silent(), ["a"] * 10 + ["b"] * 4)
    counts.report(2, 2)
    clock.now += 2
    assert "0 done, 2 running, 12 waiting" == str(counts.counts)
    counts.finish("a", 2.0, failed=False)
    # Nothing of kind b is measured yet: 13 tasks of 2 s on 2 workers.
    assert 13.0 == counts.counts.seconds_left
    counts.finish("b", 6.0, failed=False)
    # 9 of 2 s and 3 of 6 s on 2 workers.
    assert 18.0 == counts.counts.seconds_left
    clock.now += 3
    assert 15.0 == counts.counts.seconds_left
    # One that fails is none of those that are left, and tells no duration.
    counts.finish("a", None, failed=True)
    assert (8 * 2 + 3 * 6) / 2 == counts.counts.seconds_left
    assert "2 done, 2 running, 1 failed, 9 waiting, about 17 s left" == str(counts.counts)


def test_without_words_of_the_executor_what_was_done_by_now_says_how_fast_it_goes(clock: Clock) -> None:
    """4 tasks of 3 s in 6 s are 2 at once; 6 more take 9 s."""
    counts = SweepProgress(Silent(), ["a"] * 10)
    counts.report(None, None)
    clock.now += 6
    for _ in range(4):
        counts.finish("a", 3.0, failed=False)
    assert 9.0 == counts.counts.seconds_left
    assert "4 done, 6 running or waiting, about 9 s left" == str(counts.counts)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.2, "1 s"), (45.4, "45 s"), (119, "119 s"), (120, "2 min"), (5400, "90 min"), (12_600, "3.5 h")],
)
def test_a_duration_has_a_fitting_unit(seconds: float, text: str) -> None:
    assert text == format_duration(seconds)


def test_a_terminal_has_the_counts_in_its_line(clock: Clock) -> None:
    out = Typewriter()
    terminal = Terminal(out)
    terminal.phase("Running 6 variants", 6)
    terminal.advance(1)
    counts = SweepProgress(terminal, ["a"] * 5, finished=1)
    counts.report(1, 1)
    assert "Running 6 variants 1/6 · 0.0 s · 1 done, 1 running, 4 waiting" == out.line
    clock.now += 4
    counts.finish("a", 4.0, failed=False)
    counts.report(1, 1)
    clock.now += 1
    counts.report(1, 1)
    assert "Running 6 variants 2/6 · 5.0 s · 2 done, 1 running, 3 waiting, about 15 s left" == out.line
    # The next phase of other work has its own words.
    terminal.phase("Calibrating", 3)
    assert "Calibrating 0/3 · 5.0 s" == out.line


def test_a_notebook_has_the_counts_beside_its_bar(clock: Clock, capsys: pytest.CaptureFixture[str]) -> None:
    bar = ProgressBar()
    bar.phase("Running 4 variants", 4)
    counts = SweepProgress(bar, ["a"] * 4)
    counts.report(1, 1)
    clock.now += 2
    counts.finish("a", 2.0, failed=False)
    assert (
        "Running 4 variants 1 of 4 · 2.0 s · 1 done, 1 running, 2 waiting, about 6 s left" == bar._text.value
    )
    assert 0.25 == bar._bar.value
    bar.close()


def test_a_sweep_stops_with_its_reporter_and_by_itself() -> None:
    reporter = Silent()
    first, second = SweepProgress(reporter, []), SweepProgress(reporter, [])
    first.cancel()
    assert (True, False) == (first.stopped(), second.stopped())
    reporter.cancel()
    assert second.stopped()


def test_a_pool_says_what_runs_in_it() -> None:
    go = threading.Event()
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        pending = [pool.submit(go.wait, 10) for _ in range(5)]
        while sum(f.running() for f in pending) < 2:
            time.sleep(0.001)
        assert (2, 2) == count_running([pool], pending)
        go.set()


def test_what_a_pool_hands_to_its_workers_in_advance_does_not_run_yet() -> None:
    pool = SimpleNamespace(_max_workers=2)
    pending: Any = [SimpleNamespace(running=lambda: True)] * 3
    assert (2, 2) == count_running([pool], pending)


def test_a_client_of_dask_says_what_its_workers_process() -> None:
    """Of three keys that a worker with one thread has, two wait there."""
    client = SimpleNamespace(
        scatter=None,
        nthreads=lambda: {"a": 1, "b": 2, "c": 4},
        processing=lambda: {"a": ["x", "y", "z"], "b": ["v"]},
    )
    assert (2, 7) == count_running([SimpleNamespace(_client=client)], [])
    assert (None, None) == count_running([SimpleNamespace(_client=SimpleNamespace(scatter=None))], [])


def test_an_executor_that_says_nothing_is_counted_by_its_futures() -> None:
    pending: Any = [SimpleNamespace(running=lambda: True), SimpleNamespace(running=lambda: False)]
    assert (1, None) == count_running([SimpleNamespace()], pending)
    assert (None, None) == count_running([SimpleNamespace()], pending[1:])


def wait_until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def wait_for_count(executor: Executor, pending: Any, count: tuple[int, int]) -> None:
    wait_until(lambda: count_running([executor], pending) == count)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["processes", "loky"])
def test_a_pool_of_processes_says_what_runs_in_it(kind: str) -> None:
    if kind == "loky":
        loky = pytest.importorskip("joblib.externals.loky", reason="joblib is not installed")
        pool = loky.ProcessPoolExecutor(2)
    else:
        spawn = multiprocessing.get_context("spawn")
        pool = concurrent.futures.ProcessPoolExecutor(2, mp_context=spawn)
    with pool:
        pending = [pool.submit(time.sleep, 0.3) for _ in range(6)]
        wait_for_count(pool, pending, (2, 2))
        concurrent.futures.wait(pending)
        wait_for_count(pool, pending, (0, 2))


@pytest.mark.slow
def test_a_cluster_says_what_runs_on_it() -> None:
    distributed = pytest.importorskip("distributed", reason="the extra dask is not installed")
    with (
        distributed.LocalCluster(
            n_workers=2,
            threads_per_worker=1,
            processes=False,
            dashboard_address="127.0.0.1:0",
            silence_logs=50,
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        executor = client.get_executor(pure=False)
        pending = [executor.submit(time.sleep, 0.5) for _ in range(5)]
        wait_for_count(executor, pending, (2, 2))
        concurrent.futures.wait(pending)
        wait_for_count(executor, pending, (0, 2))


# --- in the background ----------------------------------------------------------------------------------------------


def make_grid() -> rtlab.Grid:
    return rtlab.grid(
        tiny_model(), precision=["fp32", "fp16", "int8"], target=["sm75", "sm86"], backend="classic"
    )


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Lets so many variants through; the others wait."""
    semaphore, run = threading.Semaphore(0), sweep_task.run_task

    def wait(task: SweepTask, progress: Any = None) -> None:
        while not semaphore.acquire(timeout=0.01):
            if progress is not None and progress.stopped():
                raise Cancelled("Stopped. Go on.")
        run(task, progress)

    monkeypatch.setattr(sweep_task, "run_task", wait)
    return semaphore.release


def test_a_sweep_in_the_background_says_how_far_it_is(tmp_path: Path, gate: Callable[[int], None]) -> None:
    made = rtlab.Store(tmp_path / "runs").run(make_grid(), budget_s=0, background=True)
    assert "<Sweep 6 planned (0 done, 1 running, 5 waiting)>" == repr(made)
    gate(2)
    wait_until(lambda: repr(made).startswith("<Sweep 2 built, 4 planned (2 done, 1 running, 3 waiting"))
    gate(4)
    assert "<Sweep 6 built>" == repr(made.wait())
    assert made is made.wait()


def test_a_sweep_in_the_background_can_be_cancelled_and_goes_on(
    tmp_path: Path, gate: Callable[[int], None]
) -> None:
    store = rtlab.Store(tmp_path / "runs")
    made = store.run(make_grid(), budget_s=0, background=True)
    gate(1)
    wait_until(lambda: 1 == len(store.frame()))
    made.cancel()
    with pytest.raises(Cancelled):
        made.wait()
    assert 1 == len(store.frame())
    assert "<Sweep 1 built, 5 planned (Stopped" in repr(made)
    gate(5)
    assert "<Sweep 6 built>" == repr(store.run(make_grid(), budget_s=0))


def test_an_error_of_a_sweep_in_the_background_is_raised_by_who_waits(tmp_path: Path) -> None:
    class Broken(Executor):
        def submit(self, work: Callable[..., Any], /, *arguments: Any, **_: Any) -> Any:
            raise concurrent.futures.BrokenExecutor

    made = rtlab.Store(tmp_path / "runs").run(make_grid(), budget_s=0, executor=Broken(), background=True)
    with pytest.raises(RtlabError, match="a worker of the executor ended"):
        made.wait()


def test_a_sweep_that_goes_on_counts_what_was_there_and_what_had_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two of six are there, one of them as a failure; four are run."""
    seen: list[str] = []

    class Listening(reporters.Reporting):
        def detail(self, text: str) -> None:
            seen.append(text)

    def fail(task: SweepTask, progress: Any = None) -> None:
        if task.name == "fp16":
            raise RtlabError("Cannot build: no luck. Wait.")
        run(task, progress)

    store, run = rtlab.Store(tmp_path / "runs"), sweep_task.run_task
    monkeypatch.setattr(sweep_task, "run_task", fail)
    some = rtlab.grid(tiny_model(), precision=["fp32", "fp16"], target="sm75", backend="classic")
    assert "<Sweep 1 built, 1 failed>" == repr(store.run(some, budget_s=0))
    monkeypatch.setattr(sweep_task, "run_task", run)
    store.run(make_grid(), budget_s=0, progress=Listening(lambda *_: None))
    assert "1 done, 1 running, 1 failed, 3 waiting" == seen[0]


# --- lines before executors -----------------------------------------------------------------------------------------


class Noting(Executor):
    """A pool that counts how many tasks it was given and has not finished, at most."""

    def __init__(self, before: Callable[[], object] = lambda: None) -> None:
        self.pool, self.before = concurrent.futures.ThreadPoolExecutor(2), before
        self.lock, self.given, self.most, self.names = threading.Lock(), 0, 0, list[str]()

    def submit(self, work: Callable[..., Any], /, *arguments: Any, **_: Any) -> Any:
        with self.lock:
            self.given += 1
            self.most = max(self.most, self.given)

        def run() -> None:
            self.before()
            with self.lock:
                self.given -= 1
                self.names.append(arguments[0].name)

        return self.pool.submit(run)


def make_tasks(folder: Path) -> list[SweepTask]:
    return rtlab.Store(folder)._plan(make_grid(), 0)


def test_an_executor_has_so_many_tasks_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of 60 is run once all the same, in the order of the grid."""
    monkeypatch.setattr(sweep_run, "_MOST_GIVEN", 4)
    (task, *_) = make_tasks(tmp_path)
    tasks = [dataclasses.replace(task, key=str(i), name=str(i)) for i in range(60)]
    executor = Noting()
    progress = SweepProgress(Silent(), map(choose_kind, tasks))
    SweepRun(tmp_path, tasks, 0, progress).run_in(executor)
    assert sorted(executor.names, key=int) == [str(i) for i in range(60)]
    assert 2 <= executor.most <= 4
    assert 60 == progress.counts.done


def test_what_waits_for_a_rare_worker_keeps_nothing_else_from_running(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More than has room waits for a GPU, and is first in the grid; it goes on only after all others are done."""
    monkeypatch.setattr(sweep_run, "_MOST_GIVEN", 2)
    monkeypatch.setattr(sweep_run, "list_needs", lambda v: {"gpu": 1.0} if v.precision == "fp32" else {})
    (task, other, *_) = sorted(make_tasks(tmp_path), key=lambda t: t.variant.precision != "fp32")[1:]
    assert ("fp32", "fp32") != (task.variant.precision, other.variant.precision)
    rare = [dataclasses.replace(task, key=f"r{i}", name=f"r{i}") for i in range(6)]
    usual = [dataclasses.replace(other, key=f"u{i}", name=f"u{i}") for i in range(6)]
    come = threading.Event()
    gpu, cpu = Noting(lambda: come.wait(20)), Noting()

    def watch() -> None:
        wait_until(lambda: 6 == len(cpu.names))
        come.set()

    watcher = threading.Thread(target=watch)
    watcher.start()
    tasks = [*rare, *usual]
    progress = SweepProgress(Silent(), map(choose_kind, tasks))
    SweepRun(tmp_path, tasks, 0, progress).run_in(lambda needs: gpu if needs else cpu)
    watcher.join()
    assert (6, 6) == (len(gpu.names), len(cpu.names))


def test_words_about_all_of_it_start_the_phase_anew_with_what_is_done(clock: Clock) -> None:
    out = Typewriter()
    progress = SweepProgress(Terminal(out), ["a"] * 3, finished=2, failed=1)
    clock.now += 1
    progress.announce("3 wait for a worker with gpu=1")
    clock.now += 1
    progress.report(0, 2)
    words = "2 done, 0 running, 1 failed, 3 waiting"
    assert f"Running 6 variants, 3 wait for a worker with gpu=1 3/6 · 2.0 s · {words}" == out.line
