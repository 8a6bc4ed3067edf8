"""The pages of the documentation: links, and that the reference names what is public. tests/site builds them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import rtlab
from rtlab.backends.classic import rules

ROOT = Path(__file__).parents[2]
PAGES = sorted({*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "sample_models").rglob("*.md")})


def links(page: Path) -> list[str]:
    """Relative links of a Markdown file, without anchors; code is left out."""
    text = re.sub(r"```.*?```|`[^`\n]*`", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    found = re.findall(r"\]\(([^)\s#]+)", text)
    return [link for link in found if not re.match(r"[a-z]+:", link)]


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.relative_to(ROOT).as_posix())
def test_links_lead_to_files(page: Path) -> None:
    """GitHub shows the files as they are, and the site follows the same links."""
    assert [] == [link for link in links(page) if not (page.parent / link).exists()]


def test_every_page_is_in_the_contents() -> None:
    contents = (ROOT / "docs/index.md").read_text(encoding="utf-8")
    listed = {
        (ROOT / "docs" / f"{p}.md").resolve() for p in re.findall(r"^.*<(.*)>$", contents, re.MULTILINE)
    }
    assert {*PAGES} - {*listed} == {ROOT / "docs/index.md"}
    notebooks = (ROOT / "docs/notebooks.md").read_text(encoding="utf-8")
    assert sorted(re.findall(r"^\.\./notebooks/(.*)$", notebooks, re.MULTILINE)) == sorted(
        p.stem for p in (ROOT / "notebooks").glob("*.ipynb")
    )


def test_the_reference_has_all_public_names() -> None:
    pages = [ROOT / "docs/errors.md", *(ROOT / "docs/api").glob("*.md")]
    text = "".join(p.read_text(encoding="utf-8") for p in pages)
    assert sorted(re.findall(r"^\.\. auto\w+:: rtlab\.(\w+)$", text, re.MULTILINE)) == list(rtlab.__all__)


def test_sources_of_rules_are_short_on_the_page() -> None:
    """docs/pages.py replaces these by a word; another one would make the table wider than the page."""
    sources = [rule.source for rule in rules._RULES] + list(rules.OTHERS.values())
    for page in (rules.CATALOG, rules.PAIRS, rules.GUIDE):
        sources = [source.replace(page, "") for source in sources]
    assert [] == [source for source in sources if "docs.nvidia.com" in source]
