"""The middle of the famous figure on a real builder: sibling convolutions merged by hand, before and after."""

from __future__ import annotations

import numpy as np
import onnxruntime as ort
import pytest

import published_nets
import releases
import rtlab
from rtlab import backends
from rtlab.quantize import rewrites
from rtlab.relation.layerwork import layer_works
from rtlab.relation.work import works

HERE = backends.get("tensorrt-rtx").availability().ok


@pytest.mark.slow
@pytest.mark.skipif(not HERE, reason="TensorRT-RTX is not installed")
def test_merged_siblings_build_and_compute_the_same() -> None:
    """As many convolutions fewer in the engine as were merged in two blocks, and the outputs stay."""
    model = rtlab.samples.load("digits_inception").model
    merges = [
        r for r in rewrites.iter_possible_rewrites(model, [n.id for n in model.top]) if r.kind == "merge"
    ]
    assert 2 == len(merges)
    study = rtlab.Study(model)
    study.add("apart", precision="fp32", target="sm86")
    study.add("merged", precision="fp32", target="sm86", rewrites=[str(r) for r in merges])
    study.run(budget_s=0)
    assert not study.state.failures
    before, after = (sum(n.op == "Conv" for n in study[v].prepared.model.top) for v in ("apart", "merged"))
    products = {
        v: sum(y.kind in {"correlation", "runtime_fusion"} for y in study[v].engine.layers) for v in study
    }
    assert before - after == products["apart"] - products["merged"] == 4
    # All arithmetic is in some layer, whether or not the compiler's names hold the nodes that were merged.
    counted = sum(w.macs or 0 for w in works(model).values())
    for result in (study["apart"], study["merged"]):
        of_layers = layer_works(result.engine, result.mapping, model).values()
        assert counted == sum(w.macs or 0 for w in of_layers)
    x = {
        n: np.random.default_rng(0).standard_normal(model.input_shape(n)).astype(np.float32)
        for n in model.inputs
    }
    one, other = (
        ort.InferenceSession(m.bytes(), providers=["CPUExecutionProvider"]).run(None, x)[0]
        for m in (model, study["merged"].prepared.model)
    )
    assert np.abs(one - other).max() < 1e-5 * np.abs(one).max()
    # The rules merge the same groups.
    study.add("classic", precision="fp32", backend="classic")
    study.run(["classic"], budget_s=0)
    assert 2 == sum(" || " in y.name and y.kind == "Conv" for y in study["classic"].engine.layers)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("release", "inception"),
    [("1.4.0.76", 127), ("1.5.0.114", 127), ("1.6.1.120", 127), ("1.7.1.116", 123)],
)
def test_a_release_builds_as_many_layers_as_the_readme_compares(release: str, inception: int) -> None:
    """Of VGG19 the 27 that NVIDIA printed for TensorRT 3; waits between streams are left out."""
    if why := releases.missing(release):
        pytest.skip(why)
    for model, layers in ((published_nets.vgg19(), 27), (published_nets.inception_v3(), inception)):
        study = rtlab.Study(model)
        study.add("rtx", precision="fp32", target="sm86", backend="tensorrt-rtx", compiler=release)
        study.run(["rtx"], compare=False, budget_s=0)
        engine = study["rtx"].engine
        assert layers == engine.layer_count
