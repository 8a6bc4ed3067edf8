"""Real releases beside each other: what each makes of the samples, as NVIDIA's own builder lists it."""

from __future__ import annotations

import pytest

import releases
import rtlab
from rtlab import backends, samples
from rtlab.backends.live import kept
from rtlab.core.progress import Silent
from rtlab.core.protocols import BuildRequest
from rtlab.core.variant import Variant
from rtlab.errors import BuildError, Cancelled, VariantError

#: Layers by sample, precision and release, counted in logs of each release alone; None where it refuses.
TRUTH = {
    ("digits_inception", "fp16"): {"1.4.0.76": 21, "1.5.0.114": 21, "1.6.1.120": 21, "1.7.1.116": 20},
    ("digits_inception", "int8"): {"1.4.0.76": None, "1.5.0.114": None, "1.6.1.120": None, "1.7.1.116": 25},
    ("resnet50", "fp16"): {"1.4.0.76": 65, "1.5.0.114": 65, "1.6.1.120": 65, "1.7.1.116": 65},
    ("bert", "fp16"): {"1.4.0.76": 41, "1.5.0.114": 41, "1.6.1.120": 41, "1.7.1.116": 41},
}


def needs(version: str) -> None:
    if why := releases.missing(version):
        pytest.skip(why)


@pytest.mark.parametrize("version", ["1.4.0.76", "1.5.0.114", "1.6.1.120", "1.7.1.116"])
@pytest.mark.parametrize(("sample", "precision"), list(TRUTH))
def test_each_release_makes_what_it_makes_alone(sample: str, precision: str, version: str) -> None:
    needs(version)
    given = samples.load(sample)
    study = rtlab.Study(given.model, data=given.calibration)
    study.add("asked", precision=precision, compiler=version, target="sm86")
    layers = TRUTH[sample, precision][version]

    if layers is None:
        with pytest.raises(
            BuildError, match=rf'"tensorrt-rtx:{version}" cannot build .* the builder refused'
        ):
            study.run(compare=False)
        return
    study.run(compare=False)
    engine = study["asked"].engine
    assert layers == len(engine.layers) - engine.sync
    assert version == engine.version
    assert f"TensorRT-RTX {version} · sm86" == engine.title


def test_releases_stand_side_by_side_and_a_refusal_is_an_answer() -> None:
    needs(releases.QUICK)
    given = samples.load("digits_inception")
    study = rtlab.Study(given.model, data=given.calibration)
    study.add("int8", target="sm86")

    found = study.releases("int8")

    rows = {r.compiler.split()[-3] if r.layers else r.compiler: r for r in found.releases}
    own = next(c for c in rtlab.compilers.known() if c.own)
    assert len(rtlab.compilers.known()) == len(found.releases)
    assert 25 == rows[own.version].layers
    assert "" == rows[own.version].refused
    assert "the builder refused the network" in rows[f"tensorrt-rtx:{releases.QUICK}"].refused
    assert {"int8", *study.vary("int8", "compilers")} == set(study.variants)
    assert set(study.failures) == {r for r in study.variants if r not in study.facts}


def test_a_stop_keeps_what_was_built() -> None:
    needs(releases.QUICK)
    study = rtlab.Study(samples.load("digits_inception").model)
    study.add("fp16", target="sm86")

    class Second(Silent):
        compiling = 0

        def phase(self, name: str, total: int | None = None) -> None:
            self.compiling += name == "Compiling"
            if self.compiling == 2:
                self.cancel()

    with pytest.raises(Cancelled):
        study.releases("fp16", progress=Second())
    assert 1 == len(study.facts)
    assert {} == dict(study.failures)


def test_a_waiting_child_builds_for_its_own_release_alone() -> None:
    """A search builds with the children that wait: one of another release would answer for it."""
    needs(releases.QUICK)
    model, variant = samples.load("digits_inception").model, Variant.of("fp32", target="sm86")
    told = []
    for backend in ("tensorrt-rtx", f"tensorrt-rtx:{releases.QUICK}") * 2:
        engine = backends.get(backend).build(BuildRequest(model, variant, several=True), Silent())
        told.append((engine.backend, engine.version))
    own = backends.get("tensorrt-rtx").availability().version
    mine = f"tensorrt-rtx:{releases.QUICK}"
    assert [("tensorrt-rtx", own), (mine, releases.QUICK)] * 2 == told
    assert {(), (str(releases.path() / releases.QUICK),)} <= {k.path for k in kept._waiting}


def test_why_is_asked_of_the_release_that_built() -> None:
    needs(releases.QUICK)
    given = samples.load("digits_inception")
    study = rtlab.Study(given.model)
    study.add("fp16", target="sm86", compiler=releases.QUICK)
    study.run(compare=False)
    found = study.why("/residual/Relu", "/pool3/GlobalAveragePool", variant="fp16", seconds=5)
    assert f"TensorRT-RTX {releases.QUICK} · sm86" == found.compiler
    assert found.builds


def test_a_release_of_another_backend_is_refused() -> None:
    study = rtlab.Study(samples.load("digits_inception").model)
    own = next(c for c in rtlab.compilers.known() if c.own)
    with pytest.raises(VariantError, match=r"it is a release of another backend\. Leave the backend out"):
        study.add("fp16", compiler=own.version, backend="onnxruntime")
    with pytest.raises(VariantError, match='cannot build for target "cpu"'):
        study.add("fp16", compiler=own.version, target="cpu")
