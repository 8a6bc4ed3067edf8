"""A saved report in system Chromium, opened from disk as a person would who received it by mail."""

from __future__ import annotations

import io
import json
import os
import re
from pathlib import Path
from urllib.parse import urlsplit
from xml.etree import ElementTree

import pytest

from rtlab import CalibrationData, Study, load
from rtlab.testing import tiny_model

REPORT = ".rt-explorer"
READY = f'{REPORT}[data-ready="1"]'


class Opened:
    """The report on a page. ``fetched`` holds every address but the file itself and what is inside it."""

    def __init__(self, page, path: Path) -> None:
        self.page = page
        self.fetched: list[str] = []
        self.errors: list[str] = []
        page.on("request", self._request)
        page.on("console", lambda m: self.errors.append(m.text) if m.type in {"error", "warning"} else None)
        page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.address = path.as_uri()
        page.goto(self.address)
        page.wait_for_selector(READY)

    def _request(self, request) -> None:
        if request.url != self.address and urlsplit(request.url).scheme not in {"data", "blob"}:
            self.fetched.append(request.url)

    def listed(self, name: str) -> list[str]:
        return json.loads(self.page.get_attribute(REPORT, f"data-{name}"))

    def click(self, side: str, box: str) -> None:
        """Click the middle of a box where it is drawn, once the layout is there."""
        find = "([side, id]) => document.querySelector('.rt-explorer').rtlabBoxAt(side, id)"
        at = self.page.wait_for_function(find, arg=[side, box]).json_value()
        self.page.mouse.click(at["x"], at["y"])

    def show(self, variant: str) -> None:
        self.page.click(f'{REPORT} [data-chip="{variant}"] button')
        self.page.wait_for_selector(f'{READY}[data-variant="{variant}"]')

    def picture(self, name: str) -> None:
        """Keep a screenshot where RTLAB_SHOTS asks for it."""
        if folder := os.environ.get("RTLAB_SHOTS"):
            self.page.screenshot(path=Path(folder) / f"{name}.png")


@pytest.fixture(scope="module")
def study() -> Study:
    model = load(tiny_model().bytes(), name="tiny")
    made = Study(model, data=CalibrationData.random(model, samples=16))
    made.add("fp32")
    made.add("int8", calibrator="minmax")
    return made.run()


@pytest.fixture(scope="module")
def path(study, tmp_path_factory) -> Path:
    return study.to_html(tmp_path_factory.mktemp("a folder with spaces") / "report é #1.html")


@pytest.fixture(params=["light"])
def report(request, chromium, path):
    context = chromium.new_context(
        viewport={"width": 1400, "height": 900}, color_scheme=request.param, offline=True
    )
    yield Opened(context.new_page(), path), request.param
    context.close()


@pytest.mark.parametrize("report", ["light", "dark"], indirect=True)
def test_a_report_is_explored_without_kernel_and_network(report, study) -> None:
    """Click a node, change the variant, click a row: all of it is in the file."""
    opened, scheme = report
    page = opened.page
    # It opens with what is different, from the baseline on.
    assert "int8" == page.get_attribute(REPORT, "data-variant")
    assert "From fp32 to int8" in page.inner_text(f'{REPORT} [data-panel="difference"]')
    opened.show("fp32")
    assert (scheme == "dark") == ("rt-dark" in page.get_attribute(REPORT, "class"))
    assert [900, 1400] == page.evaluate(
        "() => [document.documentElement.scrollHeight, document.documentElement.scrollWidth]"
    )
    opened.picture(f"report-{scheme}")

    opened.click("node", "stem/Relu")
    page.wait_for_selector(f"""{REPORT}[data-selection='["stem/Relu"]']""")
    assert list(study["fp32"].mapping.layers("stem/Relu")) == opened.listed("layers")
    assert "stem/Relu" in page.inner_text(f"{REPORT} .rt-panel")

    # The node stays selected, and its layers are now those of the other engine.
    opened.show("int8")
    page.wait_for_function(
        "wanted => document.querySelector('.rt-explorer').dataset.layers === wanted",
        arg=json.dumps(
            list(study["int8"].mapping.layers("stem/Relu")), ensure_ascii=False, separators=(",", ":")
        ),
    )
    assert ["stem/Relu"] == opened.listed("selection")
    assert study["int8"].engine.title in page.inner_text(f"{REPORT} .rt-status")
    opened.picture(f"report-{scheme}-int8")

    page.click(f'{REPORT} [data-tab="table"]')
    layer = study["int8"].engine.layers[-1].id
    page.locator(f"{REPORT} tr[data-layer]").last.click()
    page.wait_for_function(
        "id => JSON.parse(document.querySelector('.rt-explorer').dataset.layers)[0] === id", arg=layer
    )
    assert set(study["int8"].mapping.nodes(layer)) == set(opened.listed("selection"))

    assert [] == opened.fetched
    assert [] == opened.errors


