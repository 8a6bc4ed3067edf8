"""What only engines of real GPUs show: each release's schema whole, published counts, and estimates beside times."""

from __future__ import annotations

import dataclasses
import itertools
import json
import os
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from scipy.stats import spearmanr

import agreement
import engines
import remade
import rtlab
import scenes
from answers import refusable
from roofs import LEAVE_ONE_OUT, compare_estimates, judged_layers, profiled
from rtlab import Study, backends
from rtlab.analyses.difference import Side, compute_difference
from rtlab.analyses.engine import by_kind, find_transitions
from rtlab.analyses.findings.rules import rank_findings
from rtlab.analyses.memory.plan import plan_engine_memory
from rtlab.analyses.reformats.reasons import find_reformats
from rtlab.analyses.roofline.estimate import (
    CROSS_VALIDATED,
    GPU_EFFICIENCY,
    RECORDED,
    estimate_microseconds,
)
from rtlab.backends.readers import reading
from rtlab.backends.readers.reading import Trtexec
from rtlab.core.engine import Engine, Tensor
from rtlab.core.model import make_empty_model
from rtlab.documents.serialization import decode, encode
from rtlab.errors import ReadError
from rtlab.relation.dataflow import work
from rtlab.relation.layerwork import batch_of, layer_works
from rtlab.relation.mapping import Mapping, coverage
from rtlab.relation.names import operator, words
from rtlab.relation.relate import relate
from rtlab.testing import tiny_model
from rtlab.web.page.graph import engine_view
from snapshots import Golden

HOME = Path(os.environ["RTLAB_RECORDED"]) / "engines"
FOLDERS = sorted(HOME.iterdir())
DETAILED = [f for f in FOLDERS if f.name not in engines.NAMES_ONLY]
PROFILED = [f for f in FOLDERS if (f / "engine.profile.json").exists()]
ALEXNET, MOBILENET = (HOME / f"fuzzy-{n}-rtx3060laptop-fp16" for n in ("alexnet", "mobilenet_v2"))
COOKBOOK, DETR = HOME / "cookbook-mnist-h100-trt10.16", HOME / "detr-names-only"
JETSON, RESNET50 = HOME / "fuzzy-jetson-orin-torchtrt-resnet18", "trex-resnet50-tf-rtx3090"
FP32, QAT, RESIDUAL = (
    HOME / f"trex-resnet18-pytorch-a100-{p}" for p in ("fp32", "int8-qat", "int8-qat-residual")
)
TENSORRT_RTX = backends.get("tensorrt-rtx").availability()


def loaded(path: Path) -> list | dict:
    return json.loads(path.read_text(encoding="utf-8"), strict=False)


def side(folder: Path) -> Side:
    built, times = engines.read(folder)
    each = {t.layer: t.median for t in times.layers} if times else {}
    return Side(folder.name, built, None, each, times.total if times else None)


@engines.of(FOLDERS)
def test_every_layer_and_time_is_read_and_drawn(folder: Path) -> None:
    """Eight years of schemas: no layer is lost, no time is invented, and each is a box that a page can draw."""
    paths = engines.files(folder)
    result = Study(tiny_model()).read("x", **paths)
    engine, raw = result.engine, loaded(paths["layers"])
    named = folder.name in engines.NAMES_ONLY
    if "profile 1" not in json.dumps(raw):
        assert [e if isinstance(e, str) else e["Name"] for e in raw["Layers"]] == [
            y.name for y in engine.layers
        ]
    assert named or {str(b) for b in raw["Bindings"]} == {t.name for t in (*engine.inputs, *engine.outputs)}
    assert all(t.dtype for y in engine.layers for t in (*y.inputs, *y.outputs))
    assert named or "other" not in {work(y) for y in engine.layers}
    if "profile" in paths:
        rows = [r for r in loaded(paths["profile"]) if "name" in r]
        assert pytest.approx(sum(r.get("medianMs", r["averageMs"]) for r in rows)) == result.timing.summed
        assert engine.device in result.timing.source
    if {"times", "metadata"} <= set(paths):
        summary = Trtexec().read({k: p for k, p in paths.items() if k != "times"}).profile
        assert pytest.approx(float(summary.total[0]), rel=0.02) == result.timing.total
        # Timed one by one, layers take longer than together: by 2 to 78 %.
        assert 1 < result.timing.ratio < 2
    boxes = decode(encode(engine_view(result.facts, tiny_model())))["graph"]["boxes"]
    assert [y.id for y in engine.layers] == [b["id"] for b in boxes if b["kind"] == "layer"]


