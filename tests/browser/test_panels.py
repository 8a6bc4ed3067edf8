"""The panels in a real JupyterLab: time, comparison, memory, streams, tuning, linked with the graph."""

from __future__ import annotations

from collections.abc import Collection

import pytest

from explorer import EXPLORER, Explorer, show
from rtlab.analyses.panels import ANALYSES
from rtlab.documents.tabs import TABS

DIGITS = """import rtlab
sample = rtlab.samples.load("digits_inception")
study = rtlab.Study(sample.model, data=sample.calibration, task=sample.task)
study.add("fp32")
study.add("int8")
study.run()
explorer = study.explore()
explorer"""


#: Panels that have a figure before anything was measured by a button.
DRAWN = ["roofline", "samples", "difference", "variants", "memory", "schedule"]


def offered(shown: Explorer) -> list[str]:
    return shown.lab.python(
        "__import__('rtlab.documents.serialization').documents.serialization.decode(explorer.engine)['panels']"
    )


def figure(shown: Explorer, where: str) -> str:
    """The figure of a panel once it is drawn."""
    drawn = f"{where} .js-plotly-plot"
    shown.page.wait_for_selector(f"{drawn} .main-svg >> nth=0")
    return drawn


def largest(shown: Explorer, where: str, ids: Collection[str] = ()) -> str:
    """Id of the bar that covers most of a figure; of those with some ``ids``, where they are named."""
    return shown.page.evaluate(
        """([where, ids]) => [...document.querySelectorAll(`${where} .js-plotly-plot .bars .point`)].map(point => {
          const {width, height} = (point.querySelector('path') ?? point).getBoundingClientRect();
          return [width * height, point.closest('.trace').__data__[0].trace.ids[point.__data__.i]];
        }).filter(([, id]) => !ids.length || ids.includes(id)).sort((a, b) => b[0] - a[0])[0][1]""",
        [where, [*ids]],
    )


def click_point(shown: Explorer, where: str, key: str) -> None:
    """Click the point of a figure that has this id, where it is drawn."""
    place = shown.page.evaluate(
        """async ([where, key]) => {
          const plot = document.querySelector(`${where} .js-plotly-plot`);
          plot.closest('.rt-explorer').scrollIntoView({block: 'center', behavior: 'instant'});
          const points = [...plot.querySelectorAll('.point')].filter(point => {
            const trace = point.closest('.trace').__data__[0].trace;
            return trace.ids?.[point.__data__.i] === key;
          });
          points[0].scrollIntoView({block: 'nearest', behavior: 'instant'});
          await new Promise(requestAnimationFrame);
          // Without the number that stands beside a bar.
          const {x, y, width, height} = (points[0].querySelector('path') ?? points[0]).getBoundingClientRect();
          return [x + width / 2, y + height / 2];
        }""",
        [where, key],
    )
    # Plotly finds the point under the pointer as it moves, and clicks what it found last: never over a neighbour.
    shown.page.mouse.move(place[0], place[1] - 1)
    shown.page.mouse.move(*place)
    shown.page.wait_for_selector(f"{where} .hoverlayer .hovertext")
    shown.page.mouse.click(*place)


def marked(shown: Explorer, where: str) -> set[str]:
    """Ids of the points that are outlined."""
    return set(
        shown.page.evaluate(
            """where => [...document.querySelectorAll(`${where} .rt-marked:is(.point)`)].map(
              point => point.closest('.trace').__data__[0].trace.ids[point.__data__.i])""",
            where,
        )
    )


def cut(shown: Explorer, where: str) -> list[str]:
    """Texts of a panel's figures that are not to be seen whole without scrolling or hovering."""
    return shown.page.evaluate(
        """where => {
          const panel = document.querySelector(where).getBoundingClientRect();
          return [...document.querySelectorAll(`${where} .js-plotly-plot`)].flatMap(plot => {
            const whole = plot.closest('.rt-figures').getBoundingClientRect();
            const bottom = Math.min(panel.bottom, whole.bottom) + 1;
            return [...plot.querySelectorAll('.xtitle, .ytitle, .y2title, .xtick text, .gtitle')].filter(text => {
              const box = text.getBoundingClientRect();
              return box.width && (box.bottom > bottom || box.top < whole.top - 1 || box.left < whole.left - 1);
            }).map(text => text.textContent);
          });
        }""",
        where,
    )


