"""From a drop to a repaired variant, by clicks alone."""

from __future__ import annotations

import json

import pytest

from explorer import EXPLORER, Explorer, show

pytestmark = pytest.mark.slow

#: A network whose INT8 is bad for one reason, which another scale takes away.
OUTLIER = """import rtlab
sample = rtlab.samples.load("digits_outlier")
study = rtlab.Study(sample.model, data=sample.calibration, task=sample.task)
study.add("fp32", backend="onnxruntime")
study.add("int8", calibrator="minmax", backend="onnxruntime")
study.run()
explorer = study.explore(baseline="fp32")
explorer"""
OVERFLOW = OUTLIER.replace("digits_outlier", "fp16_overflow").replace(
    'study.add("int8", calibrator="minmax", backend', 'study.add("fp16", backend'
)
PANEL = f'{EXPLORER} [data-panel="diagnosis"]'


@pytest.mark.parametrize(
    ("cell", "worse", "word", "label", "good"),
    [
        (OUTLIER, "int8", "Outlier channels", "Another scale", 98.9),
        (OVERFLOW, "fp16", "FP16 overflow", "Pin this region", 98.1),
    ],
    ids=["scale", "region"],
)
def test_two_clicks_lead_from_a_drop_to_a_repaired_variant(opened, cell, worse, word, label, good) -> None:
    shown: Explorer = opened(cell)
    page, lab = shown.page, shown.lab
    assert page.locator(f'{EXPLORER} [data-control="why-accuracy"]').count() == 1
    page.click(f'{EXPLORER} [data-chip="{worse}"] [data-control="why-accuracy"]')
    page.wait_for_selector(f"{PANEL} [data-row]", timeout=60_000)
    assert word in page.inner_text(f"{PANEL} table")
    # A row selects the place in the graph, and is the cause that the panel tells of in full.
    page.click(f"{PANEL} [data-row] >> nth=0")
    first = f"study.state.diagnoses[{worse!r}].findings[0]"
    # Nothing is selected until the page has said so.
    lab.wait_python(f"explorer.state.selection[:1] == ({first}.nodes[0],)")
    # The error that each node makes itself colours it from now on.
    lab.wait_python("explorer.state.colour_nodes == 'own_error'")
    page.wait_for_selector(f'{EXPLORER} [data-control="colour-node"]:has-text("own SQNR")')
    told = lab.python(f"{first}.evidence")
    page.wait_for_selector(f"{PANEL} .rt-lead p.rt-quiet:has-text({json.dumps(told)})")
    lead = page.locator(f"{PANEL} .rt-lead p.rt-quiet")
    assert lead.evaluate("p => p.scrollHeight <= p.clientHeight + 1")
    if lab.python(f"{first}.channels"):
        # Its channels are measured in a panel of their own, which opens.
        page.click(f'{PANEL} [data-work="channels"]')
        channels = f'{EXPLORER} [data-panel="channels"]'
        page.wait_for_selector(f"{channels} [data-row]", timeout=60_000)
        assert lab.python(f"[{first}.value] == [*study.state.channels[{worse!r}]]")
        show(shown, "accuracy", "diagnosis")
    page.click(f'{PANEL} [data-work="treat"]:has-text("{label}") >> nth=0')
    lab.wait_python(f"explorer.state.variant != {worse!r} and explorer.state.variant in study")
    lab.wait_python(f"(s := study[explorer.state.variant].score) is not None and s.value > {good}")
    assert [] == lab.console_errors


def test_flipped_samples_are_shown_alone_until_all_are_wanted_again(opened) -> None:
    shown: Explorer = opened(OUTLIER)
    page, lab = shown.page, shown.lab
    whole = lab.python("study['int8'].score.samples")
    lab.python("explorer.show('int8')")
    task = show(shown, "accuracy", "score")
    page.wait_for_selector(f"{task} .js-plotly-plot .main-svg >> nth=0")
    assert 16 == page.locator(f"{task} .js-plotly-plot .annotation").count()
    flipped = page.locator(f"{task} .rt-table table").get_attribute("aria-rowcount")
    page.click(f'{task} [data-work="only"]')
    lab.wait_python(f"(s := study['int8'].score) is not None and s.samples == {flipped}")
    # Every one of them is wrong now, and was right before.
    lab.wait_python("study['int8'].score.value == 0 and study['fp32'].score.value == 100")
    lab.wait_python(f"study['int8'].accuracy is not None and study['int8'].accuracy.samples == {flipped}")
    lab.wait_python("not explorer.build['running']")
    page.click(f'{task} [data-work="only"]:has-text("All samples again")')
    lab.wait_python(f"study['int8'].score.samples == {whole} and not study.state.selected_samples")
    assert [] == lab.console_errors
