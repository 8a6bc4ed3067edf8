"""What the predicted passes do, beside what real builders told: decision by decision, layer by layer."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

import published_nets
import recorded
import remade
from rtlab import backends
from rtlab.backends.log import verbose
from rtlab.core.engine import Engine
from rtlab.core.model import Model, load
from rtlab.core.progress import Silent
from rtlab.core.protocols import BuildRequest
from rtlab.core.variant import Variant
from rtlab.questions.build.replay import replay

LOGS = Path(__file__).parents[3] / "shared" / "recorded" / "build-logs"


def predicted(model: Model) -> Engine:
    """The engine that the rules predict."""
    return backends.get("classic").build(BuildRequest(model, Variant.of("fp32", target="sm86")), Silent())


@pytest.mark.skipif(not LOGS.is_dir(), reason="no ../shared/recorded beside the checkout")
def test_googlenet_is_what_tensorrt_5_made_of_it() -> None:
    """141, 84, 66 layers: every one of the 57 fusions, nine merges, nine eliminations with their copies and targets."""
    told = verbose.parse(LOGS / "googlenet-caffe-trt5.1-fp32.log").log.attempts[0]
    model = published_nets.googlenet()
    engine = predicted(model)
    found = verbose.parse(engine.log).log.attempts[0]
    assert (141, 84, 66) == found.counts == told.counts
    wanted = [d for p in told.passes for d in p.decisions]
    made = [d for p in found.passes for d in p.decisions]
    assert [(d.action, d.names, d.result) for d in wanted] == [(d.action, d.names, d.result) for d in made]
    kinds = [d.action for d in made]
    assert (57, 9, 9, 9, 27) == tuple(map(kinds.count, ("fuse", "merge", "eliminate", "copy", "retarget")))
    assert 66 == len(engine.layers)
    played = replay(verbose.parse(engine.log).log, model, engine)
    assert [84, 66] == [played.count(57), played.count(66)]
    # Each step but those of a layer that is gone ends in a layer.
    assert all(s.layer for s in played.steps if s.joins)


def test_the_famous_block_is_seen_without_a_recording() -> None:
    """The picture of an Inception block: three 1x1 convolutions are one layer, and the concatenation is gone."""
    names = {y.name: y for y in predicted(published_nets.googlenet()).layers}
    parts = ("1x1", "3x3_reduce", "5x5_reduce")
    merged = " || ".join(f"inception_3a/{p} + inception_3a/relu_{p}" for p in parts)
    assert {f"inception_3a/{a}{b}" for a in ("", "relu_") for b in parts} == {*names[merged].origins}
    assert "inception_3a/output" not in names
    writers = [y.name for y in names.values() if any(t.name == "inception_3a/output" for t in y.outputs)]
    assert 4 == len(writers)
    assert f"{merged} copy" in writers


#: Recorded engines of TensorRT 8.2 to 10.4 whose ONNX model or whose nodes' names are known.
ENGINES = [f for f in recorded.REAL if f.name not in {*recorded.NAMES_ONLY, "cookbook-mnist-h100-trt10.16"}]


def told(folder: Path) -> tuple[Model, list[list[str]]]:
    """The model that an engine was built from, and the nodes of each of its layers, by their own names."""
    real = folder / "model.structure-only.onnx"
    layers = recorded.files(folder)["layers"]
    if not real.exists():
        made = remade.Remade(layers)
        return made.model, made.together
    model = load(real, weights=False)
    names = {n.name for n in model.top}
    labels = [y.get("Metadata") or "" for y in json.loads(layers.read_text(errors="replace"))["Layers"]]
    groups = [re.findall(r"\[ONNX Layer: (.*?)\]", text) for text in labels]
    return model, [[n for n in dict.fromkeys(g) if n in names] for g in groups]


def pairs(groups: Iterable[Iterable[str]]) -> set[tuple[str, ...]]:
    """Two nodes each that are in one group."""
    return {p for g in groups for p in itertools.combinations(sorted(set(g)), 2)}


@pytest.mark.parametrize("folder", ENGINES, ids=lambda f: f.name)
def test_nodes_share_a_layer_where_a_real_engine_has_them(folder: Path, golden: Any) -> None:
    """Precision and recall of node pairs are at least 0.95; the table lists every miss."""
    model, groups = told(folder)
    names = {n for g in groups for n in g}
    engine = predicted(model)
    made = pairs([[t for n in y.origins if (t := model.by_id[n].name) in names] for y in engine.layers])
    truth = pairs(groups)
    both = len(made & truth)
    assert both >= 0.95 * len(made)
    assert both >= 0.95 * len(truth)
    lines = [f"{len(names)} nodes, {len(truth)} pairs in one layer, {len(made)} predicted, {both} in both"]
    lines += [f"only in the engine: {a} | {b}" for a, b in sorted(truth - made)]
    lines += [f"only predicted: {a} | {b}" for a, b in sorted(made - truth)]
    source = (
        "its own ONNX file" if (folder / "model.structure-only.onnx").exists() else "remade from its names"
    )
    golden(f"classic/{folder.name}.txt", {f"# {folder.name}, {source}": lines})


@pytest.mark.parametrize(
    ("network", "counts"),
    [
        # A ReLU behind a fully connected layer is fused from TensorRT 5 on; NVIDIA's table says 27 for TensorRT 3.
        (published_nets.vgg19, (43, 25)),
        # Scales and ReLUs, then siblings; 9 merged layers need a copy for the 11 concatenations that go.
        (published_nets.inception_v3, (309, 215, 121, 102, 100)),
        # 155 convolutions with all that follows them, two poolings, the classifier and its softmax.
        (published_nets.resnet152, (670, 360, 159)),
    ],
    ids=["vgg19", "inception_v3", "resnet152"],
)
def test_the_networks_of_nvidias_table_have_its_layers(network: Any, counts: tuple[int, ...]) -> None:
    """43, 309 and 670 layers before; ``README.md`` explains what differs after."""
    found = verbose.parse(predicted(network()).log).log.attempts[0].counts
    assert counts == found
