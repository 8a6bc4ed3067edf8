"""Workers that are killed at random moments, again and again, change no number of a sweep."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import pickle
import random
import signal
import threading
import time
from concurrent.futures import Executor, Future
from pathlib import Path
from typing import Any

import pytest

import rtlab
from rtlab.errors import RtlabError
from rtlab.study.sweep_task import SweepTask
from rtlab.testing import tiny_model
from tiny_sweep import make_grid, numbers

#: Models with eight variants each.
MODELS, KILLS = 5, 20


def make_large_grid() -> rtlab.Grid:
    studies = []
    for seed in range(MODELS):
        model = dataclasses.replace(tiny_model(), name=f"tiny{seed}")
        data = rtlab.CalibrationData.random(model, samples=8, seed=seed)
        studies.append(rtlab.Study(model, data=data))
    return rtlab.grid(
        studies, precision=["fp32", "fp16", "int8"], backend="onnxruntime", target="cpu",
        calibrator=["auto", "minmax", "mse", "entropy", "percentile", "entropy2"],
    )  # fmt: skip


class KilledWorker(Exception):  # noqa: N818 - as Dask calls it
    """Has the name of what Dask raises."""


class Killing(Executor):
    """Does tasks here, and says of some that their workers were killed, as often as is set.

    As on a Dask cluster, a call of the same arguments is the same task, with the same outcome.
    """

    def __init__(self, deaths: dict[str, int]) -> None:
        self.deaths, self.names = deaths, list[str]()
        self.outcomes: dict[bytes, Future[Any]] = {}

    def submit(self, work: Any, task: SweepTask, /, *rest: Any, **_: Any) -> Future[Any]:
        done: Future[Any] = Future()
        if self.outcomes.setdefault(pickle.dumps((task, rest)), done) is not done:
            return self.outcomes[pickle.dumps((task, rest))]
        self.names.append(task.name)
        if self.deaths.get(task.name, 0) > 0:
            self.deaths[task.name] -= 1
            done.set_exception(KilledWorker(task.name))
        else:
            try:
                done.set_result(work(task, *rest))
            except RtlabError as error:
                done.set_exception(error)
        return done


@pytest.mark.parametrize("deaths", [{"fp16": 1, "int8 mse": 2}, dict.fromkeys(("fp32", "fp16"), 1)])
def test_a_cluster_that_gives_a_task_up_is_asked_again(deaths: dict[str, int], tmp_path: Path) -> None:
    """Dask gives up what waited at four workers that were killed, innocent or not; the cluster is still there."""
    executor = Killing(dict(deaths))
    made = rtlab.Store(tmp_path / "runs").run(make_grid(), executor=executor, budget_s=0)
    assert ["built"] * 4 == made.frame()["status"].tolist()
    assert 4 + sum(deaths.values()) == len(executor.names)


def test_a_variant_that_failed_is_really_tried_again(tmp_path: Path) -> None:
    class Failing(Killing):
        def submit(self, work: Any, task: SweepTask, /, *rest: Any, **options: Any) -> Future[Any]:
            return super().submit(fail if not self.names else work, task, *rest, **options)

    def fail(*_: Any) -> None:
        raise RtlabError("Cannot build: no luck. Wait.")

    executor = Failing({})
    made = rtlab.Store(tmp_path / "runs").run(make_grid(), executor=executor, budget_s=0, retries=1)
    assert ["built"] * 4 == made.frame()["status"].tolist()
    assert 5 == len(executor.names)


def test_what_kills_its_worker_while_nothing_else_runs_has_failed(tmp_path: Path) -> None:
    executor = Killing({"int8 mse": 99, "fp16": 2})
    made = rtlab.Store(tmp_path / "runs").run(make_grid(), executor=executor, budget_s=0)
    frame = made.frame().set_index("variant")
    assert ["built", "built", "built", "failed"] == frame["status"].tolist()
    assert "were killed, one after the other, while nothing else ran" in frame.loc["int8 mse", "error"]
    assert executor.names.count("int8 mse") <= 5


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.filterwarnings("ignore")
@pytest.mark.skipif(os.name != "posix", reason="there is no SIGKILL")
def test_twenty_kills_at_random_moments_change_no_number(tmp_path: Path) -> None:
    """A kill each time that two more variants are there; the nannies of the cluster bring new workers."""
    distributed = pytest.importorskip("distributed", reason="the extra dask is not installed")
    dask = pytest.importorskip("dask")
    whole = rtlab.Store(tmp_path / "whole").run(make_large_grid())
    assert 8 * MODELS == len(whole.tasks)
    entries, over, kills = tmp_path / "runs" / "entries", threading.Event(), 0
    dates: dict[str, int] = {}

    def kill() -> None:
        nonlocal kills
        moments = random.Random(0)  # noqa: S311 - moments of kills
        while kills < KILLS and not over.wait(0.02):
            there = [p for p in entries.glob("*/row.json") if not p.parent.name.startswith(".")]
            for path in there:
                dates.setdefault(path.parent.name, path.stat().st_mtime_ns)
            if len(there) >= 2 * kills:
                time.sleep(moments.uniform(0, 0.8))
                # Only those that answer: a nanny gives up on a worker that is killed before it has begun.
                pids = [*client.run(os.getpid, on_error="ignore").values()]
                if pids:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(moments.choice(pids), signal.SIGKILL)
                        kills += 1

    with (
        # A cluster on this machine else closes a nanny whose worker is away a quarter of a minute after a kill.
        dask.config.set({"distributed.deploy.lost-worker-timeout": "1h"}),
        distributed.LocalCluster(
            n_workers=2,
            threads_per_worker=1,
            dashboard_address="127.0.0.1:0",
            host="127.0.0.1",
            silence_logs=50,
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        killer = threading.Thread(target=kill)
        killer.start()
        try:
            made = rtlab.Store(tmp_path / "runs").run(make_large_grid(), executor=client.get_executor())
        finally:
            over.set()
            killer.join()
    assert kills >= KILLS - 2
    assert numbers(whole) == numbers(made)
    # What was finished was not computed again, and what was half written is no entry.
    assert dates == {key: (entries / key / "row.json").stat().st_mtime_ns for key in dates}
    assert 8 * MODELS == len([p for p in entries.iterdir() if not p.name.startswith(".")])
