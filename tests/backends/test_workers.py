"""Workers of executors that die in the middle of their work, as when the system needs their memory."""

from __future__ import annotations

import concurrent.futures
import contextlib
import multiprocessing
import os
import signal
from collections.abc import Iterator
from concurrent.futures import Executor, Future
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rtlab import CalibrationData, Study, Task
from rtlab.core.stage import Stage
from rtlab.errors import RtlabError
from rtlab.study.job import compile_variant
from rtlab.study.stages import measure_all_stages
from rtlab.testing import tiny_model

pytestmark = [
    pytest.mark.skipif(os.name != "posix", reason="there is no SIGKILL"),
    # Dask warns of slow disks and of large graphs, which is no matter of these tests.
    pytest.mark.filterwarnings("ignore::UserWarning"),
]

WORDS = "a worker of the executor ended"


def dies(work: Any, left: str, given: tuple[Any, ...]) -> Any:
    """Kill the worker as often as a file has bytes, and then do the work."""
    path = Path(left)
    if count := len(path.read_bytes()):
        path.write_bytes(b"x" * (count - 1))
        os.kill(os.getpid(), signal.SIGKILL)
    return work(*given)


class Deadly(Executor):
    """An executor whose workers die at one kind of work, so many times."""

    def __init__(self, inner: Executor, work: Any, folder: Path, times: int) -> None:
        self.inner, self.work = inner, work
        self.left = folder / "left"
        self.left.write_bytes(b"x" * times)

    def submit(self, work: Any, /, *given: Any) -> Future[Any]:
        if work is self.work:
            return self.inner.submit(dies, work, str(self.left), given)
        return self.inner.submit(work, *given)


@contextlib.contextmanager
def pool() -> Iterator[Executor]:
    spawn = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(1, mp_context=spawn) as made:
        yield made


@contextlib.contextmanager
def cluster(deaths: int) -> Iterator[Any]:
    """Two workers on this machine, whose scheduler gives a task up of which more than so many of them died."""
    distributed = pytest.importorskip("distributed", reason="the extra dask is not installed")
    dask = pytest.importorskip("dask")
    with (
        dask.config.set({"distributed.scheduler.allowed-failures": deaths}),
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, dashboard_address=None, host="127.0.0.1", silence_logs=50
        ) as made,
        distributed.Client(made) as client,
    ):
        yield client


@pytest.fixture(scope="module")
def patient() -> Iterator[Any]:
    """A cluster that tries a task with another worker, as any does by default."""
    with cluster(3) as client:
        yield client


@pytest.fixture(scope="module")
def hasty() -> Iterator[Any]:
    """A cluster that gives a task up at once."""
    with cluster(0) as client:
        yield client


def planned() -> Study:
    model = tiny_model()
    data = CalibrationData.random(model, samples=8)
    study = Study(model, data=data, task=Task(data, np.arange(8) % 4))
    for name in ("fp32", "int8"):
        study.add(name, target="cpu", backend="onnxruntime")
    return study


def states(study: Study, name: str) -> list[str]:
    return [s.state for s in study[name].stages.values()]


@pytest.mark.slow
@pytest.mark.parametrize("work", [compile_variant, measure_all_stages], ids=["compile", "measure"])
def test_a_cluster_gives_the_task_of_a_worker_that_died_to_another(patient, work, tmp_path) -> None:
    """Nobody notices but by the time that it takes."""
    study = planned()
    study.run(executor=Deadly(patient.get_executor(), work, tmp_path, 1))
    assert b"" == (tmp_path / "left").read_bytes()
    assert ["done", "done", "none", "done"] == states(study, "fp32")
    assert ["done"] * 4 == states(study, "int8")


@pytest.mark.slow
def test_a_variant_whose_build_kills_its_worker_is_a_failure_and_can_be_built_again(hasty, tmp_path) -> None:
    study, executor = planned(), hasty.get_executor()
    study.run(["fp32"], executor=executor)
    with pytest.raises(RtlabError, match=WORDS) as told:
        study.run(["int8"], executor=Deadly(executor, compile_variant, tmp_path, 99))
    assert "KilledWorker" in told.value.details
    assert str(told.value) == str(study.state.failures["int8"])
    assert ["fp32"] == list(study)
    study.run(executor=executor)
    assert ["done"] * 4 == states(study, "int8")


@pytest.mark.slow
def test_a_pool_whose_worker_dies_is_words_and_what_was_built_before_stays(tmp_path) -> None:
    """Python's own pool is done for by one worker that dies; another pool, or none, goes on."""
    study = planned()
    with pool() as executor:
        study.run(["fp32"], executor=executor)
        with pytest.raises(RtlabError, match=f'Cannot build "int8": {WORDS}'):
            study.run(executor=Deadly(executor, compile_variant, tmp_path, 1))
        # The pool is broken, and says so to whoever asks next.
        with pytest.raises(RtlabError, match=WORDS):
            study.run(executor=executor)
    assert ["fp32"] == list(study)
    with pool() as executor:
        study.run(executor=executor)
    assert ["done"] * 4 == states(study, "int8")


@pytest.mark.slow
def test_an_engine_whose_measuring_kills_its_worker_stands_and_the_cluster_goes_on(hasty, tmp_path) -> None:
    """The scheduler gives it up, and so does the study, in words."""
    study = planned()
    study.run(["int8"], executor=Deadly(hasty.get_executor(), measure_all_stages, tmp_path, 99))
    assert ["done", "missing", "missing", "missing"] == states(study, "int8")
    assert study["int8"].engine.layers
    assert WORDS in study["int8"].stages[Stage.TIMED].text
    study.run(executor=hasty.get_executor())
    assert ["done", "done", "none", "done"] == states(study, "fp32")
    # What failed is tried again when somebody asks for it.
    study.measure("int8")
    assert ["done"] * 4 == states(study, "int8")
