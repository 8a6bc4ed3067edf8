"""The score of a variant, the samples that flipped, and every panel on these alone, in a real JupyterLab."""

from __future__ import annotations

import pytest

from explorer import EXPLORER, show

pytestmark = pytest.mark.slow

OUTLIER = """import rtlab
sample = rtlab.samples.load("digits_outlier")
study = rtlab.Study(sample.model, data=sample.calibration, task=sample.task)
study.add("fp32", backend="onnxruntime", target="cpu")
study.add("int8", precision="int8", calibrator="minmax", backend="onnxruntime", target="cpu")
study.run()
explorer = study.explore()
explorer.show("int8")
explorer"""


def test_every_panel_shows_the_samples_that_flipped_alone(opened) -> None:
    """From the drop on the chip to its samples, to the errors of these, and back."""
    shown = opened(OUTLIER)
    page, lab = shown.page, shown.lab
    where = show(shown, "accuracy", "score")
    page.wait_for_selector(f"{where} .js-plotly-plot .main-svg >> nth=0")
    assert "26.9 points below fp32, 23.9 to 29.8" in page.inner_text(f'{where} [data-fact="Difference"]')
    assert 16 == page.locator(f"{where} .js-plotly-plot .annotation").count()
    for dark in (False, True):
        lab.theme(dark=dark)
        for width, height in ((1500, 1000), (1280, 720)):
            page.set_viewport_size({"width": width, "height": height})
            shown.picture(f"score-{'dark' if dark else 'light'}-{width}")
    lab.theme(dark=False)
    page.click(f'{where} [data-work="only"]')
    lab.wait_python("len(study.chosen) == 242 and not explorer.build['running']")
    page.wait_for_selector(f'{EXPLORER} :text("errors and score are of 242 chosen samples only")')
    where = show(shown, "accuracy", "score")
    page.wait_for_selector(f'{where} [data-work="only"]:has-text("All samples again")')
    shown.picture("score-chosen")
    page.click(f'{where} [data-work="only"]')
    lab.wait_python("not study.chosen and study['int8'].score.samples == 899")
    page.wait_for_selector(f'{where} [data-work="only"]:has-text("Show only these 242 samples")')
