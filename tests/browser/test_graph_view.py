"""What the Explorer's graph view does with a kernel behind it: a third pane, frames, morph, tensors, files, Netron."""

from __future__ import annotations

import io
import json

import numpy as np
import pytest
from PIL import Image

import rtlab

pytestmark = pytest.mark.slow

EXPLORER = ".rt-explorer"
STUDY = [
    (
        "import rtlab\nsample = rtlab.samples.load('digits_inception')\n"
        "study = rtlab.Study(sample.model, data=sample.calibration, task=sample.task)\n"
        "study.add('fp32', target='cpu')\nstudy.add('fp16', target='cpu')\nstudy.run(compare=False)\n"
        "explorer = study.explore(height=820)"
    ),
    "explorer",
]


class Page:
    """The Explorer on two variants, as a person uses it."""

    def __init__(self, lab) -> None:
        self.lab, self.page = lab, lab.page

    def ready(self) -> None:
        self.page.wait_for_selector(f'{EXPLORER}[data-ready="1"]')

    def place(self, side: str, box: str) -> dict[str, float]:
        """Where a box is drawn in the page."""
        self.ready()
        self.page.evaluate(
            "view => document.querySelector(view).scrollIntoView({block: 'center', behavior: 'instant'})",
            EXPLORER,
        )
        return self.page.wait_for_function(
            "([view, side, id]) => document.querySelector(view)?.rtlabBoxAt?.(side, id)",
            arg=[EXPLORER, side, box],
        ).json_value()

    def click(self, side: str, box: str, **options: object) -> None:
        at = self.place(side, box)
        self.page.mouse.click(at["x"], at["y"], **options)

    def listed(self, name: str) -> list[str]:
        return json.loads(self.page.get_attribute(EXPLORER, f"data-{name}"))

    def control(self, name: str) -> None:
        self.page.click(f'{EXPLORER} [data-control="{name}"]')

    def pick(self, menu: str, item: str) -> None:
        """Choose an item of a pane's menu."""
        self.page.click(f'{EXPLORER} [data-control="{menu}"] button')
        self.page.click(f'{EXPLORER} [data-item="{item}"]')

    def focus(self, side: str) -> None:
        self.page.focus(f'{EXPLORER} canvas[data-pane="{side}"]')

    def picture(self, side: str) -> np.ndarray:
        """The pixels of a pane."""
        shot = self.page.locator(f'{EXPLORER} canvas[data-pane="{side}"]').screenshot()
        return np.asarray(Image.open(io.BytesIO(shot)).convert("RGB"), np.int16)


@pytest.fixture
def shown(lab_page):
    lab_page.open(STUDY)
    lab_page.run_all()
    page = Page(lab_page)
    page.ready()
    yield page
    assert [] == lab_page.left_machine
    assert [] == lab_page.console_errors


def test_a_third_pane_shows_another_engine_linked_to_both_graphs(shown) -> None:
    """Two engines of one model compare as an engine and its model do."""
    lab, page = shown.lab, shown.page
    lab.python("explorer.show('fp32')")
    page.click(f'{EXPLORER} [data-chip="fp16"] [aria-haspopup="menu"]')
    page.click(f'{EXPLORER} [data-item="compare"]')
    lab.wait_python("explorer.state.compared == 'fp16'")
    page.wait_for_selector(f'{EXPLORER} canvas[data-pane="other"]')
    shown.ready()
    node = lab.python("next(n.id for n in sample.model.top if n.op == 'Conv')")
    shown.click("node", node)
    lab.wait_python(f"explorer.state.selection == ({node!r},)")
    for name, field in (("fp32", "layers"), ("fp16", "others")):
        assert lab.python(f"list(study[{name!r}].mapping.layers({node!r}))") == shown.listed(field)
    # From the third pane back to both.
    other = shown.listed("others")[0]
    shown.page.keyboard.press("Escape")
    shown.click("other", other)
    lab.wait_python("explorer.state.anchor == 'other'")
    assert node in shown.listed("selection")
    assert set(lab.python(f"list(study['fp32'].mapping.layers({node!r}))")) <= set(shown.listed("layers"))

    sides = "() => [...document.querySelectorAll('.rt-explorer canvas[data-pane]')].map(c => c.dataset.pane)"
    assert ["node", "layer", "other"] == page.evaluate(sides)
    shown.control("swap")
    assert ["layer", "node", "other"] == page.evaluate(sides)
    shown.control("stack")
    lab.wait_python("explorer.state.stacked")
    tops = page.evaluate(
        "() => [...document.querySelectorAll('.rt-explorer canvas[data-pane]')].map(c => c.getBoundingClientRect().top)"
    )
    assert tops == sorted(set(tops))
    shown.control("stack")
    shown.control("close-other")
    lab.wait_python("explorer.state.compared == ''")
    assert ["layer", "node"] == page.evaluate(sides)


