"""The room that the Explorer takes and gives: in a notebook on a laptop and on a projector."""

from __future__ import annotations

import pytest

from explorer import DIGITS, EXPLORER, READY, Explorer

pytestmark = pytest.mark.slow

#: Those that one sees: the boxes in view have buttons that only screen readers find.
BUTTONS = f"{EXPLORER} button:visible:not([data-seen] button)"
TABS = "all => all.map(tab => tab.dataset.tab)"
LINE = f'{EXPLORER} [role="separator"][aria-label="Move the line above the charts"]'


def box(page, selector: str) -> dict[str, float]:
    return page.locator(f"{EXPLORER} {selector} >> nth=0").bounding_box()


def bottom_of(page, selector: str) -> float:
    found = box(page, selector)
    return found["y"] + found["height"]


def scrolled(page, block: str = "end") -> None:
    page.evaluate(
        "block => document.querySelector('.rt-explorer').scrollIntoView({block, behavior: 'instant'})", block
    )


def notebook(page) -> dict[str, float]:
    """What of the page is the notebook's own: JupyterLab's bars lie around it."""
    return page.locator(".jp-WindowedPanel-outer").bounding_box()


#: JupyterLab's own bars take 121 lines of the window, and the Explorer follows what they leave; its parts follow it.
SETTLED = """height => {
  const tall = selector => document.querySelector(selector).clientHeight;
  const room = tall('.jp-WindowedPanel-outer');
  const now = [room, tall('.rt-explorer'), tall('.rt-explorer .rt-work'), tall('.rt-explorer .rt-bottom')];
  const still = JSON.stringify(now) === window.lastSeen;
  window.lastSeen = JSON.stringify(now);
  return still && room > height - 140 && room < height && room - now[1] >= 0 && room - now[1] <= 40;
}"""


def sized(shown: Explorer, width: int, height: int, tab: str = "timing") -> None:
    """Give the window another size, and wait until the Explorer and its parts have theirs and keep it.

    ``tab`` is opened before; empty where all stay folded.
    """
    if tab:
        shown.page.click(f'{EXPLORER} [data-tab="{tab}"]')
    shown.page.set_viewport_size({"width": width, "height": height})
    shown.lab.wait(SETTLED, height)


#: Three variants with all that their rows can tell, and the Explorer of their study.
THREE = """import rtlab
sample = rtlab.samples.load("digits_inception")
study = rtlab.Study(sample.model, data=sample.calibration, task=sample.task)
for precision in ("fp32", "fp16", "int8"):
    study.add(precision, target="cpu")
study.run()
explorer = study.explore()
explorer"""


def share(page) -> float:
    """The part of the Explorer's height that the lower of the two graphs has, in percent."""
    graphs = [box(page, f'canvas[data-pane="{side}"]')["height"] for side in ("node", "layer")]
    return 100 * min(graphs) / page.locator(EXPLORER).bounding_box()["height"]


def scales(page) -> list[float]:
    """How large each graph is drawn: pixels of the page for one of its own units."""
    return page.evaluate(
        """() => ['node', 'layer'].map(side => {
          const root = document.querySelector('.rt-explorer');
          return root.querySelector(`canvas[data-pane="${side}"]`).clientWidth / root.rtlabView(side)[2];
        })"""
    )


