"""What a sweep costs beside the builds in it: on a cluster, in the store, in bytes to and from a worker."""

from __future__ import annotations

import concurrent.futures
import dataclasses
import multiprocessing
import pickle
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import Executor, Future
from pathlib import Path
from typing import Any

import pytest

import rtlab
from rtlab.study.sweep_rows import encode_row
from rtlab.study.sweep_task import SweepTask

distributed = pytest.importorskip("distributed", reason="the extra dask is not installed")

#: Prints the seconds that the table of a store takes, the bytes of the peak, and its rows. ``ru_maxrss`` would count
#: the process that started this one.
READ = """
import sys, time
import rtlab
store = rtlab.Store(sys.argv[1])
began = time.perf_counter()
rows = len(store.frame())
seconds = time.perf_counter() - began
peak = next(line for line in open("/proc/self/status") if line.startswith("VmHWM:")).split()[1]
print(seconds, int(peak) * 1024, rows)
"""
CALIBRATORS = ["auto", "minmax", "mse", "entropy", "percentile", "entropy2"]
#: With calibrators ten choices for each target, eight on the CPU.
PRECISIONS = {
    "tensorrt-rtx": ["fp32", "tf32", "fp16", "bf16", "int8"],
    "onnxruntime": ["fp32", "fp16", "int8"],
}


def make_grid(name: str, backend: str, targets: list[str]) -> rtlab.Grid:
    sample = rtlab.samples.load(name, samples=8)
    study = rtlab.Study(sample.model, data=sample.calibration)
    return rtlab.grid(
        study, precision=PRECISIONS[backend], calibrator=CALIBRATORS, backend=backend, target=targets
    )


def build(name: str, backend: str, targets: list[str], part: slice) -> float:
    """The builds of a part of a grid in a bare process; returns the seconds."""
    grid = make_grid(name, backend, targets)
    state = grid.variants[0].state
    study = rtlab.Study(state.model, data=state.data)
    began = time.perf_counter()
    for planned in grid.variants[part]:
        study._holder.plan(planned.name, planned.variant, None)
        if planned.variant.calibrator is not None:
            study._runner.ranges(planned.variant, rtlab.core.progress.Silent(), None)
        study.run([planned.name], budget_s=0)
    return time.perf_counter() - began


@pytest.fixture
def pool() -> Iterator[Executor]:
    spawn = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(2, mp_context=spawn) as executor:
        for done in [executor.submit(time.sleep, 1), executor.submit(time.sleep, 1)]:
            done.result()
        yield executor


@pytest.fixture
def cluster() -> Iterator[Any]:
    with (
        distributed.LocalCluster(
            n_workers=2,
            threads_per_worker=1,
            dashboard_address="127.0.0.1:0",
            host="127.0.0.1",
            silence_logs=50,
        ) as local,
        distributed.Client(local) as client,
    ):
        yield client.get_executor()


@pytest.mark.timeout(1800)
def test_a_cluster_of_two_gains_what_two_bare_processes_do(
    benchmark: Any, care: Any, cluster: Executor, pool: Executor, tmp_path: Path
) -> None:
    """40 variants without timings; both sides are warm, and each worker calibrates once."""
    targets = care.size(["sm80", "sm86", "sm89", "sm120"], ["cpu"])
    name, backend = care.size(("mobilenet_v2", "tensorrt-rtx"), ("digits_light", "onnxruntime"))
    small = make_grid("digits_light", "onnxruntime", ["cpu"])
    rtlab.Store(tmp_path / "warm").run(small, executor=cluster, budget_s=0)
    warm = [pool.submit(build, "digits_light", "onnxruntime", ["cpu"], slice(i, None, 2)) for i in range(2)]
    assert [True] * 2 == [done.result() > 0 for done in warm]
    grid = make_grid(name, backend, targets)
    assert (len(PRECISIONS[backend]) - 1 + len(CALIBRATORS)) * len(targets) == len(grid)
    halves = [pool.submit(build, name, backend, targets, slice(i, None, 2)) for i in range(2)]
    bare = max(done.result() for done in halves)
    store = rtlab.Store(tmp_path / "runs")
    began = time.perf_counter()
    made = benchmark.pedantic(lambda: store.run(grid, executor=cluster, budget_s=0), rounds=1)
    spent = time.perf_counter() - began
    assert {"built"} == {row.status for row in made.rows()}
    benchmark.extra_info |= {"gain_of_bare": bare / spent, "s": spent}
    assert bare / spent >= care.least(0.9)
    # The same grid again computes nothing.
    began = time.perf_counter()
    store.run(make_grid(name, backend, targets), executor=cluster, budget_s=0)
    again = time.perf_counter() - began
    benchmark.extra_info["again_s"] = again
    assert again <= care.most(2.0)


