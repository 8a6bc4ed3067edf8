"""Engines from files, projected for the graph view."""

from __future__ import annotations

from pathlib import Path

from onnx import helper

import engines
from rtlab import Study
from rtlab.backends.trtexec import Trtexec
from rtlab.core.facts import Facts
from rtlab.core.model import wrap
from rtlab.core.prepared import Prepared
from rtlab.core.variant import Variant
from rtlab.documents.payload import decode, encode
from rtlab.testing import tiny_model
from rtlab.view.contract import EngineView
from rtlab.view.graph import engine_view


def files(folder: Path) -> dict[str, Path]:
    """The layers of an engine, and its profile where it has one."""
    return {k: p for k, p in engines.files(folder).items() if k in {"layers", "profile"}}


@engines.each
def test_every_engine_crosses_to_the_browser_whole(folder) -> None:
    """Each layer is a box once, edges join boxes that exist, and every reading belongs to a layer."""
    model = tiny_model()
    result = Study(model).read("elsewhere", **files(folder))
    view = decode(encode(engine_view(result.facts, model), EngineView))
    boxes = view["graph"]["boxes"]
    layers = [b["id"] for b in boxes if b["kind"] == "layer"]
    assert [y.id for y in result.engine.layers] == layers
    assert all(0 <= e[end] < len(boxes) for e in view["graph"]["edges"] for end in ("source", "target"))
    for overlay in view["overlays"]:
        assert set(overlay["layers"]) <= set(layers)
        assert overlay["origin"] in {"measured", "reported", "estimated"}


@engines.detailed
def test_every_engine_is_drawn_in_its_order_without_a_model(folder) -> None:
    """Names tell operators; every tensor comes from before, and nothing but calls of shapes stands alone."""
    nothing = wrap(helper.make_model(helper.make_graph([], "", [], [])), name="")
    engine = Trtexec().read({"layers": files(folder)["layers"]}).engine
    variant = Variant.of("fp32", target="sm86")
    result = Facts("read", variant, nothing, Prepared(nothing, nothing), engine, recorded=True)
    graph = engine_view(result, nothing)["graph"]
    boxes = graph["boxes"]
    assert [] == [e for e in graph["edges"] if e["source"] >= e["target"]]
    joined = {e[end] for e in graph["edges"] for end in ("source", "target")}
    alone = {b["op"] for i, b in enumerate(boxes) if i not in joined}
    assert alone <= {"shape_call"}
    assert [] == [b["id"] for b in boxes if b["kind"] == "layer" and bool(b["chips"]) == b["slim"]]
    convolutions = [b for b in boxes if "Convolution" in b["op"]]
    assert {"convolution"} >= {b["family"] for b in convolutions}