@pytest.mark.parametrize(
    ("width", "height", "opened_share"), [(1280, 720, 27), (1500, 1000, 40), (1500, 1040, 45)]
)
def test_the_graphs_have_45_percent_of_the_height_and_a_usable_part_beside_charts(
    opened, width: int, height: int, opened_share: float
) -> None:
    shown = opened(THREE)
    page, lab = shown.page, shown.lab
    # The least text in boxes, of 10, is 9 pixels high as they open; the view's width is rounded.
    assert all(10 * scale >= 8.95 for scale in scales(page))
    sized(shown, width, height, tab="")
    # Where there is little width the details are a strip until something is selected.
    strip = width < 1400
    assert strip == (box(page, ".rt-panel")["width"] < 40)
    assert 3 == page.locator(f"{EXPLORER} [data-chip]:visible").count()
    assert 0 == page.locator(f"{EXPLORER} .rt-under").count()
    assert share(page) >= 45
    # A tab opens its charts, by the keyboard too, and a click on the open one folds them.
    tab = f'{EXPLORER} [data-tab="timing"]'
    assert "false" == page.get_attribute(tab, "aria-expanded")
    page.focus(tab)
    page.keyboard.press("Enter")
    lab.wait_python("explorer.state.tab == 'timing'")
    assert "true" == page.get_attribute(tab, "aria-expanded")
    assert share(page) >= opened_share
    page.click(tab)
    lab.wait_python("explorer.state.tab == ''")
    assert 0 == page.locator(f"{EXPLORER} .rt-under").count()
    assert share(page) >= 45
    # While all are folded the arrow keys go through the tabs, and open none.
    page.keyboard.press("ArrowRight")
    assert page.locator(f'{EXPLORER} [data-tab="compare"]').evaluate("tab => document.activeElement === tab")
    assert "" == lab.python("explorer.state.tab")
    # What a cell arranges is on screen.
    lab.python("explorer.arrange(tab='memory') and None")
    page.wait_for_selector(f'{EXPLORER} [data-tab="memory"][aria-expanded="true"]')
    assert page.is_visible(f'{EXPLORER} [data-control="full"]')
    lab.python("explorer.select('/stem/relu/Relu')")
    page.wait_for_selector(f"{EXPLORER} .rt-panel:not(.rt-folded) h3")
    assert box(page, ".rt-panel")["width"] > 200


@pytest.mark.parametrize(("width", "height"), [(1280, 720), (1500, 1000), (2560, 1440)])
def test_all_of_it_is_in_the_notebook_s_view_with_graphs_of_230_pixels_in_every_tab(
    opened, width: int, height: int
) -> None:
    shown = opened(DIGITS)
    page = shown.page
    sized(shown, width, height)
    scrolled(page)
    room = notebook(page)
    heights = set()
    first, *others = page.eval_on_selector_all(f"{EXPLORER} [data-tab]", TABS)
    for tab in (*others, first):
        page.click(f'{EXPLORER} [data-tab="{tab}"]')
        page.wait_for_selector(f'{EXPLORER} [data-tab="{tab}"][aria-selected="true"]')
        assert box(page, ".rt-top")["y"] >= room["y"]
        assert bottom_of(page, ".rt-status") <= room["y"] + room["height"]
        assert bottom_of(page, ".rt-under") <= box(page, ".rt-status")["y"] + 1
        heights.add((box(page, ".rt-work")["height"], box(page, ".rt-under")["height"]))
    # The graphs do not jump as one goes through the tabs.
    ((graphs, charts),) = heights
    assert graphs >= 230
    assert charts >= 180


def test_the_line_above_the_charts_stays_where_it_was_put(opened) -> None:
    shown = opened(DIGITS)
    page, lab = shown.page, shown.lab
    sized(shown, 1280, 720)
    scrolled(page)
    before = box(page, ".rt-bottom")["height"]
    line = page.locator(LINE).bounding_box()
    at = (line["x"] + 200, line["y"] + line["height"] / 2)
    page.mouse.move(*at)
    page.mouse.down()
    page.mouse.move(at[0], at[1] - 40, steps=4)
    page.mouse.move(at[0], at[1] - 90, steps=4)
    page.mouse.up()
    # 90 pixels up are 90 pixels more of charts: the graphs are lower than their usual least, as the user wants.
    assert before + 90 == pytest.approx(box(page, ".rt-bottom")["height"], abs=2)
    lab.wait_python("float(explorer.state.settings['page.split']) > 45")
    for tab in ("memory", "calibration", "table"):
        page.click(f'{EXPLORER} [data-tab="{tab}"]')
        assert before + 90 == pytest.approx(box(page, ".rt-bottom")["height"], abs=2)

    page.focus(LINE)
    for _ in range(3):
        page.keyboard.press("ArrowDown")
    assert before + 90 - 3 * 24 == pytest.approx(box(page, ".rt-bottom")["height"], abs=3)

    # Another view of the widget, as after the page was loaded again, starts from what the kernel holds.
    kept = box(page, ".rt-bottom")["height"]
    lab.wait_python("31 < float(explorer.state.settings['page.split']) < 45")
    page.evaluate("() => { const w = window.jupyterapp.shell.currentWidget; w.context.save() }")
    page.wait_for_function("() => !window.jupyterapp.shell.currentWidget.context.model.dirty")
    page.reload()
    page.wait_for_selector(READY)
    assert kept == pytest.approx(box(page, ".rt-bottom")["height"], abs=2)

    page.focus(LINE)
    page.keyboard.press("Enter")
    lab.wait_python("explorer.state.settings['page.split'] == ''")
    assert before == pytest.approx(box(page, ".rt-bottom")["height"], abs=2)


