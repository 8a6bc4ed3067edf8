"""What the predicted passes do, beside what real builders told: decision by decision, layer by layer."""

from __future__ import annotations

import itertools
import json
import os
import re
from collections.abc import Iterable
from pathlib import Path

import pytest

import published_nets
import recorded
import remade
from golden.test_classic import predicted
from rtlab.analyses.build.replay import replay_decisions
from rtlab.backends.readers.log import verbose
from rtlab.core.model import Model, load

LOGS = Path(os.environ.get("RTLAB_RECORDED", "")) / "build-logs"


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
    played = replay_decisions(verbose.parse(engine.log).log, model, engine)
    # Each step but those of a layer that is gone ends in a layer.
    assert all(s.layer for s in played.steps if s.joins)


#: Recorded engines of TensorRT 8.2 to 10.4 whose ONNX model or whose nodes' names are known.
ENGINES = [f for f in recorded.REAL if f.name not in {*recorded.NAMES_ONLY, "cookbook-mnist-h100-trt10.16"}]


def told(folder: Path) -> tuple[Model, list[list[str]]]:
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
    return {p for g in groups for p in itertools.combinations(sorted(set(g)), 2)}


@pytest.mark.parametrize("folder", ENGINES, ids=lambda f: f.name)
def test_nodes_share_a_layer_where_a_real_engine_has_them(folder: Path) -> None:
    model, groups = told(folder)
    names = {n for g in groups for n in g}
    engine = predicted(model)
    made = pairs([[t for n in y.origins if (t := model.by_id[n].name) in names] for y in engine.layers])
    truth = pairs(groups)
    both = len(made & truth)
    assert both >= 0.95 * len(made)
    assert both >= 0.95 * len(truth)
