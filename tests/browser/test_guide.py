"""What the Explorer tells of itself: a tour of a minute, what each control does, what the words of the field mean."""

from __future__ import annotations

from pathlib import Path

from explorer import EXPLORER
from rtlab.documents.glossary import TERMS

CELL = """import rtlab
sample = rtlab.samples.load("digits_inception")
study = rtlab.Study(sample.model, data=sample.calibration, task=sample.task)
study.add("fp32", target="cpu")
study.add("int8", precision="int8", target="cpu", calibrator="minmax")
study.run()
explorer = study.explore()
explorer"""

TINY = """import rtlab
from rtlab.testing import tiny_model
study = rtlab.Study(tiny_model())
study.add("fp32", target="cpu")
study.run()
explorer = study.explore()
explorer"""
#: An engine of our own as trtexec writes it, without the model that it was built from.
FILES = Path(__file__).parents[1] / "corpus" / "engines" / "written-fp16"

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
    shown = opened(CELL)
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


#: What is in view of a graph, to the nearest unit.
SEEN = "side => document.querySelector('.rt-explorer').rtlabView(side)"
NEVER_ASKED = "() => localStorage.removeItem('rtlab.tour')"


def card(page) -> dict[str, str]:
    """The stop that is shown: its name, its place in the tour, and what it says."""
    stop = page.locator(f'{EXPLORER} [data-control="guide"]')
    return {
        "name": stop.get_attribute("data-stop"),
        "count": stop.locator('[data-control="count"]').inner_text(),
        "words": stop.locator("p").inner_text(),
    }


def rings(page) -> list[dict[str, float]]:
    """Where the lines around what is spoken of are."""
    return [ring.bounding_box() for ring in page.locator(f"{EXPLORER} .rt-ring").all()]


def at_stop(page, name: str) -> None:
    page.wait_for_selector(f'{EXPLORER} [data-control="guide"][data-stop="{name}"]')
    page.wait_for_selector(f"{EXPLORER} .rt-ring")


def inside(inner: dict[str, float], outer: dict[str, float], by: float = 8) -> bool:
    """Whether a box lies in another, but for so many pixels."""
    return all(
        inner[at] >= outer[at] - by and inner[at] + inner[size] <= outer[at] + outer[size] + by
        for at, size in (("x", "width"), ("y", "height"))
    )


