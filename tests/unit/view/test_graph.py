"""Projection to payloads: what the browser draws is what the model and the engine say."""

from __future__ import annotations

import pytest

from rtlab import CalibrationData, Study
from rtlab.samples import load
from rtlab.testing import tiny_model
from rtlab.view.contract import EngineView
from rtlab.view.graph import engine_view, family, source_graph
from rtlab.view.payload import decode, encode


@pytest.fixture(scope="module")
def study():
    made = Study(tiny_model())
    made.add("fp32", target="cpu", backend="onnxruntime")
    return made.run()


@pytest.fixture(scope="module")
def view(study):
    return engine_view(study["fp32"], study.model)


def test_the_source_graph_has_every_node_once_and_a_pill_at_each_end() -> None:
    """Netron's picture: constants live inside their consumers."""
    model = tiny_model()
    boxes = source_graph(model)["boxes"]
    assert ["input", *["node"] * 10, "output"] == [b["kind"] for b in boxes]
    assert [n.id for n in model.nodes] == [b["id"] for b in boxes[1:-1]]


def test_every_edge_carries_the_shape_and_type_of_its_value() -> None:
    """A residual reads one value in two places; both edges are there."""
    graph = source_graph(tiny_model())
    ids = [b["id"] for b in graph["boxes"]]
    found = {(ids[e["source"]], ids[e["target"]]): e["label"] for e in graph["edges"]}
    assert "N×8×8×8 fp32" == found["stem/Relu", "join/Add"]
    assert {"left/Conv", "right/Conv", "join/Add"} == {t for s, t in found if s == "stem/Relu"}


def test_a_payload_keeps_everything_but_the_last_digits_of_its_numbers(view) -> None:
    """Whatever the browser links by must be exact, and what it shows near enough."""
    arrived = decode(encode(view, EngineView))
    for sent, got in zip(view["overlays"], arrived["overlays"], strict=True):
        for side in ("nodes", "layers"):
            assert list(sent[side]) == list(got[side])
            for key, reading in sent[side].items():
                assert pytest.approx(reading["value"], rel=5e-5) == got[side][key]["value"]
    assert {k: v for k, v in view.items() if k != "overlays"} == {
        k: v for k, v in arrived.items() if k != "overlays"
    }


def test_pairs_name_boxes_that_exist_on_both_sides(view) -> None:
    """A link to nowhere would light up nothing."""
    nodes = {b["id"] for b in source_graph(tiny_model())["boxes"]}
    layers = {b["id"] for b in view["graph"]["boxes"]}
    assert view["pairs"]
    assert {p["node"] for p in view["pairs"]} <= nodes
    assert {p["layer"] for p in view["pairs"]} <= layers


def test_every_node_is_linked_or_has_its_reason_on_screen(view) -> None:
    """Nothing may vanish silently."""
    placed = {p["node"] for p in view["pairs"]} | {u["node"] for u in view["unmapped"]}
    assert {n.id for n in tiny_model().nodes} == placed


def test_every_overlay_says_where_its_numbers_come_from(view) -> None:
    """A number without an origin is a rumour."""
    times = {o["id"]: o for o in view["overlays"]}
    assert {"time", "share"} <= set(times)
    assert "measured" == times["time"]["origin"]
    assert "ONNX Runtime" in times["time"]["source"]
    assert "CPU" in times["time"]["title"]


def test_shares_of_all_measured_layers_add_up(view, study) -> None:
    """Of an engine that is shown and measured at once, where nothing is shared or lost."""
    assert pytest.approx(1.0) == sum(t.share for t in study["fp32"].timing.layers)


def test_a_box_tells_its_weight_and_what_is_not_as_usual() -> None:
    """A stride changes the picture's shapes: it should be read without a click. A stride of one says nothing."""
    lines = {b["title"]: b["lines"] for b in source_graph(load("resnet50", samples=1).model)["boxes"]}
    assert ["64×3×7×7", "stride 2×2"] in lines.values()
    assert ["64×64×1×1"] in lines.values()
    assert ["kernel 3×3", "stride 2×2"] in lines.values()


def test_operators_have_the_families_of_netron() -> None:
    """Colours are what people recognise first."""
    expected = ("convolution", "activation", "normalization", "pool", "shape", "quantize", "other")
    ops = ("Conv", "Relu", "BatchNormalization", "MaxPool", "Reshape", "QuantizeLinear", "Add")
    assert expected == tuple(family(o) for o in ops)


def test_output_memory_is_an_estimate_on_both_sides(view, study) -> None:
    """Bytes of shapes and types: the engine's own on the layers, the model's on the nodes, batch 1."""
    found = next(o for o in view["overlays"] if o["id"] == "memory")
    assert ("B", "estimated", "low") == (found["unit"], found["origin"], found["best"])
    assert "N = 1" in found["source"]
    assert 8 * 8 * 8 * 4 == found["nodes"]["stem/Conv"]["value"]
    assert 4 * 4 == found["nodes"]["head/Gemm"]["value"]
    layer = study["fp32"].mapping.layers("head/Gemm")[-1]
    assert 4 * 4 == found["layers"][layer]["value"]


def test_a_step_that_only_quantizes_is_not_called_by_its_node() -> None:
    """Four layers named Conv would look like four convolutions; a node's own layer comes first of its pairs."""
    model = tiny_model()
    made = Study(model, data=CalibrationData.random(model, samples=2))
    made.add("int8", precision="int8", target="cpu", backend="onnxruntime")
    made.run(compare=False)
    view = engine_view(made["int8"], model)
    ran = {b["id"]: [c["op"] for c in b["chips"]] for b in view["graph"]["boxes"]}
    first = next(p["layer"] for p in view["pairs"] if p["node"] == "stem/Conv")
    assert ["Conv"] == ran[first]
    steps = [ran[p["layer"]] for p in view["pairs"] if p["node"] == "stem/Conv"]
    assert [["Conv"], ["DQ"], ["Q"], ["DQ"]] == steps
