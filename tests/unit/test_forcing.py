"""Tactics of a study's variants, and variants with others forced, on a machine whose TensorRT is a stand-in."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import re
from pathlib import Path

import pytest

import fake_trt
from fake_gpu import VERSIONS, Here
from rtlab import Study, backends
from rtlab.backends.makers import TENSORRT_RTX
from rtlab.core.buildlog import Entry, Operator, TacticTime
from rtlab.core.data import CalibrationData
from rtlab.core.facts import Facts
from rtlab.core.model import absent
from rtlab.core.progress import Silent
from rtlab.errors import Cancelled, ReadError, RtlabError, VariantError
from rtlab.experiments.experiment import Allowance, Rig, carry_out
from rtlab.experiments.tactics import LayerTactics, TacticListing
from rtlab.session import forcing
from rtlab.testing import Check, conformance, tiny_model

LOG = Path(__file__).parents[3] / "shared/recorded/build-logs/mnist-trt10.16-h100-level5.log"
lists = pytest.mark.skipif(not fake_trt.LISTS.is_dir(), reason="no ../shared/reference beside the checkout")
FLAGS = ["EDITABLE_TIMING_CACHE"]


def _study(release: str, cache: Path | None, flags: list[str]) -> Study:
    """One built variant, "base"; backends register by name, and this one stands in for the GPU's."""
    table = backends.registry()
    before = table["tensorrt"]
    table["tensorrt"] = Here(release)
    try:
        model = tiny_model()
        study = Study(model, data=CalibrationData.random(model, samples=2, seed=1))
        options = {"flags": flags, "timing_cache": cache} if cache else {"flags": flags}
        study.add("base", precision="fp32", backend="tensorrt", target="sm86", options=options)
        return study.run()
    finally:
        table["tensorrt"] = before


@pytest.fixture
def gpu(monkeypatch) -> None:
    monkeypatch.setitem(backends.registry(), "tensorrt", Here("trt10"))


def taken(study: Study, name: str) -> dict[str, int]:
    """The tactics that the stand-in took, as it logged them."""
    told = json.loads(re.findall(r"^CONFIGURED (.*)$", study[name].engine.log, re.MULTILINE)[-1])
    return told["tactics taken"]


@lists
@pytest.mark.parametrize("release", VERSIONS)
def test_a_forced_variant_is_built_with_the_tactic_and_compared(
    tmp_path: Path, release: str, monkeypatch
) -> None:
    """The whole way: build, list, force, build again, see where the time went; the first cache keeps its bytes."""
    cache = tmp_path / "timing.cache"
    study = _study(release, cache, FLAGS)
    monkeypatch.setitem(backends.registry(), "tensorrt", Here(release))
    table = study.tactics("base")
    assert {"base": table} == study.listed
    assert list(taken(study, "base")) == [t.layer for t in table]
    for told in table:
        assert (3, told.timed[0].tactic, 0.0) == (len(told.timed), told.remembered.tactic, told.cost)
        assert (0.25, "kernel_0", (told.layer,)) == (
            told.timed[0].milliseconds,
            told.timed[0].name,
            told.nodes,
        )
    kept = cache.read_bytes()
    layer, second = table[1].layer, table[1].timed[2]
    variant = study.force("base", {layer: second.tactic}, as_="slow one")
    assert tmp_path / "timing.slow_one.cache" == variant.options.timing_cache
    assert (variant, "base") == (study.variants["slow one"], next(iter(study.variants)))
    assert {"timing.cache", "timing.slow_one.cache"} == {p.name for p in tmp_path.iterdir()}
    assert kept == cache.read_bytes()
    assert study.variants["base"] == dataclasses.replace(
        variant, options=dataclasses.replace(variant.options, timing_cache=cache)
    )
    study.run()
    assert {**taken(study, "base"), layer: int(second.tactic, 0)} == taken(study, "slow one")
    assert kept == cache.read_bytes()
    # The second build timed nothing; what the first one timed tells the tactics of both.
    again = study.tactics("slow one")
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
    chained = study.force("slow one", {table[0].layer: "kernel_1"}, as_="both")
    study.run(["both"])
    assert {
        **taken(study, "slow one"), table[0].layer: int(table[0].timed[1].tactic, 0),
    } == taken(study, "both")  # fmt: skip
    assert tmp_path / "timing.slow_one.both.cache" == chained.options.timing_cache


