"""How long a person waits for the picture, from the cell's output to both graphs drawn."""

from __future__ import annotations

import pytest

PREPARE = """
import rtlab
model = rtlab.samples.{architecture}(nodes=1000)
study = rtlab.Study(model, data=rtlab.CalibrationData.random(model, samples=1))
study.add("fp32")
study.run(compare=False)
explorer = study.explore()
"""

#: Resolves to the milliseconds between the cell's output in the page and the finished picture in it.
WATCH = """
() => { window.firstView = new Promise(resolve => {
  let shown;
  const look = () => {
    const cell = window.jupyterapp.shell.currentWidget.content.widgets[1].node;
    shown ??= cell.querySelector('.jp-OutputArea-output') ? performance.now() : undefined;
    if (shown === undefined || !cell.querySelector('.rt-explorer[data-ready="1"]')) return;
    observer.disconnect();
    resolve(performance.now() - shown);
  };
  const observer = new MutationObserver(look);
  observer.observe(document.body, {subtree: true, childList: true, attributes: true, attributeFilter: ['data-ready']});
}) }
"""


@pytest.mark.parametrize("architecture", ["inception_chain", "transformer_stack"])
def test_a_thousand_nodes_are_on_screen_soon_after_the_cells_output(
    benchmark, lab_page, architecture: str
) -> None:
    """Two seconds asked, the bundle, plotly and the layout of both graphs included."""
    lab_page.open([PREPARE.format(architecture=architecture), "explorer"])
    lab_page.page.evaluate(WATCH)

    def view() -> float:
        lab_page.run_all()
        return float(lab_page.page.evaluate("() => window.firstView"))

    took = benchmark.pedantic(view, rounds=1) / 1e3
    boxes = lab_page.python(
        "len(__import__('rtlab.view.payload').view.payload.decode(explorer.source)['boxes'])"
    )
    benchmark.extra_info |= {"first_view_s": took, "boxes": boxes}
    assert boxes > 900
    assert took <= 2
