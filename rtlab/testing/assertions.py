"""Assertions in words, which stand with optimization, too; those of an engine and of a profile."""

from __future__ import annotations

import datetime
import hashlib
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np

from rtlab.core.engine import Engine
from rtlab.core.model import Model
from rtlab.core.protocols import Capabilities
from rtlab.core.trace import Profile
from rtlab.core.variant import Target
from rtlab.errors import RtlabError

#: What was attempted, a colon, what was found, and what to do next, each a sentence.
_WORDS = re.compile(r"^[A-Z][^\n]*?: .+?[.?!)] .*[.?!)]$", re.DOTALL)


def assert_that(condition: object, otherwise: str) -> None:
    """An assertion that stands with optimization, too."""
    if not condition:
        raise AssertionError(otherwise)


def check_date(when: datetime.datetime | None, what: str) -> None:
    """Fail unless there is a date with a time zone."""
    assert_that(when is not None, f"{what} has no date")
    assert_that(when is not None and when.tzinfo is not None, f"the date of {what} has no time zone")


def catch_error(ask: Callable[[], object], otherwise: str) -> Exception:
    """What a call raises."""
    try:
        ask()
    except Exception as error:  # noqa: BLE001 - of which kind is what is looked at
        return error
    raise AssertionError(otherwise)


def check_message(error: Exception, *kinds: type[RtlabError]) -> None:
    """Fail unless an error is of a promised kind and has three parts."""
    kind_names = " or ".join(k.__name__ for k in kinds)
    assert_that(isinstance(error, kinds), f"it raises {describe_error(error)}, and {kind_names} is promised")
    assert_that(
        _WORDS.search(str(error)),
        f'"{error}" lacks a part: what was attempted, a colon, what was found, and a sentence on what to do next',
    )


def describe_error(error: Exception) -> str:
    """Kind and words of an error."""
    return f"{type(error).__name__} ({error})"


def digest(path: Path) -> tuple[str, int]:
    """What tells a file from what it was: its content, and when it was written."""
    return hashlib.sha256(path.read_bytes()).hexdigest(), path.stat().st_mtime_ns


def check_engine(
    engine: Engine, model: Model, target: Target, *, backend_name: str, able: Capabilities
) -> None:
    """Fail unless an engine is that of a model and a target, as the backend of this name makes them."""
    assert_that(
        isinstance(engine, Engine), f"build() gives {type(engine).__name__}, and an Engine belongs there"
    )
    assert_that(engine.backend == backend_name, f'the engine says that "{engine.backend}" made it')
    assert_that(engine.target == target, f'the engine is for "{engine.target}", and "{target}" was asked for')
    assert_that(engine.version, "the engine is of no version")
    assert_that(engine.maker == able.maker, f"its maker is {engine.maker}, and that claimed {able.maker}")
    check_date(engine.built, "the build")
    ids = [layer.id for layer in engine.layers]
    assert_that(ids, "the engine has no layers")
    assert_that(len(ids) == len(set(ids)), "two layers have one id")
    places = [layer.index for layer in engine.layers]
    assert_that(places == sorted(places), "layers are not in the order of their index")
    read, output_names = [t.name for t in engine.inputs], [t.name for t in engine.outputs]
    assert_that(
        set(read) == set(model.inputs), f"its inputs are {read}, and those of the model {model.inputs}"
    )
    assert_that(
        set(output_names) == set(model.outputs),
        f"its outputs are {output_names}, and those of the model {model.outputs}",
    )
    reports = engine.maker.reports
    assert_that(
        "memory" in reports or not engine.totals, f"it reports no memory, and tells {dict(engine.totals)}"
    )
    assert_that(
        "streams" in reports or not any(y.stream for y in engine.layers),
        "it reports no streams, and tells some",
    )
    assert_that(
        "tactics" in reports or not any(y.tactic for y in engine.layers),
        "it reports no tactics, and tells some",
    )


def check_profile(profile: Profile, engine: Engine, runs: int, *, layered: bool) -> None:
    """Fail unless a profile has as many runs as were asked for, of whole inferences and, ``layered``, of layers."""
    assert_that(
        isinstance(profile, Profile), f"profile() gives {type(profile).__name__}, and a Profile belongs there"
    )
    assert_that(profile.source, "the times do not say who measured them")
    assert_that(profile.device, "the times do not say on which device")
    check_date(profile.taken, "the profile")
    assert_that((profile.runs or 0) >= runs, f"{runs} runs were asked for, and {profile.runs} are told")
    assert_that(
        len(profile.total) >= runs,
        f"{runs} runs were asked for, and {len(profile.total)} are timed as a whole",
    )
    assert_that(
        len(profile.total) >= (profile.runs or 0),
        f"it reports {profile.runs} runs, and has times of {len(profile.total)} inferences",
    )
    assert_that(np.isfinite(profile.total).all(), "a time of an inference is no number")
    assert_that((np.asarray(profile.total) > 0).all(), "an inference takes no time")
    strange = set(profile.samples) - {y.id for y in engine.layers}
    assert_that(not strange, f"it times layers that the engine does not have: {sorted(strange)}")
    if not layered:
        assert_that(not profile.samples, 'it times "inferences" only, and tells times of layers')
        return
    assert_that(profile.samples, 'it times "layers", and tells of none')
    for layer, times in profile.samples.items():
        assert_that(
            len(times) == profile.runs,
            f'"{layer}" has {len(times)} times, and there were {profile.runs} runs',
        )
        assert_that(np.isfinite(times).all(), f'a time of "{layer}" is no number')
        assert_that((np.asarray(times) >= 0).all(), f'"{layer}" takes less than no time')
