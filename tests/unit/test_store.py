"""Stores and sweeps: what is there is not computed again, and nothing that befalls one result costs another."""

from __future__ import annotations

import concurrent.futures
import dataclasses
import errno
import json
import multiprocessing
import os
import pickle
import shutil
import signal
import time
import zipfile
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

import rtlab
from nets import graph
from rtlab.core.progress import Silent
from rtlab.errors import CalibrationError, ReadError, RtlabError, VariantError
from rtlab.study import runner, stages, sweep, sweep_task
from rtlab.study import store as entries
from rtlab.study.sweep_progress import SweepProgress, choose_kind
from rtlab.study.sweep_rows import add_deltas, encode_row
from rtlab.study.sweep_run import SweepRun
from rtlab.study.sweep_task import SweepTask, run_task
from rtlab.testing import tiny_model
from tiny_sweep import CHOICES, TIMES, make_grid, make_study, numbers


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> rtlab.Sweep:
    """A sweep that nothing disturbed."""
    return rtlab.Store(tmp_path_factory.mktemp("whole") / "runs").run(make_grid())


@pytest.fixture
def copied(whole: rtlab.Sweep, tmp_path: Path) -> rtlab.Store:
    """A store of the same results, to damage."""
    return rtlab.Store(shutil.copytree(whole.store.path, tmp_path / "copied"))


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the variants that are run."""
    ran: list[str] = []

    def run(task: SweepTask, progress: Any = None) -> None:
        ran.append(task.name)
        run_task(task, progress)

    monkeypatch.setattr(sweep_task, "run_task", run)
    return ran


# --- grids ----------------------------------------------------------------------------------------------------------


def test_a_grid_is_the_product_without_what_cannot_exist() -> None:
    """2 targets times 3 precisions with 2 calibrators; fp16 has no scales, and Turing no fp8."""
    grid = rtlab.grid(
        tiny_model(), precision=["fp16", "int8", "fp8"], calibrator=["minmax", "mse"], target=["sm75", "sm89"],
        backend="classic",
    )  # fmt: skip
    names = ["fp16 sm75", "fp16 sm89"]
    names += [f"int8 {how} {sm}" for how in ("minmax", "mse") for sm in ("sm75", "sm89")]
    assert [*names, "fp8 minmax sm89", "fp8 mse sm89"] == [v.name for v in grid]
    assert ["fp8 minmax sm75", "fp8 mse sm75"] == [s.name for s in grid.skipped]
    assert all('Target "sm75" has no "fp8" arithmetic' in s.reason for s in grid.skipped)
    assert "<Grid 1 model: 8 variants, 2 skipped>" == repr(grid)


def test_a_grid_takes_models_by_name_and_samples_with_their_task() -> None:
    grid = rtlab.grid(["digits_light", tiny_model()], precision="fp32", backend="classic", target="sm86")
    assert ["digits_light", "tiny"] == [v.state.model.name for v in grid]
    assert [True, False] == [v.state.task is not None for v in grid]


def test_names_differ_where_two_choices_are_written_alike() -> None:
    """Node "smooth" is pruned, or all are smoothed: the second that is called so is named by all of its choices."""
    weights = {name: np.eye(8, dtype=np.float32) for name in "vw"}
    nodes = [
        helper.make_node("MatMul", ["x", "v"], ["a"], name="smooth"),
        helper.make_node("MatMul", ["a", "w"], ["y"]),
    ]
    model = graph(nodes, [("x", 1, [2, 8])], [("y", 1, [2, 8])], weights)
    grid = rtlab.grid(
        model,
        precision="int8",
        sparsity=[(), "smooth"],
        treatments=[(), "smooth"],
        backend="classic",
        target="sm86",
    )
    choices = {v.name: (v.variant.sparsity, len(v.variant.treatments)) for v in grid}
    assert [((), 0), ((), 1), (("smooth",), 0), (("smooth",), 1)] == sorted(choices.values())
    assert ((), 1) == choices["int8 smooth"]


@pytest.mark.parametrize(
    ("models", "choices", "kind", "words"),
    [
        (tiny_model(), {"colour": ["red"]}, VariantError, 'Cannot vary "colour": a grid varies "precision"'),
        ([tiny_model(), tiny_model()], {}, VariantError, 'several are called "tiny". Name them'),
        (3, {}, RtlabError, "Cannot make a grid of 3: it is no model"),
    ],
)
def test_what_is_no_grid_is_refused_in_words(models: Any, choices: Any, kind: type, words: str) -> None:
    with pytest.raises(kind, match=words):
        rtlab.grid(models, **choices)


# --- what is there --------------------------------------------------------------------------------------------------


def test_what_is_there_is_not_computed_again(whole: rtlab.Sweep, counted: list[str]) -> None:
    again = rtlab.Store(whole.store.path).run(make_grid())
    assert [] == counted
    assert ["fp32", "fp16", "int8 auto", "int8 mse"] == again.frame()["variant"].tolist()
    assert ["built"] * 4 == again.frame()["status"].tolist()
    assert numbers(whole) == numbers(again)


def test_rows_are_those_of_a_study(whole: rtlab.Sweep) -> None:
    """Scores, errors and layers come from the same work; a difference of scores from another row."""
    study = make_study()
    study.add("fp32", backend="onnxruntime", target="cpu")
    study.add("int8 mse", precision="int8", calibrator="mse", backend="onnxruntime", target="cpu")
    study.run(budget_s=float("inf"))
    mine, theirs = whole.frame().set_index("variant"), study.frame()
    for name in ("fp32", "int8 mse"):
        for column in ("layers", "nodes", "score", "compared", "scored", "precision", "calibrator"):
            assert repr(mine.loc[name, column]) == repr(theirs.loc[name, column]), column
    assert mine.loc["int8 mse", "output_sqnr"] == theirs.loc["int8 mse", "output_sqnr"]
    assert mine.loc["int8 mse", "score_delta"] == mine.loc["int8 mse", "score"] - mine.loc["fp32", "score"]
    assert "ms" == whole.frame().attrs["units"]["time_ms"]
    assert whole.frame()["runs"].min() >= 30
    assert (whole.frame()["load"] >= 0).all()


def test_scores_are_compared_with_fp32_of_the_same_study(whole: rtlab.Sweep) -> None:
    row = whole.rows()[0]
    scores = [
        ("a", "fp32", 90.0),
        ("b", "fp32", 50.0),
        ("a", "int8", 87.5),
        ("b", "int8", 51.0),
        ("c", "int8", 3.0),
    ]
    rows = [dataclasses.replace(row, study=s, precision=p, score=score) for s, p, score in scores]
    assert [None, None, -2.5, 1.0, None] == [r.score_delta for r in add_deltas(rows)]
    # A score of fewer samples is not one of the same samples.
    rows[2] = dataclasses.replace(rows[2], scored=7)
    assert [None, None, None, 1.0, None] == [r.score_delta for r in add_deltas(rows)]


def test_a_study_comes_back_with_its_prepared_models(whole: rtlab.Sweep) -> None:
    """Bit for bit, made again from model, variant and ranges, which alone are in the folder."""
    opened, study = whole.store.study("tiny"), make_study()
    assert isinstance(opened, rtlab.Study)
    assert ["fp32", "fp16", "int8 auto", "int8 mse"] == list(opened)
    study.add("int8 mse", precision="int8", calibrator="mse", backend="onnxruntime", target="cpu")
    study.run(budget_s=0)
    assert study["int8 mse"].prepared.model.digest == opened["int8 mse"].prepared.model.digest
    assert study.task is not None
    assert opened.task is not None
    assert study.task.labels.tolist() == opened.task.labels.tolist()
    explorer = whole.explore()
    assert "<Explorer tiny: 4 variants>" == repr(explorer)
    explorer.close()


def test_other_samples_and_budgets_are_other_results(copied: rtlab.Store, counted: list[str]) -> None:
    choice = {"precision": "fp16", "backend": "onnxruntime", "target": "cpu"}
    for seed in (0, 1):
        # The digest of a task has its samples too.
        study = make_study(seed)
        study.task = None
        copied.run(rtlab.grid(study, **choice), budget_s=0)
    copied.run(rtlab.grid(make_study(), **choice), budget_s=0)
    assert ["fp16"] * 3 == counted
    assert 7 == len(copied.frame())
    with pytest.raises(ReadError, match="several are of this name"):
        copied.study("tiny")


def test_weights_that_are_too_large_for_one_file_stay_where_they_are(
    tmp_path: Path, whole: rtlab.Sweep, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker reads them there; samples go along all the same."""
    monkeypatch.setattr(sweep, "MOST_BYTES", 0)
    path = tmp_path / "models" / "tiny.onnx"
    path.parent.mkdir()
    onnx.save(tiny_model().proto(), path)
    study, model = make_study(), rtlab.load(path)
    grid = rtlab.grid(rtlab.Study(model, data=study.data, task=study.task), **CHOICES)
    store = rtlab.Store(tmp_path / "runs")
    made = store.run(grid)
    (file,) = (store.path / "studies").iterdir()
    assert "model.onnx" not in zipfile.ZipFile(file).namelist()
    rows = [(row.variant, row.layers, row.score, row.output_sqnr) for row in made.rows()]
    assert rows == [(row.variant, row.layers, row.score, row.output_sqnr) for row in whole.rows()]


