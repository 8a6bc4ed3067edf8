"""Files that open in a tab of their own: JupyterLab's extension."""

from __future__ import annotations

import shutil

import onnx
import pytest

import rtlab
from rtlab.testing import tiny_model

pytestmark = pytest.mark.slow

READY = ".rtlab-document .rt-explorer .rt-pane canvas"
TAB = "[...document.querySelectorAll('.lm-DockPanel-tabBar .lm-TabBar-tabLabel')].map(e => e.textContent)"


def open_file(lab_page, name: str) -> None:
    """Double-click on a file in JupyterLab's file browser."""
    page = lab_page.page
    page.goto(f"{lab_page.lab.url}/lab?reset&token={lab_page.lab.token}")
    page.wait_for_selector(f".jp-DirListing-item[title^='Name: {name}']")
    page.dblclick(f".jp-DirListing-item[title^='Name: {name}']")


def test_a_model_opens_in_a_tab_is_never_written_and_is_back_after_a_reload(lab_page):
    path = lab_page.lab.root / "own.onnx"
    onnx.save(tiny_model(batch=1).proto(), path)
    before = path.read_bytes()
    open_file(lab_page, "own.onnx")
    lab_page.page.wait_for_selector(READY)
    lab_page.page.wait_for_selector(".rtlab-document [data-chip=fp32].rt-ready")
    lab_page.page.evaluate("window.jupyterapp.commands.execute('docmanager:save')")
    # A dialog says that it cannot be saved, where JupyterLab has one.
    lab_page.page.wait_for_timeout(300)
    lab_page.page.evaluate("document.querySelector('.jp-Dialog button')?.click()")
    assert before == path.read_bytes()
    host, own = lab_page.page.evaluate(
        "['.rtlab-document', '.rt-explorer'].map(s => document.querySelector(s).clientHeight)"
    )
    assert 0 <= host - own <= 30
    lab_page.python("globals().update(mark=id(explorer))")

    lab_page.page.goto(f"{lab_page.lab.url}/lab?token={lab_page.lab.token}")
    lab_page.page.wait_for_selector(READY)
    lab_page.page.wait_for_selector(".rtlab-document [data-chip=fp32].rt-ready")
    assert lab_page.python("mark == id(explorer)")


def test_layers_of_an_engine_open_too_and_what_cannot_be_read_says_why(lab_page):
    (source,) = rtlab.samples.engine("resnet18-a100-int8")
    shutil.copy(source, lab_page.lab.root / "engine.build.json")
    (lab_page.lab.root / "cut.onnx").write_bytes(b"\x08\x07\x12")
    open_file(lab_page, "engine.build.json")
    lab_page.page.wait_for_selector(READY)
    open_file(lab_page, "cut.onnx")
    lab_page.page.wait_for_selector(".rtlab-document >> text=Cannot load")