def test_a_tour_of_five_stops_points_at_what_is_there_and_puts_all_back(opened, lab_page) -> None:
    """By the offer and by keys: each stop rings what it speaks of; leaving restores selection, tab and place."""
    page, lab = lab_page.page, lab_page
    page.set_viewport_size({"width": 1280, "height": 720})
    if "127.0.0.1" in page.url:
        page.evaluate(NEVER_ASKED)
    lab.forget()
    shown = opened(CELL)
    # It is offered in a line that takes no height.
    offer = page.locator(f'{EXPLORER} [data-control="offer"]')
    offer.wait_for()
    tall = page.locator(f"{EXPLORER} .rt-chips").bounding_box()["height"]
    shown.picture("offer")
    page.evaluate(
        "() => document.querySelector('.rt-explorer').scrollIntoView({block: 'end', behavior: 'instant'})"
    )
    # As somebody left it: a node selected, another tab, closer to one graph.
    lab.python("explorer.select('/inception1/branch3x3/conv/Conv')")
    page.click(f'{EXPLORER} [data-tab="memory"]')
    lab.wait_python("explorer.state.tab == 'memory' and len(explorer.state.selection) == 1")
    page.focus(f'{EXPLORER} canvas[data-pane="node"]')
    page.keyboard.press("z")
    state = (
        "(explorer.state.selection, explorer.state.layers, explorer.state.tab, explorer.state.grouping_nodes)"
    )
    before = lab.python(state)
    seen = {side: page.evaluate(SEEN, side) for side in ("node", "layer")}

    offer.get_by_role("button", name="A minute's tour").click()
    at_stop(page, "graphs")
    assert 0 == offer.count()
    assert tall == page.locator(f"{EXPLORER} .rt-chips").bounding_box()["height"]
    first = card(page)
    assert "1 of 5" == first["count"]
    # It selects nodes that were fused, and rings them where they are drawn, and the layer that they became.
    lab.wait_python("len(explorer.state.selection) == 3 and len(explorer.state.layers) == 1")
    fused = lab.python("[study.model.node(n).op for n in explorer.state.selection]")
    assert all(op in first["words"] for op in fused)
    layer = lab.python("explorer.state.layers[0]")
    assert sorted(lab.python("explorer.state.selection")) == lab.python(
        f"sorted(study['fp32'].mapping.nodes({layer!r}))"
    )
    lab.wait("() => document.querySelectorAll('.rt-explorer .rt-ring').length === 2")
    for ring, side in zip(rings(page), ("node", "layer"), strict=True):
        pane = page.locator(f'{EXPLORER} canvas[data-pane="{side}"]').bounding_box()
        assert inside(ring, pane)
        assert ring["width"] * ring["height"] < 0.6 * pane["width"] * pane["height"]
    shown.picture("tour-1")

    page.keyboard.press("ArrowRight")
    at_stop(page, "fold")
    count = lab.python("(len(study.model.nodes), len(study['fp32'].engine.layers))")
    assert f"{count[0]} nodes became {count[1]} layers" in card(page)["words"]
    assert page.locator(f'{EXPLORER} [data-control="morph-bar"]').is_visible()
    page.keyboard.press("ArrowRight")
    at_stop(page, "choice")
    assert not page.locator(f'{EXPLORER} [data-control="morph-bar"]').count()
    (ring,) = rings(page)
    for control in ("precision", "calibrator", "target", "build"):
        assert inside(page.locator(f'{EXPLORER} [data-control="{control}"]').bounding_box(), ring)
    page.keyboard.press("ArrowRight")
    at_stop(page, "charts")
    lab.wait_python("explorer.state.tab == 'timing'")
    assert all(sign in card(page)["words"] for sign in "●◐○◌")
    shown.picture("tour-4")
    page.keyboard.press("ArrowRight")
    at_stop(page, "why")
    assert "5 of 5" == card(page)["count"]
    for control in ("show", "help"):
        spot = page.locator(f'{EXPLORER} [data-control="{control}"]').bounding_box()
        assert any(inside(spot, ring) for ring in rings(page))
    # An arrow at the end leaves nothing, Back and Next are buttons too.
    page.keyboard.press("ArrowRight")
    at_stop(page, "why")
    page.click(f'{EXPLORER} [data-control="back"]')
    at_stop(page, "charts")
    page.click(f'{EXPLORER} [data-control="next"]')
    at_stop(page, "why")
    # The card lies in the widget and on nothing that it speaks of.
    for at in ("Home", "ArrowRight", "ArrowRight", "ArrowRight", "ArrowRight"):
        page.keyboard.press(at)
        lab.wait(
            """() => {
              const box = one => one.getBoundingClientRect();
              const card = box(document.querySelector('.rt-explorer .rt-stop'));
              const room = box(document.querySelector('.rt-explorer'));
              const apart = ring => ring.right <= card.left || ring.left >= card.right
                || ring.bottom <= card.top || ring.top >= card.bottom;
              return card.left >= room.left && card.right <= room.right && card.top >= room.top
                && card.bottom <= room.bottom && document.querySelector('.rt-explorer .rt-ring')
                && [...document.querySelectorAll('.rt-explorer .rt-ring')].every(one => apart(box(one)));
            }"""
        )
    page.keyboard.press("Escape")
    page.wait_for_selector(f'{EXPLORER} [data-control="guide"]', state="detached")
    lab.wait_python(f"[*map(list, ({state})[:2]), *({state})[2:]] == {before!r}")
    for side, place in seen.items():
        lab.wait(
            f"([side, place]) => JSON.stringify(({SEEN})(side)) === JSON.stringify(place)", [side, place]
        )
    assert [] == lab.console_errors

    # Whoever was asked is not asked again, in another notebook either; the help leads back to the tour.
    lab.forget()
    opened(TINY)
    assert 0 == offer.count()
    page.focus(f'{EXPLORER} canvas[data-pane="node"]')
    page.keyboard.press("?")
    page.click(f'{EXPLORER} [data-control="tour"]')
    at_stop(page, "graphs")
    page.click(f'{EXPLORER} [data-control="leave"]')
    page.wait_for_selector(f'{EXPLORER} [data-control="guide"]', state="detached")
    # A no is as good: the line goes at once.
    page.evaluate(NEVER_ASKED)
    lab.forget()
    opened(TINY)
    page.click(f'{EXPLORER} [data-control="no-tour"]')
    offer.wait_for(state="detached")
    assert page.evaluate("() => localStorage.getItem('rtlab.tour')")
    assert [] == lab.console_errors


