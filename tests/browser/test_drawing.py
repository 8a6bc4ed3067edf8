"""What is drawn, in Chromium: no overlaps on any model at hand, bad graphs, pictures that stay the same, exports."""

from __future__ import annotations

import base64
import io
import os
import subprocess
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from PIL import Image
from playwright.sync_api import Page

import rtlab
from nets import graph
from rtlab.analyses.cards.picture import Graph
from rtlab.documents.serialization import encode
from rtlab.web.page.graph import source_graph

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
PICTURES = ROOT / "tests" / "data" / "pictures"
LIGHT = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"
FILES = sorted((ROOT / "sample_models").glob("*.onnx")) + sorted(LIGHT.glob("light_*.onnx"))
#: The largest share of pixels that may look different: edges of letters in another version of the browser, and
#: less than one box of another colour or name.
TOLERANCE = 0.002


@pytest.fixture(scope="module")
def script() -> str:
    """The page's script, built anew: it takes a moment."""
    subprocess.run(["npm", "run", "--silent", "bench"], cwd=ROOT / "widgets", check=True, capture_output=True)
    return (ROOT / "widgets" / "bench" / "dist" / "bench.js").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def window(chromium) -> Iterator[list[Page]]:
    """The page that tests share one after the other, if there is one now: a window takes longer than most pictures."""
    found: list[Page] = []
    yield found
    for page in found:
        page.context.close()


@pytest.fixture
def page(chromium, script, window, failed):
    """An empty page with the drawing's functions, 700 by 520, that may fetch nothing; another one after a failure."""
    if not window:
        context = chromium.new_context(viewport={"width": 700, "height": 520}, reduced_motion="reduce")
        window.append(context.new_page())
        window[0].route("**/*", lambda route: route.abort())
    page = window[0]
    errors: list[str] = []

    def note(error: object) -> None:
        errors.append(str(error))

    page.goto("about:blank")
    assert page.evaluate("() => !('rtlab' in window || 'stolen' in window)")
    page.on("pageerror", note)
    page.set_content("<!doctype html><body style='--jp-ui-font-family: DejaVu Sans'></body>")
    page.add_script_tag(content=script, type="module")
    page.wait_for_function("() => window.rtlab")
    yield page
    page.remove_listener("pageerror", note)
    if failed():
        window.pop().context.close()
    assert [] == errors


def packed(graph: Graph) -> str:
    return base64.b64encode(encode(graph)).decode()


def draw(page, *graphs: Graph, **wish: object) -> None:
    """Draw graphs side by side."""
    page.evaluate("([graphs, wish]) => window.rtlab.show(graphs, wish)", [[packed(g) for g in graphs], wish])


def chain(*nodes: onnx.NodeProto) -> Graph:
    """The graph of nodes on 1x8 tensors, from "x" to "y"."""
    x, y = ([(name, TensorProto.FLOAT, [1, 8])] for name in "xy")
    return source_graph(graph(list(nodes), x, y, {}, 20))


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.stem)
def test_boxes_never_lie_on_each_other(page, path: Path) -> None:
    whole = source_graph(rtlab.load(path))
    found = {}
    for name, wish in {
        "down": {},
        "across": {"across": True},
        "repeats": {"grouping": "repeats"},
        "scopes": {"grouping": "scopes"},
    }.items():
        draw(page, whole, **wish)
        found[name] = page.evaluate("() => window.rtlab.overlaps(0)")
        if name in {"repeats", "scopes"}:
            draw(page, whole, **wish, opened=True)
            found[f"{name} open"] = page.evaluate("() => window.rtlab.overlaps(0)")
    assert {} == {name: count for name, count in found.items() if count}


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.stem)
def test_wires_cross_at_most_a_tenth_more_than_dagre_draws_them(page, path: Path) -> None:
    """Dagre on the whole graph is the best picture that the field has; counted by one rule on both drawings."""
    draw(page, source_graph(rtlab.load(path)))
    found = page.evaluate("() => window.rtlab.besideDagre(0)")
    # A handful of crossings is noise in a ratio.
    assert found["ours"] <= 1.1 * found["theirs"] + 2


