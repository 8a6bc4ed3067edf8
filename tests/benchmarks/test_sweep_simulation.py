"""What a sweep costs beside its work: 10,000 variants on 200 workers that sleep for measured times.

The workers, and the scheduler of Dask, live in one process of their own; each writes an entry of measured size for each
variant. What remains is real: grid, keys, run loop, progress, store.
"""

from __future__ import annotations

import contextlib
import pickle
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

import rtlab
from rtlab.core.progress import Reporting
from rtlab.study import sweep
from rtlab.study.sweep import SweepTask

#: The process with scheduler and workers: prints its address, and ends with its standard input.
CLUSTER = """
import sys
from distributed import LocalCluster
if __name__ == "__main__":
    with LocalCluster(
        n_workers=int(sys.argv[1]), threads_per_worker=1, processes=False, protocol="tcp://", host="127.0.0.1",
        dashboard_address=":0", silence_logs=50, memory_limit=0,
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
            command = [sys.executable, str(script), str(workers)]
            process = stack.enter_context(
                subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd="/")
            )
            assert process.stdin is not None
            assert process.stdout is not None
            stack.callback(process.stdin.close)
            return process.stdout.readline().strip(), psutil.Process(process.pid)

        yield make


def make_simulation(folder: Path, scale: float) -> Callable[[SweepTask], None]:
    """A stand-in for ``run_task`` that sleeps for a measured time, and writes a measured entry.

    What it needs is in the folder; it goes to the workers by value.
    """
    path = str(folder / "measured.pickle")

    def simulate(task: SweepTask) -> None:
        import dataclasses
        import pickle
        import time
        from pathlib import Path

        from distributed import get_worker

        from rtlab.study import store, sweep

        # All workers are threads of one process.
        shared = get_worker().__class__
        if not hasattr(shared, "measured"):
            shared.measured, shared.writes = pickle.loads(Path(path).read_bytes()), []
        row, files = shared.measured[int(task.key[:8], 16) % len(shared.measured)]
        time.sleep(row.work_s * scale)
        began = time.perf_counter()
        own_row = dataclasses.replace(
            row, **{n: getattr(task, n) for n in ("model", "study", "key")}, variant=task.name
        )
        content = {sweep._ROW: sweep._encode_row(own_row), **files}
        store.write_entry(Path(task.folder) / "entries", task.key, content)
        shared.writes.append(time.perf_counter() - began)

    return simulate


def measure_entries(folder: Path) -> list[tuple[Any, dict[str, bytes]]]:
    """Rows and files of real variants: their durations and sizes are those of the simulation."""
    store = rtlab.Store(folder / "measured")
    store.run(
        rtlab.grid(
            ["digits_light", "digits_lstm"], precision=["fp32", "int8"], calibrator=["minmax", "mse"],
            backend="onnxruntime", target="cpu",
        )
    )  # fmt: skip
    entries = []
    for row in store.rows():
        home = store.path / "entries" / row.key
        files = {path.name: path.read_bytes() for path in home.iterdir() if path.name != sweep._ROW}
        entries.append((row, files))
    return entries


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
    measured = measure_entries(tmp_path)
    (tmp_path / "measured.pickle").write_bytes(pickle.dumps(measured))
    mean = sum(row.work_s for row, _ in measured) / len(measured)
    scale = seconds * workers / variants / mean
    monkeypatch.setattr(sweep, "run_task", make_simulation(tmp_path, scale))
    address, process = make_cluster(workers)

    with clocked() as planning:
        grid = make_grid(variants)
    assert variants == len(grid)
    store, words = rtlab.Store(tmp_path / "runs"), list[str]()

    class Listening(Reporting):
        def detail(self, text: str) -> None:
            words.append(text)

    with distributed.Client(address) as client:
        client.wait_for_workers(workers)
        before = process.cpu_times()
        with clocked() as running:
            made = benchmark.pedantic(
                store.run,
                (grid,),
                {"executor": client.get_executor(), "progress": Listening(lambda *_: None)},
            )
        after = process.cpu_times()
        writes = sorted(next(iter(client.run(lambda dask_worker: dask_worker.__class__.writes).values())))
    keys = [int(task.key[:8], 16) % len(measured) for task in made.tasks]
    slept = sum(measured[i][0].work_s for i in keys) * scale
    with clocked() as reading:
        frame = store.frame()
    with clocked() as resuming:
        store.run(grid)
    cluster_cpu = after.user + after.system - before.user - before.system
    size = sum(len(content) for i in keys for content in measured[i][1].values())
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
        "resume_s": resuming.wall,
        "parent_peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "last_words": words[-1],
    }
    assert variants == len(frame) == len(writes)
    assert {"built"} == {*frame["status"]}
    assert f"{variants} done" in words[-1] or any("left" in text for text in words)
    # One loop submits, receives and counts: it must not be what workers wait for.
    assert running.cpu / variants < care.most(0.005)
    assert reading.wall < care.most(2.0 * variants / 10_000 + 1)
    assert running.wall < care.most(1.5) * slept / workers + care.most(20)


@pytest.mark.parametrize("part", ["grid", "loop"])
def test_the_cost_of_a_variant_does_not_grow_with_their_number(
    benchmark: Any, care: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, part: str
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
                store = rtlab.Store(tmp_path / f"{count}-{turn}")
                store._prepare_folder()
                tasks = store._plan(grid, 0)
                kinds = [sweep.choose_kind(task.study, task.variant) for task in tasks]
                progress = sweep.SweepProgress(Reporting(lambda *_: None), kinds)
                began = time.process_time()
                run_at_once(store.path, tasks, progress, monkeypatch)
            took.append(time.process_time() - began)
        seconds[count] = min(took) / count
    benchmark.pedantic(lambda: None)
    ratio = seconds[large] / seconds[large // 4]
    benchmark.extra_info |= {"ms_per_variant": 1e3 * seconds[large], "ratio": ratio}
    assert ratio < 2


def run_at_once(folder: Path, tasks: list[SweepTask], progress: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The run loop with workers that take no time."""
    from concurrent.futures import Executor, Future

    class AtOnce(Executor):
        def submit(self, *_: Any, **__: Any) -> Future[Any]:
            done: Future[Any] = Future()
            done.set_result(None)
            return done

    sweep._SweepRun(folder, tasks, 0, progress).run_in(AtOnce())
