"""The graph view in JupyterLab, in Notebook 7 and in Voila; the Explorer there, in marimo and in nbconvert's HTML.

What was tried in which version of which host is in docs/hosts.md.
"""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ET

import pytest

from explorer import EXPLORER, READY

pytestmark = pytest.mark.slow

STUDY = """import rtlab
model = {model}
study = rtlab.Study(model, data=rtlab.CalibrationData.random(model, samples=1))
study.add('fp32', target='cpu')
study.run(compare=False)
graph = study.graph('fp32', height=520)"""
GRAPH = [STUDY.format(model="rtlab.testing.tiny_model()"), "graph"]
VIEW = ".rt-graph"


def click(page, side: str, box: str) -> None:
    """Click the middle of a box where it is drawn."""
    page.wait_for_selector(f'{VIEW}[data-ready="1"]')
    page.evaluate("view => document.querySelector(view).scrollIntoView({block: 'center'})", VIEW)
    # A notebook may take an output out of the page and put it back while it settles.
    found = page.wait_for_function(
        "([view, side, id]) => document.querySelector(view)?.rtlabBoxAt?.(side, id)", arg=[VIEW, side, box]
    )
    at = found.json_value()
    page.mouse.click(at["x"], at["y"])


def listed(page, name: str) -> list[str]:
    return json.loads(page.get_attribute(VIEW, f"data-{name}"))


def test_voila_shows_the_linked_graphs(voila_page) -> None:
    page = voila_page.page
    voila_page.visit(["print('voila alone')"])
    page.wait_for_selector("text=voila alone")
    # Voila itself asks for fonts from elsewhere; a notebook with our widget asks for nothing more.
    asked = set(voila_page.left_machine)
    voila_page.visit(GRAPH)
    click(page, "node", "stem/Relu")
    page.wait_for_function("view => document.querySelector(view).dataset.layers !== '[]'", arg=VIEW)
    assert ["stem/Relu"] == listed(page, "selection")
    assert set(voila_page.left_machine) <= asked
    # Extensions made for JupyterLab complain in Voila; the widget's own script comes from a blob.
    assert [] == [words for words in voila_page.console_errors if "blob:" in words or "rtlab" in words]
    assert page.get_attribute(VIEW, "data-failed") is None


@pytest.fixture(params=["lab_page", "notebook_page"])
def host(request):
    """A page of JupyterLab, then one of Notebook 7."""
    return request.getfixturevalue(request.param)


CHAIN = [STUDY.format(model="rtlab.samples.inception_chain(nodes=60)"), "graph"]


def pick(page, menu: str, item: str) -> None:
    """Choose an item of a pane's menu."""
    page.click(f'{VIEW} [data-control="{menu}"] button')
    page.click(f'{VIEW} [data-item="{item}"]')


def test_the_graph_view_does_its_work_in_every_notebook(host, tmp_path) -> None:
    page = host.page
    host.open(["print('the host alone')"])
    host.run_all()
    said = set(host.console_errors)
    host.open(CHAIN)
    host.run_all()
    nodes = host.python("[n.id for n in model.top]")
    operator = "Concat"
    concats = host.python(f"sum(n.op == '{operator}' for n in model.top)")

    # Link both ways; the kernel hears of it.
    click(page, "node", nodes[1])
    host.wait_python(f"graph.state.selection == ({nodes[1]!r},)")
    layers = listed(page, "layers")
    assert layers == host.python(f"list(study['fp32'].mapping.layers({nodes[1]!r}))")
    click(page, "layer", layers[0])
    host.wait_python("graph.state.anchor == 'layer'")
    assert nodes[1] in listed(page, "selection")

    # Search by keyboard: hits are counted, Enter selects, Escape leaves.
    page.focus(f'{VIEW} canvas[data-pane="node"]')
    page.keyboard.press("/")
    page.keyboard.type(operator)
    # Names of tensors are searched too, so that their readers may be hits as well.
    told = page.wait_for_function(
        f"() => document.querySelector('{VIEW} .rt-search output').innerText.match(/of (\\d+)/)?.[1]"
    )
    assert concats <= int(told.json_value())
    page.keyboard.press("Enter")
    host.wait_python("len(graph.state.selection) == 1")
    assert host.python("'concat' in str(model.node(graph.state.selection[0])).lower()")
    page.keyboard.press("Escape")

    # The arrows follow edges, Enter selects what they reached.
    page.focus(f'{VIEW} canvas[data-pane="node"]')
    before = listed(page, "selection")
    page.keyboard.press("ArrowUp")
    page.keyboard.press("Enter")
    host.wait_python(f"list(graph.state.selection) != {before!r}")
    reached = host.python("graph.state.selection[0]")
    outputs = host.python(f"list(model.node({reached!r}).outputs)")
    assert set(outputs) & set(host.python(f"list(model.node({before[0]!r}).inputs)"))

    # Colour by.
    page.click(f'{VIEW} [data-control="colour-layer"] button')
    page.click(f'{VIEW} [role="option"][data-value="precision"]')
    host.wait_python("graph.state.colour == 'precision'")

    # Collapse: the repeated blocks become one box.
    pick(page, "more-node", "group-repeats")
    boxes = f"document.querySelectorAll('{VIEW} [data-seen=\"node\"] li')"
    page.wait_for_function(f"() => [...{boxes}].some(item => item.innerText.includes('×'))")
    pick(page, "more-node", "open-all")
    # An opened block stands for all three.
    opened = "1 === items.filter(item => item.innerText.startsWith('Concat')).length"
    page.wait_for_function(f"() => {{ const items = [...{boxes}]; return {opened}; }}")
    pick(page, "more-node", "group-none")
    page.wait_for_function(f"() => ![...{boxes}].some(item => item.innerText.includes('×'))")

    # The selection survives: it is nodes, not pictures.
    assert reached == listed(page, "selection")[0]

    # Export.
    with page.expect_download() as saved:
        pick(page, "more-node", "svg")
    picture = tmp_path / "graph.svg"
    saved.value.save_as(picture)
    words = [n.text for n in ET.fromstring(picture.read_text(encoding="utf-8")).iter() if n.text]
    assert concats <= words.count(operator)

    # Dark follows the host.
    host.theme(dark=True)
    page.wait_for_selector(f"{VIEW}.rt-dark")
    host.theme(dark=False)
    assert [] == host.left_machine
    assert set(host.console_errors) <= said