@pytest.mark.parametrize(("one", "two"), [*itertools.product(PROFILED, PROFILED)], ids=lambda f: f.name)
def test_a_profile_joins_its_own_engine_and_no_other(one: Path, two: Path) -> None:
    layers, profile = one / "engine.graph.json", two / "engine.profile.json"
    mine = {r["name"] for r in loaded(profile) if "name" in r}
    theirs = {y["Name"] for y in loaded(layers)["Layers"]}
    if mine <= theirs or theirs <= mine:
        found = reading.read({"layers": layers, "profile": profile})
        assert len(mine & theirs) == len({i.partition(":")[2] for i in found.profile.samples})
    else:
        with pytest.raises(ReadError, match="Give the layers and the profile of one engine"):
            reading.read({"layers": layers, "profile": profile})


def test_text_with_two_profiles_gives_either_without_mixing() -> None:
    """Myelin's layers bear no profile of their own; 26 lines are 13 layers twice."""
    first, second = (
        reading.read({"layers": COOKBOOK / "EngineInspector.log"}, select=i).engine for i in (0, 1)
    )
    assert [13, 13] == [len(first.layers), len(second.layers)]
    assert [(y.kind, y.origins) for y in first.layers] == [(y.kind, y.origins) for y in second.layers]
    names = (*first.layers, *second.layers)
    assert {"myl5", "myl11"} == {y.name.split("_")[-2] for y in names if "_myl" in y.name}


def test_a_printed_table_of_times_gives_one_sample_for_each_inference(tmp_path: Path) -> None:
    table = COOKBOOK / "Profiler.log"
    rows = [
        r.split("us -> ") for r in table.read_text(encoding="utf-8").split("\n") if r.startswith("Timing")
    ]
    names = list(dict.fromkeys(name for _, name in rows))
    (tmp_path / "l.json").write_text(json.dumps(names))
    found = reading.read({"layers": tmp_path / "l.json", "profile": table}).profile
    expected = {f"{i}:{n}": [float(t[7:]) / 1e3 for t, m in rows if m == n] for i, n in enumerate(names)}
    assert {k: pytest.approx(v) for k, v in expected.items()} == {k: [*v] for k, v in found.samples.items()}
    assert 3 == found.runs


def test_names_alone_tell_what_840_layers_do() -> None:
    """DETR: 54 convolutions by their operator, 247 copies by the builder's own words, next to nothing left."""
    engine, times = engines.read(DETR)
    rows = loaded(engines.files(DETR)["profile"])[1:]
    assert 840 == len(rows) == len(engine.layers) == len(times.layers)
    assert pytest.approx(4.1578, abs=1e-4) == sum(r["medianMs"] for r in rows) == pytest.approx(times.summed)
    found = {s.name: s for s in by_kind(engine, times)}
    names = [y.name for y in engine.layers]
    copies = sum(n.startswith("Reformatting CopyNode") for n in names)
    others = sum(n.endswith(" copy") for n in names if not n.startswith("Reformatting CopyNode"))
    assert (247, 247 + others) == (copies, len(found["reformat (by its name)"].layers))
    kept = [n for n in names if not n.startswith("Reformatting CopyNode")]
    convolutions = [n for n in kept if any(p.endswith("/Conv") for p in n.split(" + "))]
    assert len(convolutions) == len(found["convolution (by its name)"].layers)
    assert (840, True) == (sum(len(s.layers) for s in found.values()), len(found[""].layers) < 10)
    told, *_ = rank_findings(engine, timing=times)
    assert "names-only" == told.rule


