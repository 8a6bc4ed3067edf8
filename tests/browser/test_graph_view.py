"""What the Explorer's graph view does with a kernel behind it: a third pane, and Netron."""

from __future__ import annotations

import pytest

from explorer import EXPLORER

pytestmark = pytest.mark.slow

STUDY = """import rtlab
sample = rtlab.samples.load('digits_inception')
study = rtlab.Study(sample.model, data=sample.calibration, task=sample.task)
study.add('fp32', target='cpu')
study.add('fp16', target='cpu')
study.run(compare=False)
explorer = study.explore(height=820)
explorer"""


@pytest.fixture
def shown(opened):
    shown = opened(STUDY)
    yield shown
    assert [] == shown.lab.left_machine
    assert [] == shown.lab.console_errors


def test_a_third_pane_shows_another_engine_linked_to_both_graphs(shown) -> None:
    lab, page = shown.lab, shown.page
    lab.python("explorer.show('fp32')")
    page.click(f'{EXPLORER} [data-chip="fp16"] [data-control="compare"]')
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
    page.click(f'{EXPLORER} [data-control="swap"]')
    assert ["layer", "node", "other"] == page.evaluate(sides)
    page.click(f'{EXPLORER} [data-control="stack"]')
    lab.wait_python("explorer.state.stacked")
    tops = page.evaluate(
        "() => [...document.querySelectorAll('.rt-explorer canvas[data-pane]')].map(c => c.getBoundingClientRect().top)"
    )
    assert tops == sorted(set(tops))
    page.click(f'{EXPLORER} [data-control="stack"]')
    page.click(f'{EXPLORER} [data-control="close-other"]')
    lab.wait_python("explorer.state.compared == ''")
    assert ["layer", "node"] == page.evaluate(sides)


def test_netron_opens_the_model(shown, chromium) -> None:
    shown.page.click(f'{EXPLORER} [data-control="netron"]')
    link = shown.page.wait_for_selector(f'{EXPLORER} [data-control="link"] a')
    address = link.get_attribute("href")
    context = chromium.new_context()
    asked: list[str] = []
    context.on("request", lambda r: asked.append(r.url))
    viewer = context.new_page()
    viewer.goto(address)
    boxes = viewer.locator("#target g.node")
    boxes.first.wait_for(state="attached")
    assert shown.lab.python("len(sample.model.top)") <= boxes.count()
    # Nor does it ask for anything when its dialogs are opened and the visitor looks around.
    viewer.keyboard.press("Control+Enter")
    viewer.wait_for_timeout(500)
    assert [] == [url for url in asked if not url.startswith((address, "data:", "blob:"))]
    context.close()
