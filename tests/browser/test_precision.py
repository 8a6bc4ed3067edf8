"""Precision and calibration in a real JupyterLab: the Calibration and Findings tabs, pins, pruning, saving."""

from __future__ import annotations

import pytest

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


def idle(shown: Explorer) -> None:
    shown.lab.wait_python("not explorer.build['running']")


def test_from_nothing_observed_to_the_calibrator_that_the_task_wants(opened) -> None:
    shown = opened(OUTLIER)
    shown.shown("fp32")
    page, lab = shown.page, shown.lab
    page.click(f'{EXPLORER} [data-tab="calibration"]')
    page.click(f'{EXPLORER} [data-control="observe"]')
    page.wait_for_selector(f"{EXPLORER} [data-row]")
    idle(shown)
    assert "898 samples" in page.inner_text(f"{EXPLORER} .rt-calibration")

    # A row selects the nodes that read the tensor, in the browser and in the kernel; its histogram has every threshold.
    value = lab.python("list(study.state.calibration.ranges.values)")[2]
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
    lab.wait_python("bool(study.state.calibration.ranking)")
    idle(shown)
    best = lab.python("str(study.state.calibration.ranking[0].calibrator)")
    assert "minmax" == lab.python("str(study.state.calibration.ranking[-1].calibrator)")
    row = f'{EXPLORER} [data-rank="{best}"]'
    page.wait_for_selector(row)

    # Take it, and build int8 with it.
    shown.choose("precision", "int8")
    lab.wait_python("explorer.choice['precision'] == 'int8'")
    page.click(f'{row} [data-control="use"]')
    lab.wait_python(f"explorer.choice['calibrator'] == {best!r}")
    shown.build()
    shown.shown(f"int8·{best}")
    assert lab.python("study[explorer.state.variant].score.value > study['fp32'].score.value - 1")


def test_a_node_is_pinned_pruned_built_and_taken_back(opened) -> None:
    shown = opened(OUTLIER)
    shown.shown("fp32")
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

    # Taken back in one click; nothing is built by that.
    page.click(f'{EXPLORER} [data-control="unpin"]')
    lab.wait_python("explorer.choice['pins'] == []")
    page.wait_for_selector(f'{EXPLORER}[data-stale="1"]')


def test_findings_lead_to_nodes_and_are_repaired(opened) -> None:
    shown = opened(MISPLACED)
    shown.shown("fp32")
    page, lab = shown.page, shown.lab
    count = lab.python("len(study.findings())")
    shown_ = count + lab.python("len(study[explorer.state.variant].findings)")
    assert str(shown_) in page.inner_text(f'{EXPLORER} [data-tab="findings"]')
    page.click(f'{EXPLORER} [data-tab="findings"]')
    first = lab.python("[[f.id, list(f.nodes)] for f in study.findings()][0]")
    page.click(f'{EXPLORER} [data-finding="{first[0]}"] .rt-link >> nth=0')
    lab.wait_python(f"set(explorer.state.selection) <= set({first[1]!r}) and explorer.state.selection")

    # One fix alone; what is left stays in view.
    page.click(f'{EXPLORER} [data-finding="{first[0]}"] [data-control="repair"]')
    lab.wait_python("explorer.study is not study and bool(explorer.study)")
    idle(shown)
    left = lab.python("[f.id for f in explorer.study.findings()]")
    assert count - 1 == len(left)
    page.wait_for_selector(f'{EXPLORER} [data-finding="{left[0]}"]')
    lab.python("explorer.__dict__.__setitem__('once', explorer.study)")
    layers = lab.python("len(study['fp32'].engine.layers)")
    page.click(f'{EXPLORER} [data-control="repair-all"]')
    lab.wait_python("explorer.study is not explorer.once and bool(explorer.study)")
    idle(shown)
    assert lab.python("[f.id for f in explorer.study.findings() if f.fixable]") == []
    assert lab.python("len(next(iter(explorer.study.values())).engine.layers)") <= layers
    assert count == lab.python("len(study.findings())")
