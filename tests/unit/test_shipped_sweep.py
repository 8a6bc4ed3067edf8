"""The store that notebook 17 reads, which ``sample_models/make_sweep.py`` makes."""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Sequence
from pathlib import Path

import pytest

import rtlab
from rtlab import samples
from rtlab.core.files import find_package_data
from rtlab.study import store
from rtlab.study.sweep import SweepRow

#: The model whose results are whole.
WHOLE = "digits_outlier"
#: What is of a run, and not of its variant; a name is that of the first grid that had the variant.
OF_THE_RUN = {
    "variant",
    "title",
    "host",
    "load",
    "timings",
    "taken",
    "work_s",
    "time_ms",
    "runs",
    "output_sqnr",
}


@pytest.fixture(scope="module")
def shipped(tmp_path_factory: pytest.TempPathFactory) -> rtlab.Store:
    return rtlab.Store(samples.sweep(tmp_path_factory.mktemp("shipped")))


def list_whole(shipped: rtlab.Store) -> list[SweepRow]:
    return [row for row in shipped.rows() if row.model == WHOLE]


def test_it_is_of_the_schema_that_is_written_today(shipped: rtlab.Store) -> None:
    """Another schema is no damage to a user, but this file is to be made anew with it."""
    mark = json.loads((shipped.path / "store.json").read_text())

    assert mark["rtlab_store"] == store.SCHEMA
    assert [row.error for row in shipped.rows() if row.status not in {"built", "failed"}] == []


def test_it_has_five_hundred_rows_that_say_where_and_when(shipped: rtlab.Store) -> None:
    rows = shipped.rows()

    assert len(rows) >= 500
    assert len({row.key for row in rows}) == len(rows)
    assert all(row.host and row.taken and row.study for row in rows)
    # A time without the load that it was taken at is worth nothing.
    assert all((row.time_ms is None) == (row.load is None) == (row.runs is None) for row in rows)


def test_what_was_run_was_run_on_the_cpu(shipped: rtlab.Store) -> None:
    """No GPU was there: times of one are estimates, and in a column of their own."""
    rows = [row for row in shipped.rows() if row.status == "built"]

    assert {row.processor for row in rows if row.time_ms is not None} == {"CPU"}
    assert all(row.estimate_ms is None for row in rows if row.target == "cpu")


@pytest.mark.slow
def test_the_results_of_one_model_are_whole(shipped: rtlab.Store) -> None:
    study = shipped.study(WHOLE)
    rows = list_whole(shipped)

    assert set(study.state.results) | set(study.state.failures) == set(study.state.variants)
    assert len(study.state.results) == sum(row.status == "built" for row in rows)
    assert len(study.state.failures) == sum(row.status == "failed" for row in rows)


def test_rows_without_results_are_no_garbage(shipped: rtlab.Store) -> None:
    """Even long after they were unpacked."""
    before = shipped.rows()
    for home in (shipped.path / "entries").iterdir():
        os.utime(home, (0, 0))

    assert {"leftovers": 0, "damaged": 0, "studies": 0} == shipped.collect_garbage()
    assert shipped.rows() == before


def test_the_archive_is_small() -> None:
    folder = find_package_data("sample_models")

    assert folder is not None
    assert (folder / "sweep.tar.xz").stat().st_size < 1_500_000


def compare(shipped: rtlab.Store, fresh: Sequence[SweepRow]) -> None:
    """Each fresh row with the one of its key, to the last digit but for what is of the run."""
    for row in fresh:
        kept = shipped.row(row.key)
        if kept is None:
            pytest.skip(f"It was made with other releases than {row.compiler}")
        assert row.status == "built"
        for field in dataclasses.fields(row):
            if field.name not in OF_THE_RUN:
                assert getattr(row, field.name) == getattr(kept, field.name), field.name
        # Sums of floats depend on the processor.
        assert row.output_sqnr == (kept.output_sqnr and pytest.approx(kept.output_sqnr, abs=0.01))


def test_a_fresh_run_on_the_cpu_gives_the_same_rows(shipped: rtlab.Store, tmp_path: Path) -> None:
    grid = rtlab.grid(WHOLE, precision="fp32", target="cpu")

    compare(shipped, rtlab.Store(tmp_path / "runs").run(grid).rows())


@pytest.mark.slow
def test_a_fresh_build_gives_the_same_rows(shipped: rtlab.Store, tmp_path: Path) -> None:
    grid = rtlab.grid(WHOLE, precision=["fp16", "int8"], calibrator="minmax", target=["sm89", "cpu"])

    compare(shipped, rtlab.Store(tmp_path / "runs").run(grid).rows())
