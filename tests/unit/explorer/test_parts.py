"""Small parts of the Explorer, by hand: names of engines, choices, deliveries and what a button asks for."""

from __future__ import annotations

import hashlib
import itertools
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import rtlab
from rtlab.core.progress import Silent
from rtlab.documents import commands
from rtlab.web.explorer import open_commands
from rtlab.web.explorer import widget as transport
from rtlab.web.explorer.open_commands import OpenCommands
from rtlab.web.explorer.widget import LinkedGraphs


@pytest.mark.parametrize(
    ("files", "title"),
    [
        ({"layers": "net.engine.graph.json"}, "net"), ({"layers": "Layers.json"}, "Layers"), ({}, "engine"),
        ({"log": "b.log", "build": "a.json"}, "a"), ({"profile": "p.json"}, "engine"),
        ({"log": "my  net_1.log"}, "my  net_1"),
        ({"archive": "c.zip", "log": "b.log", "layers": "d.json"}, "d"), ({"ort_model": "e.ort", "log": "f.log"}, "f"),
    ],
)  # fmt: skip
def test_an_engine_is_called_after_the_file_that_describes_it(files: dict[str, str], title: str) -> None:
    assert title == open_commands._title({k: Path("folder") / v for k, v in files.items()})


def test_a_name_that_is_taken_is_numbered_from_two_on() -> None:
    assert ["a", "a 2", "a 3"] == [
        open_commands._unused("a", taken) for taken in ((), ("a",), ("a", "a 2", "a 4"))
    ]


def test_what_is_empty_has_no_digest() -> None:
    digest = hashlib.sha256(b"abc").hexdigest()
    assert ["", digest[:12]] == [transport._digest(data) for data in (b"", b"abc")]
    assert transport._digest({"a": 1}) == transport._digest(b'{"a": 1}')


def test_deliveries_are_unasked_within_ten_seconds_and_ever_rarer() -> None:
    pauses = transport._UNASKED
    assert 0 < pauses[0] < 1
    assert all(a < b for a, b in itertools.pairwise(pauses))
    assert 5 < sum(pauses) <= 10


@pytest.mark.parametrize(
    ("trait", "tags"),
    [
        ("height", {"sync": True}), ("view", {"sync": True}), ("titles", {"sync": True}), ("parcels", {"sync": True}),
        ("source", {"delivered": True}), ("engine", {"delivered": True}), ("other", {"delivered": True}),
    ],
)  # fmt: skip
def test_what_a_saved_notebook_keeps_of_a_graph_is_synced_and_the_rest_delivered(trait, tags) -> None:
    assert tags == LinkedGraphs.class_traits()[trait].metadata


def test_files_that_were_dropped_keep_what_a_name_may_have(monkeypatch) -> None:
    """Two of one name, one with a path, one that is too long, and one of which nothing stays."""
    read: list[tuple[str, bytes]] = []
    names = ["a.json", "a.json", "../b?.json", "c" * 120 + ".json", ""]

    def take(paths: list[Path], *_: Any, lasting: bool) -> None:
        assert not lasting
        read.extend((p.name, p.read_bytes()) for p in paths)

    taker: Any = SimpleNamespace(read=take, tasks=SimpleNamespace(start=lambda work, _: work(Silent())))
    command = commands.ReadDropped(names=names)
    OpenCommands.read_dropped_files(taker, command, [bytes([i]) for i in range(5)])
    assert [
        ("a.json", b"\0"),
        ("a.json", b"\1"),
        ("b_.json", b"\2"),
        ("c" * 95 + ".json", b"\3"),
        ("file", b"\4"),
    ] == read
    with pytest.raises(rtlab.errors.ReadError, match="4 of 5"):
        OpenCommands.read_dropped_files(taker, command, [b""] * 4)
