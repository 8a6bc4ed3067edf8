"""Findings as a whole: their parts, their order, and what is in the engines of the corpus."""

from __future__ import annotations

import dataclasses
import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

import engines
from judged import CHW32, FFMA, HWC8, LINEAR, SIMT, TENSOR_CORES, conv, engine, single, step, tensor, timed
from rtlab.analyses.findings.rules import rank_findings
from rtlab.analyses.reformats.reasons import find_reformats
from rtlab.analyses.timing.times import summarize_profile
from rtlab.backends.compiler_info import ONNX_RUNTIME, TENSORRT, TENSORRT_RTX
from rtlab.backends.readers.reading import Trtexec
from rtlab.core.engine import Engine, Layer, Tensor
from rtlab.core.variant import Target
from rtlab.relation.mapping import Mapping, Pair


def test_an_engine_of_another_compiler_is_not_judged_by_tensorrts_rules() -> None:
    found = single(SIMT)
    assert rank_findings(found)
    assert () == rank_findings(dataclasses.replace(found, maker=ONNX_RUNTIME))
    assert () == rank_findings(dataclasses.replace(found, layers=()))


def test_findings_name_the_nodes_of_their_layers() -> None:
    mapping = Mapping((Pair("Conv_0", "0:conv", "declared"), Pair("Relu_1", "0:conv", "declared")), ())
    (found,) = rank_findings(single(SIMT), mapping=mapping)
    assert ("off-tensor-cores", ("Conv_0", "Relu_1")) == (found.rule, found.nodes)


def test_the_longest_comes_first_and_costs_are_those_of_the_layers() -> None:
    found = engine(
        conv(tensor("x", "int8"), tensor("a", "int8"), tactic=SIMT, name="slow"),
        step("Slice", tensor("a", "int8"), tensor("b", "int8")),
        conv(tensor("b", "int8", 24, CHW32), tensor("y", "int8", 64, CHW32), name="narrow"),
    )
    judged = rank_findings(found, timing=timed(found, 70, 20, 10))
    assert ["off-tensor-cores", "move", "unaligned"] == [f.rule for f in judged]
    assert [70, 20, 10] == pytest.approx([f.microseconds for f in judged])
    assert {"Cost unknown: no times."} == {f.cost for f in rank_findings(found)}
    assert ["off-tensor-cores", "unaligned"] == [f.rule for f in rank_findings(found)]


#: What was written into the engines of the corpus.
EXPECTED = {
    "written-fp32": set(),
    "written-fp16": {"reformat:input", "reformat:output"},
    "written-int8": {
        "back-and-forth", "unaligned:int8", "wide-layer:softmax", "reformat:input", "wide-layer:convolution",
    },
    "written-mobile-fp16": {"tiny-layers", "reformat:input"},
    "written-names-only": {"names-only"},
    "written-residual-int8": {
        "unaligned:int8", "off-tensor-cores:int8/image", "float-output:int8-fp16", "float-output:int8-fp32",
        "lone-pair:branch", "lone-pair:quantize", "wide-layer:pooling", "reformat:layout", "reformat:input",
    },
}  # fmt: skip


@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_engines_show_what_is_in_them_and_no_more(name) -> None:
    found, times = engines.read(name)
    assert EXPECTED[name] == {f.id for f in rank_findings(found, timing=times)}


@engines.each
def test_every_finding_has_its_parts_and_the_time_of_its_layers(folder) -> None:
    found, times = engines.read(folder)
    known = {t.layer: t.median for t in times.layers} if times else {}
    judged = rank_findings(found, timing=times)
    assert len({f.id for f in judged}) == len(judged)
    costs = [-1.0 if f.microseconds is None else f.microseconds for f in judged]
    assert sorted(costs, reverse=True) == costs
    for f in judged:
        for part in (f.title, f.evidence, f.cost, f.fix):
            assert re.fullmatch(r"[A-Z0-9].*\.", part, re.DOTALL), part
            assert "  " not in part
        expected = [known[i] for i in f.layers if i in known]
        assert (pytest.approx(1e3 * sum(expected)) if expected else None) == f.microseconds
        assert set(f.layers) <= {y.id for y in found.layers}
        assert ("measured" in f.cost) == (f.microseconds is not None) or f.rule == "idle"


@engines.each
@pytest.mark.parametrize(
    ("maker", "version", "gone"),
    [
        (TENSORRT, "8.2.1", r"--memPoolSize|--builderOptimizationLevel|TensorRT 1[01]"),
        (TENSORRT, "10.16.1", r"--workspace|TensorRT 1[01]"),
        (TENSORRT, "11.4.0", r"--fp16|--int8|--layerPrecisions|--precisionConstraints|TensorRT 10|--workspace"),
        (TENSORRT_RTX, "1.7.1", r"--fp16|--layerPrecisions|IOFormats|--memPool|--workspace|--builder|TensorRT \d"),
    ],
)  # fmt: skip
def test_no_remedy_names_a_flag_that_the_release_lacks(folder, maker, version, gone) -> None:
    """TensorRT 11 and RTX take types from the model alone; the same engine, as if of each of them."""
    engine_, times = engines.read(folder)
    found = dataclasses.replace(engine_, maker=maker, version=version)
    said = [f.fix for f in rank_findings(found, timing=times)] + [r.fix for r in find_reformats(found)]
    assert [] == [s for s in said if re.search(gone, s)]


