"""The engines of ``tests/corpus``, which were written so that each answer is arithmetic by hand.

Batch 4. conv1: 3 → 16 channels on 16×16; a pooling to 8×8; conv2 and conv3: 16 → 16 channels on 8×8, the shortcut of
the pooling added behind the second; a mean over 8×8; a matrix product of 16 by 10; a softmax of 10.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import rtlab
import scenes
from rtlab.analyses.difference import Side, compute_difference
from rtlab.analyses.engine import by_kind, find_transitions
from rtlab.analyses.reformats.reasons import find_reformats
from rtlab.backends.readers import recognise
from rtlab.relation.layerwork import layer_works
from rtlab.relation.mapping import coverage

CORPUS = Path(__file__).parents[1] / "corpus"
CONV1, CONV2, FC = 4 * 16 * 16 * 16 * 27, 4 * 16 * 8 * 8 * 144, 4 * 16 * 10


def engine(precision: str) -> tuple[Any, Any]:
    study = scenes.engine(CORPUS / "engines" / f"written-{precision}")
    return study["engine"], study.model


def nodes(result: Any, layer: Any) -> str:
    return "+".join(result.mapping.nodes(layer.id))


@pytest.mark.parametrize(
    ("precision", "sums", "whole"), [("fp32", 100, 80), ("fp16", 72, 57.6), ("int8", 88, 70.4)]
)
def test_times_add_up_to_the_round_sums_that_they_were_written_with(precision, sums, whole) -> None:
    result, _ = engine(precision)
    folder = CORPUS / "engines" / f"written-{precision}"
    read = rtlab.read(folder / "engine.graph.json", folder / "engine.profile.json", folder / "engine.timing.json",
                      folder / "engine.profile.metadata.json")["engine"]  # fmt: skip
    assert sums == pytest.approx(1e3 * result.timing.summed)
    assert whole == pytest.approx(1e3 * read.timing.total)
    assert 1.25 == pytest.approx(read.timing.ratio)
    target = {"fp32": "sm80"}.get(precision, "sm86")
    assert ("Invented GPU", target) == (read.engine.device, str(read.engine.target))


@pytest.mark.parametrize(
    ("precision", "kinds"),
    [
        ("fp32", {"CaskConvolution": 76, "CaskPooling": 14, "CaskGemmConvolution": 6, "CudaSoftMax": 4}),
        ("fp16", {"CaskConvolution": 46, "CaskPooling": 9, "CaskGemmConvolution": 5, "CudaSoftMax": 4, "Reformat": 8}),
        ("int8",
         {"CaskConvolution": 40, "CaskPooling": 13, "CaskGemmConvolution": 8, "CudaSoftMax": 5, "Reformat": 22}),
    ],
)  # fmt: skip
def test_time_by_kind_is_the_sum_of_what_was_written(precision, kinds) -> None:
    result, _ = engine(precision)
    slices = by_kind(result.engine, result.timing)
    assert {k: pytest.approx(v) for k, v in kinds.items()} == {s.name: 1e3 * s.milliseconds for s in slices}
    assert [pytest.approx(v / sum(kinds.values())) for v in sorted(kinds.values())[::-1]] == [
        s.share for s in slices
    ]


def test_types_change_where_the_engine_was_written_to_change_them() -> None:
    """In INT8: in and out of the pooling, at the input, and where the mean leaves integers."""
    result, _ = engine("int8")
    found = {
        (t.before, t.after): (len(t.layers), round(1e3 * t.milliseconds))
        for t in find_transitions(result.engine, result.timing)
    }
    assert {
        ("fp32", "int8"): (1, 6), ("int8", "int8"): (3, 40), ("int8", "fp16"): (1, 9), ("fp16", "fp16"): (1, 5),
        ("fp16", "int8"): (1, 7), ("int8", "fp32"): (1, 8), ("fp32", "fp32"): (2, 13),
    } == found  # fmt: skip


@pytest.mark.parametrize("precision", ["fp32", "fp16", "int8"])
def test_labels_and_names_say_the_same_of_the_same_network(precision) -> None:
    """The oldest schema has no labels; its names and tensors tell every node too. A flattening of means is a view."""
    result, model = engine(precision)
    works = [y for y in result.engine.layers if y.kind != "Reformat"]
    flat = "+flatten" if precision == "fp32" else ""
    expected = ["conv1+relu1", "pool", "conv2+relu2", "conv3+add+relu3", "mean", f"fc{flat}", "softmax"]
    assert expected == [nodes(result, y) for y in works]
    assert {"declared" if precision != "fp32" else "inferred"} == {p.evidence for p in result.mapping.pairs}
    found = coverage(result.mapping, model, result.engine)
    assert (12 - (precision != "fp32"), 12) == (found.nodes, found.all_nodes)


@pytest.mark.parametrize(("precision", "cell", "bias"), [("fp32", 4, 4), ("fp16", 2, 2), ("int8", 1, 4)])
def test_work_and_weights_are_those_of_the_sizes(precision, cell, bias) -> None:
    """Products of sizes; each bias, ReLU and shortcut is one more operation for each output."""
    result, model = engine(precision)
    done = layer_works(result.engine, result.mapping, model)
    by_nodes = {nodes(result, y): done[y.id] for y in result.engine.layers if y.kind != "Reformat"}
    big, small = 4 * 16 * 16 * 16, 4 * 16 * 8 * 8
    expected = {
        "conv1+relu1": (CONV1, 2 * CONV1 + 2 * big), "conv2+relu2": (CONV2, 2 * CONV2 + 2 * small),
        "conv3+add+relu3": (CONV2, 2 * CONV2 + 3 * small), "mean": (0, small),
    }  # fmt: skip
    assert expected == {k: (by_nodes[k].macs, by_nodes[k].flops) for k in expected}
    half = 4 if precision == "int8" else cell
    weights = (432 + 2304 + 2304) * cell + 48 * bias + (160 + 10) * half
    assert weights == result.memory().weights
    assert weights == result.memory(batch=1).weights


@pytest.mark.parametrize(
    ("precision", "peak", "step"),
    [
        # The first convolution's output beside the pooling's.
        ("fp32", 4 * (4 * 16 * 256 + 4 * 16 * 64), 1),
        # The same in two bytes, beside which the copied input lives no more, is less than that input of 8 channels
        # and the convolution's output.
        ("fp16", 2 * (4 * 8 * 256 + 4 * 16 * 256), 1),
        # Thirty-two channels for sixteen, a byte each, and the same in FP16.
        ("int8", 4 * 32 * 256 + 2 * 4 * 16 * 256, 2),
    ],
)
def test_memory_peaks_where_the_largest_neighbours_meet(precision, peak, step) -> None:
    """Formats fill channels up: 3 to 8 in FP16, 16 to 32 in INT8."""
    result, _ = engine(precision)
    assert (peak, peak) == (result.memory().peak, result.memory().bound)
    assert step in {int(i) for i in (result.memory().alive == peak).nonzero()[0]}


def test_copies_have_the_causes_that_they_were_written_for() -> None:
    result, _ = engine("int8")
    names = {y.id: y.name for y in result.engine.layers}
    found = find_reformats(result.engine, result.timing)
    assert [
        ("", "conv1 + relu1", "input", 6), ("conv1 + relu1", "pool", "type", 9), ("pool", "conv2 + relu2", "type", 7),
    ] == [
        (names.get(r.producer, ""), names.get(r.consumer, ""), r.source, round(1e3 * r.milliseconds)) for r in found
    ]  # fmt: skip
    assert (
        '"pool" writes fp16 and "conv2 + relu2" reads int8: neighbours differ in precision.' == found[2].cause
    )


def test_what_fp16_gains_and_int8_loses_is_told_node_by_node() -> None:
    """100, 72 and 88 microseconds: INT8 is slower than FP16 by its copies, though its convolutions are faster."""
    sides = {}
    for precision in ("fp32", "fp16", "int8"):
        result, model = engine(precision)
        times = {t.layer: t.median for t in result.timing.layers}
        sides[precision] = Side(precision, result.engine, result.mapping, times, None)
    found = compute_difference(sides["fp32"], sides["fp16"], model)
    gained = {"+".join(g.nodes): round(1e3 * g.delta) for g in found.groups if g.delta is not None}
    assert -28 == sum(gained.values())
    assert (-8, -10) == (gained["conv2+relu2"], gained["conv3+add+relu3"])
    lost = compute_difference(sides["fp16"], sides["int8"], model)
    assert 16 == round(1e3 * sum(g.delta for g in lost.groups if g.delta is not None))


def test_a_listing_of_a_build_is_the_builder_s_whether_it_is_read_as_a_log_or_as_layers(tmp_path) -> None:
    """What stands behind the layers in a print, tensors at the edge and sums, is no layer."""
    path = CORPUS / "builds" / "control_flow-fp16-sm86.log"
    log = path.read_text(encoding="utf-8")
    cut = tmp_path / "listing.txt"
    cut.write_text(log[log.rindex("Total Host Persistent Memory:") :], encoding="utf-8")
    assert ["log", "layers"] == [recognise.detect_kind(path), recognise.detect_kind(cut)]
    whole, listed = (rtlab.read(p)["engine"].engine for p in (path, cut))
    assert 12 == len(listed.layers)
    assert [y.name for y in whole.layers] == [y.name for y in listed.layers]
    assert (whole.inputs, whole.outputs) == (listed.inputs, listed.outputs)
    assert [("image", "fp32", (1, 3, 16, 16))] == [(t.name, t.dtype, t.shape) for t in listed.inputs]
    assert [("features", "fp32", (1, 8))] == [(t.name, t.dtype, t.shape[:2]) for t in listed.outputs]


def test_a_profile_of_onnxruntime_joins_the_model_that_it_optimized() -> None:
    """Two runs; the events of the file are added up here once more."""
    folder = CORPUS / "onnxruntime"
    events = json.loads((folder / "profile.json").read_text(encoding="utf-8"))
    kernels = [e for e in events if e["cat"] == "Node" and e["name"].endswith("_kernel_time")]
    found = rtlab.read(folder / "profile.json", folder / "optimized.onnx")["engine"]
    assert 2 * len(found.engine.layers) == len(kernels)
    sums: dict[str, list[int]] = {}
    for e in kernels:
        sums.setdefault(e["name"].removesuffix("_kernel_time"), []).append(e["dur"])
    names = {y.id: y.name for y in found.engine.layers}
    times = {names[t.layer]: t.median for t in found.timing.layers}
    assert {k: pytest.approx(sum(v) / 2e3) for k, v in sums.items()} == times
