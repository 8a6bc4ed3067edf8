"""What a notebook keeps of the widgets when it is saved with their state, and what is seen without a kernel."""

from __future__ import annotations

import json

import pytest

CELLS = [
    (
        "import rtlab\nfrom rtlab.testing import tiny_model\nstudy = rtlab.Study(tiny_model())\n"
        "study.add('fp32', target='cpu')\nstudy.run()\nexplorer, graph = study.explore(), study.graph('fp32')"
    ),
    "explorer",
    "graph",
    "graph",
]
VIEWS = '.rt-explorer[data-ready="1"], .rt-graph[data-ready="1"]'


@pytest.fixture
def keeping(fresh_lab_page):
    """JupyterLab that saves widget state, which is a setting."""
    url = f"{fresh_lab_page.lab.url}/lab/api/settings/@jupyter-widgets/jupyterlab-manager:plugin"
    headers = {"Authorization": f"token {fresh_lab_page.lab.token}"}

    def save(state: str) -> None:
        answer = fresh_lab_page.page.request.put(url, headers=headers, data={"raw": state})
        assert answer.ok, answer.text()

    save('{"saveState": true}')
    yield fresh_lab_page
    save("{}")


def views(page, count: int) -> None:
    """Wait until as many views are drawn; each comes into being when it is near the window."""
    page.wait_for_function(
        "([views, count]) => document.querySelectorAll(views).length === count", arg=[VIEWS, count]
    )


def test_a_saved_notebook_keeps_neither_script_nor_payload_and_says_what_to_do(keeping) -> None:
    page = keeping.page
    path = keeping.place(CELLS)
    address = f"{keeping.lab.url}/lab/tree/{path.name}"
    page.goto(f"{address}?reset&token={keeping.lab.token}")
    page.wait_for_selector(".jp-Notebook .jp-Cell")
    keeping.wait_idle()
    keeping.run_all()
    # Two views of one widget: the second one asks for itself.
    views(page, 3)
    page.evaluate("() => window.jupyterapp.commands.execute('docmanager:save')")
    keeping.python("explorer.select('stem/Relu')")

    saved = json.loads(path.read_text(encoding="utf-8"))["metadata"]["widgets"]
    models = saved["application/vnd.jupyter.widget-state+json"]["state"].values()
    own = [m for m in models if m["model_module"] == "anywidget"]
    assert 2 == len(own)
    for model in own:
        assert [] == [b for b in model.get("buffers", []) if b["data"]]
        assert set() == {"source", "engine", "other", "charts"} & set(model["state"])
        # What tells of the machine, its compilers and times is as long as these are, in strings that are no payload.
        by_machine = {k: model["state"].pop(k, "") for k in ("controls", "chips", "status")}
        assert len(json.dumps(model)) < 6_000
        assert max(map(len, json.dumps(by_machine).split('"'))) < 1_000

    # The page is loaded again while the kernel lives.
    page.goto(address)
    views(page, 3)
    page.wait_for_selector(".rt-explorer[data-selection='[\"stem/Relu\"]']")

    # The kernel is gone, and another one knows nothing of these widgets.
    page.evaluate("() => window.jupyterapp.shell.currentWidget.sessionContext.session.shutdown()")
    page.goto(f"{address}?reset")
    page.wait_for_function(
        "() => [...document.querySelectorAll('.jp-OutputArea-output [role=status]')]"
        ".filter(words => words.innerText.includes('Run the cells again')).length === 3"
    )
    assert 0 == page.locator(".rt-explorer, .rt-graph").count()


def test_a_reopened_notebook_shows_a_still_picture_in_place_of_an_error(fresh_lab_page) -> None:
    page = fresh_lab_page.page
    path = fresh_lab_page.place(CELLS[:2])
    address = f"{fresh_lab_page.lab.url}/lab/tree/{path.name}"
    page.goto(f"{address}?reset&token={fresh_lab_page.lab.token}")
    page.wait_for_selector(".jp-Notebook .jp-Cell")
    fresh_lab_page.wait_idle()
    fresh_lab_page.run_all()
    views(page, 1)
    # The widget and not its picture, while there is a kernel.
    assert 0 == page.locator(".jp-OutputArea-output img").count()
    page.evaluate("() => window.jupyterapp.commands.execute('docmanager:save')")
    page.evaluate("() => window.jupyterapp.shell.currentWidget.sessionContext.session.shutdown()")
    page.goto(f"{address}?reset")
    page.wait_for_selector(".jp-OutputArea-output img[alt^='ONNX and ']")
    page.wait_for_selector(".jp-OutputArea-output td:has-text('fp32')")
    width = page.evaluate("document.querySelector('.jp-OutputArea-output img').naturalWidth")
    assert width > 200