@pytest.mark.parametrize("lost", [(), ("origins",), ("origins", "inputs", "outputs", "kind")], ids=str)
def test_labels_are_nodes_and_engines_without_them_map_to_the_same(lost: tuple[str, ...]) -> None:
    """99 of 170 nodes of MobileNetV2; the rest are constants and views."""
    model, (engine, _) = engines.structure(MOBILENET), engines.read(MOBILENET)
    declared = {(p.node, p.layer) for p in relate(model, model, engine).pairs}
    assert 99 == len({node for node, _ in declared})
    blank = {"origins": (), "inputs": (), "outputs": (), "kind": ""}
    old = tuple(dataclasses.replace(y, **{k: blank[k] for k in lost}) for y in engine.layers)
    found = {(p.node, p.layer) for p in relate(model, model, dataclasses.replace(engine, layers=old)).pairs}
    assert (set(), True) == (declared - found, len(found - declared) <= 1)


@pytest.mark.parametrize(("folder", "nodes", "of"), [(ALEXNET, 19, 20), (MOBILENET, 99, 170)])
def test_every_label_is_resolved_and_every_node_has_a_place_or_a_reason(
    folder: Path, nodes: int, of: int
) -> None:
    model, (engine, _) = engines.structure(folder), engines.read(folder)
    mapping = relate(model, model, engine)
    labels = {(i, y.id) for y in engine.layers for i in y.origins}
    assert labels
    assert labels == {(p.node, p.layer) for p in mapping.pairs if p.evidence == "declared"}
    found = coverage(mapping, model, engine)
    assert (nodes, of, of - nodes) == (found.nodes, found.all_nodes, found.explained)


def test_every_word_of_a_torch_tensorrt_engine_has_its_form() -> None:
    fused = (y.name for y in engines.read(JETSON)[0].layers if y.kind == "CaskConvolution")
    kinds = Counter(tuple(operator(w) for w in words(name)) for name in fused)
    conv = ("CONVOLUTION", "SCALE")
    assert (20, {conv, (*conv, "RELU"), (*conv, "ELEMENTWISE", "RELU")}) == (kinds.total(), {*kinds})


@pytest.mark.parametrize("folder", [ALEXNET, MOBILENET], ids=lambda f: f.name)
def test_the_layers_own_words_count_what_the_nodes_count(folder: Path) -> None:
    model, (engine, _) = engines.structure(folder), engines.read(folder)
    nodes = layer_works(engine, relate(model, model, engine), model)
    words = layer_works(engine, Mapping((), ()), make_empty_model())
    assert {i: w.macs for i, w in words.items()} == {i: w.macs for i, w in nodes.items()}


@pytest.mark.parametrize(
    ("name", "macs"),
    [
        # Published: MobileNetV2 0.30, ResNet18 1.81, ResNet50 of TensorFlow (version 1) 3.86 billion.
        ("trex-mobilenetv2-titanrtx-int8-qat", 300_774_272),
        (RESIDUAL.name, 1_814_073_344),
        (f"{RESNET50}-int8-qat", 3_857_973_248),
    ],
)
def test_engines_without_an_onnx_model_have_the_published_counts(name: str, macs: int) -> None:
    engine, _ = engines.read(HOME / name)
    found = layer_works(engine, Mapping((), ()), make_empty_model())
    assert macs * batch_of(engine, make_empty_model()) == sum(w.macs or 0 for w in found.values())