def test_every_panel_tells_something_and_no_picture_is_missing(opened) -> None:
    shown = opened(DIGITS)
    page, lab = shown.page, shown.lab
    # In a lower window the graphs have the room, and a figure with long names is scrolled.
    page.set_viewport_size({"width": 1440, "height": 1300})
    known = offered(shown)
    answered = {tab.name for tab in TABS if tab.part == "analysis"}
    assert {q.name for q in ANALYSES if q.tab in answered} - {"recurrence", "generation"} == set(known)
    # A notebook has a chart of the errors.
    for tab, panel in ((q.tab, q.name) for q in ANALYSES if q.name in {*known} - {"accuracy"}):
        where = show(shown, tab, panel)
        if panel in DRAWN:
            drawn = figure(shown, where)
            assert page.get_attribute(f"{drawn} >> nth=0", "aria-label")
            assert 0 == page.locator(f'{where} [data-control="problem"]').count(), panel
            assert [] == cut(shown, where), panel
        elif panel in {"sensitivity", "diagnosis", "repair", "channels"}:
            # fp32 is on screen.
            assert page.inner_text(f'{where} [data-control="problem"]'), panel
        else:
            # What will be there, and how long it takes; or facts and a table, from the fields of the result.
            page.wait_for_selector(f"{where} .rt-told, {where} tbody td >> nth=0")
            told = page.locator(f"{where} .rt-told")
            assert (
                told.first.inner_text() if told.count() else page.locator(f"{where} [data-fact]").count()
            ), panel
        assert len(page.inner_text(f"{where} .rt-lead p.rt-quiet")) > 40
        # What is in front is in the view that Python reads.
        lab.wait_python(f"explorer.state.tab == {tab!r}")
    lab.wait_python("explorer.state.settings['compare'] == 'variants'")
    lab.theme(dark=True)
    where = show(shown, "compare", "difference")
    figure(shown, where)
    # Text and bars stand out from the ground.
    ink = page.evaluate(
        "where => getComputedStyle(document.querySelector(`${where} .xtick text`)).fill", where
    )
    assert min(int(c) for c in ink.removeprefix("rgb(").removesuffix(")").split(",")[:3]) > 180
    lab.theme(dark=False)

    # In a narrow window all tabs stay within reach, by the keyboard too.
    page.set_viewport_size({"width": 760, "height": 900})
    page.wait_for_selector(f'{EXPLORER} [data-control="tabs"] button')
    page.click(f'{EXPLORER} [data-control="tabs"] button')
    page.click(f'{EXPLORER} [data-item="recipe"]')
    lab.wait_python("explorer.state.tab == 'recipe'")
    page.focus(f'{EXPLORER} [data-tab="recipe"]')
    page.keyboard.press("ArrowRight")
    lab.wait_python("explorer.state.tab == 'timing'")
    first = page.locator(f'{EXPLORER} [data-tab="timing"]')
    assert first.evaluate("tab => document.activeElement === tab")
    page.keyboard.press("ArrowLeft")
    last = page.locator(f'{EXPLORER} [data-tab="recipe"]')
    assert last.evaluate(
        "tab => tab.getBoundingClientRect().right <= tab.closest('.rt-tabrow').getBoundingClientRect().right"
    )
    assert [] == lab.left_machine
    assert [] == lab.console_errors


@pytest.mark.slow
def test_a_bar_of_the_waterfall_is_a_group_of_nodes(opened) -> None:
    shown = opened(DIGITS)
    page, lab = shown.page, shown.lab
    where = show(shown, "compare", "difference")
    figure(shown, where)
    links = lab.python("explorer.panel('difference')['links']")
    # One that is large enough to be pointed at: times differ from one machine to the next.
    key = largest(shown, where, [k for k, v in links.items() if v["nodes"] and v["layers"]])
    link = links[key]
    click_point(shown, where, key)
    lab.wait_python(f"set(explorer.state.selection) == set({link['nodes']!r})")
    lab.wait_python(f"set(explorer.state.layers) == set({link['layers']!r})")
    assert key in marked(shown, where)
    assert page.locator(f'{where} [data-row="{key}"][aria-selected="true"]').count() == 1

    # The other way, and by the keyboard: the row below in the table.
    other, next_link = next((k, v) for k, v in links.items() if k != key and v["nodes"] and v["layers"])
    lab.python(f"explorer.select(*{next_link['nodes']!r})")
    page.wait_for_selector(f'{where} [data-row="{other}"][aria-selected="true"]')
    page.focus(f"{where} .rt-table")
    page.keyboard.press("ArrowDown")
    rows = lab.python("[r['key'] for r in explorer.panel('difference')['rows']]")
    below = rows[min(rows.index(other) + 1, len(rows) - 1)]
    page.wait_for_selector(f'{where} [data-row="{below}"][aria-selected="true"]')
    lab.wait_python(f"set(explorer.state.layers) == set({links[below]['layers']!r})")

    # Another variant is asked about anew.
    page.click(f'{EXPLORER} [data-chip="int8"] button >> nth=0')
    page.wait_for_selector(f"{where} h4:has-text('to int8')")
    assert [] == lab.console_errors


