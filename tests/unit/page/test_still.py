"""The picture that a saved notebook keeps."""

from __future__ import annotations

import base64
import re
from collections import Counter
from xml.etree import ElementTree

import pytest

import rtlab
from rtlab.testing import tiny_model
from rtlab.web.page import still

SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture(scope="module")
def study():
    made = rtlab.Study(tiny_model(batch=1))
    made.add("fp32", backend="onnxruntime")
    made.run(compare=False)
    return made


def draw(study: rtlab.Study, variant: str) -> tuple[str, ElementTree.Element]:
    text = still.draw_still(study.state, variant)
    data = re.search(r"data:image/svg\+xml;base64,([^\"]+)", text)[1]
    return text, ElementTree.fromstring(base64.b64decode(data))


def fills(group: ElementTree.Element) -> Counter[str]:
    return Counter(box.get("fill") for box in group.findall(f"{SVG}rect"))


def test_every_node_has_the_colour_of_the_layer_that_runs_it(study):
    text, svg = draw(study, "fp32")
    assert "Mapping" not in text
    nodes, layers = map(fills, svg.findall(f"{SVG}g"))
    mapping, engine = study["fp32"].mapping, study["fp32"].engine
    colour = {y.id: f"hsl({y.index * 47 % 360} 55% 80%)" for y in engine.layers}
    # One box for each node or layer, and two pale ones for the input and the output.
    pale = Counter({"#eee": 2})
    assert nodes == pale + Counter(
        next((colour[y] for y in mapping.layers(n.id)), "#eee") for n in study.model.nodes
    )
    assert layers == pale + Counter(colour.values())
    assert "layer that runs it" in text


def test_no_box_lies_on_another_and_edges_lead_down(study):
    _, svg = draw(study, "fp32")
    for group in svg.findall(f"{SVG}g"):
        corners = [
            tuple(float(b.get(k)) for k in ("x", "y", "width", "height")) for b in group.findall(f"{SVG}rect")
        ]
        for i, (x, y, w, h) in enumerate(corners):
            assert not any(
                x < a + c and a < x + w and y < b + d and b < y + h for a, b, c, d in corners[i + 1 :]
            )
        steps = re.findall(r"M\S+ (\S+?)L\S+ (\d+)", group.find(f"{SVG}path").get("d"))
        assert steps
        assert all(float(a) < float(b) for a, b in steps)


def test_a_large_graph_is_said_to_be_left_out_and_names_are_only_text(study, monkeypatch):
    monkeypatch.setattr(still, "MOST_BOXES", 3)
    assert "nodes and layers is not kept: run the cell" in still.draw_still(study.state, "fp32")
    assert "<img" not in still.draw_still(study.state, "fp32")
    monkeypatch.undo()
    hostile = rtlab.Study(rtlab.samples.load("hostile_names", samples=2).model)
    text, svg = draw(hostile, "")
    assert "<script" not in text
    assert [] == [
        e.tag for e in svg.iter() if e.tag.removeprefix(SVG) not in {"svg", "g", "rect", "text", "path"}
    ]