#: What people can read off the engines by hand.
EXPECTED = {
    "trex-resnet18-pytorch-a100-fp16": {"reformat:input"},
    "trex-mobilenetv2-titanrtx-int8-qat-residuals": {
        "unaligned:int8", "float-output:int8-fp16", "off-tensor-cores:int8/image", "reformat:input",
        "lone-pair:quantize", "reformat:layout",
    },
    "trex-mobilenet-qat-2022-04": {
        "lone-pair:branch", "off-tensor-cores:int8", "reformat:layout", "lone-pair:shortcut",
        "unaligned:int8", "reformat:input", "float-output:int8-fp32", "lone-pair:quantize",
    },
    "trex-mobilenetv2-titanrtx-int8-qat": {
        "tiny-layers", "unaligned:int8", "lone-pair:branch", "lone-pair:shortcut", "float-output:int8-fp16",
        "off-tensor-cores:int8/image", "lone-pair:quantize",
    },
    "trex-resnet50-tf-rtx3090-fp32": {"reformat:layout", "move:slice"},
    "trex-resnet18-pytorch-a100-fp32": {"off-tensor-cores:fp32/image", "reformat:layout"},
    "trex-resnet18-pytorch-a100-int8-qat": {
        "float-output:int8-fp16", "float-output:int8-fp32", "off-tensor-cores:int8/image", "lone-pair:branch",
        "lone-pair:shortcut", "lone-pair:quantize", "wide-layer:pooling", "reformat:input", "reformat:type",
    },
    "trex-resnet18-pytorch-a100-int8-qat-residual": {
        "reformat:input", "float-output:int8-fp32", "back-and-forth", "wide-layer:pooling",
    },
    "trex-resnet50-tf-rtx3090-int8-qat": {
        "off-tensor-cores:int8/image", "move:slice", "move:shuffle", "lone-pair:quantize",
    },
    "fuzzy-alexnet-rtx3060laptop-fp16": {"few-rows"},
    "fuzzy-mobilenet_v2-rtx3060laptop-fp16": {"idle:overstated"},
    # A copy into a layout that no input can have, and one of a single number: nothing that one could do.
    "fuzzy-jetson-orin-torchtrt-resnet18": set(),
    "cookbook-mnist-h100-trt10.16": set(),
}  # fmt: skip


@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_findings_are_what_is_in_an_engine_and_no_more(name: str) -> None:
    engine, times = engines.read(HOME / name)
    assert EXPECTED[name] == {f.id for f in rank_findings(engine, timing=times)}


@pytest.mark.parametrize("folder", profiled(HOME), ids=lambda f: f.name)
def test_the_errors_of_estimates_are_those_that_are_told(folder: Path) -> None:
    """Recomputed, with SciPy's rank correlation; ``tests/roofs.py`` fits the constants."""
    found, gpu, measured = judged_layers(folder)
    for table, reached in ((RECORDED, GPU_EFFICIENCY), (CROSS_VALIDATED, LEAVE_ONE_OUT[gpu.name])):
        told = dataclasses.astuple(next(j for j in table if j.engine == folder.name))
        made = {i: estimate_microseconds(found[i], gpu, reached) / 1e3 for i in measured}
        seen = compare_estimates(folder.name, gpu.name, made, measured)
        assert told[:3] == dataclasses.astuple(seen)[:3]
        assert told[3:] == pytest.approx(dataclasses.astuple(seen)[3:], abs=0.0051)
        assert seen.rank == pytest.approx(
            spearmanr([made[i] for i in measured], [*measured.values()]).statistic
        )


@engines.of(DETAILED)
@pytest.mark.parametrize("batch", [None, 1, 64])
def test_memory_plans_reach_their_bound(folder: Path, batch: int | None) -> None:
    found = plan_engine_memory(engines.read(folder)[0], make_empty_model(), batch=batch)
    assert found.overhead <= 0.05
    assert (found.alive.max(), ()) == (found.bound, tuple(found.unsized))


def test_a_resnet_needs_most_memory_at_its_pooling() -> None:
    """Batch 32 in fp32: it reads 64×112×112 and writes 64×56×56; 11.7 million parameters."""
    found = plan_engine_memory(engines.read(FP32)[0], make_empty_model())
    assert found.peak == 32 * 64 * (112**2 + 56**2) * 4
    assert 44.6 == pytest.approx(found.weights / 2**20, abs=0.05)


