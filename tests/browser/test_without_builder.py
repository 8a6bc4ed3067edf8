"""The Explorer in a kernel that has no TensorRT-RTX: a sample's recorded builds, an own model, a recording dropped."""

from __future__ import annotations

from pathlib import Path

import pytest

import rtlab
from explorer import EXPLORER, Explorer
from rtlab import backends

pytestmark = pytest.mark.slow

#: The kernel's interpreter finds no such package, as on a Mac; tests/run bare has an environment without it.
HIDDEN = """import importlib.util
found = importlib.util.find_spec
importlib.util.find_spec = lambda name, *rest: None if name == "tensorrt_rtx" else found(name, *rest)
import rtlab
"""


@pytest.fixture
def shown(lab_page, tmp_path: Path):
    """The Explorer on an own model, a sample whose first node has another name."""
    proto = rtlab.samples.load("digits_mobilenet").model.proto()
    proto.graph.node[0].name = "mine"
    (tmp_path / "mine.onnx").write_bytes(proto.SerializeToString())
    lab_page.open(
        [f"{HIDDEN}explorer = rtlab.explore({str(tmp_path / 'mine.onnx')!r})\nexplorer"], alone=True
    )
    lab_page.run_all()
    found = Explorer(lab_page)
    found.ready()
    found.lab.wait_python("not explorer.build['running']")
    return found


def notice(shown: Explorer) -> str:
    """What stands behind the notice, opened by the keyboard."""
    shown.page.focus(f"{EXPLORER} .rt-notice summary")
    shown.page.keyboard.press("Enter")
    shown.page.wait_for_selector(f"{EXPLORER} .rt-notice .rt-popup")
    return shown.page.inner_text(f"{EXPLORER} .rt-notice .rt-popup")


def test_an_own_model_shows_onnx_runtime_and_what_would_bring_more(shown, tmp_path) -> None:
    """What is missing and how to get it; a sample has its recorded builds; a recording opens on its own model."""
    lab, page = shown.lab, shown.page
    assert lab.python("explorer.failure") is None
    assert "ONNX Runtime" in lab.python("next(iter(explorer.study.state.results.values())).engine.title")
    assert "drop the file here" in notice(shown)

    lab.python("explorer.load('digits_inception') and 0")
    lab.wait_python("explorer.study.model.name == 'digits_inception' and not explorer.build['running']")
    shown.ready()
    page.wait_for_function(
        "() => document.querySelector('.rt-notice')?.innerText.includes('Recorded builds')"
    )
    assert "recorded with TensorRT-RTX 1.7" in page.inner_text(f"{EXPLORER} .rt-status")
    shown.choose("precision", "int8")
    shown.build()
    shown.shown("int8·auto")

    if not backends.get("tensorrt-rtx").availability().ok:
        pytest.skip("no builder here that could record")
    study = rtlab.Study(rtlab.samples.load("digits_lstm").model)
    study.add("fp16", target="sm89")
    study.run(compare=False, budget_s=0)
    path = study.save_build("fp16", tmp_path / "build.json")
    page.click(f'{EXPLORER} [data-control="model"]')
    with page.expect_file_chooser() as dialog:
        page.click(f'{EXPLORER} [data-control="files"]')
    dialog.value.set_files([str(path)])
    lab.wait_python("explorer.study.model.name == 'digits_lstm' and not explorer.build['running']")
    shown.ready()
    assert lab.python("explorer.failure") is None
    assert lab.python("next(iter(explorer.study.state.results.values())).recorded")