@pytest.mark.slow
def test_a_report_has_the_errors_of_each_value_and_what_the_other_tabs_tell(report, study) -> None:
    """As a chart, and as a table."""
    opened, scheme = report
    page = opened.page
    opened.show("int8")
    page.click(f'{REPORT} [data-tab="accuracy"]')
    page.click(f'{REPORT} [data-segment="accuracy"]')
    where = f'{REPORT} [data-panel="accuracy"]'
    page.wait_for_selector(f"{where} tbody td >> nth=0")
    assert study["int8"].accuracy.worst(1)[0].value in page.inner_text(f"{where} tbody")
    opened.picture(f"report-{scheme}-accuracy")
    page.click(f'{REPORT} [data-tab="engine"]')
    kind = study["int8"].kinds()[0]
    page.wait_for_selector(f'{REPORT} .rt-engine :text("{kind.name}") >> nth=0')
    page.click(f'{REPORT} [data-tab="findings"]')
    page.wait_for_selector(f'{REPORT} :text("This model has no Q/DQ pairs of its own")')
    assert [] == opened.errors


@pytest.mark.slow
def test_what_needs_a_kernel_is_not_offered(report) -> None:
    """A button that does nothing is a lie; a sentence says where the rest is."""
    opened, _ = report
    page = opened.page
    for gone in ("build", "cancel", "model", "precision", "calibrator", "target"):
        assert 0 == page.locator(f'{REPORT} [data-control="{gone}"]').count(), gone
    assert 0 == page.locator(f"{REPORT} [data-work]").count()
    assert 0 == page.get_by_label("Netron").count()
    offered = "items => items.map(item => item.dataset.item)"
    page.click(f"{REPORT} [data-chip] >> nth=0 >> .rt-more")
    assert ["compare"] == page.eval_on_selector_all(f"{REPORT} [data-item]", offered)
    page.keyboard.press("Escape")
    page.click(f'{REPORT} [data-control="more-node"] button')
    assert {"extract", "netron"}.isdisjoint(page.eval_on_selector_all(f"{REPORT} [data-item]", offered))
    page.keyboard.press("Escape")
    assert "Saved report" in page.inner_text(f"{REPORT} .rt-top")


@pytest.mark.slow
def test_figures_are_drawn_from_the_file(report, study) -> None:
    """Bars as high as the numbers, clicked as in a notebook; a waterfall that ends where the other engine is."""
    opened, scheme = report
    page = opened.page
    page.wait_for_selector(f'{REPORT} [data-panel="difference"] .js-plotly-plot .bars path')
    drawn = page.evaluate(
        "() => document.querySelector('[data-panel=difference] .js-plotly-plot')._fullData[0]"
        " && (({y, base}) => [[...y], [...base]])("
        "document.querySelector('[data-panel=difference] .js-plotly-plot').data[0])"
    )
    lengths, bases = drawn
    ends = [b + y for b, y in zip(bases, lengths, strict=True)]
    assert ends[-2] == pytest.approx(ends[-1], rel=1e-6, abs=1e-6)
    assert bases[0] == bases[-1] == 0
    opened.picture(f"report-{scheme}-figures")
    page.click(f'{REPORT} [data-tab="timing"]')
    opened.show("fp32")
    bars = f'{REPORT} [data-chart="timing"] .bars .point path'
    page.wait_for_selector(bars)
    assert page.locator(bars).count() == len(study["fp32"].engine.layers)
    page.locator(bars).first.click(force=True)
    page.wait_for_function(
        "() => JSON.parse(document.querySelector('.rt-explorer').dataset.layers).length > 0"
    )
    assert [] == opened.fetched
    assert [] == opened.errors


