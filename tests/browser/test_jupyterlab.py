"""Where the Explorer plays: JupyterLab with widgets, offline, and the instruments that watch it."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.slow

WIDGET = """
import ipywidgets

pressed = []
button = ipywidgets.Button(description="Press me")
button.on_click(lambda _: pressed.append(True))
button
"""


def test_a_widget_is_drawn_and_its_click_reaches_the_kernel(lab_page):
    """Every pane of the Explorer is a widget; without this nothing else can work."""
    lab_page.open([WIDGET, "print('answer', 6 * 7)"])
    lab_page.run_all()
    lab_page.page.click("button:has-text('Press me')")
    lab_page.wait_python("pressed")

    assert "answer 42" == lab_page.output_text(1).strip()
    assert [True] == lab_page.python("pressed")
    assert [] == lab_page.left_machine
    assert [] == lab_page.console_errors


def test_jupyterlab_as_rtlab_starts_it_asks_for_nothing_from_elsewhere(own_lab_page):
    """Neither news nor updates, nor what there is to install; nor does it ask its user for a choice."""
    page, lab = own_lab_page.page, own_lab_page.lab
    with page.expect_response(lambda answer: "/lab/api/extensions" in answer.url) as listed:
        page.goto(f"{lab.url}/{lab.tree}/01_first_look.ipynb?token={lab.token}")
        page.wait_for_selector(".jp-Notebook .jp-Cell")
        page.wait_for_selector(".jp-Notebook-ExecutionIndicator[data-status='idle']")
        page.click("[data-id='extensionmanager.main-view']")
    assert {"anywidget", "@jupyter-widgets/jupyterlab-manager"} <= {e["name"] for e in listed.value.json()}
    page.wait_for_selector("text=jupyterlab-plotly", state="attached")
    assert 0 == page.get_by_text("Jupyter news").count()
    assert 0 == page.locator(".jp-Dialog").count()
    assert [] == own_lab_page.left_machine


@pytest.mark.parametrize("host", ["example.org", "192.0.2.1"])
def test_a_request_to_another_machine_is_recorded_and_stopped(lab_page, host):
    """The proof that nothing is fetched is worth what its instrument is worth; a number needs no name server."""
    lab_page.open(["1"])
    address = f"http://{host}/x.js"
    failed = lab_page.page.evaluate("address => fetch(address).then(() => false, () => true)", address)

    assert failed
    assert [address] == lab_page.left_machine
    stopped = "net::ERR_NAME_NOT_RESOLVED"
    assert [True] == [stopped in error for error in lab_page.console_errors if address in error]