def test_a_task_costs_little_beyond_its_build(
    benchmark: Any, care: Any, cluster: Executor, pool: Executor, tmp_path: Path
) -> None:
    """Small builds on one worker after the other, against the same in a bare process."""
    choice = "digits_light", "onnxruntime", ["cpu"]
    grid = make_grid(*choice)
    rtlab.Store(tmp_path / "warm").run(grid, executor=cluster, budget_s=0)
    pool.submit(build, *choice, slice(None)).result()

    def measure(number: int) -> float:
        bare = pool.submit(build, *choice, slice(None)).result()
        began = time.perf_counter()
        for planned in grid.variants:
            one = dataclasses.replace(grid, variants=(planned,))
            rtlab.Store(tmp_path / f"runs{number}").run(one, executor=cluster, budget_s=0)
        return (time.perf_counter() - began - bare) / len(grid)

    overheads = [measure(i) for i in range(care.size(7, 2))]
    benchmark.pedantic(lambda: None)
    benchmark.extra_info["overhead_ms"] = statistics.median(overheads) * 1e3
    assert statistics.median(overheads) <= care.most(0.05)


def test_the_table_of_10_000_results_takes_two_seconds_and_a_gigabyte(
    benchmark: Any, care: Any, tmp_path: Path
) -> None:
    count = care.size(10_000, 1_000)
    store = rtlab.Store(tmp_path / "runs")
    row = store.run(rtlab.grid("digits_light", backend="onnxruntime", target="cpu"), budget_s=1).rows()[0]
    store.remove(row.key)
    for i in range(count):
        home = store.path / "entries" / f"{i:032x}"
        home.mkdir()
        content = encode_row(dataclasses.replace(row, key=home.name, variant=f"v{i:05}"))
        (home / "row.json").write_bytes(content)

    def read() -> list[float]:
        command = [sys.executable, "-c", READ, str(store.path)]
        return [
            float(s)
            for s in subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
        ]

    seconds, peak, rows = benchmark.pedantic(read, rounds=1)
    benchmark.extra_info |= {"s": seconds, "peak_mb": peak / 1e6}
    assert count == rows
    assert seconds <= care.most(2.0)
    assert peak <= 1e9


class Far(Executor):
    """Does tasks here as on a machine that does not see the store, and counts bytes both ways."""

    def __init__(self, elsewhere: Path) -> None:
        self.elsewhere, self._client = elsewhere, self
        self.copies: list[int] = []
        self.bytes_by_variant: dict[str, int] = {}

    def scheduler_info(self) -> Any:
        return {"workers": {"far": {"resources": {}}}}

    def scatter(self, content: bytes, **_: Any) -> bytes:
        self.copies.append(len(content))
        return content

    def submit(self, work: Any, task: SweepTask, /, *rest: Any, **_: Any) -> Future[Any]:
        task = dataclasses.replace(task, folder=str(self.elsewhere))
        done: Future[Any] = Future()
        done.set_result(work(task, *rest))
        size = len(pickle.dumps(task)) + len(pickle.dumps(done.result()))
        self.bytes_by_variant[task.name] = max(size, self.bytes_by_variant.get(task.name, 0))
        return done


@pytest.mark.timeout(1800)
def test_a_task_of_resnet50_is_two_megabytes_both_ways(
    benchmark: Any, care: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Samples included; the study's file, with weights and samples, goes to a worker once."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    name, backend = care.size(("resnet50", "tensorrt-rtx"), ("digits_light", "onnxruntime"))
    sample = rtlab.samples.load(name, samples=8)
    study = rtlab.Study(sample.model, data=sample.calibration, task=sample.task)
    targets = {"target": "cpu"} if backend == "onnxruntime" else {}
    grid = rtlab.grid(study, precision=["fp16", "int8"], backend=backend, **targets)
    far = Far(tmp_path / "elsewhere")
    store = rtlab.Store(tmp_path / "runs")
    benchmark.pedantic(lambda: store.run(grid, executor=far, budget_s=care.size(60.0, 2.0)), rounds=1)
    benchmark.extra_info |= {"bytes": far.bytes_by_variant, "copy": far.copies}
    assert 1 == len(far.copies)
    assert max(far.bytes_by_variant.values()) <= 2e6
