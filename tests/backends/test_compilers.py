"""Real releases beside each other: what each makes of the samples, as NVIDIA's own builder lists it."""

from __future__ import annotations

import pytest

import releases
import rtlab
from rtlab import samples
from rtlab.errors import BuildError, VariantError
from rtlab.experiments.why import cutting
from rtlab.testing import tiny_model

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


@pytest.mark.slow
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
    assert layers == engine.layer_count
    assert version == engine.version
    assert f"TensorRT-RTX {version} · sm86" == engine.title


@pytest.mark.slow
def test_releases_stand_side_by_side_and_a_refusal_is_an_answer() -> None:
    needs(releases.QUICK)
    given = samples.load("digits_inception")
    study = rtlab.Study(given.model, data=given.calibration)
    study.add("int8", target="sm86")

    found = study.fusion.releases("int8")

    rows = {r.compiler.split()[-3] if r.layers else r.compiler: r for r in found.releases}
    own = next(c for c in rtlab.compilers.known() if c.own)
    assert len(rtlab.compilers.known()) == len(found.releases)
    assert 25 == rows[own.version].layers
    assert "" == rows[own.version].refused
    assert "the builder refused the network" in rows[f"tensorrt-rtx:{releases.QUICK}"].refused
    assert {"int8", *study.vary("int8", "compilers")} == set(study.state.variants)
    assert set(study.state.failures) == {r for r in study.state.variants if r not in study.state.results}


@pytest.mark.slow
def test_what_changed_is_found_with_the_fewest_nodes_that_show_it() -> None:
    """RTX 1.7 averages where it brings the tensor into order, which took 1.6 two steps: 21 layers against 20."""
    needs(releases.QUICK)
    own = next(c for c in rtlab.compilers.known() if c.own).version
    if own != "1.7.1.116":
        pytest.skip(f"what changed is known of 1.7.1.116, and here is {own}")
    study = rtlab.Study(samples.load("digits_inception").model)
    for version in (releases.QUICK, own):
        study.add(version, precision="fp16", compiler=version, target="sm86")

    found = study.fusion.bisect(releases.QUICK, own)

    assert len(found.changes) == 1, [(c.nodes, c.first, c.second, c.cause) for c in found.changes]
    (change,) = found.changes
    assert {"/pool3/GlobalAveragePool", "/classifier/Gemm"} == {*change.nodes}
    assert "__myl_Tran" in change.first
    assert "__myl_TranMean" in change.second
    assert 0 < len(change.smallest) <= 6
    part = cutting.cut_nodes(study[own].facts.prepared.model, change.smallest)
    again = rtlab.Study(part)
    for version in (releases.QUICK, own):
        again.add(version, precision="fp32", compiler=version, target="sm86")
    again.run(compare=False)
    kernels = {v: {y.name.partition("_myl0")[0] for y in again[v].engine.layers} for v in again}
    assert "__myl_TranMean" in kernels[own] - kernels[releases.QUICK]


@pytest.mark.slow
def test_what_an_earlier_release_refuses_is_one_convolution() -> None:
    needs(releases.QUICK)
    given = samples.load("digits_inception")
    study = rtlab.Study(given.model, data=given.calibration)
    for version in (releases.QUICK, "1.7"):
        study.add(version, precision="int8", compiler=version, target="sm86")
    found = study.fusion.bisect(releases.QUICK, "1.7")
    assert "first" == found.refused
    assert ["Conv"] == [study.model.by_id[n].op for n in found.changes[0].nodes]
    part = cutting.cut_nodes(study["1.7"].facts.prepared.model, found.changes[0].smallest)
    assert {"Conv", "QuantizeLinear", "DequantizeLinear", "MaxPool"} == {n.op for n in part.top}
    again = rtlab.Study(part)
    again.add("old", compiler=releases.QUICK, target="sm86")
    again.add("new", compiler="1.7", target="sm86")
    with pytest.raises(BuildError, match="the builder refused"):
        again.run(compare=False)
    assert ["new"] == [*again]


@pytest.mark.slow
def test_a_build_route_is_chosen_where_a_release_offers_it_and_else_refused_in_words() -> None:
    """TensorRT-RTX 1.7.1 has the choice and offers none; the reference of its API says so too."""
    own = next(c for c in rtlab.compilers.known() if c.own)
    assert ("", ()) == (own.tried().refusal, own.tried().routes)
    study = rtlab.Study(tiny_model(batch=1))
    study.add("fp32", target="sm86", backend="tensorrt-rtx")
    (name,) = study.vary("fp32", "build_route=fuse=0")
    assert (("build_route", "fuse=0"),) == study.state.variants[name].options.config
    with pytest.raises(VariantError, match=r"does not take build_route='fuse=0': it keeps ''"):
        study.run([name], compare=False)
