"""Precision and calibration in a real JupyterLab: the Calibration and Findings tabs, pins, pruning, saving."""

from __future__ import annotations

import json

import onnx
import pytest

import rtlab
from explorer import EXPLORER, Explorer

pytestmark = pytest.mark.slow

OUTLIER = """import rtlab
sample = rtlab.samples.load("digits_outlier")
study = rtlab.Study(sample.model, data=sample.calibration, task=sample.task)
study.add("fp32", target="sm86")
study.run()
explorer = study.explore()
explorer"""

MISPLACED = OUTLIER.replace("digits_outlier", "digits_qat_misplaced")


@pytest.fixture
def opened(lab_page):
    def open_(*cells: str, variant: str = "fp32") -> Explorer:
        lab_page.open(list(cells))
        lab_page.run_all()
        found = Explorer(lab_page)
        found.shown(variant)
        return found

    return open_


def digits(number: float) -> str:
    """Three significant digits, as the Explorer writes them."""
    return f"{number:#.3g}".rstrip(".")


def idle(shown: Explorer) -> None:
    shown.lab.wait_python("not explorer.build['running']")


def menu(shown: Explorer, chip: str, item: str) -> None:
    """Open a chip's menu and choose."""
    shown.page.click(f'{EXPLORER} [data-chip="{chip}"] button[aria-haspopup]')
    shown.page.click(f'{EXPLORER} [data-item="{item}"]')


def test_from_nothing_observed_to_the_calibrator_that_the_task_wants(opened) -> None:
    """The whole of calibration without a cell: observe, rank, look at a tensor, take the best, build."""
    shown = opened(OUTLIER)
    page, lab = shown.page, shown.lab
    page.click(f'{EXPLORER} [data-tab="calibration"]')
    page.click(f'{EXPLORER} [data-control="observe"]')
    page.wait_for_selector(f"{EXPLORER} [data-row]")
    idle(shown)
    text = page.inner_text(f"{EXPLORER} .rt-calibration")
    assert "898 samples" in text
    values = lab.python("list(study.calibration.ranges.values)")

    # A row selects the nodes that read the tensor, in the browser and in the kernel; its histogram has every threshold.
    value = values[2]
    page.click(f'{EXPLORER} [data-row="{value}"]')
    readers = lab.python(
        "sorted(n.id for n in sample.model.top if "
        f"{value!r} in n.inputs and n.op in {{'Conv', 'Gemm', 'GlobalAveragePool'}})"
    )
    lab.wait_python(f"set(explorer.state.selection) & set({readers!r})")
    marks = page.text_content(f"{EXPLORER} .rt-calibration svg")
    assert all(name in marks for name in ("minmax", "entropy", "entropy2", "percentile", "mse"))

    # Ranked on the task, with minmax last by far on this sample.
    page.click(f'{EXPLORER} [data-control="rank"]')
    lab.wait_python("bool(study.calibration.ranking)")
    idle(shown)
    best = lab.python("str(study.calibration.ranking[0].calibrator)")
    assert "minmax" == lab.python("str(study.calibration.ranking[-1].calibrator)")
    row = f'{EXPLORER} [data-rank="{best}"]'
    page.wait_for_selector(row)
    shown.picture("calibration-light")

    # Take it, and build int8 with it.
    shown.choose("precision", "int8")
    lab.wait_python("explorer.choice['precision'] == 'int8'")
    page.click(f'{row} [data-control="use"]')
    lab.wait_python(f"explorer.choice['calibrator'] == {best!r}")
    shown.build()
    shown.shown(f"int8·{best}")
    assert lab.python("study[explorer.state.variant].score.value > study['fp32'].score.value - 1")
    lab.theme(dark=True)
    shown.picture("calibration-dark")
    lab.theme(dark=False)