@lists
def test_what_cannot_be_forced_says_what_can(tmp_path: Path, gpu) -> None:
    """Three parts each, and no file is left behind."""
    cache = tmp_path / "timing.cache"
    study = _study("trt10", cache, FLAGS)
    first = study.tactics("base")[0]
    good = {first.layer: first.timed[1].tactic}

    def refused(said: str, wanted: dict, **more) -> None:
        with pytest.raises(VariantError, match=said):
            study.force("base", wanted, **more)

    refused(rf'no layer "nothing" was timed\. Choose one of "{first.layer}"', {"nothing": "0x1"})
    refused(rf'Did you mean "{first.layer}"\?', {f"{first.layer}x": "0x1"})
    refused(
        rf'tactic "0x1" was not timed for layer "{first.layer}"\. Choose one of '
        rf'"{first.timed[0].tactic}" \(kernel_0, 0\.25 ms\), "{first.timed[1].tactic}"',
        {first.layer: "0x1"},
    )
    refused("was not timed for layer", {first.layer: "no kernel"})
    refused(r"none is named\. Choose among those of study\.tactics\(.base.\)", {})
    refused("holds these already, so nothing would differ", {first.layer: first.timed[0].tactic})
    refused('Cannot call the forced variant "base"', good, as_="base")
    refused(r'it is the cache that is read|variant "base" builds with it', good, cache=cache)
    assert [cache] == list(tmp_path.iterdir())
    assert ["base"] == list(study.variants)
    study.force("base", good, as_="one", cache=tmp_path / "mine")
    refused(r'variant "one" builds with it\. Choose another file', good, as_="two", cache=tmp_path / "mine")
    with pytest.raises(RtlabError, match=r'there is no folder ".*gone"'):
        study.force("base", good, as_="three", cache=tmp_path / "gone" / "x")
    cache.unlink()
    with pytest.raises(ReadError, match="No such file"):
        study.tactics("base")


@lists
@pytest.mark.parametrize("lacking", ["flag", "file", "both"])
def test_without_an_editable_cache_it_is_told_how_to_keep_one(tmp_path: Path, lacking: str, gpu) -> None:
    study = _study("trt10", None if lacking != "flag" else tmp_path / "x", [] if lacking != "file" else FLAGS)
    with pytest.raises(
        VariantError,
        match=r'"base": its build kept no timing cache that can be edited\. Add it with backend="tensorrt", '
        r'options=\{"flags": \["EDITABLE_TIMING_CACHE"\], "timing_cache": "new\.cache"\} and run it\.',
    ):
        study.force("base", {"x": "0x1"})


@pytest.mark.skipif(not LOG.is_file(), reason="no ../shared/recorded beside the checkout")
def test_a_recorded_log_lists_its_tactics_and_cannot_be_forced() -> None:
    """Another machine's timing cache is not here; what its log tells can be read all the same."""
    study = Study(absent())
    study.read("theirs", log=LOG)
    found = study.tactics("theirs")
    pool = next(t for t in found if t.layer == "node_max_pool2d")
    assert all(a.milliseconds <= b.milliseconds for a, b in zip(pool.timed, pool.timed[1:], strict=False))
    assert {("", None)} == {(t.key, t.remembered) for t in found}
    with pytest.raises(
        VariantError, match=r'it was read from files of another machine.* Add it with backend="t'
    ):
        study.force("theirs", {"node_max_pool2d": "0x1"})


def test_other_backends_say_where_tactics_are_timed() -> None:
    study = Study(tiny_model())
    study.add("fp32", target="cpu")
    study.run(compare=False)
    with pytest.raises(VariantError, match=r'"onnxruntime" times no tactics .*or study\.tune\(\)'):
        study.tactics("fp32")
    result = study["fp32"]
    rtx = dataclasses.replace(result.facts, engine=dataclasses.replace(result.engine, maker=TENSORRT_RTX))
    for ask in (lambda: forcing.listing(rtx, ()), lambda: forcing.check(rtx, {"a": "b"})):
        with pytest.raises(
            VariantError,
            match=r'TensorRT-RTX tunes on the GPU when it loads an engine, .*Choose backend="tensorrt"\.',
        ):
            ask()
    silent = dataclasses.replace(
        result.facts, engine=dataclasses.replace(result.engine, backend="tensorrt", log="")
    )
    study._change(lambda kept: kept.built(silent))
    with pytest.raises(VariantError, match="no log tells of a tactic that was timed"):
        study.tactics("fp32")


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

    def forced(self, *given):
        raise AssertionError(given)


class Stopped(Silent):
    """Somebody asks to stop once ``seen`` holds a record."""

    def __init__(self, seen: list[object]) -> None:
        self.seen = seen

    def stopped(self) -> bool:
        return bool(self.seen)


