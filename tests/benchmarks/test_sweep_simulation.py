"""What a sweep costs beside its work: 10,000 variants on 200 workers that sleep for measured times.

The workers, and the scheduler of Dask, live in one process of their own; each writes an entry of measured size for each
variant. What remains is real: grid, keys, run loop, progress, store.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

import rtlab
import simulated
from rtlab.core.progress import Reporting
from rtlab.study import store, sweep_task
from rtlab.study.sweep_progress import SweepProgress, choose_kind
from rtlab.study.sweep_rows import SweepRow
from rtlab.study.sweep_run import SweepRun
from rtlab.study.sweep_task import SweepTask

#: The process with scheduler and workers: prints its address, and ends with its standard input. What each worker does
#: for itself, such as looking at its own stack a hundred times a second, is more than one process can do for 200.
CLUSTER = """
import sys
import dask
from distributed import LocalCluster
quiet = {
    "distributed.worker.profile.enabled": False,
    "distributed.admin.system-monitor.interval": "60s",
    "distributed.admin.tick.interval": "2s",
}
if __name__ == "__main__":
    with dask.config.set(quiet), LocalCluster(
        n_workers=int(sys.argv[1]), threads_per_worker=1, processes=False, protocol="tcp://", host="127.0.0.1",
        dashboard_address="127.0.0.1:0", silence_logs=50, memory_limit=0,
    ) as cluster:
        print(cluster.scheduler_address, flush=True)
        sys.stdin.read()