def test_what_no_file_holds_is_refused_before_anything_runs(tmp_path: Path) -> None:
    study = make_study()
    assert study.task is not None
    study.task = dataclasses.replace(study.task, metric=lambda outputs, labels: 0.0)
    with pytest.raises(CalibrationError, match="is a function, which no file holds for the workers"):
        rtlab.Store(tmp_path / "runs").run(rtlab.grid(study, backend="onnxruntime", target="cpu"))


def test_what_differs_in_sizes_alone_says_so(tmp_path: Path) -> None:
    """In rows that were planned, built and failed, in the table, and on an axis of the figure."""
    choices = {"backend": "classic", "target": "sm86", "sizes": [{}, {"N": 4}, {"x": (2, 3, 8, 8)}]}
    store = rtlab.Store(tmp_path / "runs")
    made = store.run(rtlab.grid(tiny_model(), **choices), budget_s=0)
    expected = ["", "N=4", "x=2x3x8x8"]
    assert expected == [task.row.sizes for task in made.tasks]
    assert expected == made.frame()["sizes"].tolist() == sorted(store.frame()["sizes"])
    for figure in (made.figure("parallel"), store.figure("parallel")):
        axes = {axis.label: axis.ticktext for axis in figure.data[0].dimensions}
        assert {"—", *expected[1:]} == {*axes["sizes"]}
    error = RtlabError("Cannot build: no luck. Wait.")
    sweep_task.record_failure(store.path, dataclasses.replace(made.tasks[1], key="f" * 32), error)
    assert ["N=4"] == store.frame("f" * 32)["sizes"].tolist()


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        ("tensorrt-rtx:1.6.1.120 1.6.1.120", "tensorrt-rtx 1.6.1.120"),
        ("tensorrt-rtx 1.7.1.42", "tensorrt-rtx 1.7.1.42"),
        ("classic 8.6", "classic 8.6"),
        ("mine ", "mine"),
        ("mine", "mine"),
        ("", ""),
    ],
)
def test_an_added_release_is_named_once(written: str, shown: str, whole: rtlab.Sweep) -> None:
    task = whole.tasks[0]
    assert shown == dataclasses.replace(task, parts={**task.parts, "compiler": written}).row.compiler


