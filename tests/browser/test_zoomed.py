"""The Explorer at 200 % zoom of the browser: a window of half as many pixels, each twice as large."""

from __future__ import annotations

import pytest

from explorer import DIGITS, EXPLORER

pytestmark = pytest.mark.slow

#: What stands outside the Explorer's edges, or is cut off by an element that does not scroll.
CUT = """() => {
  const root = document.querySelector('.rt-explorer');
  const room = root.getBoundingClientRect();
  const found = [];
  for (const one of root.querySelectorAll('button, select, input, [role=separator], canvas')) {
    if (!one.checkVisibility({visibilityProperty: true}) || one.matches('[data-seen] *, .rt-map')) continue;
    const box = one.getBoundingClientRect();
    let [left, right, top, bottom] = [room.left, room.right, room.top, room.bottom];
    let [across, down] = [false, false];
    for (let at = one.parentElement; at !== root; at = at.parentElement) {
      const {overflowX, overflowY} = getComputedStyle(at);
      across ||= overflowX === 'auto' || overflowX === 'scroll';
      down ||= overflowY === 'auto' || overflowY === 'scroll';
      const clip = at.getBoundingClientRect();
      if (overflowX === 'hidden' && !across) [left, right] = [Math.max(left, clip.left), Math.min(right, clip.right)];
    }
    const out = [!across && (box.left < left - 2 || box.right > right + 2),
      !down && (box.top < top - 2 || box.bottom > bottom + 2)];
    if (out.some(Boolean)) found.push(one.outerHTML.slice(0, 120));
  }
  return found;
}"""
WIDE = "() => document.documentElement.scrollWidth - window.innerWidth"
SIZE = "() => [document.querySelector('.rt-explorer').clientWidth, document.querySelector('.rt-explorer').clientHeight]"
#: In the window, not only in the Explorer, which may be higher than it.
INSIDE = """selector => {
  const {top, bottom, left, right} = document.querySelector(selector).getBoundingClientRect();
  return top >= 0 && bottom <= window.innerHeight && left >= 0 && right <= window.innerWidth;
}"""


def height(page, selector: str) -> float:
    return page.locator(f"{EXPLORER} {selector} >> nth=0").bounding_box()["height"]


def test_at_200_percent_all_can_be_reached(opened, lab_page) -> None:
    page, lab = lab_page.page, lab_page
    page.set_viewport_size({"width": 640, "height": 360})
    opened(DIGITS)
    # Whoever reads at such a size has no room for JupyterLab's list of files.
    page.evaluate("() => window.jupyterapp.shell.collapseLeft()")
    lab.wait(f"() => ({SIZE})()[0] > 500 && ({SIZE})()[1] >= 850")
    for width, tall in ((640, 360), (750, 500)):
        page.set_viewport_size({"width": width, "height": tall})
        lab.wait(f"width => ({SIZE})()[0] > width - 130", width)
        cut = {f"{width} {where}": what for where, what in cuts(page, lab).items() if what}
        assert {} == cut
        page.focus(f'{EXPLORER} canvas[data-pane="layer"]')
        page.keyboard.press("Shift+T")
        for stop in ("graphs", "fold", "choice", "charts", "why"):
            page.wait_for_selector(f'{EXPLORER} [data-stop="{stop}"]')
            lab.wait(INSIDE, ".rt-explorer .rt-stop")
            page.keyboard.press("ArrowRight")
        page.keyboard.press("Escape")
        page.keyboard.press("?")
        page.wait_for_selector(f'{EXPLORER} [data-control="help-card"]')
        lab.wait(INSIDE, ".rt-explorer .rt-help")
        page.keyboard.press("Escape")
    page.evaluate("() => window.jupyterapp.shell.expandLeft()")
    assert [] == lab.console_errors


def cuts(page, lab) -> dict[str, list[str]]:
    """What is cut off in each tab, and in each menu while it is open; what has a height has enough of it."""
    assert page.evaluate(WIDE) <= 0
    if page.locator(f"{EXPLORER} .rt-under").count() == 0:
        page.click(f'{EXPLORER} [data-tab="timing"]')
    for side in ("node", "layer"):
        assert height(page, f'canvas[data-pane="{side}"]') >= 100
    assert height(page, ".rt-under") >= 120
    cut = {}
    tabs = page.eval_on_selector_all(f"{EXPLORER} [data-tab]", "all => all.map(tab => tab.dataset.tab)")
    for tab in (*tabs[1:], tabs[0]):
        # By the menu that has all of them, where the row has no room.
        page.click(f'{EXPLORER} [data-control="tabs"] button')
        assert page.locator(f'{EXPLORER} [role="menu"]').bounding_box()["height"] >= 80
        page.click(f'{EXPLORER} [data-item="{tab}"]')
        lab.wait_python(f"explorer.state.tab == {tab!r}")
        page.wait_for_function("() => !document.querySelector('.rt-explorer [aria-busy=true]')")
        cut[tab] = page.evaluate(CUT)
    for control in ("more-node", "more-layer", "settings", "show", "model", "target", "colour-layer"):
        page.click(f'{EXPLORER} [data-control="{control}"] button')
        cut[control] = page.evaluate(CUT)
        page.keyboard.press("Escape")
    return cut
