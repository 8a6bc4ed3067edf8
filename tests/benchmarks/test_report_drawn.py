"""How large a report is, and how long a person waits who opens it from disk."""

from __future__ import annotations

import statistics
from pathlib import Path

import pytest

import rtlab

#: Milliseconds from the start of the navigation until both graphs are drawn, and until the figures of a tab are
#: that is opened at once.
WATCH = """
window.drawn = {};
const look = () => {
  const root = document.querySelector('.rt-explorer[data-ready="1"]');
  if (!root) return;
  if (!drawn.graphs) {
    drawn.graphs = performance.now();
    // The charts are folded until somebody opens a tab.
    root.querySelector('[data-tab="timing"]').click();
  }
  if (!root.querySelector('.js-plotly-plot .bars path')) return;
  drawn.figures ??= performance.now();
  observer.disconnect();
};
const observer = new MutationObserver(look);
observer.observe(document, {subtree: true, childList: true, attributes: true, attributeFilter: ['data-ready']});
"""


@pytest.fixture(scope="module")
def report(care, tmp_path_factory) -> Path:
    name = care.size("resnet50", "digits_inception")
    sample = rtlab.samples.load(name, **care.size({"samples": 8}, {}))
    study = rtlab.Study(sample.model, data=sample.calibration)
    study.add("fp32")
    study.add("fp16")
    study.add("int8", calibrator="minmax")
    return study.run().report(tmp_path_factory.mktemp("report") / "report.html")


def test_a_report_of_three_variants_is_small(care, report) -> None:
    """Three megabytes asked of ResNet-50."""
    assert report.stat().st_size <= 3e6


def test_a_report_is_drawn_from_disk_at_once(benchmark, care, chromium, report) -> None:
    """1.5 seconds asked, the figures of a tab that is opened at once included, without a network."""
    taken: list[dict[str, float]] = []

    def opened() -> None:
        context = chromium.new_context(viewport={"width": 1500, "height": 1000}, offline=True)
        try:
            page = context.new_page()
            page.add_init_script(WATCH)
            page.goto(report.as_uri(), wait_until="commit")
            page.wait_for_function("() => window.drawn?.figures")
            taken.append(page.evaluate("() => drawn"))
        finally:
            context.close()

    benchmark.pedantic(opened, rounds=care.size(7, 1))
    graphs, figures = (statistics.median(t[kind] for t in taken) / 1e3 for kind in ("graphs", "figures"))
    benchmark.extra_info |= {"bytes": report.stat().st_size, "graphs_s": graphs, "figures_s": figures}
    assert figures <= care.most(1.5)
