"""A backend that rtlab has never heard of: what it builds, times and computes is what is shown."""

from __future__ import annotations

import dataclasses
import datetime
import importlib.metadata
from pathlib import Path

import numpy as np
import pytest

import rtlab
from rtlab import backends
from rtlab.core.compiler_info import Maker
from rtlab.core.engine import Engine, Layer
from rtlab.core.protocols import Availability, BuildRequest, Capabilities
from rtlab.core.stage import Stage
from rtlab.core.trace import Profile, Recording, Throughput
from rtlab.core.variant import Precision, Target, Variant
from rtlab.errors import BuildError, Unavailable, VariantError
from rtlab.testing import tiny_model

pytestmark = pytest.mark.slow
#: Milliseconds that no clock gives.
TIMES = np.array([1.25, 1.5, 1.75])


class Abacus:
    """Builds one layer, which takes a time that only it knows, and answers a half everywhere."""

    name, source = "abacus", "Abacus 7"
    planned = False

    def availability(self):
        return Availability(ok=True, version="7")

    def capabilities(self):
        return Capabilities(
            (Target("cpu"),), (Precision.FP32,), builds=True, runs=True, maker=Maker("Abacus")
        )

    def build(self, request, progress):
        layer = Layer("0:all", "all", "Beads", 0, origins=tuple(n.id for n in request.model.top))
        return Engine(
            self.name, "7", request.variant.target, (layer,), maker=Maker("Abacus"), runnable=request.model,
            plan=b"beads" if self.planned else None,
        )  # fmt: skip

    def profile(self, engine, inputs, progress, *, runs=30, warmup=5, seconds=None, limit_s=None):
        took, now = np.resize(TIMES, runs), datetime.datetime.now(datetime.timezone.utc)
        return Profile(self.source, "a frame of wood", {"0:all": took}, took, 0, now, runs=runs)

    def outputs(self, engine, inputs, names=(), *, progress=None, limit_s=None):
        (batch,) = {len(v) for v in inputs.values()}
        return dict.fromkeys(names or ("y",), np.full((batch, 4), 0.5, np.float32))

    def unfused(self, engine, inputs, progress, *, limit_s=None):
        return ()

    def release(self, engine):
        """Nothing is kept."""


class Planned(Abacus):
    """The same, with a serialized engine."""

    name, planned = "planned-abacus", True


@pytest.fixture(autouse=True)
def forgotten():
    """What a test hands over is gone after it."""
    before = dict(backends.registry())
    yield
    backends.registry().clear()
    backends.registry().update(before)
    backends._REGISTERED.clear()


@pytest.mark.parametrize("kind", [Abacus, Planned])
@pytest.mark.parametrize("way", ["handed over", "registered"])
def test_its_own_times_and_values_are_those_on_screen(kind, way, monkeypatch) -> None:
    """Once, ONNX Runtime's stood in for them without a word; and with a plan, an attribute was missing."""
    backend = kind()
    if way == "registered":
        point = importlib.metadata.EntryPoint(kind.name, f"{__name__}:{kind.__name__}", "rtlab.backends")
        known = importlib.metadata.entry_points
        monkeypatch.setattr(
            importlib.metadata, "entry_points",
            lambda **given: [point] if given == {"group": "rtlab.backends"} else known(**given),
        )  # fmt: skip
        fresh = backends.registry.__wrapped__()
        backends.registry().update({kind.name: fresh[kind.name]})
    model = tiny_model()
    study = rtlab.Study(model)
    study.add("theirs", precision="fp32", backend=backend if way == "handed over" else kind.name)
    study.run()
    result = study["theirs"]
    assert {} == dict(study.state.failures)
    assert "Abacus 7 · cpu" == result.engine.title
    assert ("Abacus 7", "a frame of wood") == (result.timing.source, result.timing.device)
    assert (1.5, 30) == (result.timing.total, result.timing.runs)
    assert result.own_times is not None
    assert 1.5 == result.layer_times["0:all"].median
    assert result.accuracy.source.startswith("Abacus 7, ")
    # Half, against what the network computes.
    runner = backends.get("onnxruntime")
    (value,) = result.accuracy.values
    assert "y" == value.value
    assert runner.source not in study._repr_html_()
    shown = study.explore().status
    assert any("Abacus 7" in line["text"] for line in shown)
    assert not [line for line in shown if "ONNX Runtime" in line["text"] and "measured" in line["text"]]
    assert result.stages[Stage.TIMED].state == result.stages[Stage.COMPARED].state == "done"