def test_a_selected_node_shows_what_its_calibrator_clips(opened) -> None:
    """The panel's histogram follows the selection, and its numbers are those of the variant on screen."""
    study = OUTLIER.replace('"fp32", target', '"int8", calibrator="mse", target')
    shown = opened(study, variant="int8·mse")
    page, lab = shown.page, shown.lab
    rows = lab.python("study.calibration.frame().to_dict('records')")
    known = {row["value"]: row for row in rows if row["calibrator"] == "mse"}
    nodes = lab.python("[[n.id, list(n.inputs)] for n in sample.model.top if n.op == 'Conv']")
    for node, inputs in (nodes[1], nodes[4]):
        lab.python(f"explorer.select({node!r})")
        (value,) = set(inputs) & set(known)
        section = page.locator(f"{EXPLORER} .rt-panel section", has_text="Activation, calibrated")
        section.locator(f'[title="{value}"]').wait_for()
        text = section.inner_text()
        assert "○" in text
        assert f"{digits(known[value]['sqnr'])} dB" in text
        marked = page.locator(f"{EXPLORER} .rt-panel text.rt-chosen").text_content()
        assert f"mse {digits(known[value]['amax'])}" in marked


def test_a_model_is_treated_built_and_taken_back(opened) -> None:
    """Where something is rounded there is a menu of what makes that cost less; each choice says what it does."""
    shown = opened(OUTLIER)
    page, lab = shown.page, shown.lab
    pill = f'{EXPLORER} [data-control="treatments"]'
    # FP32 rounds nothing, so nothing is offered.
    assert not page.locator(pill).count()
    shown.choose("precision", "fp16")
    page.click(f"{pill} button")
    cannot = page.locator(f'{pill} [role="menuitemcheckbox"][aria-disabled="true"]')
    assert ["reconstruct", "correct"] == [c.get_attribute("data-item") for c in cannot.all()]
    page.keyboard.press("Escape")
    shown.choose("precision", "int8")
    for kind in ("equalize", "correct"):
        page.click(f"{pill} button")
        told = page.locator(f'{pill} [role="menuitemcheckbox"]')
        # What INT8 offers comes from Python, a moment after the choice.
        page.wait_for_selector(f'{pill} [data-item="correct"]:not([aria-disabled="true"])')
        assert 4 == told.count()
        assert all("no time to run" in t for t in told.all_inner_texts())
        shown.picture(f"treatments-{kind}")
        page.click(f'{pill} [data-item="{kind}"]')
        lab.wait_python(f"{kind!r} in explorer.choice['treatments']")
    # The row stays as wide as it was, and says how many; the last change is undone, and brought again.
    assert "2 treated" == page.inner_text(pill)
    for expected in (["equalize"], ["equalize", "correct"]):
        page.click(f"{pill} button")
        page.click(f'{pill} [data-item="undo"]')
        lab.wait_python(f"explorer.choice['treatments'] == {expected}")
    shown.build()
    shown.shown("int8·auto · equalized · corrected")
    idle(shown)
    page.wait_for_selector(f'{EXPLORER}[data-stale="0"]')
    shown.picture("treated")
    # What nothing rounds needs no treatment, and INT8 has it no more afterwards.
    shown.choose("precision", "fp32")
    lab.wait_python("explorer.choice['treatments'] == []")
    page.wait_for_selector(pill, state="detached")


def test_a_node_is_pinned_pruned_built_and_taken_back(opened) -> None:
    """Mixing is a choice at the node that one looks at, and every choice can be undone."""
    shown = opened(OUTLIER)
    page, lab = shown.page, shown.lab
    conv = lab.python("next(n.id for n in sample.model.top if n.id == '/blocks/0/pointwise/Conv')")
    shown.choose("precision", "fp16")
    lab.wait_python("explorer.choice['precision'] == 'fp16'")
    lab.python(f"explorer.select({conv!r})")
    shown.wait_data("selection", [conv])
    shown.choose("pin", "fp32")
    page.click(f'{EXPLORER} [data-control="prune"]')
    lab.wait_python(
        f"explorer.choice['pins'] == [{{'pattern': {conv!r}, 'precision': 'fp32'}}] "
        f"and explorer.choice['sparsity'] == [{conv!r}]"
    )
    shown.build()
    shown.shown("fp16 · 1 pinned · 2:4")
    idle(shown)
    # A node is still what is selected, not all nodes of its new layers.
    assert [conv] == shown.listed("selection")
    pinned = lab.python("{n: str(p) for n, p in study[explorer.state.variant].prepared.precisions.items()}")
    assert conv not in pinned
    assert {"fp16"} == set(pinned.values())
    shown.picture("pinned")

    # Taken back in one click, and brought again in one more; nothing is built by that.
    page.click(f'{EXPLORER} [data-control="unpin"]')
    lab.wait_python("explorer.choice['pins'] == []")
    page.wait_for_selector(f'{EXPLORER}[data-stale="1"]')
    page.click(f'{EXPLORER} [data-control="undo-pins"]')
    lab.wait_python(f"[p['pattern'] for p in explorer.choice['pins']] == [{conv!r}]")
    page.wait_for_selector(f'{EXPLORER}[data-stale="0"]')


