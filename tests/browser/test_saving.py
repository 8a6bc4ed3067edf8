"""The button that saves a study, and a study that is opened again, in JupyterLab."""

from __future__ import annotations

from pathlib import Path

import pytest

from explorer import EXPLORER

pytestmark = pytest.mark.slow

#: Two variants, in a kernel whose folder is this one.
CELL = """import os
import rtlab
os.chdir({folder!r})
study = rtlab.Study(rtlab.testing.tiny_model())
study.add("fp32", target="cpu", backend="onnxruntime")
study.add("fp16", target="sm86", backend="classic")
study.run(budget_s=2)
explorer = study.explore()
explorer"""
AGAIN = """import rtlab
explorer = rtlab.explore({path!r})
explorer"""


def test_the_save_button_says_where_and_the_file_opens(opened, tmp_path: Path) -> None:
    shown = opened(CELL.format(folder=str(tmp_path)))
    page, notice = shown.page, f'{EXPLORER} [data-control="saved"]'
    shown.ready()
    page.click(f'{EXPLORER} [data-control="save-study"]')
    page.wait_for_selector(notice)
    path = tmp_path / "tiny.rtlab"
    assert f'Saved: "{path}", ' in page.inner_text(notice)
    assert "rtlab.open('tiny.rtlab')" == page.inner_text(f"{notice} code")
    assert page.locator(f"{EXPLORER} [data-chip]").count() == 2
    box = page.locator(notice).bounding_box()
    frame = page.locator(EXPLORER).bounding_box()
    assert box["x"] >= frame["x"]
    assert box["x"] + box["width"] <= frame["x"] + frame["width"]
    page.click(f"{notice} button")
    assert page.locator(notice).count() == 0
    again = opened(AGAIN.format(path=str(path)))
    again.ready()
    assert ["fp32", "fp16"] == again.lab.python("[*explorer.study]")
    assert "saved on 20" in again.page.inner_text(f"{EXPLORER} .rt-status")