def test_a_backend_without_a_runner_says_whose_times_stand_in() -> None:
    class Compiler(Abacus):
        name = "compiler"

        def capabilities(self):
            return dataclasses.replace(super().capabilities(), runs=False)

    study = rtlab.Study(tiny_model())
    study.add("theirs", precision="fp32", backend=Compiler())
    study.run()
    assert study["theirs"].timing.source.startswith("ONNX Runtime ")
    assert study["theirs"].own_times is None


def test_an_engine_under_another_name_is_refused() -> None:
    """Whose it says it is would be asked to run it."""

    class Liar(Abacus):
        name = "liar"

        def build(self, request, progress):
            return dataclasses.replace(super().build(request, progress), backend="onnxruntime")

    study = rtlab.Study(tiny_model())
    study.add("theirs", precision="fp32", backend=Liar())
    with pytest.raises(BuildError, match='says that backend "onnxruntime"'):
        study.run()


def test_a_name_that_is_taken_is_refused_and_ones_own_may_come_again() -> None:
    class Other(Abacus):
        name = "onnxruntime"

    study = rtlab.Study(tiny_model())
    with pytest.raises(VariantError, match='as backend "onnxruntime": another'):
        study.add("theirs", precision="fp32", backend=Other())
    with pytest.raises(VariantError, match="object has no name, availability, capabilities"):
        study.add("theirs", precision="fp32", backend=object())
    first, again = Abacus(), Abacus()
    study.add("one", precision="fp32", backend=first)
    study.add("two", precision="fp32", backend=again)
    assert backends.get("abacus") is again


def test_its_engines_are_opened_read_and_counted(tmp_path) -> None:
    class Shop(Planned):
        """Opens, reads and counts besides."""

        name = "shop"

        def capabilities(self):
            return dataclasses.replace(super().capabilities(), opens=True, reads=True, counts=True)

        def open_plan(self, plan, progress=None):
            request = BuildRequest(tiny_model(), Variant.of("fp32", target="cpu"))
            return dataclasses.replace(self.build(request, progress), plan=Path(plan).read_bytes())

        def save(self, engine, path):
            Path(path).write_bytes(engine.plan)

        def throughput(self, engine, inputs, progress, *, streams=2, seconds=2.0, warmup=5):
            now = datetime.datetime.now(datetime.timezone.utc)
            return Throughput(self.source, "a frame of wood", streams, 1, 70, 2.0, now)

        def read(self, files, *, select=None):
            return Recording(self.build(BuildRequest(tiny_model(), Variant.of("fp32", target="cpu")), None))

    (tmp_path / "engine.beads").write_bytes(b"beads")
    (tmp_path / "beads.txt").write_text("one by one")
    study, shop = rtlab.Study(tiny_model()), Shop()
    opened = study.read("opened", plan=tmp_path / "engine.beads", backend=shop)
    assert ("Abacus 7 · cpu", "Abacus 7") == (opened.engine.title, opened.timing.source)
    assert tmp_path / "copy" == study.save_build("opened", tmp_path / "copy", kind="engine")
    assert b"beads" == (tmp_path / "copy").read_bytes()
    assert (35.0, "Abacus 7") == ((found := study.tuning.throughput("opened")).rate, found.source)
    read = study.read("read", beads=tmp_path / "beads.txt", backend="shop")
    assert (True, ["all"]) == (read.recorded, [layer.name for layer in read.engine.layers])
    with pytest.raises(
        Unavailable, match=r'Backend "onnxruntime" cannot read files: it reads no files\. See rtlab'
    ):
        study.read("other", beads=tmp_path / "beads.txt", backend="onnxruntime")