#: The third measurement waits until it is cancelled.
PAUSED = """import time, rtlab
from rtlab.core.progress import check
from rtlab.study import stages
measured, measure = [], stages._Measuring._time
def wait_third(self, within):
    measured.append(1)
    while len(measured) == 3:
        time.sleep(0.02)
        check(self.progress, "waiting")
    return measure(self, within)
stages._Measuring._time = wait_third
model = rtlab.testing.tiny_model()
study = rtlab.Study(model, data=rtlab.CalibrationData.random(model, samples=2))
study.add("fp32", target="cpu")
study.run()
study.explore()"""
VARIANTS = f"{EXPLORER} [data-chip]"


@pytest.mark.parametrize(
    ("host", "stays"),
    [
        ("marimo run", False),
        ("marimo edit", True),
        ("voila", False),
        ("voila preheated", False),
        ("notebook", True),
    ],
)
def test_the_explorer_links_builds_cancels_and_is_there_after_a_reload(open_cells, host, stays) -> None:
    """A reload finds the kernel of before, or is a visit of its own."""
    shown = open_cells(host, [PAUSED])
    page = shown.page
    page.wait_for_selector(READY)
    explorer = page.locator(EXPLORER)

    # A marimo widget lies in a shadow tree, which selectors of the page itself do not enter.
    explorer.evaluate("view => view.scrollIntoView({block: 'center', behavior: 'instant'})")
    at = explorer.evaluate("view => view.rtlabBoxAt('node', 'stem/Relu')")
    page.mouse.click(at["x"], at["y"])
    page.wait_for_selector(f"{EXPLORER}[data-selection='[\"stem/Relu\"]']:not([data-layers='[]'])")

    def build(precision: str) -> None:
        page.click(f'{EXPLORER} [data-control="precision"] [data-value="{precision}"]')
        page.click(f'{EXPLORER} [data-control="build"]')

    build("int8")
    page.wait_for_selector(f"{READY}[data-variant^='int8']")
    assert 2 == page.locator(VARIANTS).count()

    # Keys stay in the menu, also where the page has another active element than the widget's tree.
    page.click(f'{EXPLORER} [data-control="more-node"] button')
    page.keyboard.press("End")
    page.wait_for_selector(f'{EXPLORER} [role="menu"] button:last-child:focus')
    page.keyboard.press("Escape")

    # Cancelled while it is timed, it is built and stays.
    build("fp16")
    page.click(f'{EXPLORER} [data-control="cancel"]')
    page.wait_for_selector(f"{READY}[data-variant^='fp16']")
    page.wait_for_selector(f'{EXPLORER} [data-control="cancel"]', state="detached")
    assert [] == [words for words in shown.console_errors if "blob:" in words or "rtlab" in words]

    if host == "notebook":
        page.evaluate("() => window.jupyterapp.commands.execute('docmanager:save')")
    page.reload()
    page.wait_for_selector(READY)
    assert page.get_attribute(EXPLORER, "data-variant").startswith("fp16" if stays else "fp32")


def test_a_notebook_executed_by_nbconvert_shows_its_table_and_picture(open_cells) -> None:
    cells = [STUDY.format(model="rtlab.testing.tiny_model()"), "study.explore()", "graph"]
    page = open_cells("nbconvert", cells).page
    pictures = page.locator("img[alt^='ONNX and ']")
    assert 2 == pictures.count()
    for picture in pictures.all():
        assert picture.evaluate("image => image.complete && image.naturalWidth") > 200
        assert picture.is_visible()
    assert page.locator("td", has_text=re.compile("^fp32$")).first.is_visible()
    assert 0 == page.locator(".rt-explorer, .rt-graph").count()