SVG = "{http://www.w3.org/2000/svg}"


def saved_picture(page, kind: str, folder: Path) -> bytes:
    page.click(f'{REPORT} [data-control="picture"] button')
    with page.expect_download() as waiting:
        page.click(f'{REPORT} [data-item="{kind}"]')
    path = folder / waiting.value.suggested_filename
    waiting.value.save_as(path)
    return path.read_bytes()


@pytest.mark.slow
def test_what_a_tab_shows_is_saved_as_a_picture(report, study, tmp_path) -> None:
    """Bars as high as the numbers, names as text, whose they are and where they are from."""
    opened, _ = report
    page = opened.page
    opened.show("fp32")
    page.click(f'{REPORT} [data-tab="timing"]')
    page.wait_for_selector(f'{REPORT} [data-chart="timing"] .bars .point path')
    root = ElementTree.fromstring(saved_picture(page, "svg", tmp_path))
    said = [t.text or "" for t in root.iter(f"{SVG}text")]
    assert "tiny · fp32 · Timing · Layers" == said[0]
    assert any(study["fp32"].engine.title in text for text in said)
    values = page.evaluate("[...document.querySelector('[data-chart=timing] .js-plotly-plot').data[0].y]")
    # As its library draws them: up from the foot of the bar.
    paths = [
        p.get("d")
        for g in root.iter(f"{SVG}g")
        if "point" in (g.get("class") or "")
        for p in g
        if "V" in p.get("d", "")
    ]
    heights = [
        abs(float(m[1]) - float(m[2])) for d in paths if (m := re.match(r"M[\d.]+,([\d.]+)V([\d.]+)", d))
    ]
    heights = heights[: len(values)]
    assert heights == pytest.approx([v * max(heights) / max(values) for v in values], rel=0.02, abs=0.5)
    for tab in page.eval_on_selector_all(f"{REPORT} [data-tab]", "tabs => tabs.map(t => t.dataset.tab)"):
        page.click(f'{REPORT} [data-tab="{tab}"]')
        page.wait_for_function("() => !document.querySelector('.rt-explorer [aria-busy=true]')")
        told = ElementTree.fromstring(saved_picture(page, "svg", tmp_path))
        assert len([t for t in told.iter(f"{SVG}text") if t.text]) > 5, tab
    page.click(f'{REPORT} [data-tab="memory"]')
    page.wait_for_selector(f'{REPORT} [data-panel="memory"] .js-plotly-plot .bars path')
    from PIL import Image

    with Image.open(io.BytesIO(saved_picture(page, "png", tmp_path))) as image:
        assert (2800, "PNG") == (image.width, image.format)
        assert len(image.convert("RGB").getcolors(1 << 24)) > 50
    if folder := os.environ.get("RTLAB_SHOTS"):
        for path in tmp_path.iterdir():
            path.rename(Path(folder) / f"saved-{path.name}")
    assert [] == opened.errors


