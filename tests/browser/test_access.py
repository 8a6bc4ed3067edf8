"""What axe-core, which knows the rules of WCAG, finds on the page."""

from __future__ import annotations

from pathlib import Path

import pytest

from explorer import DIGITS, EXPLORER

pytestmark = pytest.mark.slow

AXE = Path(__file__).parents[2] / "widgets" / "node_modules" / "axe-core" / "axe.min.js"
CELL = DIGITS.removesuffix("explorer") + (
    'explorer.steps = [{"words": "The whole model"}, {"words": "Memory", "view": {"tab": "memory"}}]\nexplorer'
)
FOUND = """async () => {
  const {violations} = await axe.run('.rt-explorer', {resultTypes: ['violations']});
  return violations
    .filter(({impact}) => impact === 'serious' || impact === 'critical')
    .map(({id, nodes}) => [id, nodes.map(({html, any}) => html.slice(0, 160) + ' ' + (any[0]?.message ?? ''))]);
}"""


def found(page) -> list[list[object]]:
    """The rules that are broken gravely, and by what; JupyterLab's own page is not asked about."""
    page.mouse.move(0, 0)
    return page.evaluate(FOUND)


@pytest.mark.parametrize("theme", ["JupyterLab Light", "JupyterLab Dark", "JupyterLab Dark High Contrast"])
def test_axe_finds_nothing_serious_in_any_tab_or_mode(opened, theme: str) -> None:
    assert AXE.exists(), "axe-core is not there: run tests/run setup, which installs the npm packages"
    shown = opened(CELL)
    page, lab = shown.page, shown.lab
    page.evaluate(
        "theme => window.jupyterapp.commands.execute('apputils:change-theme', {theme})",
        theme,
    )
    page.wait_for_selector(f'body[data-jp-theme-name="{theme}"]', state="attached")
    page.wait_for_selector("#jupyterlab-splash", state="detached")
    page.evaluate(AXE.read_text(encoding="utf-8"))
    broken = {}
    for tab in page.eval_on_selector_all(f"{EXPLORER} [data-tab]", "all => all.map(tab => tab.dataset.tab)"):
        page.click(f'{EXPLORER} [data-tab="{tab}"]')
        lab.wait_python(f"explorer.state.tab == {tab!r}")
        page.wait_for_function("() => !document.querySelector('.rt-explorer [aria-busy=true]')")
        broken[tab] = found(page)
    page.click(f'{EXPLORER} [data-tab="timing"]')
    page.focus(f'{EXPLORER} canvas[data-pane="node"]')
    page.keyboard.press("Shift+T")
    for stop in ("graphs", "fold", "choice", "charts", "why"):
        page.wait_for_selector(f'{EXPLORER} [data-stop="{stop}"]')
        broken[f"tour {stop}"] = found(page)
        page.keyboard.press("ArrowRight")
    page.keyboard.press("Escape")
    page.keyboard.press("?")
    broken["keys"] = found(page)
    page.click(f'{EXPLORER} [data-help="terms"]')
    broken["terms"] = found(page)
    page.keyboard.press("Escape")
    page.click(f'{EXPLORER} [data-control="show"] button')
    broken["menu"] = found(page)
    page.click(f'{EXPLORER} [data-item="steps"]')
    broken["steps"] = found(page)
    page.click(f'{EXPLORER} [data-control="show"] button')
    page.click(f'{EXPLORER} [data-item="present"]')
    page.wait_for_selector(f"{EXPLORER}.rt-present")
    broken["present"] = found(page)
    # It would find a button that nobody could name.
    page.evaluate(
        """() => {
          const button = document.querySelector('.rt-explorer .rt-showbar [data-control="present"]');
          for (const name of ['aria-label', 'title']) button.removeAttribute(name);
        }"""
    )
    assert ["button-name"] == [rule for rule, _ in found(page)]
    assert {} == {where: rules for where, rules in broken.items() if rules}
