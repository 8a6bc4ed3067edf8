"""The room that the Explorer takes and gives: in a notebook on a laptop and on a projector."""

from __future__ import annotations

import pytest

from explorer import EXPLORER, READY

CELL = """import rtlab
sample = rtlab.samples.load("digits_inception")
study = rtlab.Study(sample.model, data=sample.calibration, task=sample.task)
study.add("fp32", target="cpu")
study.add("int8", precision="int8", target="cpu", calibrator="minmax")
study.run()
explorer = study.explore()
explorer"""
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


@pytest.mark.parametrize(("width", "height"), [(1280, 720), (1500, 1000), (2560, 1440)])
def test_all_of_it_is_in_the_notebook_s_view_with_graphs_of_240_pixels_in_every_tab(
    opened, width: int, height: int
) -> None:
    """From the row of the choice to the status line nothing lies below the fold, whichever tab is in front."""
    shown = opened(CELL)
    page = shown.page
    page.set_viewport_size({"width": width, "height": height})
    shown.lab.wait(
        "([low, high]) => { const found = document.querySelector('.rt-explorer').clientHeight;"
        " const room = document.querySelector('.jp-WindowedPanel-outer').clientHeight;"
        " return room - found >= low && room - found <= high; }",
        [0, 40],
    )
    scrolled(page)
    room = notebook(page)
    heights = set()
    for tab in page.eval_on_selector_all(f"{EXPLORER} [data-tab]", TABS):
        page.click(f'{EXPLORER} [data-tab="{tab}"]')
        page.wait_for_selector(f'{EXPLORER} [data-tab="{tab}"][aria-selected="true"]')
        assert box(page, ".rt-top")["y"] >= room["y"]
        assert bottom_of(page, ".rt-status") <= room["y"] + room["height"]
        assert bottom_of(page, ".rt-under") <= box(page, ".rt-status")["y"] + 1
        heights.add((box(page, ".rt-work")["height"], box(page, ".rt-under")["height"]))
    # The graphs do not jump as one goes through the tabs.
    ((graphs, charts),) = heights
    assert graphs >= 240
    assert charts >= 180
    shown.picture(f"room-{width}")


def test_the_line_above_the_charts_stays_where_it_was_put(opened) -> None:
    """By the pointer and by keys, in all tabs, when the page is loaded again, and until it is put back."""
    shown = opened(CELL)
    page, lab = shown.page, shown.lab
    page.set_viewport_size({"width": 1280, "height": 720})
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
    lab.wait_python("float(explorer.state.settings['page.split']) > 50")
    for tab in ("memory", "calibration", "table"):
        page.click(f'{EXPLORER} [data-tab="{tab}"]')
        assert before + 90 == pytest.approx(box(page, ".rt-bottom")["height"], abs=2)

    page.focus(LINE)
    for _ in range(3):
        page.keyboard.press("ArrowDown")
    assert before + 90 - 3 * 24 == pytest.approx(box(page, ".rt-bottom")["height"], abs=3)

    # Another view of the widget, as after the page was loaded again, starts from what the kernel holds.
    kept = box(page, ".rt-bottom")["height"]
    lab.wait_python("41 < float(explorer.state.settings['page.split']) < 50")
    page.evaluate("() => { const w = window.jupyterapp.shell.currentWidget; w.context.save() }")
    page.wait_for_function("() => !window.jupyterapp.shell.currentWidget.context.model.dirty")
    page.reload()
    page.wait_for_selector(READY)
    assert kept == pytest.approx(box(page, ".rt-bottom")["height"], abs=2)

    page.focus(LINE)
    page.keyboard.press("Enter")
    lab.wait_python("explorer.state.settings['page.split'] == ''")
    assert before == pytest.approx(box(page, ".rt-bottom")["height"], abs=2)


def test_a_height_that_was_chosen_is_kept(opened) -> None:
    """Who says how high it is to be has it so in any window."""
    shown = opened(CELL.replace("explore()", "explore(height=640)"))
    for height in (720, 1000):
        shown.page.set_viewport_size({"width": 1280, "height": height})
        assert 640 == shown.page.locator(EXPLORER).bounding_box()["height"]
