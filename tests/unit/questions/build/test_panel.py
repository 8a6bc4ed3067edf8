"""The story of a build as the browser gets it."""

from __future__ import annotations

from pathlib import Path

import pytest

from rtlab.backends.log.verbose import parse
from rtlab.backends.makers import TENSORRT
from rtlab.core.buildlog import BuildLog
from rtlab.core.engine import Engine
from rtlab.core.variant import Target
from rtlab.documents.crossing import plain
from rtlab.documents.payload import PRECISION, decode, encode
from rtlab.questions.build.story import BuildStory, story
from rtlab.testing import tiny_model

# Recordings live beside the checkout, not in it.
LOGS = Path(__file__).parents[5] / "shared" / "recorded" / "build-logs"
recorded = pytest.mark.skipif(not LOGS.is_dir(), reason="no ../shared/recorded beside the checkout")


@recorded
@pytest.mark.parametrize("path", sorted(LOGS.glob("*.log")) or [None], ids=lambda p: p.stem if p else "none")
def test_the_story_of_a_recorded_build_survives_the_way_to_the_browser(path: Path) -> None:
    """What crosses is what the nouns declare, to the letter; numbers keep four digits."""
    parsed = parse(path)
    engine = Engine("trtexec", parsed.log.version, parsed.log.target, parsed.layers, maker=TENSORRT)
    found = story(parsed.log, tiny_model(), engine)
    told = plain(found)
    back = decode(encode(found, BuildStory))
    for ours, theirs in zip(told["contests"], back["contests"], strict=True):
        times = [[c["tactic"]["milliseconds"] for c in contest["candidates"]] for contest in (ours, theirs)]
        times[0].append(ours["margin"] or 0)
        times[1].append(theirs["margin"] or 0)
        assert times[0] == pytest.approx(times[1], rel=PRECISION)
    assert {k: v for k, v in told.items() if k != "contests"} == {
        k: v for k, v in back.items() if k != "contests"
    }


@recorded
def test_passes_point_at_their_steps() -> None:
    """The slider stops at passes by position."""
    told = story(parse(LOGS / "googlenet-caffe-trt5.1-fp32.log").log, tiny_model())
    assert [141, 84, 66] == list(told.counts)
    at = 0
    for found in told.passes:
        assert at == found.first
        at += found.steps
    assert at == len(told.steps)
    fusions = next(p for p in told.passes if p.name == "vertical fusions")
    assert (141, 84, 57) == (fusions.before, fusions.after, fusions.steps)
    assert "TensorRT (version not told) · device not recorded" == told.title
    assert {"key": "Activations", "value": "1.027 GiB"} in told.memory


@recorded
def test_contests_and_notes_tell_of_the_attempt_that_was_taken() -> None:
    """Of three networks the second became the engine."""
    parsed = parse(LOGS / "mnist-trt10.16-h100-level5.log")
    engine = Engine("trtexec", "10.16.1", Target("sm90"), parsed.layers, maker=TENSORRT)
    told = story(parsed.log, tiny_model(), engine)
    assert "TensorRT 10.16.1 · NVIDIA H100 PCIe" == told.title
    assert 3 == told.attempts
    assert any("took number 2 (backend strategy 3)" in note for note in told.notes)
    assert any("The build took 24.49 s" in note for note in told.notes)
    ids = {layer.id for layer in parsed.layers}
    pool = next(c for c in told.contests if c.layer == "node_max_pool2d")
    assert pool.id in ids
    assert pool.margin is not None
    first, second = (c.tactic.milliseconds for c in pool.candidates[:2])
    assert second / first == pool.margin
    # Every engine layer that was timed has its contest.
    assert {c.id for c in told.contests} <= ids


def test_a_log_that_tells_nothing_makes_an_empty_story() -> None:
    """TensorRT-RTX writes no passes and times nothing when it builds without a GPU."""
    told = story(BuildLog(version="1.7.1", target=Target("sm86")), tiny_model())
    assert ("TensorRT 1.7.1 · sm86", [], (), (), 0) == (
        told.title, list(told.counts), told.passes, told.steps, told.attempts,
    )  # fmt: skip
    assert ((), (), ()) == (told.contests, told.memory, told.notes)