"""


@pytest.fixture
def make_cluster(tmp_path: Path) -> Iterator[Callable[[int], tuple[str, psutil.Process]]]:
    """Start a cluster of so many workers; returns its address and its process."""
    with contextlib.ExitStack() as stack:

        def make(workers: int) -> tuple[str, psutil.Process]:
            script = tmp_path / "cluster.py"
            script.write_text(CLUSTER)
            # Tasks name the module of the simulation.
            folders = [str(Path(simulated.__file__).parent), os.environ.get("PYTHONPATH", "")]
            environment = {**os.environ, "PYTHONPATH": os.pathsep.join(folders)}
            command = [sys.executable, str(script), str(workers)]
            process = stack.enter_context(
                subprocess.Popen(
                    command,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    text=True,
                    cwd="/",
                    env=environment,
                )
            )
            assert process.stdin is not None
            assert process.stdout is not None
            stack.callback(process.stdin.close)
            return process.stdout.readline().strip(), psutil.Process(process.pid)

        yield make


def measure_entries(folder: Path) -> tuple[tuple[SweepRow, dict[str, bytes]], ...]:
    """Rows and files of real variants: their durations and sizes are those of the simulation."""
    made = rtlab.Store(folder / "measured")
    made.run(
        rtlab.grid(
            ["digits_light", "digits_lstm"], precision=["fp32", "int8"], calibrator=["minmax", "mse"],
            backend="onnxruntime", target="cpu",
        )
    )  # fmt: skip
    homes = {row: made.path / store.ENTRIES / row.key for row in made.rows()}
    return tuple(
        (row, {path.name: path.read_bytes() for path in home.iterdir() if path.name != store.ROW})
        for row, home in homes.items()
    )


def make_grid(variants: int) -> rtlab.Grid:
    """So many variants of two models that differ in their calibrators, targets and weights."""
    calibrators = [f"percentile({90 + 10 * i / variants:.5f})" for i in range(variants // 20)]
    return rtlab.grid(
        ["digits_light", "digits_vit"], precision="int8", calibrator=calibrators, backend="classic",
        target=["sm75", "sm80", "sm86", "sm89", "sm120"], weights=["channel", "tensor"],
    )  # fmt: skip


@contextlib.contextmanager
def clocked() -> Iterator[SimpleNamespace]:
    """Wall time and this process's processor time, in seconds."""
    took, wall, cpu = SimpleNamespace(), time.perf_counter(), time.process_time()
    yield took
    took.wall, took.cpu = time.perf_counter() - wall, time.process_time() - cpu


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_ten_thousand_variants_on_two_hundred_workers(
    benchmark: Any, care: Any, make_cluster: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    distributed = pytest.importorskip("distributed", reason="the extra dask is not installed")
    variants, workers, seconds = care.size((10_000, 200, 100.0), (400, 20, 8.0))
    entries = measure_entries(tmp_path)
    mean = statistics.fmean(row.work_s for row, _ in entries)
    recording = simulated.Recording(entries, seconds * workers / variants / mean)
    (tmp_path / simulated.RECORDING).write_bytes(pickle.dumps(recording))
    monkeypatch.setattr(sweep_task, "run_task", simulated.run_task)
    address, process = make_cluster(workers)

    with clocked() as planning:
        grid = make_grid(variants)
    assert variants == len(grid)
    results, words = rtlab.Store(tmp_path / "runs"), list[str]()

    class Listening(Reporting):
        def detail(self, text: str) -> None:
            words.append(text)

    with distributed.Client(address) as client:
        client.wait_for_workers(workers)
        before = process.cpu_times()
        options = {"executor": client.get_executor(), "progress": Listening(lambda *_: None)}
        with clocked() as running:
            made = benchmark.pedantic(results.run, (grid,), options)
        after = process.cpu_times()
        # All workers are threads of one process.
        one = [*client.nthreads()][:1]
        writes = client.run(simulated.list_write_seconds, workers=one)[one[0]]
    picks = [recording.pick(task) for task in made.tasks]
    slept = sum(duration for _, _, duration in picks)
    with clocked() as reading:
        frame = results.frame()
    with clocked() as resuming:
        results.run(grid)
    cluster_cpu = after.user + after.system - before.user - before.system
    size = sum(len(content) for _, files, _ in picks for content in files.values())
    benchmark.extra_info |= {
        "grid_s": planning.wall,
        "run_s": running.wall,
        "ideal_s": slept / workers,
        "per_second": variants / running.wall,
        "parent_cpu_ms_per_task": 1e3 * running.cpu / variants,
        "cluster_cpu_ms_per_task": 1e3 * cluster_cpu / variants,
        "slot_ms_lost_per_task": 1e3 * (running.wall * workers - slept) / variants,
        "write_ms_median": 1e3 * writes[len(writes) // 2],
        "write_ms_95": 1e3 * writes[int(0.95 * len(writes))],
        "gigabytes": size / 1e9,
        "frame_s": reading.wall,
        "frame_cpu_s": reading.cpu,
        "resume_s": resuming.wall,
        "resume_cpu_s": resuming.cpu,
        "parent_peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "last_words": words[-1],
    }
    assert variants == len(frame) == len(writes)
    assert {"built"} == {*frame["status"]}
    assert any("about" in text for text in words)
    # One loop submits, receives and counts: it must not be what workers wait for.
    assert running.cpu / variants < care.most(0.005)
    assert reading.cpu < care.most(2.0 * variants / 10_000 + 0.5)
    assert running.wall < care.most(1.5) * slept / workers + care.most(20)


@pytest.mark.parametrize("part", ["grid", "loop"])
def test_the_cost_of_a_variant_does_not_grow_with_their_number(
    benchmark: Any, care: Any, tmp_path: Path, part: str
) -> None:
    """What looked at all variants for each would be at four times as long for each."""
    large = care.size(8_000, 4_000)
    seconds = {}
    for count in (large // 4, large):
        took = []
        for turn in range(3):
            began = time.process_time()
            grid = make_grid(count)
            if part == "loop":
                results = rtlab.Store(tmp_path / f"{count}-{turn}")
                with results._mark_folder():
                    tasks = results._plan(grid, 0)
                kinds = [choose_kind(task) for task in tasks]
                progress = SweepProgress(Reporting(lambda *_: None), kinds)
                began = time.process_time()
                run_at_once(results.path, tasks, progress)
            took.append(time.process_time() - began)
        seconds[count] = min(took) / count
    benchmark.pedantic(lambda: None)
    ratio = seconds[large] / seconds[large // 4]
    benchmark.extra_info |= {"ms_per_variant": 1e3 * seconds[large], "ratio": ratio}
    assert ratio < 2


def run_at_once(folder: Path, tasks: list[SweepTask], progress: SweepProgress) -> None:
    """The run loop with workers that take no time."""

    class AtOnce(Executor):
        def submit(self, *_: Any, **__: Any) -> Future[Any]:
            done: Future[Any] = Future()
            done.set_result(None)
            return done

    SweepRun(folder, tasks, 0, progress).run_in(AtOnce())
