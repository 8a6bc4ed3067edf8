"""The documentation as a site: it builds without a warning and without a network, and nothing in it is missing."""

from __future__ import annotations

import html.parser
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from playwright.sync_api import Browser, sync_playwright

import rtlab
from rtlab.backends.classic import rules
from rtlab.cli import create_parser

ROOT = Path(__file__).parents[2]
#: Attributes by which a browser loads something, by element.
LOADS = {"script": "src", "img": "src", "iframe": "src", "link": "href", "source": "src", "object": "data"}

pytestmark = pytest.mark.slow


class Page(html.parser.HTMLParser):
    """What a page loads, where it leads, and what can be led to."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.loads: list[str] = []
        self.links: list[str] = []
        self.anchors: set[str] = set()
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        named = {name: value or "" for name, value in attributes}
        self.anchors |= {named[name] for name in ("id", "name") if name in named}
        if tag == "a" and "href" in named:
            self.links.append(named["href"])
        elif tag in LOADS and LOADS[tag] in named:
            self.loads.append(named[LOADS[tag]])


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the site. Warnings are errors, and nobody listens where a download would be asked for."""
    folder = tmp_path_factory.mktemp("site")
    nowhere = dict.fromkeys(("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"), "http://127.0.0.1:9")
    command = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "-c", "docs", ".", str(folder)]
    build = subprocess.run(
        command, cwd=ROOT, env=os.environ | nowhere, capture_output=True, text=True, check=False
    )
    assert (build.returncode, build.stderr) == (0, "")
    return folder


@pytest.fixture(scope="session")
def pages(site: Path) -> dict[Path, Page]:
    """All pages but reports, which tests/browser opens."""
    return {path: Page(path) for path in site.rglob("*.html") if path.parent != site / "reports"}


def test_pages_load_nothing_from_elsewhere(site: Path, pages: dict[Path, Page]) -> None:
    loads = {load for page in pages.values() for load in page.loads}
    assert len(loads) > 5
    assert [] == [load for load in loads if urlsplit(load).scheme or load.startswith("//")]
    for sheet in site.rglob("*.css"):
        asked = re.findall(r"url\(([^)]*)\)|@import\s+([^;]*)", sheet.read_text(encoding="utf-8"))
        assert [] == [part for parts in asked for part in parts if re.search(r"^[\"']?(https?:)?//", part)]


def test_links_lead_somewhere(pages: dict[Path, Page]) -> None:
    broken = []
    for path, page in pages.items():
        for link in {*page.links, *page.loads}:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            target_page = pages.get(target)
            if not target.is_file() or (
                parts.fragment
                and target_page is not None
                and unquote(parts.fragment) not in target_page.anchors
            ):
                broken.append((path.name, link))
    assert [] == broken


def test_the_reference_is_whole(site: Path, pages: dict[Path, Page]) -> None:
    anchors = set().union(*(p.anchors for p in pages.values()))
    assert [] == [n for n in rtlab.__all__ if not {f"rtlab.{n}", f"module-rtlab.{n}"} & anchors]
    assert {
        "rtlab.Study.run",
        "rtlab.study.accuracy.StudyAccuracy.repair",
        "rtlab.errors.BuildError",
    } <= anchors
    study = (site / "docs/api/study.html").read_text(encoding="utf-8")
    assert "&gt;&gt;&gt; " in study, "examples of docstrings are shown"

    options = (site / "docs/options.html").read_text(encoding="utf-8")
    (commands,) = (a.choices for a in create_parser({})._actions if a.dest == "command")
    assert [] == [name for name in commands if f">rtlab {name}<" not in options]
    flags = {flag for one in commands.values() for a in one._actions for flag in a.option_strings} - {
        "-h",
        "--help",
    }
    assert [] == [flag for flag in flags if flag not in options]

    fusion = (site / "docs/fusion_rules.html").read_text(encoding="utf-8")
    assert [] == [rule.name for rule in rules._RULES if rule.name not in fusion]
    assert "variants.NAME.engine.layers[].nodes" in (site / "docs/json.html").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    found = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if found is None:
        pytest.skip("Chromium is not installed here: apt-get install chromium")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found, args=["--no-sandbox", "--disable-gpu"])
        yield browser
        browser.close()


def test_a_report_in_a_notebook_is_live(site: Path, chromium: Browser) -> None:
    page = chromium.new_page(viewport={"width": 1280, "height": 720})
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.goto((site / "index.html").as_uri())
    page.get_by_role("link", name="the first notebook").click()
    page.locator("iframe.report").scroll_into_view_if_needed()
    report = page.frame_locator("iframe.report")

    report.get_by_role("tab", name="Memory").click()

    report.get_by_role("tab", name="Memory", selected=True).wait_for()
    assert report.get_by_text("Saved report").is_visible()
    assert [] == [url for url in asked if not url.startswith(("file:", "blob:", "data:"))]