def test_rows_of_a_store_are_chosen_as_they_are_removed(copied: rtlab.Store) -> None:
    """By key, its beginning, or a model; differences are to the fp32 of all results."""
    frame = copied.frame().set_index("variant")
    key = frame.loc["int8 mse", "key"]
    for chosen in (key, key[:12]):
        (row,) = copied.rows(chosen)
        assert "int8 mse" == row.variant
        assert frame.loc["int8 mse", "score_delta"] == copied.frame(chosen).iloc[0]["score_delta"]
    assert 2 == len(copied.frame(frame.loc["fp16", "key"], key))
    assert 4 == len(copied.rows("tiny")) == len(copied.rows())
    assert () == copied.rows("tin") == copied.rows("")
    figure = copied.figure("pareto", *frame.loc[["int8 auto", "int8 mse"], "key"], y="score_delta")
    dots = next(trace for trace in figure.data if trace.mode == "markers")
    assert frame.loc[["int8 auto", "int8 mse"], "score_delta"].tolist() == [*dots.y]
    assert "2 of 2 variants" in figure.layout.title.text
    with pytest.raises(VariantError, match='Cannot draw "pareto": no result is of "other"'):
        copied.figure("pareto", "other")
    assert 0 == copied.remove() == copied.remove("", "other")
    assert 1 == copied.remove(key[:12])


# --- failures -------------------------------------------------------------------------------------------------------