def test_the_order_of_a_profile_changes_nothing(tmp_path) -> None:
    """A fault of trex, which joined rows to layers by position."""
    paths = engines.files(engines.RESIDUAL)
    rows = json.loads(paths["profile"].read_text())
    (tmp_path / "profile.json").write_text(json.dumps(rows[::-1]))
    mixed_up = Trtexec().read(paths | {"profile": tmp_path / "profile.json"})
    engine_, times = engines.read(engines.RESIDUAL)
    again = rank_findings(mixed_up.engine, timing=summarize_profile(mixed_up.profile, mixed_up.engine))
    judged = rank_findings(engine_, timing=times)
    assert {(f.id, f.layers) for f in judged} == {(f.id, f.layers) for f in again}
    assert [f.microseconds for f in again] == pytest.approx([f.microseconds for f in judged])


# Few names: buffers are used again, and layers read what they write.
_tensors = st.builds(
    Tensor,
    st.sampled_from("abcd"),
    st.sampled_from(("fp32", "fp16", "int8", "int32", "")),
    st.sampled_from((None, (), (-1,), (1, 0, 2), (1, -1, 8, 8), (2, 24, 8, 8), (1, 4096))),
    st.sampled_from((LINEAR, CHW32, HWC8, "", "Channel major", "chw-7")),
)
_KINDS = (
    "CaskConvolution", "gemm", "Reformat", "NoOp", "Scale", "PointWiseV2", "CudaSoftMax", "Shuffle", "kgen", "",
)  # fmt: skip
_NAMES = ("conv", "__myl_Resh", "Reformatting CopyNode for Input Tensor 0 to conv")
_KEYS = (
    "Groups", "OutMaps", "AllowSparse", "HasSparseWeights", "HasDynamicFilter", "Origin", "ParameterType",
)  # fmt: skip
_strange = st.sampled_from((None, True, -2, 0, 7, 64, float("nan"), float("inf"), "", "QDQ", [], {}))
_some = st.lists(_tensors, max_size=2).map(tuple)
_words = (st.just(""), st.sampled_from(_NAMES), st.sampled_from(_KINDS), st.just(0))
_layers = st.builds(
    Layer,
    *_words,
    _some,
    _some,
    tactic=st.sampled_from(("", SIMT, FFMA, TENSOR_CORES)),
    attributes=st.dictionaries(st.sampled_from(_KEYS), _strange, max_size=2),
)
_ends = st.lists(_tensors, max_size=1)


@given(st.lists(_layers, max_size=8), _ends, _ends, st.booleans())
def test_no_engine_is_too_strange_to_judge(drawn, inputs, outputs, known) -> None:
    every = tuple(dataclasses.replace(y, id=f"{i}", index=i) for i, y in enumerate(drawn))
    found = Engine("trtexec", "", Target("unknown"), every, tuple(inputs), tuple(outputs), maker=TENSORRT)
    ids = {y.id for y in every}
    for f in rank_findings(found, timing=timed(found, 1.0) if known and every else None):
        assert set(f.layers) <= ids
        assert f.title.endswith(".")
        # Nothing is said of times that no one measured.
        assert known or ("µs" not in f.title + f.evidence + f.cost + f.fix and f.microseconds is None)
    assert {r.layer for r in find_reformats(found)} <= ids


@engines.each
def test_times_change_the_order_of_findings_and_not_their_ids(folder) -> None:
    """An id is how a finding is found again after the next measurement."""
    engine_, times = engines.read(folder)
    if times is None:
        return
    other = tuple(dataclasses.replace(t, median=t.median * (1 + i % 3)) for i, t in enumerate(times.layers))
    slower = dataclasses.replace(times, layers=other, summed=sum(t.median for t in other))
    before, after = rank_findings(engine_, timing=times), rank_findings(engine_, timing=slower)
    layers = {f.id: set(f.layers) for f in before if f.rule not in {"tiny-layers", "idle"}}
    shared = {f.id: set(f.layers) for f in after if f.id in layers}
    assert shared == {i: layers[i] for i in shared}
    # What is at the edge of being worth a word may come and go.
    assert len(layers) - 2 <= len(shared)


@engines.each
def test_the_same_remedy_is_not_given_twice_for_a_layer(folder) -> None:
    """A lone quantization is told as such, and not also as the floating output of the layer before it."""
    engine_, times = engines.read(folder)
    judged = {f.id: f for f in rank_findings(engine_, timing=times)}
    told: dict[str, set[str]] = {}
    for f in judged.values():
        if f.rule in {"lone-pair", "reformat", "back-and-forth", "move"}:
            for layer in f.layers:
                told.setdefault(layer, set()).add(f.id)
    assert [] == [ids for ids in told.values() if len(ids) > 1]