def test_a_tour_of_files_without_a_model_speaks_of_layers_alone(opened) -> None:
    """There are no nodes to fold, nothing to build from, and no stop that points at them."""
    files = f"layers={str(FILES / 'engine.graph.json')!r}, profile={str(FILES / 'engine.profile.json')!r}"
    shown = opened(f"import rtlab\nexplorer = rtlab.read({files}).explore()\nexplorer")
    page = shown.page
    page.focus(f'{EXPLORER} canvas[data-pane="layer"]')
    page.keyboard.press("Shift+T")
    at_stop(page, "graphs")
    names = [card(page)["name"]]
    while (now := card(page))["count"].split(" of ")[0] != now["count"].split(" of ")[1]:
        page.keyboard.press("ArrowRight")
        page.wait_for_selector(f'{EXPLORER} [data-control="guide"]:not([data-stop="{names[-1]}"])')
        names.append(card(page)["name"])
    assert ["graphs", "choice", "charts", "why"] == names
    assert "nodes" not in card(page)["words"]


def test_a_term_tells_what_it_means_by_pointer_and_by_key_and_in_a_list(opened) -> None:
    """One declaration: the page's words are those of ``rtlab.documents.glossary``."""
    meanings = {term.name: term.meaning for term in TERMS}
    shown = opened(TINY)
    page = shown.page
    term = page.locator(f"{EXPLORER} .rt-panel .rt-term", has_text="layer").first
    term.hover()
    hint = page.locator(f"{EXPLORER} .rt-hint")
    hint.wait_for()
    assert f"layer {meanings['layer']}" == hint.inner_text()
    shown.picture("term")
    page.mouse.move(0, 0)
    hint.wait_for(state="detached")
    # With the Tab key, from what stands before it; a screen reader is told the same.
    term.focus()
    hint.wait_for()
    assert meanings["layer"] == term.get_attribute("aria-description")
    page.keyboard.press("Escape")
    hint.wait_for(state="detached")
    # A control that the Tab key came to tells what the pointer would be told.
    page.focus(f'{EXPLORER} [data-control="netron"]')
    page.keyboard.press("Tab")
    hint.wait_for()
    assert hint.inner_text().startswith("Present")
    page.keyboard.press("Escape")
    hint.wait_for(state="detached")

    page.focus(f'{EXPLORER} canvas[data-pane="node"]')
    page.keyboard.press("?")
    page.click(f'{EXPLORER} [data-help="terms"]')
    listed = page.eval_on_selector_all(
        f"{EXPLORER} .rt-glossary dt", "all => all.map(one => one.textContent)"
    )
    assert [term.name for term in TERMS] == listed
    page.fill(f'{EXPLORER} [data-control="terms"]', "noise error")
    assert ["SQNR"] == page.eval_on_selector_all(
        f"{EXPLORER} .rt-glossary dt", "all => all.map(one => one.textContent)"
    )
    assert meanings["SQNR"] == page.inner_text(f"{EXPLORER} .rt-glossary dd")
    page.keyboard.press("Escape")
    page.wait_for_selector(f'{EXPLORER} [data-control="help-card"]', state="detached")
    assert [] == shown.lab.console_errors
