"""``rtlab sweep`` and ``rtlab store``."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pandas as pd
import pytest

import rtlab
from rtlab.cli import main
from rtlab.testing import tiny_model

pytestmark = pytest.mark.skipif(sys.version_info < (3, 11), reason="Python 3.10 reads no TOML")

GRID = """
models = [{path = "tiny.onnx", data = "d.npz", labels = "l.npy", metric = "top-1"}]
[choices]
precision = ["fp32", "int8"]
calibrator = ["minmax", "mse"]
target = ["sm75", "sm86"]
backend = "classic"
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a model, samples, labels and a grid, from which commands are run."""
    model = tiny_model()
    onnx.save(model.proto(), tmp_path / "tiny.onnx")
    (name,) = model.inputs
    shape = (8, *model.input_shape(name)[1:])
    np.savez(tmp_path / "d.npz", **{name: np.random.default_rng(0).normal(size=shape).astype(np.float32)})
    np.save(tmp_path / "l.npy", np.arange(8) % 4)
    (tmp_path / "grid.toml").write_text(GRID)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = main(arguments)
    out = capsys.readouterr()
    return code, out.out, out.err


def test_a_grid_goes_into_a_store_and_out_again(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ("sweep", "grid.toml", "--store", "runs", "--measure", "0", "--json")
    code, out, _ = run(capsys, *command)
    rows = json.loads(out)["variants"]
    assert (0, 6) == (code, len(rows))
    assert {"tiny"} == {row["model"] for row in rows}
    taken = {row["key"]: row["taken"] for row in rows}
    assert taken == {row["key"]: row["taken"] for row in json.loads(run(capsys, *command)[1])["variants"]}
    listed = json.loads(run(capsys, "store", "ls", "runs", "--json")[1])["variants"]
    assert {row["key"] for row in rows} == {row["key"] for row in listed}
    assert "fp32 sm75" in run(capsys, "store", "ls", "runs")[1]
    assert 0 == run(capsys, "store", "export", "runs", "table.csv")[0]
    assert 6 == len(pd.read_csv("table.csv"))
    assert 0 == run(capsys, "store", "export", "runs", "tiny.rtlab")[0]
    assert "removed 6\n" == run(capsys, "store", "rm", "runs", "tiny")[1]
    assert "0 leftovers, 0 damaged, 1 studies removed\n" == run(capsys, "store", "gc", "runs")[1]
    assert "no results\n" == run(capsys, "store", "ls", "runs")[1]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("store", "ls", "nowhere"), 'Cannot open the store "nowhere": there is no such folder'),
        (("sweep", "nowhere.toml", "--store", "runs"), 'Cannot read the grid "nowhere.toml"'),
        (("sweep", "wrong.toml", "--store", "runs"), 'it has models, colour. Write models = ["resnet50"'),
        (("sweep", "torn.json", "--store", "runs"), 'Cannot read the grid "torn.json": Expecting'),
        (("sweep", "model.json", "--store", "runs"), "it has the model {'name': 'x'}"),
        (("sweep", "grid.toml", "--store", "runs", "--scheduler", "no"), 'Cannot reach the scheduler "no"'),
    ],
)
def test_what_cannot_be_done_is_said_in_words(
    folder: Path, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], words: str
) -> None:
    (folder / "wrong.toml").write_text('models = ["tiny.onnx"]\ncolour = "red"\n')
    (folder / "torn.json").write_text('{"models": ')
    (folder / "model.json").write_text('{"models": [{"name": "x"}]}')
    if "--scheduler" in arguments:
        pytest.importorskip("distributed", reason="the extra dask is not installed")
    code, _, err = run(capsys, *arguments)
    assert 1 == code
    assert words in err


def test_a_table_has_a_suffix_that_names_its_kind(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "runs").mkdir()
    code, _, err = run(capsys, "store", "export", "runs", "table.xls")
    assert (1, True) == (code, "Choose .csv, .json or .parquet for the table, or .rtlab" in err)


def make_store(folder: Path) -> rtlab.Store:
    store = rtlab.Store(folder / "runs")
    store.run(
        rtlab.grid(tiny_model(), precision=["fp32", "fp16"], backend="classic", target="sm86"), budget_s=0
    )
    return store


def test_a_parquet_file_has_the_table_with_its_units(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("pyarrow", reason="the extra parquet is not installed")
    frame = make_store(folder).frame()
    assert 0 == run(capsys, "store", "export", "runs", "table.parquet")[0]
    table = pd.read_parquet("table.parquet")
    pd.testing.assert_frame_equal(frame, table)
    assert frame.attrs == table.attrs
    assert "ms" == table.attrs["units"]["time_ms"]


def test_without_pyarrow_a_parquet_file_is_refused_with_the_command(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    make_store(folder)
    find = importlib.util.find_spec

    def hide(name: str, package: str | None = None) -> Any:
        return None if name == "pyarrow" else find(name, package)

    monkeypatch.setattr(importlib.util, "find_spec", hide)
    code, _, err = run(capsys, "store", "export", "runs", "table.parquet")
    assert 1 == code
    assert 'Cannot write "table.parquet": package "pyarrow>=14" is not installed.' in err
    assert 'Run pip install --upgrade "rtlab[parquet]".' in err
    assert not (folder / "table.parquet").exists()
    assert 0 == run(capsys, "store", "export", "runs", "table.csv")[0]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_a_cluster_and_processes_fill_the_same_table(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    distributed = pytest.importorskip("distributed", reason="the extra dask is not installed")
    with distributed.LocalCluster(
        n_workers=1, threads_per_worker=1, dashboard_address="127.0.0.1:0", host="127.0.0.1", silence_logs=50
    ) as cluster:
        options = {"dask": ("--scheduler", cluster.scheduler_address), "pool": ("--workers", "2"), "here": ()}
        tables = []
        for store, option in options.items():
            command = ("sweep", "grid.toml", "--store", store, "--measure", "0", "--json", *option)
            code, out, _ = run(capsys, *command)
            rows = json.loads(out)["variants"]
            tables.append([{**row, "taken": "", "work_s": 0} for row in rows])
            assert (0, 6) == (code, len(rows))
    assert tables[0] == tables[1] == tables[2]