@pytest.mark.slow
def test_the_batch_moves_the_memory(opened) -> None:
    shown = opened(DIGITS)
    page, lab = shown.page, shown.lab
    where = show(shown, "memory", "memory")
    figure(shown, where)
    peak = f'{where} [data-fact="Peak"] dd'
    before = page.inner_text(peak)
    slider = page.locator(f'{where} [data-control="memory.batch"]')
    box = slider.bounding_box()
    page.mouse.move(box["x"] + 8, box["y"] + box["height"] / 2)
    page.mouse.down()
    for share in (0.2, 0.4, 0.6):
        page.mouse.move(box["x"] + share * box["width"], box["y"] + box["height"] / 2)
    page.mouse.up()
    page.wait_for_function(
        "([peak, before]) => document.querySelector(peak).innerText !== before", arg=[peak, before]
    )
    chosen = page.inner_text(f"{where} .rt-stops output")
    assert "1" != chosen
    lab.wait_python(f"explorer.state.settings.get('memory.batch') == {chosen!r}")
    page.wait_for_selector(f'{where}[aria-busy="false"]')
    told = lab.python(f"explorer.panel('memory', batch={chosen!r})")
    # The page shows what Python tells for the last stop, not for one on the way.
    peaks = {f["key"]: f["value"] for f in told["facts"]}
    page.wait_for_function(
        "([peak, value]) => document.querySelector(peak).innerText.includes(value)", arg=[peak, peaks["Peak"]]
    )

    key = largest(shown, where)
    link = told["links"][key]
    click_point(shown, where, key)
    lab.wait_python(f"set(explorer.state.layers) == set({link['layers']!r})")
    assert [] == lab.console_errors


@pytest.mark.slow
def test_a_low_figure_gives_its_legend_up_and_keeps_the_titles_of_its_axes_apart(opened) -> None:
    shown = opened(DIGITS)
    page = shown.page
    drawn = figure(shown, show(shown, "memory", "memory"))
    # Where a legend would take a third of a figure its points are worth more, and the pointer tells what they are.
    page.wait_for_selector(f"{drawn} .legend")
    page.locator(drawn).evaluate("plot => { plot.style.height = '60px'; }")
    page.wait_for_selector(f"{drawn} .legend", state="detached")
    assert page.locator(f"{drawn} .point").count()
    page.locator(drawn).evaluate("plot => { plot.style.height = ''; }")
    page.wait_for_selector(f"{drawn} .legend")
    # On a laptop both axes say their unit, and neither title is written over the other.
    height = "plot => document.querySelector(`${plot} .main-svg`).getBoundingClientRect().height"
    before = page.evaluate(height, drawn)
    page.set_viewport_size({"width": 1280, "height": 720})
    page.wait_for_function(f"([plot, before]) => ({height})(plot) < before - 5", arg=[drawn, before])
    page.wait_for_function(
        """plot => {
          const titles = [...document.querySelectorAll(`${plot} :is(.ytitle, .y2title)`)];
          const [above, below] = titles.map(title => title.getBoundingClientRect());
          const units = titles.map(title => title.textContent.split(', ').at(-1));
          return below && above.bottom <= below.top && /^[KM]?i?B$/.test(units[0]) && units[0] === units[1];
        }""",
        arg=drawn,
    )
    # Nor is a number over the next one: where there is room for few, few are written.
    page.wait_for_function(
        """plot => ['ytick', 'y2tick'].every(ticks => {
          const boxes = [...document.querySelectorAll(`${plot} .${ticks}`)]
            .map(tick => tick.getBoundingClientRect()).sort((a, b) => a.top - b.top);
          return boxes.length > 1 && boxes.every(({top}, i) => !i || top > boxes[i - 1].bottom);
        })""",
        arg=drawn,
    )
