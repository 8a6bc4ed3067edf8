"""The Explorer's tour, and what each control says to a screen reader."""

from __future__ import annotations

import pytest

from explorer import DIGITS, EXPLORER

pytestmark = pytest.mark.slow

#: What can be pressed, chosen, moved or written in, and is seen. Names of nodes and layers in lists are no controls,
#: and lines of menus bear their sentences.
CONTROLS = """() => {
  const all = document.querySelectorAll('.rt-explorer :is(button, select, input, [role=separator], summary)');
  const own = ':is([data-seen], [role=menu], [role=listbox], .rt-jumps, .rt-port, .rt-wide, .rt-findings, dt, h4) *';
  window.controls = [...all].filter(one => one.checkVisibility({visibilityProperty: true}) && !one.matches(own)
    && !one.matches('.rt-term'));
  return window.controls.map(one => one.outerHTML.slice(0, 200));
}"""


def silent(page, asked: set[str]) -> list[str]:
    """Those controls of which a screen reader is told nothing beside their names; Chromium computes what it is told.

    ``asked`` holds those that need not be asked again.
    """
    session = page.context.new_cdp_session(page)
    found = []
    for at, html in enumerate(page.evaluate(CONTROLS)):
        if html in asked:
            continue
        asked.add(html)
        element = session.send("Runtime.evaluate", {"expression": f"window.controls[{at}]"})["result"]
        wanted = {"objectId": element["objectId"], "fetchRelatives": False}
        (told,) = session.send("Accessibility.getPartialAXTree", wanted)["nodes"]
        name = told.get("name", {}).get("value", "")
        words = told.get("description", {}).get("value", "").replace(name, "").split()
        if len(words) < 3:
            found.append(f"{name} | {html}")
    session.detach()
    return found


def test_every_control_says_in_a_sentence_what_it_does(opened) -> None:
    shown = opened(DIGITS)
    page, lab = shown.page, shown.lab
    lab.python("explorer.select('/inception1/branch3x3/conv/Conv')")
    quiet: dict[str, list[str]] = {}
    asked: set[str] = set()
    for tab in page.eval_on_selector_all(f"{EXPLORER} [data-tab]", "all => all.map(tab => tab.dataset.tab)"):
        page.click(f'{EXPLORER} [data-tab="{tab}"]')
        parts = page.eval_on_selector_all(
            f"{EXPLORER} [data-segment]", "all => all.map(one => one.dataset.segment)"
        )
        for part in parts or [""]:
            if part:
                page.click(f'{EXPLORER} [data-segment="{part}"]')
            page.wait_for_function("() => !document.querySelector('.rt-explorer [aria-busy=true]')")
            quiet[f"{tab} {part}"] = silent(page, asked)
    page.click(f'{EXPLORER} [data-tab="timing"]')
    page.click(f'{EXPLORER} [data-control="fold-layers"]')
    page.focus(f'{EXPLORER} canvas[data-pane="layer"]')
    page.keyboard.press("/")
    quiet["search"] = silent(page, asked)
    page.keyboard.press("Escape")
    page.click(f'{EXPLORER} [data-control="show"] button')
    page.click(f'{EXPLORER} [data-item="steps"]')
    quiet["steps"] = silent(page, asked)
    page.click(f'{EXPLORER} [data-control="close-steps"]')
    page.click(f'{EXPLORER} [data-control="help"]')
    page.click(f'{EXPLORER} [data-help="terms"]')
    quiet["help"] = silent(page, asked)
    told = sorted({one for names in quiet.values() for one in names})
    assert [] == told