@pytest.mark.slow
def test_a_picture_has_room_for_what_the_page_has_not(chromium, path, study, tmp_path) -> None:
    """From a laptop's page: figures end above the sources, tables and sentences are whole."""
    context = chromium.new_context(viewport={"width": 1280, "height": 620}, offline=True)
    opened = Opened(context.new_page(), path)
    page = opened.page
    opened.show("int8")
    for tab, panel in (("memory", "memory"), ("compare", "difference")):
        page.click(f'{REPORT} [data-tab="{tab}"]')
        page.wait_for_selector(f'{REPORT} [data-panel="{panel}"] .js-plotly-plot .bars path')
        under = page.query_selector(f"{REPORT} .rt-under").bounding_box()
        root = ElementTree.fromstring(saved_picture(page, "svg", tmp_path))
        assert under == page.query_selector(f"{REPORT} .rt-under").bounding_box()
        # The line above the sources, and where the panel was moved to.
        [rule] = [float(p.get("d", "")[4:].split("H")[0]) for p in root.findall(f"{SVG}path")]
        body = root.find(f"{SVG}g")
        down = float(re.search(r"translate\(\S+ (\S+)\)", body.get("transform"))[1])
        drawings = body.findall(f"{SVG}svg")
        assert [] != drawings
        for drawing in drawings:
            assert float(drawing.get("height")) > 300
            assert down + float(drawing.get("y")) + float(drawing.get("height")) <= rule
        said = [t.text or "" for t in root.iter(f"{SVG}text")]
        text = " ".join(said)
        for name in study.ask(panel, variant="int8").frame().iloc[:, 0]:
            assert str(name) in text
        assert not [t for t in body.findall(f"{SVG}text") if (t.text or "").endswith("…")]
    page.click(f'{REPORT} [data-tab="engine"]')
    page.wait_for_selector(f"{REPORT} .rt-ramp")
    root = ElementTree.fromstring(saved_picture(page, "svg", tmp_path))
    assert 9 == len(root.findall(f".//{SVG}linearGradient/{SVG}stop"))
    page.click(f'{REPORT} [data-tab="calibration"]')
    page.wait_for_selector(f"{REPORT} .rt-histogram")
    root = ElementTree.fromstring(saved_picture(page, "svg", tmp_path))
    [drawing] = [s for s in root.iter(f"{SVG}svg") if s.get("overflow") == "visible"]
    labels = page.eval_on_selector_all(f"{REPORT} .rt-histogram text", "all => all.map(t => t.textContent)")
    assert labels == ["".join(t.itertext()) for t in drawing.iter(f"{SVG}text")]
    assert [] == opened.errors
    context.close()


@pytest.mark.slow
def test_a_picture_says_which_rows_of_a_long_table_it_has(chromium, tmp_path) -> None:
    """Thirty of them; from where the table was scrolled to on the page they would be others, and it says so."""
    count = 40
    layers = [
        {"Name": f"layer{k}", "LayerType": "Convolution", "Inputs": [], "Outputs": []} for k in range(count)
    ]
    (tmp_path / "layers.json").write_text(json.dumps({"Layers": layers, "Bindings": []}))
    study = Study(load(tiny_model().bytes(), name="tiny"))
    study.read("x", layers=tmp_path / "layers.json")
    context = chromium.new_context(viewport={"width": 1280, "height": 720}, offline=True)
    page = Opened(context.new_page(), study.to_html(tmp_path / "report.html")).page
    page.click(f'{REPORT} [data-tab="table"]')
    page.wait_for_selector(f"{REPORT} [data-layer]")
    said = [
        t.text or "" for t in ElementTree.fromstring(saved_picture(page, "svg", tmp_path)).iter(f"{SVG}text")
    ]
    assert [f"layer{k}" for k in range(30)] == [t for t in said if re.fullmatch(r"layer\d+", t)]
    assert f"first 30 of {count} rows" in said
    page.eval_on_selector(f"{REPORT} .rt-table", "table => table.scrollTo(0, 200)")
    page.wait_for_timeout(200)
    said = [
        t.text or "" for t in ElementTree.fromstring(saved_picture(page, "svg", tmp_path)).iter(f"{SVG}text")
    ]
    assert f"rows 9 to 38 of {count}" in said
    assert 200 == page.eval_on_selector(f"{REPORT} .rt-table", "table => table.scrollTop")
    context.close()


STEPS = [
    {"words": "The whole model", "view": {"variant": "fp32"}},
    {"words": "One node <b>", "view": {"variant": "int8", "selection": ["stem/Relu"], "tab": "memory",
                                       "settings": {"memory.batch": "8"}}},
    {"words": "Four bits", "view": {"variant": "int4", "tab": "timing"}},
]  # fmt: skip


