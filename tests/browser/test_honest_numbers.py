"""Numbers on the page, and what it keeps for whoever asks: the tip, the order of bars, a waterfall that is hidden."""

from __future__ import annotations

import pytest

from explorer import EXPLORER

pytestmark = pytest.mark.slow

TINY = """import rtlab
from rtlab.testing import tiny_model
study = rtlab.Study(tiny_model())
study.add("fp32", target="cpu", backend="onnxruntime")
study.add("int8", target="cpu", backend="onnxruntime")
study.run()
explorer = study.explore()
explorer"""


TIP = f"{EXPLORER} .rt-tip"


@pytest.mark.parametrize("side", ["node", "layer"])
def test_the_tip_has_three_lines_and_tells_where_numbers_come_from_on_demand(opened, side) -> None:
    """It covered a third of the graph with sources that nobody had asked for."""
    shown = opened(TINY)
    page, lab = shown.page, shown.lab
    node = "stem/Relu"
    box = node if side == "node" else lab.python(f"study[explorer.state.variant].mapping.layers({node!r})[0]")
    at = page.evaluate(
        "([side, id]) => document.querySelector('.rt-explorer').rtlabBoxAt(side, id)", [side, box]
    )
    page.mouse.move(at["x"] - 3, at["y"])
    page.mouse.move(at["x"], at["y"])
    page.wait_for_selector(TIP)
    lines = page.eval_on_selector_all(
        f"{TIP} > p",
        "all => all.map(p => [p.getBoundingClientRect().height, parseFloat(getComputedStyle(p).lineHeight)])",
    )
    assert 3 == len(lines)
    assert all(height < 1.5 * line for height, line in lines), lines
    assert 3 == page.locator(f"{TIP} > *").count()
    said = page.inner_text(TIP)
    assert "ms" in said or "µs" in said
    page.mouse.move(2, 2)
    page.wait_for_selector(TIP, state="detached")
    assert [] == lab.console_errors
