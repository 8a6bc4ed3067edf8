"""A kernel that is restarted, dies, is shut down, is busy or out of reach while its views are on screen."""

from __future__ import annotations

import os
import signal

import pytest

from explorer import EXPLORER, GATED, Explorer, allow

pytestmark = pytest.mark.slow

SESSION = "window.jupyterapp.shell.currentWidget.sessionContext"
KERNEL = f"{SESSION}.session.kernel"
TOLD = '[data-control="kernel"]'
BUILD = f'{EXPLORER} [data-control="build"]'
AGAIN = "run the cells again"

STUDY = """
import rtlab
from rtlab.testing import tiny_model
study = rtlab.Study(tiny_model())
study.add("fp32", target="cpu")
study.run()
explorer, graph = study.explore(), study.graph("fp32")
"""


def command(page, name: str) -> None:
    """What a menu of JupyterLab does."""
    page.evaluate("name => { window.jupyterapp.commands.execute(name) }", name)


def answered(page, panel: str) -> None:
    """Wait until the kernel has worked out the panel in front."""
    page.wait_for_selector(f'{EXPLORER} [data-panel="{panel}"][aria-busy="false"] h4:not(:empty)')


def test_a_restart_in_the_middle_of_a_build_ends_all_that_was_under_way_and_says_how_to_go_on(
    lab_page,
) -> None:
    lab_page.open([GATED, "explorer"], alone=True)
    lab_page.run_all()
    page = lab_page.page
    page.wait_for_selector(f"{BUILD}:not([disabled])")
    allow(page, "inf")
    page.click(f'{EXPLORER} [data-tab="timing"]')
    page.click(BUILD)
    page.wait_for_selector(f'{EXPLORER} [data-stage="timed"][data-state="waiting"]')
    page.click(f'{EXPLORER} [data-tab="memory"]')
    answered(page, "memory")
    # A command is on its way, and then the kernel is gone.
    lab_page.python("setattr(type(explorer), '_panel', lambda *asked: None)")
    page.click(f'{EXPLORER} [data-tab="streams"]')
    page.wait_for_selector(f'{EXPLORER} [data-panel="schedule"][aria-busy="true"]')
    page.evaluate(f"() => {{ {KERNEL}.restart() }}")

    assert AGAIN in page.wait_for_selector(f"{EXPLORER} {TOLD}").inner_text()
    assert 0 == page.locator(f'{EXPLORER} :is(.rt-spin, .rt-skeleton, [aria-busy="true"])').count()
    assert 0 == page.locator(f'{EXPLORER} [data-control="progress"]').count()
    assert page.is_disabled(BUILD)
    # What was worked out can be read, and what was not says so.
    assert "The kernel is gone" in page.inner_text(f'{EXPLORER} [data-control="unanswered"]')
    page.click(f'{EXPLORER} [data-tab="memory"]')
    answered(page, "memory")
    page.click(f'{EXPLORER} [data-tab="timing"]')
    page.wait_for_selector(f'{EXPLORER} [data-stage="timed"]', state="attached")
    shown = Explorer(lab_page)
    shown.click("node", "/stem/relu/Relu")
    shown.wait_data("selection", ["/stem/relu/Relu"])

    lab_page.wait_idle()
    lab_page.run_all()
    page.wait_for_selector(f"{BUILD}:not([disabled])")
    assert 0 == page.locator(TOLD).count()
    page.click(BUILD)
    lab_page.wait_python("explorer.build['running']")
    assert [] == lab_page.console_errors


@pytest.mark.parametrize("how", ["killed", "shut down"])
def test_every_view_says_that_its_kernel_is_gone_and_can_be_looked_at(lab_page, how) -> None:
    lab_page.open([STUDY, "explorer", "graph"])
    lab_page.run_all()
    page = lab_page.page
    page.wait_for_selector('.rt-graph[data-ready="1"]')
    if how == "killed":
        os.kill(lab_page.python("__import__('os').getpid()"), signal.SIGKILL)
        page.click(".jp-Dialog .jp-mod-accept")
    else:
        command(page, "notebook:shutdown-kernel")

    for view in (EXPLORER, ".rt-graph"):
        assert AGAIN in page.wait_for_selector(f"{view} {TOLD}").inner_text()
    shown = Explorer(lab_page)
    shown.click("node", "stem/Relu")
    shown.wait_data("selection", ["stem/Relu"])
    assert shown.listed("layers")

    page.evaluate(f"() => {SESSION}.session ? 0 : {SESSION}.startKernel()")
    lab_page.wait_idle()
    lab_page.run_all()
    page.wait_for_selector(TOLD, state="detached")
    shown.ready()
    lab_page.wait_python("explorer.state.variant == 'fp32'")
    shown.click("node", "stem/Relu")
    lab_page.wait_python("explorer.state.selection == ('stem/Relu',)")
    assert [] == lab_page.console_errors


def test_what_is_asked_of_a_kernel_that_is_busy_or_out_of_reach_waits_and_says_so(lab_page) -> None:
    go = lab_page.lab.root / "free"
    wait = f"import pathlib, time\nwhile not pathlib.Path({str(go)!r}).exists():\n    time.sleep(0.05)"
    lab_page.open([STUDY, "explorer", wait])
    page = lab_page.page
    lab_page.without_subshells()
    command(page, "notebook:run-all-cells")
    shown = Explorer(lab_page)
    shown.ready()
    page.click(f'{EXPLORER} [data-tab="memory"]')
    page.wait_for_selector(f'{EXPLORER} [data-control="busy"]:not([hidden])')
    go.touch()
    answered(page, "memory")
    page.wait_for_selector(f'{EXPLORER} [data-control="busy"]', state="hidden")
    lab_page.wait_idle()
    go.unlink()

    # The socket is closed, and no other is opened until it is asked for.
    page.evaluate(f"() => {{ {KERNEL}._clearSocket(); {KERNEL}._updateConnectionStatus('connecting'); }}")
    assert "connection" in page.wait_for_selector(f"{EXPLORER} {TOLD}").inner_text()
    page.click(f'{EXPLORER} [data-tab="streams"]')
    assert "No connection" in page.inner_text(f'{EXPLORER} [data-control="unanswered"]')
    page.evaluate(f"() => {{ {KERNEL}.reconnect() }}")
    page.wait_for_selector(TOLD, state="detached")
    answered(page, "schedule")
    assert not page.is_disabled(BUILD)
    shown.click("node", "stem/Relu")
    lab_page.wait_python("explorer.state.selection == ('stem/Relu',)")
    assert [] == lab_page.console_errors


def test_the_code_of_tabs_follows_the_picture_and_is_there_when_the_kernel_is_not(lab_page) -> None:
    lab_page.open([STUDY, "explorer"], alone=True)
    lab_page.forget()
    lab_page.run_all()
    page = lab_page.page
    page.wait_for_selector(f'{EXPLORER}[data-ready="1"]')
    names = "[...window.rtlabScripts.keys()].map(key => key.split(' ')[0])"
    page.wait_for_function(f"() => {names}.filter(name => name.startsWith('tab-')).length === 6")
    order = page.evaluate(f"() => {names}")
    assert {"core.js", "explorer.js"} == set(order[:2])
    assert len(order) == len(set(order)) == 8
    command(page, "notebook:shutdown-kernel")
    page.wait_for_selector(TOLD)
    for tab, content in {
        "engine": ".rt-caption.rt-facts",
        "table": "tr[data-layer]",
        "calibration": ".rt-explain",
    }.items():
        page.click(f'{EXPLORER} [data-tab="{tab}"]')
        page.wait_for_selector(f"{EXPLORER} .rt-bottom {content}")