@pytest.mark.slow
def test_a_presentation_is_played_from_the_file(chromium, study, tmp_path) -> None:
    """Full screen, the arrow keys, the sentence of each step; no kernel and no network."""
    written = study.to_html(tmp_path / "report.html", steps=STEPS)
    context = chromium.new_context(viewport={"width": 1280, "height": 720}, offline=True)
    opened = Opened(context.new_page(), written)
    page, words = opened.page, f'{REPORT} [data-control="words"]'
    assert "3 steps" == page.inner_text(f'{REPORT} [data-control="contents"]')
    # The list is one of contents: nothing in it is recorded or changed.
    page.click(f'{REPORT} [data-control="contents"]')
    assert [f"{k}\n{s['words']}" for k, s in enumerate(STEPS, 1)] == page.locator(
        f"{REPORT} .rt-agenda li"
    ).all_inner_texts()
    assert 0 == page.locator(f"{REPORT} .rt-agenda input").count()
    page.click(f'{REPORT} [data-step="1"] button')
    page.wait_for_selector(f"""{READY}[data-variant="int8"][data-selection='["stem/Relu"]']""")
    opened.picture("report-contents")
    page.click(f'{REPORT} [data-control="close-steps"]')

    page.click(f'{REPORT} [data-control="play"]')
    page.wait_for_selector(f"{REPORT}.rt-present:fullscreen")
    assert "One node <b>" == page.inner_text(words)
    # What the presenter had chosen in the panel, which a report cannot choose.
    batch = f'{REPORT} [data-panel="memory"] li:text("At batch 8")'
    page.wait_for_selector(batch, state="attached")
    opened.picture("report-presenting")
    page.keyboard.press("ArrowLeft")
    page.wait_for_selector(f'{READY}[data-variant="fp32"]')
    assert "The whole model" == page.inner_text(words)
    page.keyboard.press("End")
    page.wait_for_function(
        "selector => document.querySelector(selector).innerText.includes('Four')", arg=words
    )
    assert "Four bits (int4 is not in this report)" == page.inner_text(words)
    page.keyboard.press("Escape")
    page.wait_for_selector(f"{REPORT}:not(.rt-present):not(:fullscreen)")
    assert [] == opened.fetched
    assert [] == opened.errors
    context.close()


@pytest.mark.slow
def test_without_a_presentation_there_is_no_control_for_one(report) -> None:
    """A button that shows nothing would be looked for in vain."""
    page = report[0].page
    for gone in ("contents", "play"):
        assert 0 == page.locator(f'{REPORT} [data-control="{gone}"]').count()


@pytest.mark.slow
def test_it_fills_the_window(report) -> None:
    """A report is a page of its own."""
    opened, _ = report
    opened.page.set_viewport_size({"width": 800, "height": 600})
    opened.page.wait_for_function("() => document.querySelector('.rt-explorer').clientHeight === 600")


@pytest.mark.slow
def test_half_a_report_says_so(chromium, path, tmp_path) -> None:
    """Files are cut by mail and by full disks."""
    text = path.read_text(encoding="utf-8")
    cut = tmp_path / "cut.html"
    at = text.index('id="saved">') + 400
    end = text.index("</script>", at)
    cut.write_text(text[:at] + text[end:], encoding="utf-8")
    page = chromium.new_page()
    page.goto(cut.as_uri())
    assert "the file is damaged" in page.inner_text("#report")
    page.close()


#: The browser's worker, of which the first stops over the first graph, as one that has no memory left does.
STOPPING = """
const Browsers = window.Worker;
let stopped = false;
window.Worker = class extends Browsers {
  postMessage(...message) {
    if (stopped) return super.postMessage(...message);
    stopped = true;
    setTimeout(() => this.dispatchEvent(new ErrorEvent("error", { message: "out of memory" })));
  }
};
"""


@pytest.mark.slow
def test_a_layout_that_stops_is_begun_again_and_it_is_said(chromium, path) -> None:
    """The picture comes all the same, and whoever waited longer for it knows why."""
    context = chromium.new_context(viewport={"width": 1280, "height": 720}, offline=True)
    page = context.new_page()
    page.add_init_script(STOPPING)
    opened = Opened(page, path)
    said = page.wait_for_selector(f"{REPORT} :text('was started again')")
    assert "The layout stopped (out of memory) and was started again" in said.inner_text()
    assert page.locator(f"{REPORT} canvas[data-pane]").count() >= 2
    assert [] == opened.errors
    context.close()
