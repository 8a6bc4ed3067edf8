"""The story of a build as the browser gets it."""

from __future__ import annotations

from pathlib import Path

import pytest

from build_logs import CONV, INCEPTION, LOGS, REGIONS, REST
from rtlab.analyses.build import BuildStory, build_story
from rtlab.backends.compiler_info import TENSORRT
from rtlab.backends.readers.log.verbose import parse
from rtlab.core.buildlog import BuildLog
from rtlab.core.engine import Engine
from rtlab.core.variant import Target
from rtlab.documents.serialization import decode, encode, to_builtins
from rtlab.testing import tiny_model


def told(path: Path) -> BuildStory:
    parsed = parse(path)
    engine = Engine("trtexec", parsed.log.version, parsed.log.target, parsed.layers, maker=TENSORRT)
    return build_story(parsed.log, tiny_model(), engine)


@pytest.mark.parametrize("path", sorted(LOGS.iterdir()), ids=lambda p: p.stem)
def test_the_story_of_a_build_survives_the_way_to_the_browser(path: Path) -> None:
    found = told(path)
    ours, theirs = to_builtins(found), decode(encode(found))
    assert ours == theirs


def test_passes_point_at_their_steps() -> None:
    found = told(INCEPTION)
    assert (28, 18, 15) == found.counts
    assert [(28, 18, 0, 10), (18, 15, 10, 2), (15, 15, 12, 9)] == [
        (p.before, p.after, p.first, p.steps) for p in found.passes if p.steps
    ]
    assert (21, 21) == (len(found.steps), found.passes[-1].first)
    assert "TensorRT (version not reported) · device not recorded" == found.title
    # 3,145,728 bytes.
    assert ({"key": "Activations", "value": "3 MiB"},) == found.memory


def test_contests_and_notes_tell_of_the_attempt_that_was_taken() -> None:
    found = told(REGIONS)
    assert ("TensorRT 10.16.1 · Invented GPU", 3) == (found.title, found.attempts)
    assert [(f"0:{CONV}", 1.5), (f"0:{CONV}", 4 / 3), ("1:pool", 1.25), (f"3:{REST}", None)] == [
        (c.id, c.margin and pytest.approx(c.margin)) for c in found.contests[:4]
    ]
    assert [
        ("Activations", "40 KiB"), ("Weights", "9 KiB"), ("Largest scratch", "1.5 KiB"),
        ("Persistent, host", "4.16 KiB"), ("Persistent, device", "64 bytes"),
    ] == [(m["key"], m["value"]) for m in found.memory]  # fmt: skip


def test_a_log_that_tells_nothing_makes_an_empty_story() -> None:
    found = build_story(BuildLog(version="1.7.1", target=Target("sm86")), tiny_model())
    assert ("TensorRT 1.7.1 · sm86", (), (), (), 0, (), (), ()) == (
        found.title, found.counts, found.passes, found.steps, found.attempts, found.contests, found.memory, found.notes,
    )  # fmt: skip
