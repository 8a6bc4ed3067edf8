"""A store on a file layer that shows what other machines wrote late, and each file at a time of its own."""

from __future__ import annotations

import dataclasses
import errno
import io
import os
import random
import threading
import time
from concurrent import futures
from pathlib import Path
from typing import Any

import pytest

import rtlab
from rtlab.study import store as entries
from rtlab.study.sweep_rows import encode_row
from tiny_sweep import make_grid, numbers


class SlowLayer:
    """What a thread creates is there for itself at once, and for others after a delay that is drawn for each path.

    A rename is atomic, and an error about a name that exists comes from where the files really are. A file that is
    replaced is there all the time.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch, most_s: float) -> None:
        self.most_s, self.random = most_s, random.Random(0)  # noqa: S311 - a test's delays
        #: By path its author, and when others see it.
        self.births: dict[str, tuple[int, float]] = {}
        #: How often a file was not there for a reader.
        self.hidden = 0
        self.lock = threading.Lock()
        self.real = {name: getattr(os, name) for name in ("stat", "listdir", "mkdir", "rename", "replace")}
        self.real_open = io.open
        for name in self.real:
            monkeypatch.setattr(os, name, getattr(self, name))
        monkeypatch.setattr(io, "open", self.open)

    def note(self, *paths: Any) -> None:
        """This thread made them now."""
        for path in paths:
            seen_at = time.monotonic() + self.random.uniform(0, self.most_s)
            self.births[os.fspath(path)] = threading.get_ident(), seen_at

    def is_hidden(self, path: Any) -> bool:
        if isinstance(path, int):
            return False
        author, seen_at = self.births.get(os.fspath(path), (0, 0.0))
        hidden = author not in {0, threading.get_ident()} and time.monotonic() < seen_at
        self.hidden += hidden
        return hidden

    def check(self, path: Any) -> None:
        if self.is_hidden(path):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), os.fspath(path))

    def stat(self, path: Any, **options: Any) -> Any:
        self.check(path)
        return self.real["stat"](path, **options)

    def listdir(self, path: Any = ".") -> list[str]:
        self.check(path)
        return [n for n in self.real["listdir"](path) if not self.is_hidden(os.path.join(path, n))]  # noqa: PTH118

    def open(self, path: Any, mode: str = "r", *rest: Any, **options: Any) -> Any:
        if isinstance(path, int):
            # A pipe.
            return self.real_open(path, mode, *rest, **options)
        if "x" in mode or "w" in mode:
            file = self.real_open(path, mode, *rest, **options)
            self.note(path)
            return file
        self.check(path)
        return self.real_open(path, mode, *rest, **options)

    def mkdir(self, path: Any, *rest: Any, **options: Any) -> None:
        self.real["mkdir"](path, *rest, **options)
        self.note(path)

    def rename(self, path: Any, target: Any, **options: Any) -> None:
        self._move("rename", path, target, options)

    def replace(self, path: Any, target: Any, **options: Any) -> None:
        self._move("replace", path, target, options)

    def _move(self, how: str, path: Any, target: Any, options: Any) -> None:
        names = self.real["listdir"](path) if Path(path).is_dir() else []
        with self.lock:
            if not os.path.lexists(target):
                self.note(target, *(os.path.join(target, name) for name in names))  # noqa: PTH118
            self.real[how](path, target, **options)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> rtlab.Sweep:
    return rtlab.Store(tmp_path_factory.mktemp("whole") / "runs").run(make_grid(), budget_s=0)


def read_files(whole: rtlab.Sweep, key: str) -> dict[str, bytes]:
    return {p.name: p.read_bytes() for p in (whole.store.path / "entries" / key).iterdir()}


def test_writers_and_readers_on_a_slow_layer_lose_and_damage_nothing(
    tmp_path: Path, whole: rtlab.Sweep, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Four writers of the same twelve entries, two of which replace them, while two readers look and clean up."""
    row = whole.rows()[3]
    files = read_files(whole, row.key)
    keys = [f"{i:032x}" for i in range(12)]
    folder = tmp_path / "runs"
    rtlab.Store(folder).run(rtlab.grid([]))
    (folder / "studies" / f"{row.study}.rtlab").write_bytes(
        (whole.store.path / "studies" / f"{row.study}.rtlab").read_bytes()
    )
    layer = SlowLayer(monkeypatch, 0.05)
    over = threading.Event()

    def write(seed: int) -> None:
        for key in random.Random(seed).sample(keys, len(keys)):  # noqa: S311 - an order
            content = encode_row(dataclasses.replace(row, key=key, variant=key))
            mine = {**files, "row.json": content}
            entries.write_entry(folder / "entries", key, mine, replace=seed > 1)
            time.sleep(0.005)

    def look() -> tuple[set[str], int]:
        store, statuses, most = rtlab.Store(folder), set[str](), 0
        while not over.is_set():
            statuses |= {row.status for row in store.rows()}
            counts = store.collect_garbage()
            assert {"leftovers": 0, "damaged": 0} == {n: counts[n] for n in ("leftovers", "damaged")}
            study = store.study("tiny") if store.rows() else {}
            most = max(most, len(study))
            # An entry that cannot be read would be a failure with words.
            assert {} == getattr(getattr(study, "state", None), "failures", {})
        return statuses, most

    # No study is removed while a sweep runs.
    with rtlab.Store(folder)._mark_folder(), futures.ThreadPoolExecutor(6) as pool:
        readers = [pool.submit(look) for _ in range(2)]
        writers = [pool.submit(write, seed) for seed in range(4)]
        problems = [w.exception() for w in writers]
        time.sleep(0.1)
        over.set()
        seen = [reader.result() for reader in readers]
    assert [None] * 4 == problems
    assert [{"built"}] * 2 == [statuses for statuses, _ in seen]
    assert layer.hidden > 100
    monkeypatch.undo()
    assert sorted(keys) == sorted(path.name for path in (folder / "entries").iterdir())
    for key in keys:
        there = {p.name: p.read_bytes() for p in (folder / "entries" / key).iterdir() if p.name != "row.json"}
        assert there == {name: content for name, content in files.items() if name != "row.json"}
    assert dict.fromkeys(keys, "built") == {row.key: row.status for row in rtlab.Store(folder).rows()}


def test_two_sweeps_on_a_slow_layer_make_the_same_table(
    tmp_path: Path, whole: rtlab.Sweep, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither sees at once what the other does; each may compute what the other has, and both end with all of it."""
    layer = SlowLayer(monkeypatch, 0.5)

    def run() -> rtlab.Sweep:
        return rtlab.Store(tmp_path / "runs").run(make_grid(), budget_s=0)

    with futures.ThreadPoolExecutor(2) as pool:
        made = [one.result() for one in [pool.submit(run) for _ in range(2)]]
    assert layer.hidden
    monkeypatch.undo()
    for one in made:
        assert numbers(whole) == numbers(one)
    assert 4 == len([*(tmp_path / "runs" / "entries").iterdir()])