def test_a_variant_that_fails_is_a_row_and_can_be_tried_again_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried: list[str] = []
    refused = {"int8 mse"}

    def run(task: SweepTask, progress: Any = None) -> None:
        tried.append(task.name)
        if task.name in refused:
            raise RtlabError(f'Cannot build "{task.name}": out of luck. Wait.')
        run_task(task, progress)

    monkeypatch.setattr(sweep_task, "run_task", run)
    store = rtlab.Store(tmp_path / "runs")
    made = store.run(make_grid(), retries=1, budget_s=0)
    assert ["fp32", "fp16", "int8 auto", "int8 mse", "int8 mse"] == tried
    last = made.frame().iloc[-1]
    assert ("failed", 'Cannot build "int8 mse": out of luck. Wait.') == (last["status"], last["error"])
    assert "<Store runs: 3 results, 1 failed>" == repr(store)
    with pytest.raises(RtlabError, match="out of luck"):
        store.study("tiny")["int8 mse"]
    store.run(make_grid(), budget_s=0)
    assert 5 == len(tried)
    refused.clear()
    made = store.run(make_grid(), budget_s=0, again=True)
    assert ["int8 mse"] == tried[5:]
    assert ["built"] * 4 == made.frame()["status"].tolist()
    assert "<Store runs: 4 results>" == repr(store)


def test_a_cancelled_sweep_goes_on_where_it_was(tmp_path: Path, counted: list[str]) -> None:
    class Stopping(Silent):
        def stopped(self) -> bool:
            return len(counted) >= 2

    store = rtlab.Store(tmp_path / "runs")
    with pytest.raises(rtlab.errors.Cancelled):
        store.run(make_grid(), budget_s=0, progress=Stopping())
    built = len(store.frame())
    assert 1 <= built < 4
    store.run(make_grid(), budget_s=0)
    # At most the one in the middle of which it was stopped runs twice.
    assert 4 <= len(counted) <= 5


def test_a_store_of_another_schema_or_of_something_else_is_refused_in_words(
    copied: rtlab.Store, tmp_path: Path
) -> None:
    (copied.path / "store.json").write_text('{"rtlab_store": 99, "rtlab": "9.1"}')
    with pytest.raises(
        ReadError, match=r"its schema is 99, written by rtlab 9\.1; this rtlab reads schema 1"
    ):
        rtlab.Store(copied.path)
    (copied.path / "store.json").write_text('{"rtlab_store": 1}')
    home = copied.path / "entries" / copied.rows()[0].key
    for name, mark in (("row.json", "rtlab_row"), ("result.json", "rtlab_result")):
        document = json.loads((home / name).read_text())
        (home / name).write_text(json.dumps({**document, mark: 2, "rtlab": "9.1"}))
    assert "its schema is 2, written by rtlab 9.1" in " ".join(copied.frame()["error"])
    # It is another's, and no garbage.
    assert {"leftovers": 0, "damaged": 0, "studies": 0} == copied.collect_garbage()
    assert 3 == len(copied.study("tiny"))
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "cat.jpg").write_bytes(b"")
    with pytest.raises(ReadError, match="it is a folder of something else"):
        rtlab.Store(tmp_path / "photos")


def test_an_entry_that_is_cut_short_costs_no_other(copied: rtlab.Store, counted: list[str]) -> None:
    before = copied.frame().drop(columns=TIMES)
    rows = {row.variant: row.key for row in copied.rows()}
    arrays = copied.path / "entries" / rows["int8 mse"] / "arrays.npz"
    arrays.write_bytes(arrays.read_bytes()[:-9])
    row = copied.path / "entries" / rows["fp16"] / "row.json"
    row.write_bytes(row.read_bytes()[:40])
    frame = copied.frame()
    assert ["built", "built", "built", "damaged"] == sorted(frame["status"])
    words = frame.set_index("status").loc["damaged", "error"]
    assert "cut short or damaged" in words
    assert words.endswith(
        "Remove it with store.collect_garbage(), or rtlab store gc, and run the sweep again."
    )
    study = copied.study("tiny")
    assert ["fp32", "int8 auto"] == list(study)
    with pytest.raises(ReadError, match=r'"arrays\.npz" is not as it was written'):
        study["int8 mse"]
    assert {"leftovers": 0, "damaged": 2, "studies": 0} == copied.collect_garbage()
    copied.run(make_grid())
    assert ["fp16", "int8 mse"] == counted
    assert before.equals(copied.frame().drop(columns=TIMES))


