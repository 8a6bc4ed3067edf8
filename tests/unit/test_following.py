"""The Explorer on a store shows results as they come, and looks into the folder until it is closed."""

from __future__ import annotations

import gc
import shutil
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import rtlab
from rtlab.errors import ReadError, RtlabError, VariantError
from rtlab.study import following, sweep_task
from rtlab.study.sweep_task import SweepTask
from rtlab.testing import tiny_model


def make_grid(*precisions: str) -> rtlab.Grid:
    return rtlab.grid(tiny_model(), precision=[*precisions], backend="classic", target="sm86")


@pytest.fixture(autouse=True)
def _often(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Look often, and leave no thread behind."""
    monkeypatch.setattr(following, "_PERIOD_S", 0.01)
    yield
    wait_until(lambda: not list_followers())


def list_followers() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "rtlab-store"]


def wait_until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def get_chips(explorer: Any) -> dict[str, str]:
    """The rows of the variants' table by name, with their status."""
    return {chip["id"]: chip["status"] for chip in explorer.chips}


def test_rows_come_while_a_sweep_runs_in_the_background(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    semaphore, run = threading.Semaphore(0), sweep_task.run_task

    def wait(task: SweepTask, progress: Any = None) -> None:
        semaphore.acquire()
        run(task, progress)

    monkeypatch.setattr(sweep_task, "run_task", wait)
    store = rtlab.Store(tmp_path / "runs")
    made = store.run(make_grid("fp32", "fp16", "int8"), budget_s=0, background=True)
    explorer = made.explore()
    assert {} == get_chips(explorer)
    semaphore.release()
    wait_until(lambda: get_chips(explorer) == {"fp32": "ready"})
    # The first engine is shown at once, and stays when others come.
    assert "fp32" == explorer.state.variant
    stamp = explorer.stamp
    semaphore.release(2)
    wait_until(lambda: [*get_chips(explorer)] == ["fp32", "fp16", "int8"])
    assert "fp32" == explorer.state.variant
    assert explorer.stamp > stamp
    assert ["fp32", "fp16", "int8"] == [*explorer.study]
    made.wait()
    explorer.close()


def test_rows_of_another_process_come_too(tmp_path: Path) -> None:
    """What arrives in the folder counts, whoever wrote it; of other models nothing does."""
    full, store = rtlab.Store(tmp_path / "full"), rtlab.Store(tmp_path / "runs")
    full.run(make_grid("fp32", "fp16", "int8"), budget_s=0)
    store.run(make_grid("fp32"), budget_s=0)
    other = rtlab.Store(tmp_path / "other")
    other.run(rtlab.grid("digits_light", precision="fp32", backend="classic", target="sm86"), budget_s=0)
    explorer = store.explore("tiny")
    assert {"fp32": "ready"} == get_chips(explorer)
    for source in (other, full):
        for row in source.rows():
            home = source.path / "entries" / row.key
            # As ``write_entry`` does: beside, and then renamed.
            part = shutil.copytree(home, store.path / "entries" / f".{row.key}.part")
            if not (store.path / "entries" / row.key).exists():
                part.rename(store.path / "entries" / row.key)
    wait_until(lambda: 3 == len(explorer.chips))
    assert ["fp32", "fp16", "int8"] == [*get_chips(explorer)]
    assert "<Explorer tiny: 3 variants>" == repr(explorer)
    explorer.close()


def test_a_variant_that_failed_is_a_row_and_then_the_same_row_when_it_is_built(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = sweep_task.run_task

    def fail(task: SweepTask, progress: Any = None) -> None:
        if task.name == "fp16":
            raise RtlabError("Cannot build: no luck. Wait.")
        run(task, progress)

    store = rtlab.Store(tmp_path / "runs")
    with monkeypatch.context() as context:
        context.setattr(sweep_task, "run_task", fail)
        made = store.run(make_grid("fp32", "fp16"), budget_s=0)
    explorer = made.explore()
    assert {"fp32": "ready", "fp16": "failed"} == get_chips(explorer)
    store.run(make_grid("fp32", "fp16"), budget_s=0, again=True)
    wait_until(lambda: get_chips(explorer) == {"fp32": "ready", "fp16": "ready"})
    explorer.close()


def test_an_entry_that_is_not_there_as_a_whole_is_read_when_it_is(tmp_path: Path) -> None:
    store = rtlab.Store(tmp_path / "runs")
    made = store.run(make_grid("fp32", "fp16"), budget_s=0)
    row = store.path / "entries" / made.tasks[1].key / "row.json"
    content = row.read_bytes()
    row.write_bytes(content[:50])
    explorer = made.explore()
    time.sleep(0.1)
    assert {"fp32": "ready"} == get_chips(explorer)
    row.write_bytes(content)
    wait_until(lambda: get_chips(explorer) == {"fp32": "ready", "fp16": "ready"})
    explorer.close()


def test_nothing_looks_into_the_folder_once_the_widget_is_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = rtlab.Store(tmp_path / "runs")
    explorer = store.run(make_grid("fp32"), budget_s=0).explore()
    assert 1 == len(list_followers())
    explorer.close()
    wait_until(lambda: not list_followers())
    looked: list[str] = []
    monkeypatch.setattr(type(store), "list_keys", lambda _: looked.append("again"))
    time.sleep(0.05)
    assert [] == looked


def test_nothing_looks_into_the_folder_once_another_model_is_open(tmp_path: Path) -> None:
    explorer = rtlab.Store(tmp_path / "runs").run(make_grid("fp32"), budget_s=0).explore()
    explorer.load("digits_light").wait()
    wait_until(lambda: not list_followers())
    explorer.close()


def test_a_folder_that_goes_away_meanwhile_is_no_end(tmp_path: Path) -> None:
    """A network drive may be away for a while."""
    store = rtlab.Store(tmp_path / "runs")
    made = store.run(make_grid("fp32"), budget_s=0)
    explorer = made.explore()
    store.path.rename(tmp_path / "away")
    time.sleep(0.05)
    (tmp_path / "away").rename(store.path)
    store.run(make_grid("fp32", "fp16"), budget_s=0)
    wait_until(lambda: 2 == len(explorer.chips))
    explorer.close()


def test_what_is_not_there_cannot_be_explored(tmp_path: Path) -> None:
    store = rtlab.Store(tmp_path / "runs")
    made = store.run(make_grid("fp32"), budget_s=0)
    with pytest.raises(ReadError, match='Cannot open the study of "nothing"'):
        store.explore("nothing")
    with pytest.raises(VariantError, match='the sweep has no variants of "nothing"'):
        made.explore("nothing")


def test_a_study_that_is_gone_is_not_kept_by_its_follower(tmp_path: Path) -> None:
    made = rtlab.Store(tmp_path / "runs").run(make_grid("fp32"), budget_s=0)
    explorer = made.explore()
    study = weakref.ref(explorer.study)
    explorer.close()
    wait_until(lambda: not list_followers())
    del explorer
    gc.collect()
    assert study() is None
