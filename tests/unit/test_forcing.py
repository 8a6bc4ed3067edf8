"""Tactics of a study's variants, and variants with others forced, on a machine whose TensorRT is a stand-in."""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path

import pytest

from build_logs import REGIONS
from fake_gpu import VERSIONS, Here, needs_api
from rtlab import Study, backends
from rtlab.core.budget import Budget, WorkContext
from rtlab.core.buildlog import Entry, Operator, TacticTime
from rtlab.core.data import CalibrationData
from rtlab.core.facts import VariantResult
from rtlab.core.model import make_empty_model
from rtlab.core.progress import Silent
from rtlab.errors import Cancelled, ReadError, VariantError
from rtlab.experiments.experiment import run_experiment
from rtlab.study import tuning
from rtlab.study.tuning import LayerTactics, TacticListing
from rtlab.testing import conformance, tiny_model

FLAGS = ["EDITABLE_TIMING_CACHE"]


@pytest.fixture(params=["trt10"])
def release(request, monkeypatch) -> str:
    """Backends register by name; this one stands in for the GPU's."""
    monkeypatch.setitem(backends.registry(), "tensorrt", Here(request.param))
    return request.param


every_release = pytest.mark.parametrize("release", VERSIONS, indirect=True)


def _study(cache: Path | None, flags: list[str], *, compare: bool = False) -> Study:
    """One built variant, "base"."""
    model = tiny_model()
    study = Study(model, data=CalibrationData.random(model, samples=2, seed=1))
    options = {"flags": flags, "timing_cache": cache} if cache else {"flags": flags}
    study.add("base", precision="fp32", backend="tensorrt", target="sm86", options=options)
    return study.run(compare=compare)


def taken(study: Study, name: str) -> dict[str, int]:
    """The tactics that the stand-in took, as it logged them."""
    told = json.loads(re.findall(r"^CONFIGURED (.*)$", study[name].engine.log, re.MULTILINE)[-1])
    return told["tactics taken"]


@needs_api
@pytest.mark.slow(but="trt10")
@every_release
def test_a_forced_variant_is_built_with_the_tactic_and_compared(tmp_path: Path, release: str) -> None:
    cache = tmp_path / "timing.cache"
    study = _study(cache, FLAGS, compare=True)
    table = study.tuning.tactics("base")
    assert {"base": table} == study.state.tactics
    assert list(taken(study, "base")) == [t.layer for t in table]
    for told in table:
        fastest = told.timed[0]
        assert (3, fastest.tactic, 0.0) == (len(told.timed), told.remembered.tactic, told.cost)
        assert (0.25, "kernel_0", (told.layer,)) == (fastest.milliseconds, fastest.name, told.nodes)
    kept = cache.read_bytes()
    layer, second = table[1].layer, table[1].timed[2]
    variant = study.tuning.force("base", {layer: second.tactic}, as_="slow one")
    assert tmp_path / "timing.slow_one.cache" == variant.options.timing_cache
    assert (variant, "base") == (study.state.variants["slow one"], next(iter(study.state.variants)))
    assert {"timing.cache", "timing.slow_one.cache"} == {p.name for p in tmp_path.iterdir()}
    assert study.state.variants["base"] == dataclasses.replace(
        variant, options=dataclasses.replace(variant.options, timing_cache=cache)
    )
    study.run()
    assert {**taken(study, "base"), layer: int(second.tactic, 0)} == taken(study, "slow one")
    assert kept == cache.read_bytes()
    # The second build timed nothing; what the first one timed tells the tactics of both.
    again = study.tuning.tactics("slow one")
    assert [layer] == [t.layer for t in again if t.cost != 0]
    assert (0.125, "kernel_2", second.tactic) == (
        again[1].cost, again[1].remembered.name, again[1].remembered.tactic,
    )  # fmt: skip
    assert [t.timed for t in table] == [t.timed for t in again]
    # The stand-in's engine takes as long as its tactics: the difference is the price.
    found = study.difference("base", "slow one")
    assert pytest.approx([0.125 if layer in g.nodes else 0.0 for g in found.groups], rel=0.05) == [
        g.delta for g in found.groups
    ]
    assert 1 == sum(layer in g.nodes for g in found.groups)
    # From there the next one is forced.
    chained = study.tuning.force("slow one", {table[0].layer: "kernel_1"}, as_="both")
    study.run(["both"])
    forced = {**taken(study, "slow one"), table[0].layer: int(table[0].timed[1].tactic, 0)}
    assert forced == taken(study, "both")
    assert tmp_path / "timing.slow_one.both.cache" == chained.options.timing_cache


@needs_api
def test_what_cannot_be_forced_says_what_can(tmp_path: Path, release: str) -> None:
    cache = tmp_path / "timing.cache"
    study = _study(cache, FLAGS)
    first = study.tuning.tactics("base")[0]
    good = {first.layer: first.timed[1].tactic}
    for said, wanted, more in (
        (f'"{first.layer}"', {"nothing": "0x1"}, {}),
        (f'"{first.timed[0].tactic}"', {first.layer: "0x1"}, {}),
        ("was not timed", {first.layer: "no kernel"}, {}),
        ("none is named", {}, {}),
        ("nothing would differ", {first.layer: first.timed[0].tactic}, {}),
        ('"base"', good, {"as_": "base"}),
    ):
        with pytest.raises(VariantError, match=said):
            study.tuning.force("base", wanted, **more)
    assert ([cache], ["base"]) == (list(tmp_path.iterdir()), list(study.state.variants))
    study.tuning.force("base", good, as_="one two")
    with pytest.raises(VariantError, match='"one two"'):
        study.tuning.force("base", good, as_="one/two")
    cache.unlink()
    with pytest.raises(ReadError):
        study.tuning.tactics("base")