def test_frames_hold_the_nodes_of_a_layer_and_fold(shown) -> None:
    """The fused view: nodes stand inside of the layer that they became."""
    lab = shown.lab
    lab.python("explorer.show('fp32')")
    layer = lab.python(
        "max(study['fp32'].engine.layers, key=lambda l: len(study['fp32'].mapping.nodes(l.id))).id"
    )
    nodes = lab.python(f"list(study['fp32'].mapping.nodes({layer!r}))")
    assert len(nodes) > 1
    shown.pick("more-node", "group-layers")
    lab.wait_python("explorer.state.grouping_nodes == 'layers'")
    frame = shown.place("node", f"layer:{layer}")
    assert frame
    # A node inside of the frame is selected as ever, and folding keeps it so.
    shown.click("node", nodes[0])
    assert [nodes[0]] == shown.listed("selection")
    shown.pick("more-node", "fold-all")
    lab.wait_python(f"'layer:{layer}' in explorer.state.folds")
    shown.ready()
    assert [nodes[0]] == shown.listed("selection")
    shown.click("node", f"layer:{layer}")
    assert sorted(nodes) == sorted(shown.listed("selection"))


def test_the_morph_leads_from_the_nodes_to_the_layers(shown) -> None:
    """At the start the picture is the ONNX graph's, at the end the engine's; Escape brings it back."""
    shown.focus("node")
    shown.page.keyboard.press("m")
    slider = shown.page.wait_for_selector(f'{EXPLORER} [data-control="morph-slider"]')
    pictures = []
    for value in ("0", "0.5", "1"):
        slider.fill(value)
        shown.page.evaluate(
            "() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))"
        )
        pictures.append(shown.picture("node"))
    start, half, end = pictures
    assert (np.abs(start - half).max(axis=2) > 32).mean() > 0.005
    assert (np.abs(half - end).max(axis=2) > 32).mean() > 0.005
    shown.control("morph-close")
    shown.page.wait_for_selector(f'{EXPLORER} [data-control="morph-slider"]', state="detached")


def test_the_panel_tells_the_numbers_of_weights_and_activations(shown) -> None:
    """Statistics are those that NumPy computes from the file."""
    lab, page = shown.lab, shown.page
    node = lab.python("next(n.id for n in sample.model.top if n.op == 'Conv')")
    shown.click("node", node)
    lab.wait_python(f"(explorer.inspection or {{}}).get('node') == {node!r}")
    lab.wait_python("any(t['kind'] == 'activation' for t in explorer.inspection['tensors'])")
    weight = next(t for t in lab.python("explorer.inspection['tensors']") if t["kind"] == "weight")
    initializers = {t.name: t for t in sample_model().graph.initializer}
    array = rtlab_array(initializers[weight["name"]])
    assert array.size == weight["count"] == sum(weight["counts"])
    assert np.allclose(
        [array.min(), array.max(), array.mean(), array.std(), (array == 0).mean()],
        [weight[k] for k in ("minimum", "maximum", "mean", "std", "zeros")],
        atol=1e-6,
    )
    page.wait_for_selector(f"{EXPLORER} .rt-panel svg.rt-histogram")
    assert "measured" in page.locator(f"{EXPLORER} .rt-panel").inner_html()


def sample_model():
    return rtlab.samples.load("digits_inception").model.proto()


def rtlab_array(tensor) -> np.ndarray:
    from onnx import numpy_helper

    return numpy_helper.to_array(tensor).astype(np.float64)


@pytest.mark.parametrize("side", ["node", "layer"])
def test_netron_opens_the_model_and_the_engine(shown, chromium, side: str) -> None:
    """The real Netron, on loopback, shows what the pane shows."""
    shown.pick(f"more-{side}", "netron")
    link = shown.page.wait_for_selector(f'{EXPLORER} [data-control="link"] a')
    address = link.get_attribute("href")
    context = chromium.new_context()
    asked: list[str] = []
    context.on("request", lambda r: asked.append(r.url))
    viewer = context.new_page()
    viewer.goto(address)
    boxes = viewer.locator("#target g.node")
    boxes.first.wait_for(state="attached")
    expected = "sample.model.top" if side == "node" else "study[explorer.state.variant].engine.layers"
    assert shown.lab.python(f"len({expected})") <= boxes.count()
    # Nor does it ask for anything when its dialogs are opened and the visitor looks around.
    viewer.keyboard.press("Control+Enter")
    viewer.wait_for_timeout(500)
    assert [] == [url for url in asked if not url.startswith((address, "data:", "blob:"))]
    context.close()
