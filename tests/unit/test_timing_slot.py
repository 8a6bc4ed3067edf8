"""Timings of one machine: one at a time, and again where other programs were busy."""

from __future__ import annotations

import concurrent.futures
import os
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

import rtlab
from rtlab.study import timing_slot
from rtlab.study.timing_slot import TimingSlot
from tiny_sweep import make_study


def count_most(slots: list[TimingSlot]) -> int:
    """How many of these timings ran at once at most."""
    inside, most = 0, 0
    guard = threading.Lock()

    def time_variant(slot: TimingSlot) -> None:
        nonlocal inside, most
        with slot():
            with guard:
                inside += 1
                most = max(most, inside)
            time.sleep(0.02)
            with guard:
                inside -= 1

    with concurrent.futures.ThreadPoolExecutor(len(slots)) as pool:
        for done in [pool.submit(time_variant, slot) for slot in slots]:
            done.result()
    return most


def test_timings_of_one_machine_do_not_overlap() -> None:
    assert 1 == count_most([TimingSlot() for _ in range(8)])


@pytest.mark.skipif(os.name != "posix", reason="Windows has no such locks")
@pytest.mark.parametrize(("shared", "most"), [(True, 1), (False, 6)])
def test_users_and_containers_share_the_slot_of_the_store(
    shared: bool, most: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They have other folders for temporary files."""
    slots = []
    for i in range(6):
        temp, store = tmp_path / f"temp{i}", tmp_path / ("runs" if shared else f"runs{i}")
        temp.mkdir()
        store.mkdir(exist_ok=True)
        monkeypatch.setattr(tempfile, "tempdir", str(temp))
        slots.append(TimingSlot(store))
    assert most == count_most(slots)


def test_who_waits_too_long_for_the_slot_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timing_slot, "_SLOT_S", 0.1)
    with TimingSlot()(), TimingSlot()():
        pass


def test_a_folder_that_has_no_locks_is_done_without(tmp_path: Path) -> None:
    with TimingSlot(tmp_path / "nowhere")():
        pass


@pytest.mark.parametrize(
    ("loads", "load", "number"),
    [
        ([0.05], 0.05, 1),
        ([0.1], 0.1, 1),
        ([0.5, 0.02], 0.02, 2),
        ([0.5, 0.3, 0.4, 0.0], 0.3, 3),
        ([0.3, 0.9, 0.7, 0.0], 0.3, 3),
        ([9.0, 9.0, -1.0, 0.5], 0.0, 3),
    ],
)
def test_the_quietest_of_three_timings_counts(
    loads: list[float], load: float, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of 4 processors a load of 0.5 is 2 seconds of work of others in one second; more than all is all."""
    clock, others = [0.0], [0.0]
    monkeypatch.setattr(timing_slot.time, "monotonic", lambda: clock[0])
    monkeypatch.setattr(timing_slot, "_measure_others", lambda: others[0])
    monkeypatch.setattr(timing_slot.os, "cpu_count", lambda: 4)
    left = list(loads)

    def measure() -> Any:
        clock[0] += 1.0
        share = left.pop(0)
        others[0] += 4 * share
        return share

    slot = TimingSlot()
    profile: Any = slot.take(measure, lambda: 100.0)
    assert (load, number) == (slot.load, slot.timings)
    assert load == pytest.approx(min(max(profile, 0.0), 1.0))


def test_a_timing_is_not_repeated_beyond_its_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    others = iter(range(0, 900, 100))
    monkeypatch.setattr(timing_slot, "_measure_others", lambda: float(next(others)))
    slot = TimingSlot()
    slot.take(lambda: time.sleep(0.01), lambda: 0.001)  # type: ignore[arg-type, return-value]
    assert 1 == slot.timings


def test_work_of_this_process_is_no_load() -> None:
    """Half a second of arithmetic here is what all processors did beyond the work of others."""

    def measure() -> float:
        times = psutil.cpu_times()
        return times.user + times.nice + times.system + times.steal - timing_slot._measure_others()

    before, own = measure(), time.process_time()
    while time.process_time() - own < 0.5:
        sum(range(1000))
    assert measure() - before == pytest.approx(0.5, abs=0.15)


def test_a_row_says_load_and_timings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Others that always work make three of them; the runs are those of one."""
    monkeypatch.setattr(timing_slot, "_measure_others", lambda: 1e3 * time.monotonic())
    grid = rtlab.grid(make_study(), backend="onnxruntime", target="cpu")
    row = rtlab.Store(tmp_path / "runs").run(grid).frame().iloc[0]
    assert (1.0, 3) == (row["load"], row["timings"])
    monkeypatch.setattr(timing_slot, "_measure_others", lambda: 0.0)
    quiet = rtlab.Store(tmp_path / "quiet").run(grid).frame().iloc[0]
    assert (0.0, 1) == (quiet["load"], quiet["timings"])
    assert row["runs"] >= 30
    assert quiet["runs"] >= 30