@needs_api
@pytest.mark.parametrize(("cache", "flags"), [("x", []), (None, FLAGS), (None, [])])
def test_without_an_editable_cache_it_is_told_how_to_keep_one(tmp_path, cache, flags, release) -> None:
    study = _study(tmp_path / cache if cache else None, flags)
    with pytest.raises(VariantError, match="EDITABLE_TIMING_CACHE"):
        study.tuning.force("base", {"x": "0x1"})


def test_a_log_lists_its_tactics_and_cannot_be_forced() -> None:
    study = Study(make_empty_model())
    study.read("theirs", log=REGIONS)
    found = study.tuning.tactics("theirs")
    pool = next(t for t in found if t.layer == "pool")
    assert all(a.milliseconds <= b.milliseconds for a, b in zip(pool.timed, pool.timed[1:], strict=False))
    assert {("", None)} == {(t.key, t.remembered) for t in found}
    with pytest.raises(VariantError, match="files of another machine"):
        study.tuning.force("theirs", {"pool": "0x1"})


class Remembering:
    """A tuner whose logs list operators by a letter each, and whose cache holds the slower tactic of each."""

    flag = "EDITABLE"

    def __init__(self) -> None:
        self.opened: list[tuple[Path, tuple[str, ...]]] = []

    def operators(self, log: str) -> tuple[Operator, ...]:
        timed = (TacticTime("0xA", "fast", 1.0), TacticTime("0xB", "slow", 1.5))
        return tuple(Operator(letter, f"key {letter}", (f"n{letter}",), timed) for letter in log)

    def remembered(self, cache, keys, progress=None) -> dict[str, Entry]:
        self.opened.append((cache, keys))
        return {key: Entry(key, 0xB, 1.5) for key in keys if key != "key c"}


@pytest.fixture(scope="module")
def built() -> VariantResult:
    study = Study(tiny_model())
    study.add("fp32", target="cpu")
    return study.run(compare=False)["fp32"].facts


def test_a_listing_tells_what_logs_say_and_then_what_the_cache_holds(built: VariantResult) -> None:
    """By hand: two logs, of which the second lists one more; the cache lacks one of three, and is opened once."""
    tuner = Remembering()
    rig, records = WorkContext(tuner), []
    found = run_experiment(TacticListing(built, ("ac", "ab"), Path("x.cache")), rig, records.append)

    assert [("a", None, ""), ("c", None, "")] == [(t.layer, t.cost, t.key) for t in records[0]]
    assert [("a", 0.5, "key a"), ("c", None, ""), ("b", 0.5, "key b")] == [
        (t.layer, t.cost, t.key) for t in found
    ]
    assert [(Path("x.cache"), ("key a", "key c", "key b"))] == tuner.opened
    assert (1, 2) == (rig.builds, len(records))


def test_a_listing_that_may_not_open_the_cache_tells_what_the_logs_say(built: VariantResult) -> None:
    tuner, progress, lengths = Remembering(), Silent(), []
    listing = TacticListing(built, ("ab",), Path("x.cache"))
    for allowance in (Budget(builds=0), Budget(seconds=0)):
        found = run_experiment(listing, WorkContext(tuner, budget=allowance))
        assert [("a", None), ("b", None)] == [(t.layer, t.remembered) for t in found]
    with pytest.raises(Cancelled):
        run_experiment(
            listing, WorkContext(tuner, progress), lambda r: (lengths.append(len(r)), progress.cancel())
        )
    assert ([2], []) == (lengths, tuner.opened)


def test_what_was_timed_in_several_forms_is_forced_where_it_was_timed() -> None:
    """A kernel of FP16 is none of the FP32 form of the same operator; one that both have is forced in both."""
    both, half = TacticTime("0xA", "both", 1.0), TacticTime("0xB", "half", 0.5)
    table = [
        LayerTactics("op", ("n",), (both,), both, "key 1"),
        LayerTactics("op", ("n",), (half, both), half, "key 2"),
        LayerTactics("pool", (), (both,)),
    ]
    assert {"key 1": both, "key 2": both} == tuning._find_tactic("x", table, "op", "0xA")
    assert {"key 2": half} == tuning._find_tactic("x", table, "n", "half")
    with pytest.raises(VariantError, match='"pool" has no entry'):
        tuning._find_tactic("x", table, "pool", "0xA")


@needs_api
@pytest.mark.parametrize("release", VERSIONS)
def test_a_backend_that_forces_tactics_keeps_its_protocol(release: str) -> None:
    checks = [c for c in conformance(Here(release)) if "timing cache" in str(c)]
    assert 2 == len(checks)
    for check in checks:
        check()