@pytest.fixture
def built() -> Facts:
    study = Study(tiny_model())
    study.add("fp32", target="cpu")
    return study.run(compare=False).facts["fp32"]


def test_a_listing_tells_what_logs_say_and_then_what_the_cache_holds(built: Facts) -> None:
    """By hand: two logs, of which the second lists one more; the cache lacks one of three, and is opened once."""
    tuner = Remembering()
    rig, records = Rig(tuner), []
    found = carry_out(TacticListing(built, ("ac", "ab"), Path("x.cache")), rig, records.append)

    assert [("a", None, ""), ("c", None, "")] == [(t.layer, t.cost, t.key) for t in records[0]]
    assert [("a", 0.5, "key a"), ("c", None, ""), ("b", 0.5, "key b")] == [
        (t.layer, t.cost, t.key) for t in found
    ]
    assert [(Path("x.cache"), ("key a", "key c", "key b"))] == tuner.opened
    assert (1, 2) == (rig.builds, len(records))


@pytest.mark.parametrize("allowance", [Allowance(builds=0), Allowance(seconds=0)])
def test_a_listing_without_an_allowance_tells_what_the_logs_say(built: Facts, allowance: Allowance) -> None:
    tuner = Remembering()
    found = carry_out(TacticListing(built, ("ab",), Path("x.cache")), Rig(tuner, allowance=allowance))

    assert ([("a", None), ("b", None)], []) == ([(t.layer, t.remembered) for t in found], tuner.opened)


def test_a_cancelled_listing_leaves_what_the_logs_said(built: Facts) -> None:
    tuner = Remembering()
    records: list[object] = []
    rig = Rig(tuner, Stopped(records))
    with pytest.raises(Cancelled, match="listing the tactics"):
        carry_out(TacticListing(built, ("ab",), Path("x.cache")), rig, records.append)

    assert [2] == [len(r) for r in records]
    assert [] == tuner.opened


def test_what_was_timed_in_several_forms_is_forced_where_it_was_timed() -> None:
    """A kernel of FP16 is none of the FP32 form of the same operator; one that both have is forced in both."""
    both, half = TacticTime("0xA", "both", 1.0), TacticTime("0xB", "half", 0.5)
    table = [
        LayerTactics("op", ("n",), (both,), both, "key 1"),
        LayerTactics("op", ("n",), (half, both), half, "key 2"),
        LayerTactics("pool", (), (both,)),
    ]
    assert {"key 1": both, "key 2": both} == forcing._chosen("x", table, "op", "0x0a")
    assert {"key 2": half} == forcing._chosen("x", table, "n", "half")
    assert {"key 2": half} == forcing._chosen("x", table, "n", 11)
    with pytest.raises(VariantError, match=r'layer "pool" has no entry in the timing cache.*one of "op"'):
        forcing._chosen("x", table, "pool", "0xA")


def tuning_checks(backend: Here) -> dict[str, Check]:
    return {str(c): c for c in conformance(backend) if "timing cache" in str(c)}


@lists
@pytest.mark.parametrize("release", VERSIONS)
def test_a_backend_that_forces_tactics_keeps_its_protocol(release: str) -> None:
    checks = tuning_checks(Here(release))
    assert [
        "refuses files that are no timing caches, in words",
        "forces a tactic that it timed, in a copy of its timing cache",
    ] == list(checks)
    for check in checks.values():
        check()


class Scribbling(Here):
    """Edits the cache that it was given to read."""

    def forced(self, cache, copy, entries, progress=None):
        found = super().forced(cache, copy, entries, progress)
        Path(cache).write_bytes(Path(copy).read_bytes())
        return found


class Stubborn(Here):
    """Copies the cache as it is."""

    def forced(self, cache, copy, entries, progress=None):
        found = super().forced(cache, copy, entries, progress)
        Path(copy).write_bytes(Path(cache).read_bytes())
        return found


class Trusting(Here):
    """Takes any file for an empty cache."""

    def remembered(self, cache, keys, progress=None):
        return {}


@lists
@pytest.mark.parametrize(
    ("backend", "said"),
    [
        (Scribbling, "it writes a timing cache that it was given to read"),
        (Stubborn, r"told to force tactic 0x\w+, its copy holds 0x\w+"),
        (Trusting, "it tells what a file holds that is not there"),
    ],
)
def test_the_examination_notices_what_a_tuner_does_wrong(backend: type[Here], said: str) -> None:
    wrong = []
    for check in tuning_checks(backend("trt10")).values():
        with contextlib.suppress(AssertionError):
            check()
            continue
        wrong.append(check)
    assert 1 == len(wrong)
    with pytest.raises(AssertionError, match=said):
        wrong[0]()
