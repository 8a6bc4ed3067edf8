"""How large a report is, and how long a person waits who opens it from disk."""

from __future__ import annotations

import re
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


#: How many times as long as plotly alone the figures of a report may take, whose graphs are drawn before.
TIMES = 2.5
#: The floor: a page with nothing but the report's own plotly, which draws as many bars at once.
EMPTY = """<!doctype html><meta charset="utf-8"><div id="place"></div>
<script type="text/plain" id="figures">%s</script>
<script type="module">
const bytes = Uint8Array.from(atob(document.getElementById("figures").textContent), (c) => c.charCodeAt(0));
const text = await new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"))).text();
const plotly = await import(URL.createObjectURL(new Blob([text], {type: "text/javascript"})));
const y = Array.from({length: 106}, (_, i) => 1 + i %% 7);
await plotly.default.newPlot("place", [{type: "bar", y}], {width: 900, height: 230}, {displayModeBar: false});
window.drawn = {figures: performance.now()};
</script>"""


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


def test_a_report_is_drawn_from_disk_at_once(benchmark, care, chromium, report, tmp_path: Path) -> None:
    """1.5 seconds asked, the figures of a tab that is opened at once included, without a network."""
    packed = re.search('id="figures">([^<]*)<', report.read_text(encoding="utf-8"))
    assert packed is not None
    empty = tmp_path / "empty.html"
    empty.write_text(EMPTY % packed[1], encoding="utf-8")

    def drawn(page_file: Path) -> dict[str, float]:
        context = chromium.new_context(viewport={"width": 1500, "height": 1000}, offline=True)
        try:
            page = context.new_page()
            page.add_init_script(WATCH)
            page.goto(page_file.as_uri(), wait_until="commit")
            page.wait_for_function("() => window.drawn?.figures")
            return {kind: milliseconds / 1e3 for kind, milliseconds in page.evaluate("() => drawn").items()}
        finally:
            context.close()

    taken: list[dict[str, float]] = []
    floors: list[float] = []

    def opened() -> None:
        floors.append(drawn(empty)["figures"])
        taken.append(drawn(report))

    benchmark.pedantic(opened, rounds=care.size(7, 1))
    graphs, figures = (statistics.median(t[kind] for t in taken) for kind in ("graphs", "figures"))
    floor = statistics.median(floors)
    benchmark.extra_info |= {"bytes": report.stat().st_size, "graphs_s": graphs, "figures_s": figures}
    benchmark.extra_info |= {"plotly_alone_s": floor, "times_plotly": figures / floor}
    assert figures <= care.most(1.5)
    assert figures <= care.most(TIMES) * floor
