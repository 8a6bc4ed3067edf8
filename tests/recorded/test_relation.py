"""Names and labels of engines of real GPUs lead to the nodes of their models."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

import onnx
import pytest

from rtlab.backends.trtexec import Trtexec
from rtlab.core.model import wrap
from rtlab.relation.coverage import coverage
from rtlab.relation.names import operator, words
from rtlab.relation.relate import relate

ENGINES = Path(os.environ["RTLAB_RECORDED"]) / "engines"


@pytest.mark.parametrize(("name", "nodes", "of"), [("alexnet", 19, 20), ("mobilenet_v2", 99, 170)])
def test_every_label_is_resolved_and_every_node_has_a_place_or_a_reason(
    name: str, nodes: int, of: int
) -> None:
    """TensorRT 10.4 with the graph that it was built from."""
    folder = ENGINES / f"fuzzy-{name}-rtx3060laptop-fp16"
    m = wrap(onnx.load(folder / "model.structure-only.onnx", load_external_data=False), name=name)
    e = Trtexec().read({"layers": folder / "engine.graph.json"}).engine
    mapping = relate(m, m, e)
    labels = {(i, y.id) for y in e.layers for i in y.origins}
    assert labels
    assert labels == {(p.node, p.layer) for p in mapping.pairs if p.evidence == "declared"}
    found = coverage(mapping, m, e)
    assert (nodes, of, of - nodes) == (found.nodes, found.all_nodes, found.explained)


def test_every_word_of_a_torch_tensorrt_engine_has_its_form() -> None:
    path = ENGINES / "fuzzy-jetson-orin-torchtrt-resnet18" / "resnet18_trt_engine_info.json"
    fused = (y.name for y in Trtexec().read({"layers": path}).engine.layers if y.kind == "CaskConvolution")
    kinds = Counter(tuple(operator(w) for w in words(name)) for name in fused)
    conv = ("CONVOLUTION", "SCALE")
    assert (20, {conv, (*conv, "RELU"), (*conv, "ELEMENTWISE", "RELU")}) == (kinds.total(), {*kinds})