def test_findings_lead_to_nodes_and_are_repaired(opened) -> None:
    """A model from quantization-aware training: what stands badly, and one click to put it right."""
    shown = opened(MISPLACED)
    page, lab = shown.page, shown.lab
    count = lab.python("len(study.findings())")
    shown_ = count + lab.python("len(study[explorer.state.variant].findings)")
    assert str(shown_) in page.inner_text(f'{EXPLORER} [data-tab="findings"]')
    page.click(f'{EXPLORER} [data-tab="findings"]')
    first = lab.python("[[f.id, list(f.nodes)] for f in study.findings()][0]")
    page.click(f'{EXPLORER} [data-finding="{first[0]}"] .rt-link >> nth=0')
    lab.wait_python(f"set(explorer.state.selection) <= set({first[1]!r}) and explorer.state.selection")
    shown.picture("findings")

    # A title says the short end of a name; the whole of it is on hover.
    link = page.locator(f'{EXPLORER} [data-finding="{first[0]}"] .rt-link').first
    assert len(link.inner_text()) < len(link.get_attribute("title"))

    # One fix alone; what is left stays in view.
    page.check(f'{EXPLORER} [data-finding="{first[0]}"] input')
    page.click(f'{EXPLORER} [data-control="repair"]')
    lab.wait_python("explorer.study is not study and bool(explorer.study.results)")
    idle(shown)
    left = lab.python("[f.id for f in explorer.study.findings()]")
    assert count - 1 == len(left)
    page.wait_for_selector(f'{EXPLORER} [data-finding="{left[0]}"]')
    lab.python("explorer.__dict__.__setitem__('once', explorer.study)")
    layers = lab.python("len(study['fp32'].engine.layers)")
    page.click(f'{EXPLORER} [data-control="repair-all"]')
    lab.wait_python("explorer.study is not explorer.once and bool(explorer.study.results)")
    idle(shown)
    assert lab.python("[f.id for f in explorer.study.findings() if f.fixable]") == []
    assert lab.python("len(next(iter(explorer.study.results.values())).engine.layers)") <= layers
    assert count == lab.python("len(study.findings())")


def test_a_variant_leaves_as_files_and_commands(opened, tmp_path) -> None:
    """The prepared model, its scales, a cache, and the lines that build it on the machine with the GPU."""
    shown = opened(
        OUTLIER.replace(
            "study.run()", 'study.add("sparse", precision="int8", target="sm86", sparsity=True)\nstudy.run()'
        )
    )
    page, lab = shown.page, shown.lab
    lab.python("explorer.show('sparse')")
    shown.wait_data("variant", "sparse")
    shown.ready()
    saved = {}
    for item, ending in (("save-onnx", ".onnx"), ("save-scales", ".json"), ("save-cache", ".cache")):
        with page.expect_download() as waiting:
            menu(shown, "sparse", item)
        saved[ending] = tmp_path / waiting.value.suggested_filename
        waiting.value.save_as(saved[ending])
        assert saved[ending].name.endswith(ending)
    onnx.checker.check_model(onnx.load(saved[".onnx"]), full_check=True)
    assert {"QuantizeLinear"} <= {n.op for n in rtlab.load(saved[".onnx"]).nodes}
    scales = json.loads(saved[".json"].read_text(encoding="utf-8"))["scales"]
    assert lab.python("sorted(study['sparse'].prepared.scales)") == sorted(scales)
    assert saved[".cache"].read_text(encoding="utf-8").startswith("TRT-")
    menu(shown, "sparse", "elsewhere")
    text = page.inner_text(f'{EXPLORER} [data-control="elsewhere"]')
    assert "trtexec" in text
    assert "--sparsity=enable" in text
    assert "polygraphy convert" in text
    shown.picture("elsewhere")
    page.keyboard.press("Escape")