HTML = '<img src=x onerror="window.stolen=1"><script>window.stolen=1</script>'
BAD = {
    "isolated": lambda: chain(
        helper.make_node("Relu", ["x"], ["y"], name="kept"),
        *(helper.make_node("Relu", ["x"], [f"u{i}"], name=f"loose{i}") for i in range(30)),
    ),
    "parallel": lambda: chain(
        helper.make_node("Spread", ["x"], [f"s{i}" for i in range(5000)], name="spread", domain="own"),
        helper.make_node("Gather", [f"s{i}" for i in range(5000)], ["y"], name="gather", domain="own"),
    ),
    "wide": lambda: chain(
        *(helper.make_node("Relu", ["x"], [f"r{i}"], name=f"r{i}") for i in range(2000)),
        helper.make_node("Sum", [f"r{i}" for i in range(2000)], ["y"], name="sum"),
    ),
    "long names": lambda: chain(helper.make_node("Relu", ["x"], ["y"], name="n" * 10_000)),
    "right to left": lambda: chain(helper.make_node("Relu", ["x"], ["y"], name="שלום עולם · مرحبا")),
    "emoji": lambda: chain(helper.make_node("Relu", ["x"], ["y"], name="🚀👩‍👩‍👧‍👦 conv")),
    "html": lambda: chain(helper.make_node("Relu", ["x"], ["y"], name=HTML)),
    "loop": lambda: source_graph(rtlab.load(ROOT / "sample_models" / "control_flow.onnx")),
}


@pytest.mark.parametrize("name", BAD)
def test_a_difficult_graph_is_drawn_sensibly(page, name: str) -> None:
    graph = BAD[name]()
    draw(page, graph)
    boxes, overlaps = page.evaluate(
        "() => [window.rtlab.stages()[0].scene.figures.length, window.rtlab.overlaps(0)]"
    )
    assert sum(b["parent"] < 0 for b in graph["boxes"]) == boxes
    assert 0 == overlaps
    assert page.evaluate("() => window.stolen") is None
    ink = page.evaluate(
        """() => {
          const canvas = document.querySelector('canvas');
          const data = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data;
          return new Set(new Uint32Array(data.buffer)).size;
        }"""
    )
    assert ink > 8


PICTURED = {
    "digits_inception": (lambda: rtlab.load(ROOT / "sample_models" / "digits_inception.onnx"), {}),
    "control_flow_open": (
        lambda: rtlab.load(ROOT / "sample_models" / "control_flow.onnx"),
        {"opened": True},
    ),
    "squeezenet_across": (lambda: rtlab.load(LIGHT / "light_squeezenet.onnx"), {"across": True}),
    "transformer_repeats": (lambda: rtlab.samples.transformer_stack(nodes=200), {"grouping": "repeats"}),
}


def pixels(shot: bytes) -> Image.Image:
    return Image.open(io.BytesIO(shot)).convert("RGB")


def different(page, name: str) -> float:
    """The share of pixels that look different from the picture that was kept."""
    then, now = pixels((PICTURES / f"{name}.png").read_bytes()), pixels(page.screenshot())
    assert then.size == now.size
    far = np.abs(np.asarray(then, np.int16) - np.asarray(now, np.int16)).max(axis=2) > 48
    return float(far.mean())


@pytest.mark.parametrize("name", PICTURED)
def test_the_picture_is_the_one_that_was_looked_at(page, name: str) -> None:
    """Pixels, within a tolerance. RTLAB_PICTURES=write keeps what is drawn now, for somebody to look at."""
    load, wish = PICTURED[name]
    draw(page, source_graph(load()), **wish)
    if os.environ.get("RTLAB_PICTURES") == "write":
        PICTURES.mkdir(exist_ok=True)
        pixels(page.screenshot()).quantize(64).save(PICTURES / f"{name}.png", optimize=True)
    assert different(page, name) <= TOLERANCE


def test_a_planted_change_of_the_picture_is_found(page) -> None:
    """The tolerance forgives a font's edges, not one box in another colour."""
    load, wish = PICTURED["digits_inception"]
    graph = source_graph(load())
    changed = next(box for box in graph["boxes"] if box["op"] == "Relu")
    changed["family"] = "quantize"
    draw(page, graph, **wish)
    assert different(page, "digits_inception") > TOLERANCE


def test_the_svg_is_whole_and_well_formed(page) -> None:
    graph = source_graph(rtlab.load(LIGHT / "light_squeezenet.onnx"))
    draw(page, graph)
    text = page.evaluate("() => window.rtlab.svg(0)")
    root = ET.fromstring(text)
    words = [node.text for node in root.iter("{http://www.w3.org/2000/svg}text")]
    for op in {b["op"] for b in graph["boxes"] if b["kind"] == "node"}:
        assert sum(b["op"] == op for b in graph["boxes"]) <= words.count(op)
    assert "http" not in text.replace("http://www.w3.org/2000/svg", "")
