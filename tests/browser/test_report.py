"""A saved report in system Chromium, opened from disk as a person would who received it by mail."""

from __future__ import annotations

import io
import json
import re
from pathlib import Path
from urllib.parse import urlsplit
from xml.etree import ElementTree

import pytest
from PIL import Image

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


@pytest.fixture(scope="module")
def study() -> Study:
    model = load(tiny_model().bytes(), name="tiny")
    made = Study(model, data=CalibrationData.random(model, samples=16))
    made.add("fp32")
    made.add("int8", calibrator="minmax")
    return made.run()


@pytest.fixture(scope="module")
def path(study, tmp_path_factory) -> Path:
    return study.report(tmp_path_factory.mktemp("a folder with spaces") / "report é #1.html")


@pytest.fixture
def opened(chromium):
    """Opens a report without a network; in the end nothing was fetched, and the page has no error on its console."""
    found: list[Opened] = []

    def open_(path: Path, width: int = 1280, height: int = 720, scheme: str = "light") -> Opened:
        size = {"width": width, "height": height}
        context = chromium.new_context(viewport=size, color_scheme=scheme, offline=True)
        found.append(Opened(context.new_page(), path))
        return found[-1]

    yield open_
    for one in found:
        one.page.context.close()
        assert [] == one.fetched
        assert [] == one.errors


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_report_is_explored_without_kernel_and_network(opened, scheme, path, study) -> None:
    shown = opened(path, 1400, 900, scheme)
    page = shown.page
    # It opens with what is different, from the baseline on.
    assert "int8" == page.get_attribute(REPORT, "data-variant")
    assert 0 == page.locator(f"{REPORT} .rt-under").count(), "charts are folded until a tab is clicked"
    page.click(f'{REPORT} [data-tab="compare"]')
    page.wait_for_selector(f'{REPORT} [data-panel="difference"][aria-busy="false"] h4:not(:empty)')
    assert "From fp32 to int8" in page.inner_text(f'{REPORT} [data-panel="difference"]')
    page.wait_for_selector(f'{REPORT} [data-panel="difference"] .js-plotly-plot .bars path')
    shown.show("fp32")
    assert (scheme == "dark") == ("rt-dark" in page.get_attribute(REPORT, "class"))
    assert [900, 1400] == page.evaluate(
        "() => [document.documentElement.scrollHeight, document.documentElement.scrollWidth]"
    )

    shown.click("node", "stem/Relu")
    page.wait_for_selector(f"""{REPORT}[data-selection='["stem/Relu"]']""")
    assert list(study["fp32"].mapping.layers("stem/Relu")) == shown.listed("layers")
    assert "stem/Relu" in page.inner_text(f"{REPORT} .rt-panel")

    # The node stays selected, and its layers are now those of the other engine.
    shown.show("int8")
    layers = list(study["int8"].mapping.layers("stem/Relu"))
    page.wait_for_function(
        "wanted => document.querySelector('.rt-explorer').dataset.layers === wanted",
        arg=json.dumps(layers, ensure_ascii=False, separators=(",", ":")),
    )
    assert ["stem/Relu"] == shown.listed("selection")
    assert study["int8"].engine.title in page.inner_text(f"{REPORT} .rt-status")

    page.click(f'{REPORT} [data-tab="table"]')
    layer = study["int8"].engine.layers[-1].id
    page.locator(f"{REPORT} tr[data-layer]").last.click()
    page.wait_for_function(
        "id => JSON.parse(document.querySelector('.rt-explorer').dataset.layers)[0] === id", arg=layer
    )
    assert set(study["int8"].mapping.nodes(layer)) == set(shown.listed("selection"))


SVG = "{http://www.w3.org/2000/svg}"


def saved_picture(page, kind: str, folder: Path) -> bytes:
    page.click(f'{REPORT} [data-control="picture"] button')
    with page.expect_download() as waiting:
        page.click(f'{REPORT} [data-item="{kind}"]')
    path = folder / waiting.value.suggested_filename
    waiting.value.save_as(path)
    return path.read_bytes()


