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
    """In every tab and part of one, with a node selected, in the search, the morph, the third pane and the help."""
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
    page.click(f'{EXPLORER} [data-control="morph"]')
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


SEEN = "side => document.querySelector('.rt-explorer').rtlabView(side)"


def at_stop(page, name: str) -> str:
    """Wait for a stop of the tour and what it rings; its words."""
    page.wait_for_selector(f'{EXPLORER} [data-control="guide"][data-stop="{name}"]')
    page.wait_for_selector(f"{EXPLORER} .rt-ring")
    return page.locator(f'{EXPLORER} [data-control="guide"] p').inner_text()


def test_a_tour_points_at_what_is_there_and_puts_all_back(opened, lab_page) -> None:
    """The stops select and count what they speak of; leaving restores selection, tab and place."""
    page, lab = lab_page.page, lab_page
    page.set_viewport_size({"width": 1280, "height": 720})
    if "127.0.0.1" in page.url:
        page.evaluate("() => localStorage.removeItem('rtlab.tour')")
    lab.forget()
    shown = opened(DIGITS)
    offer = page.locator(f'{EXPLORER} [data-control="offer"]')
    offer.wait_for()
    lab.python("explorer.select('/inception1/branch3x3/conv/Conv')")
    page.click(f'{EXPLORER} [data-tab="memory"]')
    lab.wait_python("explorer.state.tab == 'memory' and len(explorer.state.selection) == 1")
    state = "[list(explorer.state.selection), list(explorer.state.layers), explorer.state.tab]"
    before = lab.python(state)
    seen = {side: page.evaluate(SEEN, side) for side in ("node", "layer")}

    offer.get_by_role("button").first.click()
    words = at_stop(page, "graphs")
    lab.wait_python("len(explorer.state.selection) == 3 and len(explorer.state.layers) == 1")
    assert all(op in words for op in lab.python("[study.model.node(n).op for n in explorer.state.selection]"))
    page.keyboard.press("ArrowRight")
    words = at_stop(page, "fold")
    for count in lab.python("[len(study.model.nodes), len(study['fp32'].engine.layers)]"):
        assert str(count) in words
    for stop in ("choice", "charts", "why"):
        page.keyboard.press("ArrowRight")
        at_stop(page, stop)
    shown.picture("tour")
    page.keyboard.press("Escape")
    page.wait_for_selector(f'{EXPLORER} [data-control="guide"]', state="detached")
    lab.wait_python(f"{state} == {before!r}")
    for side, place in seen.items():
        lab.wait(
            f"([side, place]) => JSON.stringify(({SEEN})(side)) === JSON.stringify(place)", [side, place]
        )
    assert [] == lab.console_errors
