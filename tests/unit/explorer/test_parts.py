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
from rtlab.errors import VariantError
from rtlab.testing import tiny_model
from rtlab.web.explorer import open_commands, transport
from rtlab.web.explorer.build_commands import BuildCommands
from rtlab.web.explorer.graph import LinkedGraphs
from rtlab.web.explorer.open_commands import OpenCommands


@pytest.mark.parametrize(
    ("files", "title"),
    [
        ({"layers": "net.engine.graph.json"}, "net"), ({"layers": "Layers.json"}, "engine"), ({}, "engine"),
        ({"log": "b.log", "build": "a.json"}, "a"), ({"profile": "p.json"}, "engine"),
        ({"log": "my  net_1.log"}, "my net 1"),
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


@pytest.fixture(scope="module")
def page() -> Any:
    study = rtlab.Study(tiny_model())
    study.add("a", backend="classic")
    return study.run(compare=False).explore()


@pytest.mark.parametrize(
    ("choice", "fields"),
    [
        ({"sparsity": ["stem/Conv"]}, {"sparsity": ["stem/Conv"]}), ({"sparsity": "*"}, {"sparsity": ["*"]}),
        ({"sparsity": ()}, {"sparsity": []}), ({"target": None}, {"target": ""}),
        ({"precision": {"*": "fp16", "stem/Conv": "fp32"}},
         {"precision": "fp16", "pins": [{"pattern": "stem/Conv", "precision": "fp32"}]}),
        ({"precision": {"stem/Conv": "fp16"}},
         {"precision": "fp32", "pins": [{"pattern": "stem/Conv", "precision": "fp16"}]}),
        ({"precision": "int8", "calibrator": "minmax", "treatments": "equalize"},
         {"precision": "int8", "calibrator": "minmax", "treatments": ["equalize"]}),
    ],
)  # fmt: skip
def test_a_choice_is_taken_in_any_form(page, choice: dict[str, Any], fields: dict[str, Any]) -> None:
    page.choose(**choice)
    assert fields == {k: page.choice[k] for k in fields}
    with pytest.raises(VariantError, match="colour"):
        page.choose(colour="red")


@pytest.mark.parametrize(
    ("unless", "known", "asked"),
    [
        ("known", True, 0),
        ("known", False, 1),
        ("", True, 1),
        ("zzz", True, 1),
        ("", False, 1),
        ("a", True, 1),
    ],
)
def test_a_diagnosis_that_is_known_is_not_made_again_where_it_need_not(
    unless: str, known: bool, asked: int
) -> None:
    calls: list[str] = []
    state = SimpleNamespace(diagnoses={"a": 1} if known else {})
    study = SimpleNamespace(
        state=state, accuracy=SimpleNamespace(diagnose=lambda name, progress: calls.append(name))
    )
    BuildCommands._diagnose(SimpleNamespace(study=study), {"unless": unless}, "a", Silent())  # type: ignore[arg-type]
    assert ["a"] * asked == calls


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
