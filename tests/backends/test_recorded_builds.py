"""The recorded builds against builds that are made here and now: what is shown without the builder is true."""

from __future__ import annotations

import dataclasses
import itertools

import numpy as np
import pytest
from onnx import numpy_helper

import rtlab
from rtlab import backends, samples
from rtlab.backends import recorded
from rtlab.backends.readers import build
from rtlab.core.model import wrap
from rtlab.core.progress import Silent
from rtlab.core.protocols import BuildRequest
from rtlab.core.variant import Precision, Target

here = backends.get("tensorrt-rtx").availability()
pytestmark = [
    pytest.mark.skipif(not here.ok, reason=here.reason),
    # Another release lays out other layers, and its builds are recorded when it is the one that is kept.
    pytest.mark.skipif(here.version not in recorded.releases(), reason=f"nobody recorded {here.version}"),
]
#: Of each kind of network one; in other precisions and for other cards.
CASES = [
    ("digits_inception", "int8", "sm86"),
    ("digits_mobilenet", "fp8", "sm89"),
    ("digits_vit", "fp16", "sm120"),
    ("digits_lstm", "fp32", "sm80"),
    ("digits_qat", "fp16", "sm86"),
    ("dynamic_shapes", "fp16", "sm89"),
]
#: What a study is asked that says most of an engine.
ASKED = ("kernels", "memory", "findings", "build")


def requested(name: str, precision: str, target: str) -> tuple[rtlab.Study, BuildRequest]:
    sample = samples.load(name, samples=8)
    study = rtlab.Study(sample.model, data=sample.calibration)
    variant = study.add("v", precision=precision, target=target, backend="tensorrt-rtx")
    return study, BuildRequest(study.calibration.prepare("v").model, variant)


def told(layer: rtlab.Layer) -> tuple[object, ...]:
    """What a layer is, but for the compiler's own running numbers."""
    return layer.kind, layer.name, layer.origins, layer.tactic, layer.stream, layer.precision


@pytest.mark.slow
@pytest.mark.parametrize(("name", "precision", "target"), CASES, ids=str)
def test_a_recorded_build_is_the_one_that_is_made_here(name, precision, target):
    study, request = requested(name, precision, target)
    study.run(compare=False, budget_s=0)
    fresh, kept = study["v"].engine, recorded.find(request, here.version)

    assert kept is not None
    assert list(map(told, fresh.layers)) == list(map(told, kept.layers))
    assert (fresh.version, fresh.target, fresh.inputs, fresh.outputs) == (
        kept.version, kept.target, kept.inputs, kept.outputs,
    )  # fmt: skip
    assert kept.recorded
    assert not fresh.recorded
    assert kept.log.count("\n") == pytest.approx(fresh.log.count("\n"), rel=0.05)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "precision", "target"), CASES[:4], ids=str)
def test_a_saved_build_answers_as_the_one_that_was_made(name, precision, target, tmp_path):
    study, _ = requested(name, precision, target)
    study.run(compare=False, budget_s=0)
    theirs = rtlab.Study(study.model)
    theirs.read("v", study.save_build("v", tmp_path / "build.json"))
    fresh, read = study["v"], theirs["v"]

    assert fresh.mapping.pairs == read.mapping.pairs
    assert fresh.mapping.missing == read.mapping.missing
    assert fresh.engine.layers == read.engine.layers
    assert [f.rule for f in fresh.findings] == [f.rule for f in read.findings]
    assert fresh.memory().peak == read.memory().peak
    assert fresh.estimate.layers == read.estimate.layers
    for question in ASKED[:2]:
        assert study.ask(question, variant="v").frame().equals(theirs.ask(question, variant="v").frame())
    assert fresh.log.attempts == read.log.attempts


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "precision"),
    [("digits_inception", "int8"), ("digits_mobilenet", "int8"), ("digits_qat", "fp32")],
)
def test_layers_follow_from_no_weight_and_no_scale(name, precision):
    """So builds are found by structure alone; only the running numbers of shared constants differ."""
    rng = np.random.default_rng(1)
    _, request = requested(name, precision, "sm120")
    proto = request.model.proto()
    pairs = [n for n in proto.graph.node if n.op_type in {"QuantizeLinear", "DequantizeLinear"}]
    scales = {n.input[1] for n in pairs}
    for tensor in proto.graph.initializer:
        array = numpy_helper.to_array(tensor)
        # A weight that is all one number counts as such.
        if array.dtype == np.float32 and (tensor.name in scales or np.ptp(array)):
            other = (array * rng.uniform(1.1, 1.4, array.shape)).astype(np.float32)
            tensor.CopyFrom(numpy_helper.from_array(other, tensor.name))
    other = BuildRequest(wrap(proto, name="other", shapes=request.model.shapes), request.variant)
    builder = backends.get("tensorrt-rtx")
    engines = [builder.build(r, Silent()) for r in (request, other)]

    assert request.model.structure == other.model.structure
    assert list(map(told, engines[0].layers)) == list(map(told, engines[1].layers))


@pytest.mark.slow
def test_pruning_decides_about_no_layer_but_is_a_request_of_its_own():
    """The flag that asks for sparse kernels is a part of the key; whether weights are sparse is decided at load."""
    _, dense = requested("digits_sparse24", "fp16", "sm86")
    sparse = dataclasses.replace(dense, variant=dataclasses.replace(dense.variant, sparsity=("*",)))
    builder = backends.get("tensorrt-rtx")
    engines = [builder.build(r, Silent()) for r in (dense, sparse)]

    assert recorded.compute_key(dense, "1") != recorded.compute_key(sparse, "1")
    assert [y.name for y in engines[0].layers] == [y.name for y in engines[1].layers]


@pytest.mark.slow
@pytest.mark.parametrize("name", samples.names())
def test_every_precision_of_every_sample_is_there(name):
    model = samples.load(name, samples=2).model
    assert here.version in recorded.releases(model)
    study = rtlab.Study(model)
    for precision, target in itertools.product(
        (Precision.FP32, Precision.BF16), ("sm80", "sm86", "sm89", "sm120")
    ):
        if Target(target).refusal(precision) is None:
            variant = study.add("v", precision=precision, target=target, backend="tensorrt-rtx")
            key = recorded.compute_key(
                BuildRequest(study.calibration.prepare("v").model, variant), here.version
            )
            assert key in recorded.index().builds, f"{precision} {target}"


@pytest.mark.slow
def test_what_is_brought_along_is_small_and_whole():
    files = {*recorded.index().builds.values()}
    folder = recorded.folder()
    size = sum(p.stat().st_size for p in folder.iterdir())

    assert {p.name for p in folder.iterdir()} == {recorded.INDEX, *files}
    assert size < 2_000_000
    for key, file in recorded.index().builds.items():
        held = recorded.read_builds(file)[key]
        assert held.startswith(b'{"refused"') or build.decode(held, file).layers
        assert b"/tmp/" not in held