def test_a_full_disk_is_words_and_what_is_there_stays(
    copied: rtlab.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = next(row.key for row in copied.rows() if row.variant == "fp16")
    copied.remove(key)
    write = Path.open

    def refuse(path: Path, mode: str = "r", *rest: Any, **options: Any) -> Any:
        if mode == "xb" and path.name == "arrays.npz":
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return write(path, mode, *rest, **options)

    monkeypatch.setattr(Path, "open", refuse)
    frame = copied.run(make_grid()).frame().set_index("variant")
    assert ["built", "failed", "built", "built"] == frame["status"].tolist()
    assert "No space left on device. Free some space" in frame.loc["fp16", "error"]
    assert [] == [*(copied.path / "entries").glob(".*")]
    monkeypatch.undo()
    assert ["built"] * 4 == copied.run(make_grid(), again=True).frame()["status"].tolist()


def test_a_folder_that_cannot_be_written_to_is_words_and_can_be_read(
    copied: rtlab.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr(Path, "touch", refuse)
    with pytest.raises(RtlabError, match=r'Cannot write to the store ".*": Read-only file system'):
        copied.run(make_grid())
    assert 4 == len(rtlab.Store(copied.path).frame())


def test_what_is_removed_is_gone_and_what_killed_workers_left_too(copied: rtlab.Store) -> None:
    part = copied.path / "entries" / ".0123.abcd"
    part.mkdir()
    (part / "result.json").write_bytes(b"{")
    # One that is being written stays.
    assert {"leftovers": 0, "damaged": 0, "studies": 0} == copied.collect_garbage()
    os.utime(part, (0, 0))
    assert 4 == len(copied.frame())
    assert 1 == copied.remove(copied.rows()[0].key[:12])
    assert {"leftovers": 1, "damaged": 0, "studies": 0} == copied.collect_garbage()
    assert 3 == copied.remove("tiny")
    assert {"leftovers": 0, "damaged": 0, "studies": 1} == copied.collect_garbage()
    assert 0 == len(copied.frame())


def test_a_row_whose_result_is_elsewhere_is_no_garbage(copied: rtlab.Store, counted: list[str]) -> None:
    """As in a store of which only the table was packed; all of it is old."""
    row, other = copied.rows()[:2]
    for path in (copied.path / "entries" / row.key).iterdir():
        if path.name != "row.json":
            path.unlink()
    (copied.path / "entries" / other.key / "row.json").unlink()
    for path in (copied.path / "entries").glob("*"):
        os.utime(path, (0, 0))
    assert {"leftovers": 0, "damaged": 1, "studies": 0} == copied.collect_garbage()
    assert row == copied.row(row.key)
    assert copied.row(other.key) is None
    # The study has what is here, and no failure in the place of the rest.
    study = copied.study("tiny")
    assert ["int8 auto", "int8 mse"] == list(study.state.results)
    assert {} == study.state.failures
    copied.run(make_grid())
    assert [other.variant] == counted


def test_two_that_compute_one_key_are_no_error(copied: rtlab.Store) -> None:
    """Each writes all of it beside, and the first that is complete stays."""
    row = copied.rows()[0]
    home = copied.path / "entries" / row.key
    files = {path.name: path.read_bytes() for path in home.iterdir()}
    folder = copied.path / "raced"
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        writes = [pool.submit(entries.write_entry, folder, f"{i % 3}", files) for i in range(48)]
    assert [None] * 48 == [w.exception() for w in writes]
    assert ["0", "1", "2"] == sorted(p.name for p in folder.iterdir())
    for i in range(3):
        assert files == {path.name: path.read_bytes() for path in (folder / str(i)).iterdir()}


# --- executors ------------------------------------------------------------------------------------------------------


def dies(where: str, left: str, task: SweepTask) -> None:
    """Kill this worker in the middle of some work, as often as a file has bytes; then do the task."""
    path = Path(left)
    if count := len(path.read_bytes()):
        path.write_bytes(b"x" * (count - 1))

        def die(*_: Any, **__: Any) -> Any:
            os.kill(os.getpid(), signal.SIGKILL)

        def write_half(folder: Path, key: str, files: Any, **_: Any) -> None:
            part = folder / f".{key}.half"
            part.mkdir()
            for name, content in files.items():
                (part / name).write_bytes(content[: len(content) // 2])
                die()

        from rtlab.study import runner, stages, store

        if where == "build":
            runner.compile_variant = die
        elif where == "measurement":
            stages._Measuring._time = die
        else:
            store.write_entry = write_half
    run_task(task)


class Deadly(Executor):
    """An executor some of whose workers are killed."""

    def __init__(self, inner: Executor, where: str, left: Path) -> None:
        self.inner, self.where, self.left = inner, where, left

    def submit(self, work: Callable[..., Any], /, *arguments: Any, **_: Any) -> Future[Any]:
        return self.inner.submit(dies, self.where, str(self.left), *arguments)


@pytest.fixture
def pools() -> Iterator[Callable[[], Executor]]:
    made: list[Executor] = []

    def make() -> Executor:
        made.append(
            concurrent.futures.ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("spawn"))
        )
        return made[-1]

    yield make
    for pool in made:
        pool.shutdown(cancel_futures=True)


@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix", reason="there is no SIGKILL")
@pytest.mark.parametrize("where", ["build", "measurement", "write"])
def test_a_worker_that_is_killed_changes_no_number(
    where: str, tmp_path: Path, whole: rtlab.Sweep, pools: Callable[[], Executor]
) -> None:
    """A pool is done for then: without another one, the sweep is run again, and goes on."""
    left = tmp_path / "left"
    left.write_bytes(b"x")
    store = rtlab.Store(tmp_path / "runs")
    with pytest.raises(RtlabError, match="a worker of the executor ended, and the executor with it"):
        store.run(make_grid(), executor=Deadly(pools(), where, left))
    there = {row.key: row for row in store.rows()}
    made = store.run(make_grid(), executor=Deadly(pools(), where, left))
    assert numbers(whole) == numbers(made)
    # What was finished before was not computed twice.
    assert there == {row.key: row for row in store.rows() if row.key in there}


@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix", reason="there is no SIGKILL")
def test_a_function_brings_another_pool_where_one_broke(
    tmp_path: Path, whole: rtlab.Sweep, pools: Callable[[], Executor]
) -> None:
    left, needed = tmp_path / "left", []
    left.write_bytes(b"xx")

    def make(needs: Any) -> Executor:
        needed.append(needs)
        return Deadly(pools(), "build", left)

    made = rtlab.Store(tmp_path / "runs").run(make_grid(), executor=make, retries=2)
    assert numbers(whole) == numbers(made)
    assert [{}] * len(needed) == needed
    assert 2 <= len(needed) <= 3


@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix", reason="there is no SIGKILL")
def test_a_cluster_gives_the_variant_of_a_killed_worker_to_another(
    tmp_path: Path, whole: rtlab.Sweep
) -> None:
    distributed = pytest.importorskip("distributed", reason="the extra dask is not installed")
    left = tmp_path / "left"
    left.write_bytes(b"x")
    with (
        distributed.LocalCluster(
            n_workers=2,
            threads_per_worker=1,
            dashboard_address="127.0.0.1:0",
            host="127.0.0.1",
            silence_logs=50,
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        executor = Deadly(client.get_executor(), "write", left)
        made = rtlab.Store(tmp_path / "runs").run(make_grid(), executor=executor)
    assert b"" == left.read_bytes()
    assert numbers(whole) == numbers(made)


@pytest.mark.slow
def test_the_pool_of_joblib_makes_the_same_table(tmp_path: Path, whole: rtlab.Sweep) -> None:
    loky = pytest.importorskip("joblib.externals.loky", reason="joblib is not installed")
    executor = loky.get_reusable_executor(1)
    try:
        made = rtlab.Store(tmp_path / "runs").run(make_grid(), executor=executor)
    finally:
        executor.shutdown()
    assert numbers(whole) == numbers(made)


def test_a_task_has_neither_weights_nor_samples(whole: rtlab.Sweep) -> None:
    """What travels to a worker are names of files; nothing but None comes back."""
    assert all(len(pickle.dumps(task)) < 2000 for task in whole.tasks)


@pytest.mark.slow
def test_the_table_of_many_results_is_there_in_two_seconds(whole: rtlab.Sweep, tmp_path: Path) -> None:
    store = rtlab.Store(tmp_path / "runs")
    row = whole.store.rows()[-1]
    for i in range(10_000):
        home = store.path / "entries" / f"{i:032x}"
        home.mkdir(parents=True)
        content = encode_row(dataclasses.replace(row, key=f"{i:032x}", variant=f"v{i:05}"))
        (home / "row.json").write_bytes(content)
    began = time.process_time()
    frame = store.frame()
    assert time.process_time() - began < 2
    assert 10_000 == len(frame)
    assert (frame["output_sqnr"] == row.output_sqnr).all()


def test_a_measurement_that_fails_is_said_in_the_row_of_what_was_built(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise RtlabError("Cannot compare: no luck. Wait.")

    monkeypatch.setattr(stages._Measuring, "_compare", fail)
    row = rtlab.Store(tmp_path / "runs").run(make_grid()).frame().set_index("variant").loc["int8 mse"]
    assert ("built", "not compared: Cannot compare: no luck. Wait.") == (row["status"], row["error"])
    assert row["time_ms"] > 0


def test_what_was_built_and_not_measured_can_be_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, counted: list[str]
) -> None:
    """What is there stays until the new result is complete; a second failure to build leaves it too."""
    compare = stages._Measuring._compare

    def fail(measuring: Any, deadline: Any) -> None:
        if measuring.job.name == "int8 mse":
            raise RtlabError("Cannot compare: no luck. Wait.")
        compare(measuring, deadline)

    monkeypatch.setattr(stages._Measuring, "_compare", fail)
    store = rtlab.Store(tmp_path / "runs")
    key = store.run(make_grid()).tasks[3].key
    store.run(make_grid())
    assert 4 == len(counted)

    def refuse(*_: Any) -> None:
        assert (store.path / "entries" / key / "row.json").is_file()
        raise RtlabError("Cannot build: no luck either. Wait.")

    with monkeypatch.context() as broken:
        broken.setattr(runner, "compile_variant", refuse)
        row = store.run(make_grid(), again=True).frame().set_index("variant").loc["int8 mse"]
    assert ("built", "not compared: Cannot compare: no luck. Wait.") == (row["status"], row["error"])
    assert "<Store runs: 4 results>" == repr(store)
    monkeypatch.setattr(stages._Measuring, "_compare", compare)
    made = store.run(make_grid(), again=True)
    assert ["int8 mse"] * 2 == counted[4:]
    assert "" == made.frame()["error"].max()
    assert [] == [*(store.path / "entries").glob(".*")]
    assert (store.path / "entries" / key / "row.json").is_file()


def test_a_store_that_a_worker_does_not_see_ends_the_sweep(tmp_path: Path) -> None:
    """Every variant would fail alike."""

    class Elsewhere(Executor):
        def submit(self, work: Callable[..., Any], /, *arguments: Any, **_: Any) -> Future[Any]:
            (task,) = arguments
            done: Future[Any] = Future()
            try:
                done.set_result(work(dataclasses.replace(task, folder=str(tmp_path / "elsewhere"))))
            except RtlabError as error:
                done.set_exception(error)
            return done

    store = rtlab.Store(tmp_path / "runs")
    with pytest.raises(ReadError, match="Put the store into a folder that every worker sees"):
        store.run(make_grid(), executor=Elsewhere())
    assert 0 == len(store.frame())


def test_a_store_whose_maker_was_killed_is_none_yet_and_can_be_made(tmp_path: Path) -> None:
    (tmp_path / "runs" / "entries").mkdir(parents=True)
    (tmp_path / "runs" / ".store.json.0a1b").write_bytes(b"{")
    store = rtlab.Store(tmp_path / "runs")
    assert 0 == len(store.frame())
    store.run(rtlab.grid(tiny_model(), backend="classic", target="sm86"), budget_s=0)
    assert 1 == len(rtlab.Store(tmp_path / "runs").frame())


def test_two_thousand_variants_cost_little_beside_their_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the sweep itself takes in the process that is waited for, with work that takes no time."""
    monkeypatch.setattr(sweep_task, "run_task", time.sleep)
    store = rtlab.Store(tmp_path / "runs")
    (planned,) = store._plan(rtlab.grid(tiny_model(), backend="classic", target="sm86"), 0)
    tasks = [dataclasses.replace(planned, key=str(i)) for i in range(2_000)]

    class Thread(Executor):
        pool = concurrent.futures.ThreadPoolExecutor(8)

        def submit(self, work: Callable[..., Any], /, *_: Any, **__: Any) -> Future[Any]:
            return self.pool.submit(work, 0)

    began = time.process_time()
    progress = SweepProgress(Silent(), map(choose_kind, tasks))
    SweepRun(store.path, tasks, 0, progress).run_in(Thread())
    assert time.process_time() - began < 2_000 * 0.001
