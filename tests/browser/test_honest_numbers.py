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
BARS = f'{EXPLORER} [data-chart="timing"] .js-plotly-plot'


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
    source = lab.python("study[explorer.state.variant].timing.source")
    assert source not in said
    page.keyboard.down("Alt")
    page.wait_for_selector(f"{TIP} .rt-sources")
    assert source in page.inner_text(TIP)
    page.keyboard.up("Alt")
    page.wait_for_selector(f"{TIP} .rt-sources", state="detached")
    assert 3 == page.locator(f"{TIP} > *").count()
    page.mouse.move(2, 2)
    page.wait_for_selector(TIP, state="detached")
    assert [] == lab.console_errors


def bars(page) -> dict:
    """The bars of the chart of layers: ids and heights from left to right, and the names below."""
    return page.evaluate(
        f"""() => {{
          const plot = document.querySelector('{BARS.replace("'", '"')}');
          const [{{ids, x, y}}] = plot.data;
          const order = [...x.keys()].sort((a, b) => x[a] - x[b]);
          return {{ids: order.map(i => ids[i]), y: order.map(i => y[i]), names: plot.layout.xaxis.ticktext}};
        }}"""
    )


def test_the_bars_of_the_layers_stand_by_step_or_by_time_as_one_chooses(opened) -> None:
    """Below each bar its name; the choice is the view's, so that Python has it too."""
    shown = opened(TINY)
    page, lab = shown.page, shown.lab
    page.wait_for_selector(f"{BARS} .points .point >> nth=0")
    steps = lab.python("[y.id for y in study[explorer.state.variant].engine.layers]")
    as_executed = bars(page)
    assert [i for i in steps if i in set(as_executed["ids"])] == as_executed["ids"]
    assert as_executed["y"] != sorted(as_executed["y"], reverse=True)
    order = f'{EXPLORER} [data-order="time"]'
    assert "false" == page.get_attribute(order, "aria-selected")
    page.click(order)
    page.wait_for_selector(f'{order}[aria-selected="true"]')
    page.wait_for_function(
        f"ids => document.querySelector('{BARS}').data[0].ids.join() !== ids",
        arg=",".join(as_executed["ids"]),
    )
    by_time = bars(page)
    assert sorted(as_executed["y"], reverse=True) == by_time["y"]
    assert set(as_executed["ids"]) == set(by_time["ids"])
    called = lab.python(
        "__import__('rtlab.questions.cards.card').questions.cards.card"
        ".names(study.facts[explorer.state.variant], study.model)"
    )
    for chart in (as_executed, by_time):
        wanted = {called[i].replace(" · ", "·") for i in chart["ids"]}
        assert chart["names"]
        assert all(any(w.startswith(n.rstrip("…")) for w in wanted) for n in chart["names"]), chart["names"]
    lab.wait_python("explorer.state.settings.get('layers.order') == 'time'")
    # By the keyboard too, and back.
    page.focus(order)
    page.keyboard.press("ArrowLeft")
    page.wait_for_selector(f'{EXPLORER} [data-order="step"][aria-selected="true"]')
    page.wait_for_function(
        f"ids => document.querySelector('{BARS}').data[0].ids.join() === ids",
        arg=",".join(as_executed["ids"]),
    )
    assert [] == lab.console_errors