def test_quantized_shortcuts_free_what_the_other_placement_is_advised() -> None:
    """ResNet18 with shortcuts in FP16: its advice is what the second engine did, which has 11 steps fewer."""
    (before, _), (after, _) = engines.read(QAT), engines.read(RESIDUAL)
    advised = [
        [r for r in find_reformats(e) if r.source == "quantization" and "shortcut" in r.fix]
        for e in (before, after)
    ]
    assert [8, 0] == [len(a) for a in advised]
    assert 11 == len(before.layers) - len(after.layers)
    wider = [
        sum(len(t.layers) for t in find_transitions(e) if t.before == "int8" and t.after in {"fp16", "fp32"})
        for e in (before, after)
    ]
    assert wider[1] < wider[0]


def test_two_engines_are_alike_enough_where_they_are_of_one_model() -> None:
    families = ("resnet18", "resnet50", "mobilenet", "alexnet", "mnist", "detr")
    for one, two in itertools.combinations(map(side, FOLDERS), 2):
        found = compute_difference(one, two, make_empty_model()).overlap
        assert any(f in one.name and f in two.name for f in families) == found.is_enough, (one.name, two.name)
        assert not found.is_enough or found.share == 1.0


#: One engine of each precision, one with its own graph, and one of which a pair is one layer in either alone.
COUNTED = [JETSON, MOBILENET, FP32, RESIDUAL]


@pytest.mark.skipif(not TENSORRT_RTX.ok, reason=TENSORRT_RTX.reason)
@pytest.mark.parametrize("folder", COUNTED, ids=lambda f: f.name)
def test_the_table_of_agreement_is_what_is_counted(folder: Path) -> None:
    known = agreement.load_agreement()
    if not known.compilers[0].startswith(f"TensorRT-RTX {TENSORRT_RTX.version} "):
        pytest.skip(f"the table is of {known.compilers[0]}, and here is {TENSORRT_RTX.version}")
    (engine,) = agreement.asked([folder])
    found = agreement.count(engine, engine.engine())
    (told,) = (e for e in known.engines if e.name == folder.name)
    alike = sum(c["both"] + c["neither"] for c in found.values())
    assert (told.pairs, told.alike) == (sum(c.total() for c in found.values()), alike)
    assert (told.precision, told.target, told.remade) == (engine.precision, engine.target, not engine.own)
    rows = {p.kind: p for p in known.pairs if p.precision == engine.precision}
    for kind, counts in found.items():
        assert all(n <= getattr(rows[kind], where) for where, n in counts.items()), kind


REMADE = [f for f in DETAILED if "layers" in engines.files(f) and not any(f.glob("*.onnx")) and f != COOKBOOK]


@engines.of(REMADE)
def test_a_remade_graph_has_the_shapes_that_its_engine_tells(folder: Path) -> None:
    """Inferred by ONNX from windows, strides and weights, which the shapes were not used for."""
    file = engines.files(folder)["layers"]
    made = remade.Remade(file, sized=True)
    model = rtlab.load(onnx.shape_inference.infer_shapes(made.model.proto(), strict_mode=True))
    compared = 0
    for layer in json.loads(file.read_text(errors="replace"))["Layers"]:
        for tensor in layer["Outputs"] if isinstance(layer, dict) else ():
            if len(tensor["Dimensions"]) == 4 and not layer["Name"].startswith("Reformatting"):
                shape = model.values[made.source(tensor["Name"])].shape
                assert [*(shape or ())] == tensor["Dimensions"], layer["Name"]
                compared += 1
    assert compared >= 20
    depthwise = sum(n.attributes.get("group", 1) > 1 for n in model.top if n.op == "Conv")
    assert (17 if "mobilenet" in folder.name else 0) == depthwise


@engines.of(FOLDERS)
def test_figures_of_an_engine_are_those_of_the_file(folder: Path, request: pytest.FixtureRequest) -> None:
    study = scenes.engine(folder)
    golden = Golden(Path(__file__).parent / "golden", request.config.getoption("--accept"))
    golden(f"{folder.name}.json", {"figures": figures(study["engine"], study.model)})