@pytest.mark.slow
def test_the_figures_of_a_tab_are_saved_with_their_sources(opened, path, study, tmp_path) -> None:
    shown = opened(path, 1400, 900)
    page = shown.page
    shown.show("fp32")
    page.click(f'{REPORT} [data-tab="timing"]')
    page.wait_for_selector(f'{REPORT} [data-chart="timing"] .bars .point path')
    root = ElementTree.fromstring(saved_picture(page, "svg", tmp_path))
    text = " ".join("".join(t.itertext()) for t in root.iter(f"{SVG}text"))
    assert "tiny · fp32 · Timing" in text
    assert study["fp32"].engine.title in text
    values = page.evaluate("[...document.querySelector('[data-chart=timing] .js-plotly-plot').data[0].y]")
    assert len(values) == len(study["fp32"].engine.layers)
    # As its library draws them: up from the foot of the bar.
    points = [p.get("d", "") for g in root.iter(f"{SVG}g") if "point" in (g.get("class") or "") for p in g]
    ends = [m.groups() for d in points if (m := re.match(r"M[\d.]+,([\d.]+)V([\d.]+)", d))]
    heights = [abs(float(a) - float(b)) for a, b in ends][: len(values)]
    assert heights == pytest.approx([v * max(heights) / max(values) for v in values], rel=0.02, abs=0.5)
    page.click(f'{REPORT} [data-tab="memory"]')
    page.wait_for_selector(f'{REPORT} [data-panel="memory"] .js-plotly-plot .bars path')
    with Image.open(io.BytesIO(saved_picture(page, "png", tmp_path))) as image:
        assert (image.width >= 2400, "PNG") == (True, image.format)
        assert len(image.convert("RGB").getcolors(1 << 24)) > 50
    page.click(f'{REPORT} [data-tab="table"]')
    page.wait_for_selector(f"{REPORT} [data-layer]")
    page.click(f'{REPORT} [data-control="picture"] button')
    assert "true" == page.get_attribute(f'{REPORT} [data-item="svg"]', "aria-disabled")


STEPS = [
    {"words": "The whole model", "view": {"variant": "fp32"}},
    {"words": "One node <b>", "view": {"variant": "int8", "selection": ["stem/Relu"], "tab": "memory",
                                       "settings": {"memory.batch": "8"}}},
    {"words": "Four bits", "view": {"variant": "int4", "tab": "timing"}},
]  # fmt: skip


@pytest.mark.slow
def test_a_presentation_is_played_from_the_file(opened, study, tmp_path) -> None:
    page = opened(study.report(tmp_path / "report.html", steps=STEPS)).page
    words = f'{REPORT} [data-control="words"]'
    page.click(f'{REPORT} [data-control="show"] button')
    page.click(f'{REPORT} [data-item="steps"]')
    page.click(f'{REPORT} [data-step="1"] button')
    page.wait_for_selector(f"""{READY}[data-variant="int8"][data-selection='["stem/Relu"]']""")
    page.click(f'{REPORT} [data-control="close-steps"]')

    page.click(f'{REPORT} [data-control="show"] button')
    page.click(f'{REPORT} [data-item="present"]')
    page.wait_for_selector(f"{REPORT}.rt-present:fullscreen")
    assert "One node <b>" == page.inner_text(words)
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


@pytest.mark.slow
def test_half_a_report_says_so(chromium, path, tmp_path) -> None:
    text = path.read_text(encoding="utf-8")
    at = text.index('id="saved">') + 400
    (tmp_path / "cut.html").write_text(text[:at] + text[text.index("</script>", at) :], encoding="utf-8")
    page = chromium.new_page()
    page.goto((tmp_path / "cut.html").as_uri())
    assert "the file is damaged" in page.inner_text("#report")
    page.close()
