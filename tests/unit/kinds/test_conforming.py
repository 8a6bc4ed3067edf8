"""A backend that keeps every promise passes the examination, and one that breaks one fails at the check of that one."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import json
import pickle
import types
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rtlab.core.buildlog import Entry
from rtlab.core.engine import Engine, Maker
from rtlab.core.progress import Silent
from rtlab.core.protocols import Availability, Capabilities
from rtlab.core.trace import Profile, Throughput
from rtlab.core.variant import Precision, Target
from rtlab.errors import BuildError, Cancelled, ReadError, RunError
from rtlab.testing import ReferenceBackend, conformance
from rtlab.testing.conforming import Check

COUNTER = itertools.count()
NOW = datetime(2024, 1, 1, tzinfo=timezone.utc)
WORDS = "Cannot do it: something is wrong. Do it otherwise."
TACTICS = {"0xa": ("0x1", "0x2", "0x3")}


class Sound(ReferenceBackend):
    """It has every role but that of an explainer, and keeps each promise."""

    name, flag, maker, runs = "sound", "editable_timing_cache", Maker("Sound", tunes="build"), 300

    def capabilities(self) -> Capabilities:
        roles = {"builds": True, "runs": True, "opens": True, "counts": True, "forces": True, "reads": True}
        targets = (Target("cpu"), Target("gpu"))
        return Capabilities(targets, (Precision.FP32,), local=targets[0], maker=self.maker, **roles)

    def build(self, request: Any, progress: Any) -> Engine:
        if request.variant.target not in (Target("cpu"), Target("gpu")):
            raise BuildError(WORDS)
        made = super().build(request, progress)
        if (options := request.variant.options) is not None and options.timing_cache:
            Path(options.timing_cache).write_text(json.dumps({k: int(t[0], 0) for k, t in TACTICS.items()}))
        return dataclasses.replace(made, target=request.variant.target, maker=self.maker, log="a log")

    def profile(self, engine: Engine, inputs: Any, progress: Any, **more: Any) -> Profile:
        assert (more.get("seconds") or more.get("limit_s")) in {None, 0.5}
        if progress.stopped():
            raise Cancelled(WORDS)
        if more.get("limit_s"):
            raise RunError(WORDS)
        count = self.runs
        samples = {y.id: np.full(count, 0.5) for y in engine.layers}
        return Profile("a clock", "a device", samples, np.ones(count), 1, NOW, runs=count)

    def save(self, engine: Engine, path: Path) -> None:
        path.write_bytes(pickle.dumps(engine))

    def open_plan(self, plan: Path) -> Engine:
        return self._read(plan, pickle.loads)

    def throughput(self, engine, inputs, progress, *, streams: int, seconds: float = 1) -> Throughput:
        if streams < 1:
            raise RunError(WORDS)
        return Throughput("a clock", "a device", streams, 1, 10, seconds, NOW)

    def operators(self, log: str) -> Any:
        timed = [[types.SimpleNamespace(tactic=t, milliseconds=1.0) for t in ts] for ts in TACTICS.values()]
        pairs = zip(TACTICS, timed, strict=True)
        return tuple(types.SimpleNamespace(key=k, timed=ts) for k, ts in pairs)

    def remembered(self, cache: Path, keys: Sequence[str], progress: Any = None) -> dict[str, Entry]:
        return {k: Entry(k, t, 1.0) for k, t in self._read(cache).items() if k in keys}

    def forced(self, cache: Path, copy: Path, entries: Sequence[Entry], progress: Any = None) -> None:
        copy.write_text(json.dumps({**self._read(cache), **{e.key: e.tactic for e in entries}}))

    def read(self, files: Mapping[str, Path], *, select: int | None = None) -> Any:
        for path in files.values():
            self._read(path)
        layers = [types.SimpleNamespace(id=n) for n in "ab"]
        profile = types.SimpleNamespace(samples={"a": [1.0]}, source="a clock")
        return types.SimpleNamespace(engine=types.SimpleNamespace(layers=layers), profile=profile)

    def _read(self, path: Path, of: Callable[[bytes], Any] = json.loads) -> Any:
        try:
            return of(path.read_bytes())
        except Exception as error:
            raise ReadError(WORDS) from error


def said(backend: Any, check: str, folder: Path) -> str:
    """What the check of this name says is wrong; empty where it passes."""
    (folder / "engine.json").write_text("{}")
    (one,) = [c for c in conformance(backend, files={"layers": folder / "engine.json"}) if str(c) == check]
    try:
        one()
    except AssertionError as error:
        return str(error)
    return ""


def turned(method: str, change: Callable[[Any], Any]) -> Any:
    """A backend one of whose methods gives something else."""

    def instead(self, *args, **more):
        return change(getattr(Sound, method)(self, *args, **more))

    return type("Bug", (Sound,), {method: instead})()


def raising(method: str, error: Exception) -> Any:
    def instead(*_: Any, **__: Any) -> None:
        raise error

    return type("Bug", (Sound,), {method: instead})()


def other(**fields: Any) -> Callable[[Any], Any]:
    return lambda found: dataclasses.replace(found, **fields)


def test_a_backend_that_keeps_every_promise_passes(tmp_path: Path) -> None:
    (tmp_path / "engine.json").write_text("{}")
    checks = conformance(Sound(), files={"layers": tmp_path / "engine.json"})
    assert 26 == len({str(c) for c in checks}) == len(checks)
    for check in checks:
        check()
        assert repr(check) == f"Check(name='{check}')"


DEAF = type("Bug", (Sound,), {"profile": lambda s, e, i, p, **m: Sound.profile(s, e, i, Silent(), **m)})()
SCRIBBLING = type("Bug", (Sound,), {"profile": lambda s, e, i, p, **m: i["x"].fill(0)})()


class Littering(Sound):
    def read(self, files: Mapping[str, Path], **more: Any) -> Any:
        next(iter(files.values())).with_name("left").write_text("")
        return super().read(files, **more)


LITTERING = Littering()
HERE, CLAIMS = "says whether it works here", "says what it can do, and has the methods for it"
BUILT, BUDGET = "builds for its default target", "keeps to a budget of time"
TIMES, COMPUTES = "times as many runs as it says", "computes what the model says"
CACHES = "refuses files that are not timing caches, with a message"
FORCES = "forces a tactic that it timed, in a copy of its timing cache"
READS, COUNTS = "reads files and does not write them", "counts inferences"
REFUSES = "refuses a model that it cannot compile, with a message"
TARGET = "never says that it built for a target that it does not have"
LIMIT, STOPS = "keeps runs within their limit of time", "stops a build when it is asked to"


@pytest.mark.parametrize(
    ("backend", "check", "words"),
    [
        (type("Bug", (Sound,), {"name": 3})(), HERE, "name is 3"),
        (type("Bug", (Sound,), {"name": ""})(), HERE, "name is empty"),
        (type("Bug", (Sound,), {"name": " a"})(), HERE, "spaces"),
        (turned("availability", lambda _: None), HERE, "no Availability"),
        (turned("availability", other(version="")), HERE, "no version"),
        (turned("availability", lambda _: Availability(ok=False, reason="no GPU")), HERE, 'no sentence: "no GPU"'),
        (turned("capabilities", lambda _: None), CLAIMS, "no Capabilities"),
        (turned("capabilities", lambda c: dataclasses.replace(c, device=str(next(COUNTER)))), CLAIMS, "again"),
        (turned("capabilities", other(explains=True)), CLAIMS, "it lacks explain"),
        (turned("capabilities", other(targets=())), CLAIMS, "no target"),
        (turned("capabilities", other(precisions=())), CLAIMS, "no precision"),
        (turned("capabilities", other(targets=("cpu",))), CLAIMS, "'cpu' is no Target"),
        (turned("capabilities", other(targets=(Target("cpu"), "x"))), CLAIMS, "'x' is no Target"),
        (turned("capabilities", other(precisions=(3,))), CLAIMS, "3 is no Precision"),
        (turned("capabilities", other(maker=Maker("Sound", tunes="load"))), CLAIMS, 'tunes "load"'),
        (turned("capabilities", lambda c: Capabilities(c.targets, c.precisions)), CLAIMS, "no role"),
        (turned("build", lambda e: None), BUILT, "no Engine"),
        (turned("build", other(backend="x")), BUILT, '"x" made it'),
        (turned("build", other(target=Target("sm75"))), BUILT, "sm75"),
        (turned("build", other(version="")), BUILT, "no version"),
        (turned("build", other(maker=Maker("x"))), BUILT, "maker"),
        (turned("build", other(built=None)), BUILT, "no date"),
        (turned("build", other(built=datetime(2024, 1, 1))), BUILT, "no time zone"),  # noqa: DTZ001
        (turned("build", other(layers=())), BUILT, "no layers"),
        (turned("build", lambda e: other(layers=(e.layers[0],) * 2)(e)), BUILT, "one id"),
        (turned("build", lambda e: other(layers=e.layers[::-1])(e)), BUILT, "order"),
        (turned("build", lambda e: other(layers=(other(origins=("q",))(e.layers[0]),))(e)), BUILT, "['q']"),
        (turned("build", other(inputs=())), BUILT, "its inputs are []"),
        (turned("build", other(outputs=())), BUILT, "its outputs are []"),
        (turned("build", other(target=Target("cpu"))), "builds for gpu", '"gpu" was asked for'),
        (raising("build", RunError(WORDS)), TARGET, "VariantError or"),
        (turned("build", other(seconds=2.0)), "keeps a build within its limit of time", "took 2 s"),
        (raising("build", Cancelled(WORDS)), REFUSES, "BuildError is promised"),
        (raising("build", BuildError("No.")), REFUSES, "lacks a part"),
        (raising("build", BuildError(WORDS)), STOPS, "Cancelled belongs there"),
        (turned("profile", lambda _: None), TIMES, "no Profile"),
        (turned("profile", other(source="")), TIMES, "who measured"),
        (turned("profile", other(device="")), TIMES, "which device"),
        (turned("profile", other(taken=None)), TIMES, "no date"),
        (turned("profile", other(runs=2)), TIMES, "3 runs were asked for, and 2 are told"),
        (turned("profile", other(total=np.ones(2))), TIMES, "and 2 are timed"),
        (turned("profile", other(total=np.full(300, np.nan))), TIMES, "no number"),
        (turned("profile", other(total=np.zeros(300))), TIMES, "no time"),
        (turned("profile", other(samples={})), TIMES, "tells of 0 layers"),
        (turned("profile", other(samples={"q": np.ones(300)})), TIMES, "['q']"),
        (turned("profile", lambda p: other(samples={k: v[1:] for k, v in p.samples.items()})(p)), TIMES, "299 times"),
        (turned("profile", lambda p: other(samples={k: -v for k, v in p.samples.items()})(p)), TIMES, "less than"),
        (raising("outputs", RunError(WORDS)), "stops runs when it is asked to", "Cancelled belongs there"),
        (DEAF, "stops runs when it is asked to", "profile() goes on"),
        (SCRIBBLING, "leaves its inputs as they are", 'it writes into input "x"'),
        (raising("outputs", KeyError("a")), "refuses values and inputs that do not exist, with a message", "KeyError"),
        (turned("profile", other(runs=1_000_000)), BUDGET, "1000000 runs"),
        (turned("profile", other(runs=0)), BUDGET, "0 runs"),
        (turned("outputs", lambda o: {}), COMPUTES, "it gives []"),
        (turned("outputs", lambda o: {k: v[0] for k, v in o.items()}), COMPUTES, "shape (4,)"),
        (turned("outputs", lambda o: {k: v * 1.006 for k, v in o.items()}), COMPUTES, "off by 0.006"),
        (turned("unfused", lambda n: ("sum",)), "tells inner values without changing them", ""),
        (raising("profile", Cancelled(WORDS)), LIMIT, "RunError is promised"),
        (turned("throughput", other(inferences=0)), COUNTS, "nothing was finished"),
        (turned("throughput", other(inferences=float("nan"))), COUNTS, "no number"),
        (turned("throughput", other(batch=2)), COUNTS, "a batch of 2"),
        (raising("open_plan", KeyError("a")), "refuses files that are not engines, with a message", "KeyError"),
        (turned("open_plan", other(runnable=None)), "opens an engine that it saved", "gives []"),
        (raising("remembered", RunError(WORDS)), CACHES, "ReadError is promised"),
        (raising("forced", KeyError("a")), CACHES, "KeyError"),
        (turned("remembered", lambda r: {k: Entry(k, 7, 1.0) for k in TACTICS}), FORCES, "0x7"),
        (turned("remembered", lambda r: {"0xb": Entry("0xb", 1, 1.0)}), FORCES, "['0xb']"),
        (turned("read", lambda r: r.engine.layers.append(r.engine.layers[0]) or r), READS, "one id"),
        (turned("read", lambda r: r.profile.samples.update(q=[]) or r), READS, "['q']"),
        (turned("read", lambda r: setattr(r.profile, "source", "") or r), READS, "who measured"),
        (LITTERING, READS, "leaves files behind"),
    ],
)  # fmt: skip
def test_a_broken_promise_is_found_by_its_check(backend: Any, check: str, words: str, tmp_path: Path) -> None:
    found = said(backend, check, tmp_path)
    assert words in found
    assert bool(words) == bool(found)


@pytest.mark.parametrize(
    ("method", "check", "words"),
    [
        ("open_plan", "opens an engine that it saved", "writes a file"), ("read", READS, "writes a file"),
        ("forced", FORCES, "writes a timing cache"), ("forced", CACHES, "writes a copy"),
    ],
)  # fmt: skip
def test_a_file_that_is_written_is_noticed(method: str, check: str, words: str, tmp_path: Path) -> None:
    def instead(self: Any, files: Any, *args: Any, **more: Any) -> Any:
        if words == "writes a copy":
            args[0].write_text("")
        found = getattr(Sound, method)(self, files, *args, **more)
        path = next(iter(files.values())) if isinstance(files, dict) else files
        path.write_bytes(path.read_bytes() + b" ")
        return found

    assert words in said(type("Bug", (Sound,), {method: instead})(), check, tmp_path)


def test_an_error_that_nothing_promises_is_a_failure_that_names_the_check() -> None:
    def fail(error: Exception) -> None:
        raise error

    for error, words in (
        (ValueError("odd"), "it builds: it raises ValueError"),
        (AssertionError("odd"), "^odd$"),
    ):
        with pytest.raises(AssertionError, match=words):
            Check("builds", functools.partial(fail, error))()