def figures(result: Any, model: Any) -> dict[str, Any]:
    done = list(layer_works(result.engine, result.mapping, model).values())
    sums = {k: sum(getattr(w, k) or 0 for w in done) for k in ("macs", "flops", "read", "written")}
    schedule, times = result.schedule(), result.timing
    memory = refusable(result.memory)
    return {
        "title": result.engine.title,
        "kinds": dict(sorted(Counter(y.kind for y in result.engine.layers).items())),
        "types": dict(sorted(Counter(f"{y.reads} → {y.writes}" for y in result.engine.layers).items())),
        "evidence": dict(sorted(Counter(f"{p.role} {p.evidence}" for p in result.mapping.pairs).items())),
        "reasons": dict(sorted(Counter(m.reason for m in result.mapping.missing).items())),
        "work": sums,
        "memory": memory
        if isinstance(memory, dict)
        else {k: getattr(memory, k) for k in ("peak", "bound", "naive", "weights", "reported", "scratch")},
        "schedule": {k: getattr(schedule, k) for k in ("makespan", "serial", "chain", "unit")},
        "streams": len(schedule.streams),
        "times": times and {"total": times.total, "summed": times.summed, "layers": len(times.layers)},
        "findings": dict(sorted(Counter(f.rule for f in result.findings).items())),
        "reformats": dict(sorted(Counter(r.source for r in result.reformats()).items())),
    }


#: The recording of each build of ``sample_models/engines``: every step, edge and time is that of its file.
RECORDINGS = {
    "mobilenet_v2-rtx3060": "fuzzy-mobilenet_v2-rtx3060laptop-fp16",
    "resnet18-a100-fp16": "trex-resnet18-pytorch-a100-fp16",
    "resnet18-a100-int8": "trex-resnet18-pytorch-a100-int8-qat",
    "resnet18-a100-int8-residual": "trex-resnet18-pytorch-a100-int8-qat-residual",
}
#: What a step does, in TensorRT's words; ``Conv`` and ``Pooling`` stand before those of a fused step.
WORDS = [
    prefix + word
    for prefix in ("", "Conv", "Pooling")
    for word in (
        "ParameterType", "Kernel", "WindowSize", "PoolingType", "Stride", "PrePadding", "PostPadding", "OutMaps",
        "Groups", "Weights", "Bias", "Activation", "HasSparseWeights", "Origin",
    )
]  # fmt: skip


def describe(tensor: Tensor) -> tuple[object, ...]:
    layout = re.sub(r" (linear|format|FP16|FP32|Int8)\b", "", tensor.format)
    return tensor.dtype, tensor.shape, layout


def list_steps(engine: Engine) -> Iterator[tuple[object, ...]]:
    """Kind, parameters, what is read from which step, and what is written; of a gemm the first input alone."""
    writers: dict[str, int] = {}
    for layer in engine.layers:
        inputs = layer.inputs[:1] if layer.kind == "gemm" else layer.inputs
        told = {w: layer.attributes[w] for w in WORDS if w in layer.attributes}
        edges = [(writers.get(t.name), *(describe(t)[: 2 if layer.kind == "gemm" else 3])) for t in inputs]
        yield layer.kind, told, edges, [describe(t) for t in layer.outputs]
        writers |= {t.name: layer.index for t in layer.outputs}


@pytest.mark.parametrize("name", RECORDINGS)
def test_a_shipped_build_has_every_figure_of_its_recording(name: str) -> None:
    folder = HOME / RECORDINGS[name]
    kinds = {"layers": "engine.graph.json", "profile": "engine.profile.json", "times": "engine.timing.json"}
    theirs = rtlab.read(**{k: folder / file for k, file in kinds.items()})["engine"].facts
    ours = rtlab.read(*rtlab.samples.engine(name))["engine"].facts
    assert list(list_steps(theirs.engine)) == list(list_steps(ours.engine))
    times = [[f.profile.samples[y.id][0] for y in f.engine.layers] for f in (theirs, ours)]
    np.testing.assert_allclose(*times, atol=1e-6)
    # The first 200 inferences, rounded to ticks of the GPU or to 0.1 µs.
    np.testing.assert_allclose(theirs.profile.total[:200], ours.profile.total, rtol=3e-4)
    assert theirs.profile.runs == ours.profile.runs
