"""What changed between two precisions, asked in a real JupyterLab: the answer, its text, its files, and once more."""

from __future__ import annotations

import io
import zipfile

import pytest

from explorer import Explorer, show
from rtlab import backends

pytestmark = pytest.mark.skipif(
    not backends.get("tensorrt-rtx").availability().ok, reason="TensorRT-RTX is not installed"
)

STUDY = """import rtlab
sample = rtlab.samples.load("digits_mobilenet")
study = rtlab.Study(sample.model, data=sample.calibration)
for precision in ("fp32", "int8"):
    study.add(precision, precision=precision, target="sm86", backend="tensorrt-rtx")
study.run(compare=False)
explorer = study.explore()
explorer.show("int8")
explorer.compare("fp32")
explorer"""


def test_what_changed_is_found_shown_and_saved(opened) -> None:
    shown: Explorer = opened(STUDY)
    page, lab = shown.page, shown.lab
    where = show(shown, "compare", "bisection")
    assert "at most 200 parts" in page.inner_text(f"{where} .rt-drawn")
    page.click(f'{where} [data-work="bisect"]')
    page.wait_for_selector(f'{where} button:has-text("Look again")')
    lab.wait_python("not explorer.build['running']")
    page.wait_for_selector(f'{where} [data-work="bugreport"]')
    page.wait_for_function(
        "where => document.querySelectorAll(where + ' [data-row]').length === 1", arg=where
    )
    told = lab.python("study.bisect('fp32', 'int8').text")
    assert lab.python("study.bisect('fp32', 'int8').recalled"), "it is told at once from then on"
    assert told in page.inner_text(f"{where} .rt-lead")
    assert "Conv; BatchNormalization with Q" in page.inner_text(f"{where} table")
    # A row selects the nodes of all its places.
    page.click(f"{where} [data-row='row 0']")
    lab.wait_python("set(explorer.state.selection) == set(study.bisect('fp32', 'int8').changes[0].nodes)")
    shown.picture("panel-what-changed")
    page.click(f'{where} [data-control="text"]')
    text = page.inner_text(f"{where} pre")
    assert text.startswith("# fp32")
    assert "and 15 more places like it" in text
    shown.picture("panel-what-changed-text")
    page.click(f'{where} [data-control="text-close"]')
    with page.expect_download() as saved:
        page.click(f'{where} [data-work="bugreport"]')
    assert "digits_mobilenet-fp32-int8-changes.zip" == saved.value.suggested_filename
    with zipfile.ZipFile(io.BytesIO(saved.value.path().read_bytes())) as files:
        assert {"report.md", "1/first.onnx", "1/second.onnx", "1/first.log"} <= {*files.namelist()}
        assert files.read("report.md").decode() == lab.python(
            "__import__('rtlab.questions.bisection.report', fromlist=['text'])"
            ".text(study.bisect('fp32', 'int8'), study.model)"
        )
    assert [] == lab.console_errors
