"""What the Explorer's graph view does with a kernel behind it: a third pane, frames, morph, tensors, files, Netron."""

from __future__ import annotations

import io
import json

import numpy as np
import pytest
from PIL import Image

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