def begin(page) -> None:
    """Start to present by the key, as a person whose pointer was last in a graph does."""
    page.focus(f'{EXPLORER} canvas[data-pane="node"]')
    page.keyboard.press("Shift+P")
    page.wait_for_selector(f"{EXPLORER}.rt-present")


def size_of(page, selector: str) -> float:
    """How high a letter of an element is in the window."""
    return page.locator(f"{EXPLORER} {selector} >> nth=0").evaluate(
        "found => parseFloat(getComputedStyle(found).fontSize) * (found.currentCSSZoom ?? 1)"
    )


def test_a_presentation_has_larger_type_and_fewer_controls(opened) -> None:
    shown = opened(DIGITS)
    page, lab = shown.page, shown.lab
    sized(shown, 1280, 720)
    scrolled(page)
    tab = '[data-tab="timing"]'
    before = size_of(page, tab)
    buttons = page.locator(BUTTONS).count()
    begin(page)
    assert size_of(page, tab) >= 1.25 * before
    assert size_of(page, ".rt-words") >= 20
    assert page.locator(BUTTONS).count() < 0.6 * buttons
    assert 0 == page.locator(f'{EXPLORER} [data-control="build"]').count()
    room = notebook(page)
    assert bottom_of(page, ".rt-under") <= room["y"] + room["height"]

    # A bar is found where it is drawn: larger type does not move the pointer away from it.
    # The chart draws itself anew with larger type; Plotly clicks what it found last under the pointer.
    lab.wait(
        "() => [...document.querySelectorAll('.rt-explorer [data-chart=\"timing\"] .ytick text')]"
        ".some(text => parseFloat(getComputedStyle(text).fontSize) > 13)"
    )
    bars = page.locator(f'{EXPLORER} [data-chart="timing"] .point path')
    bar = bars.nth(4).bounding_box()
    place = (bar["x"] + bar["width"] / 2, bar["y"] + bar["height"] - 2)
    page.mouse.move(place[0], place[1] - 1)
    page.mouse.move(*place)
    page.wait_for_selector(f'{EXPLORER} [data-chart="timing"] .hoverlayer .hovertext')
    page.mouse.click(*place)
    lab.wait_python("len(explorer.state.layers) == 1")

    page.keyboard.press("Escape")
    page.wait_for_selector(f"{EXPLORER}:not(.rt-present)")
    assert before == size_of(page, tab)
    assert 1 == page.locator(f'{EXPLORER} [data-control="build"]').count()
    assert [] == lab.console_errors


UNDER_MAP = """map => {
  const canvas = map.parentElement.querySelector('canvas');
  const [at, pane] = [map.getBoundingClientRect(), canvas.getBoundingClientRect()];
  const ratio = canvas.width / pane.width;
  const {data} = canvas.getContext('2d').getImageData(
    (at.x - pane.x) * ratio, (at.y - pane.y) * ratio, at.width * ratio, at.height * ratio);
  const [r, g, b] = canvas.getContext('2d').getImageData(0, 0, 1, 1).data;
  let other = 0;
  for (let i = 0; i < data.length; i += 4) other += data[i] !== r || data[i + 1] !== g || data[i + 2] !== b;
  return other / (data.length / 4);
}"""


@pytest.mark.parametrize(("width", "height"), [(1280, 720), (1500, 1000), (2560, 1440)])
def test_the_map_lies_on_no_layer_at_first(opened, lab_page, width: int, height: int) -> None:
    lab_page.page.set_viewport_size({"width": width, "height": height})
    # A page that has shown nothing yet has no theme to change.
    lab_page.open(["pass"])
    lab_page.theme(dark=True)
    shown = opened(DIGITS)
    scrolled(shown.page)
    maps = shown.page.locator(f"{EXPLORER} .rt-map:visible")
    # A map that has gone elsewhere is no map: at least one graph is larger than its pane.
    assert maps.count() >= 1
    for at in range(maps.count()):
        assert maps.nth(at).evaluate(UNDER_MAP) < 0.04
