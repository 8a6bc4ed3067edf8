"""Workers that do not see the store's folder: copies of studies go to them once, and results come back."""

from __future__ import annotations

import dataclasses
import gc
import os
import pickle
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import weakref
from collections.abc import Callable
from concurrent.futures import Executor, Future
from pathlib import Path
from typing import Any

import onnx
import pytest

import rtlab
from rtlab.core.progress import Silent
from rtlab.errors import RtlabError
from rtlab.study import study_copies, sweep, sweep_run
from rtlab.study.clusters import find_missing
from rtlab.study.study_copies import find_copy, write_copy
from rtlab.study.sweep_task import SweepTask
from rtlab.testing import tiny_model
from tiny_sweep import CHOICES, make_grid, make_study, numbers


@pytest.fixture(autouse=True)
def own_temp(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder for temporary files of the far machine."""
    folder = tmp_path / "temp"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> rtlab.Sweep:
    return rtlab.Store(tmp_path_factory.mktemp("whole") / "runs").run(make_grid(), budget_s=0)


class Scattered:
    """What stands for bytes in a cluster's memory."""

    def __init__(self, content: bytes) -> None:
        self.content = content


class FarCluster(Executor):
    """Has the interface of a Dask executor as far as a sweep uses it; its one worker has other folders."""

    def __init__(self, elsewhere: Path, resources: dict[str, float] | None = None) -> None:
        self.elsewhere, self.resources = elsewhere, resources
        self.scattered: list[weakref.ref[Scattered]] = []
        #: Bytes of each task, and of what came back for it.
        self.task_bytes: list[int] = []
        self.result_bytes: list[int] = []
        self._client = self

    def scatter(self, content: bytes, *, hash: bool) -> Scattered:  # noqa: A002 - as Dask has it
        scattered = Scattered(content)
        self.scattered.append(weakref.ref(scattered))
        return scattered

    def scheduler_info(self) -> Any:
        return {"workers": {} if self.resources is None else {"tcp://far": {"resources": self.resources}}}

    def submit(self, work: Callable[..., Any], task: SweepTask, /, *rest: Any, **_: Any) -> Future[Any]:
        task = dataclasses.replace(task, folder=str(self.elsewhere))
        self.task_bytes.append(len(pickle.dumps(task)))
        done: Future[Any] = Future()
        try:
            result = work(task, *(r.content if isinstance(r, Scattered) else r for r in rest))
            self.result_bytes.append(len(pickle.dumps(result)))
            done.set_result(result)
        except RtlabError as error:
            done.set_exception(error)
        return done


def test_a_study_goes_once_to_a_worker_that_does_not_see_the_store(
    tmp_path: Path, whole: rtlab.Sweep
) -> None:
    """Four variants, one transfer; tasks are small, and the table is the same."""
    far = FarCluster(tmp_path / "elsewhere")
    store = rtlab.Store(tmp_path / "runs")
    made = store.run(make_grid(), executor=far, budget_s=0)
    assert numbers(whole) == numbers(made)
    assert 1 == len(far.scattered)
    # Each was given out before the first said that it lacks the study.
    assert 8 == len(far.task_bytes)
    assert max(far.task_bytes) < 2000
    assert max(far.result_bytes) < 100_000
    assert not (tmp_path / "elsewhere").exists()
    # The results can be opened as others can, and the cluster's memory is free.
    assert ["fp32", "fp16", "int8 auto", "int8 mse"] == list(store.study("tiny"))
    gc.collect()
    assert far.scattered[0]() is None


def test_the_cluster_has_a_copy_no_longer_than_its_study_is_worked_on(tmp_path: Path) -> None:
    """Two models with two variants each: after the second that is finished one copy is free."""
    studies = []
    for name in ("one", "two"):
        model = dataclasses.replace(tiny_model(), name=name)
        data = rtlab.CalibrationData.random(model, samples=8, seed=len(studies))
        studies.append(rtlab.Study(model, data=data))
    far = FarCluster(tmp_path / "elsewhere")
    alive: list[int] = []

    class Counting(Silent):
        def advance(self, steps: int = 1) -> None:
            gc.collect()
            alive.append(sum(scattered() is not None for scattered in far.scattered))

    grid = rtlab.grid(studies, precision=["fp32", "fp16"], backend="onnxruntime", target="cpu")
    made = rtlab.Store(tmp_path / "runs").run(grid, executor=far, budget_s=0, progress=Counting())
    assert ["built"] * 4 == made.frame()["status"].tolist()
    assert 2 == len(far.scattered)
    # What is at hand holds on to the last one.
    assert (2, 1) == (alive[-4], alive[-2])


def test_a_later_sweep_finds_the_copy_on_the_machine(
    tmp_path: Path, own_temp: Path, whole: rtlab.Sweep
) -> None:
    for name, transfers in (("one", 1), ("two", 0)):
        far = FarCluster(tmp_path / f"not {name}")
        rtlab.Store(tmp_path / name).run(make_grid(), executor=far, budget_s=0)
        assert transfers == len(far.scattered)
    # One that was damaged is fetched again.
    (file,) = own_temp.rglob("*.rtlab")
    file.write_bytes(file.read_bytes()[:-100] + bytes(100))
    far = FarCluster(tmp_path / "not three")
    made = rtlab.Store(tmp_path / "three").run(make_grid(), executor=far, budget_s=0)
    assert 1 == len(far.scattered)
    assert numbers(whole) == numbers(made)


def test_another_folder_of_the_same_name_is_not_taken_for_the_store(
    tmp_path: Path, whole: rtlab.Sweep
) -> None:
    """Not even an old copy of the store: nothing is read from it, and nothing lost in it."""
    elsewhere = shutil.copytree(whole.store.path, tmp_path / "elsewhere")
    key = whole.tasks[0].key
    (elsewhere / "entries" / key / "row.json").write_bytes(b"old")
    shutil.rmtree(elsewhere / "entries" / whole.tasks[1].key)
    before = sorted(elsewhere.rglob("*"))
    made = rtlab.Store(tmp_path / "runs").run(make_grid(), executor=FarCluster(elsewhere), budget_s=0)
    assert numbers(whole) == numbers(made)
    assert before == sorted(elsewhere.rglob("*"))


def test_copies_have_a_limit_of_bytes(own_temp: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was used last stays, and so does the new one, however large."""
    monkeypatch.setattr(study_copies, "_MOST_BYTES", 25)
    paths = [write_copy(name, name.encode() * 10) for name in ("a", "b")]
    for age, path in zip((10, 20), paths, strict=True):
        os.utime(path, (time.time() - age, time.time() - age))
    write_copy("c", b"c" * 10)
    assert [True, False, True] == [find_copy(name) is not None for name in "abc"]
    write_copy("d", b"d" * 100)
    assert [False] * 3 + [True] == [find_copy(name) is not None for name in "abcd"]


@pytest.mark.skipif(os.name != "posix", reason="folders have no owner")
def test_a_folder_that_others_can_write_to_has_no_copies(own_temp: Path) -> None:
    folder = own_temp / f"rtlab-studies-{os.getuid()}"
    folder.mkdir()
    folder.chmod(0o777)
    with pytest.raises(RtlabError, match="others can write to it"):
        find_copy("a")


def test_weights_beside_the_store_do_not_travel_and_the_row_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sweep, "MOST_BYTES", 0)
    path = tmp_path / "near" / "models" / "tiny.onnx"
    path.parent.mkdir(parents=True)
    onnx.save(tiny_model().proto(), path)
    study = make_study()
    grid = rtlab.grid(rtlab.Study(rtlab.load(path), data=study.data), backend="onnxruntime", target="cpu")
    far = FarCluster(tmp_path / "elsewhere")
    row = rtlab.Store(tmp_path / "near" / "runs").run(grid, executor=far, budget_s=0).rows()[0]
    assert "failed" == row.status
    assert 'the weights of model "tiny" lie beside the store' in row.error


# --- what workers have ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("resources", "needs", "words"),
    [
        (None, {}, "a worker"),
        ({}, {}, ""),
        ({}, {"gpu": 1.0}, "a worker with gpu=1"),
        ({"gpu": 1, "timer": 1}, {"gpu": 1.0, "timer": 1.0}, ""),
        ({"gpu": 1}, {"gpu": 2.0, "timer": 1.0}, "a worker with gpu=2 timer=1"),
    ],
)
def test_what_no_worker_has_is_said(
    resources: dict[str, float] | None, needs: dict[str, float], words: str, tmp_path: Path
) -> None:
    cluster = FarCluster(tmp_path, resources)
    cluster._kwargs = {"resources": needs or None}
    assert words == find_missing(cluster)


class Phases(Silent):
    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def phase(self, name: str, total: int | None = None) -> None:
        self.names.append(name)


def test_the_progress_says_what_variants_wait_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(sweep_run, "_LOOK_S", 0.01)
    progress = Phases()

    class Idle(FarCluster):
        """Does the task once the progress has said that it waits."""

        _kwargs = {"resources": {"gpu": 1.0}}  # noqa: RUF012 - as Dask has it
        waiting: Any = None

        def submit(self, *arguments: Any, **_: Any) -> Future[Any]:
            self.waiting, done = arguments, Future()
            return done

        def scheduler_info(self) -> Any:
            if len(progress.names) > 1 and self.waiting is not None:
                self.resources = {"gpu": 1}
                done, self.waiting = super().submit(*self.waiting), None
                for future in pending:
                    future.set_result(done.result())
            return super().scheduler_info()

    cluster = Idle(tmp_path / "runs", {})
    pending: list[Future[Any]] = []
    submit = cluster.submit

    def note(*arguments: Any, **options: Any) -> Future[Any]:
        pending.append(submit(*arguments, **options))
        return pending[-1]

    cluster.submit = note  # type: ignore[method-assign]
    grid = rtlab.grid(make_study(), **{**CHOICES, "precision": "fp32"})
    rtlab.Store(tmp_path / "runs").run(grid, executor=cluster, budget_s=0, progress=progress)
    assert "Running 1 variant" == progress.names[0]
    assert "Running 1 variant, 1 wait for a worker with gpu=1" == progress.names[1]
    assert "the sweep: 1 wait for a worker with gpu=1" in caplog.text


# --- a real cluster -------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("is_killed", [False, True])
@pytest.mark.skipif(os.name != "posix", reason="there is no SIGKILL")
def test_a_cluster_without_the_folder_fills_the_store(
    is_killed: bool, tmp_path: Path, own_temp: Path, whole: rtlab.Sweep
) -> None:
    """Also where the worker is killed that holds the copy, before any other has it."""
    distributed = pytest.importorskip("distributed", reason="the extra dask is not installed")
    sent = 0

    class Far(Executor):
        def __init__(self, client: Any) -> None:
            self.client, self.inner, self._client = client, client.get_executor(), self

        def scheduler_info(self) -> Any:
            return self.client.scheduler_info()

        def scatter(self, content: bytes, **options: Any) -> Any:
            nonlocal sent
            future = self.client.scatter(content, **options)
            if is_killed and not sent:
                ((holder,),) = self.client.who_has([future]).values()
                os.kill(pids[holder], signal.SIGKILL)
            sent += 1
            return future

        def submit(self, work: Callable[..., Any], task: SweepTask, /, *rest: Any, **_: Any) -> Future[Any]:
            return self.inner.submit(work, dataclasses.replace(task, folder=str(tmp_path / "far")), *rest)

    with (
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, dashboard_address="127.0.0.1:0", host="127.0.0.1", silence_logs=50,
            env={"TMPDIR": str(own_temp)},
        ) as cluster,
        distributed.Client(cluster) as client,
    ):  # fmt: skip
        pids = client.run(os.getpid)
        made = rtlab.Store(tmp_path / "runs").run(make_grid(), executor=Far(client), budget_s=0)
    assert numbers(whole) == numbers(made)
    assert 1 <= sent <= 1 + is_killed
    assert not (tmp_path / "far").exists()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_variants_wait_for_a_worker_that_comes_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    distributed = pytest.importorskip("distributed", reason="the extra dask is not installed")
    monkeypatch.setattr(sweep_run, "_LOOK_S", 0.2)
    workers: list[subprocess.Popen[bytes]] = []

    class Starting(Phases):
        def phase(self, name: str, total: int | None = None) -> None:
            super().phase(name)
            if "wait for a worker with timer=1" in name:
                command = [sys.executable, "-m", "distributed.cli.dask_worker", address, "--nthreads", "1"]
                options = ["--resources", "timer=1", "--no-dashboard", "--host", "127.0.0.1"]
                workers.append(subprocess.Popen([*command, *options], stderr=subprocess.DEVNULL))

    progress = Starting()
    with (
        distributed.LocalCluster(
            n_workers=1,
            threads_per_worker=1,
            dashboard_address="127.0.0.1:0",
            host="127.0.0.1",
            silence_logs=50,
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        address = cluster.scheduler_address
        try:
            made = rtlab.Store(tmp_path / "runs").run(
                make_grid(),
                executor=lambda needs: client.get_executor(resources={**needs, "timer": 1}),
                budget_s=0,
                progress=progress,
            )
        finally:
            for worker in workers:
                worker.terminate()
                worker.wait()
    assert ["built"] * 4 == made.frame()["status"].tolist()
    assert 1 == len(workers)
    assert "Running 4 variants, 4 wait for a worker with timer=1" in progress.names
