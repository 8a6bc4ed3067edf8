"""Why two nodes are not one layer, asked in a real JupyterLab, and the remedy as a variant of its own."""

from __future__ import annotations

import pytest

from explorer import EXPLORER, Explorer, show
from rtlab import backends

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not backends.get("tensorrt-rtx").availability().ok, reason="TensorRT-RTX is not installed"
    ),
]

#: Three blocks whose last one stands before the output, which is written in a layout of its own.
BLOCKS = """import numpy as np
import onnx
from onnx import helper, numpy_helper
import rtlab
rng, nodes, weights, at = np.random.default_rng(0), [], [], "x"
for i in range(3):
    sizes = {"w": (8, 8, 3, 3), "g": (8,), "b": (8,), "m": (8,), "v": (8,)}
    for k, s in sizes.items():
        weights.append(numpy_helper.from_array((np.abs(rng.normal(0, 0.1, s)) + 0.01).astype(np.float32), f"{k}{i}"))
    nodes.append(helper.make_node("Conv", [at, f"w{i}"], [f"c{i}"], name=f"conv{i}", pads=[1] * 4))
    given = [f"c{i}", *[f"{k}{i}" for k in "gbmv"]]
    nodes.append(helper.make_node("BatchNormalization", given, [f"n{i}"], name=f"bn{i}"))
    nodes.append(helper.make_node("Relu", [f"n{i}"], [f"r{i}"], name=f"relu{i}"))
    at = f"r{i}"
ends = [helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, [1, 8, 16, 16]) for n in ("x", "r2")]
graph = helper.make_graph(nodes, "blocks", ends[:1], ends[1:], weights)
study = rtlab.Study(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8))
study.add("fp32", target="sm86", backend="tensorrt-rtx")
study.run(compare=False)
explorer = study.explore()
explorer"""
#: Pixels from the middle of a box in one line to the wire that comes from above.
ABOVE = 20


def test_a_pair_is_asked_about_and_its_remedy_is_built(opened) -> None:
    shown: Explorer = opened(BLOCKS)
    page, lab = shown.page, shown.lab
    where = show(shown, "fusion", "why")
    rows = page.locator(f"{where} [data-row]")
    missed = lab.python("[(m.first, m.second) for m in study.ask('why', variant='fp32').result.pairs]")
    assert ["conv2", "bn2"] in missed
    assert len(missed) == rows.count()
    # A row selects both of its nodes.
    page.click(f"{where} [data-row='row {missed.index(['conv2', 'bn2'])}']")
    lab.wait_python("set(explorer.state.selection) == {'conv2', 'bn2'}")
    page.click(f'{where} button:has-text("Pair:")')
    page.click('[role="option"]:has-text("conv2 | BatchNormalization bn2")')
    page.wait_for_selector(f'{where} button:has-text("Ask the compiler")')
    page.click(f'{where} [data-work="why"]')
    page.wait_for_selector(f'{where} button:has-text("Ask again")')
    told = lab.python("study.fusion.why('conv2', 'bn2', variant='fp32').text")
    assert "a graph output" in told
    assert "a graph output" in page.inner_text(f"{where} .rt-lead")
    assert "do not mark" in page.inner_text(f"{where} table")
    page.click(f'{where} [data-work="remedy"]')
    lab.wait_python("'fp32 rewritten' in study and explorer.state.variant == 'fp32 rewritten'")
    assert ["fold bn2"] == lab.python("[str(r) for r in study.state.variants['fp32 rewritten'].rewrites]")
    assert [] == lab.console_errors


def test_a_wire_and_a_layer_are_asked_about_where_they_are_drawn(opened) -> None:
    shown: Explorer = opened(BLOCKS)
    page, lab = shown.page, shown.lab
    shown.ready()
    page.evaluate(
        "() => document.querySelector('.rt-explorer').scrollIntoView({block: 'center', behavior: 'instant'})"
    )
    at = page.evaluate("() => document.querySelector('.rt-explorer').rtlabBoxAt('node', 'bn2')")
    page.mouse.click(at["x"], at["y"] - ABOVE)
    lab.wait_python("set(explorer.state.selection) == {'conv2', 'bn2'}")
    assert "Why is this not one layer?" == page.inner_text(f'{EXPLORER} [data-control="why"]')
    page.click(f'{EXPLORER} [data-control="why"]')
    where = f'{EXPLORER} [data-panel="why"]'
    page.wait_for_selector(f'{where} button:has-text("Ask again")')
    assert "a graph output" in page.inner_text(f"{where} .rt-lead")
    # A step of several nodes.
    layer = lab.python("next(p.layer for p in study['fp32'].mapping.pairs if p.node == 'relu0')")
    shown.click("layer", layer)
    lab.wait_python(f"list(explorer.state.layers) == [{layer!r}]")
    assert "Why is this one layer?" == page.inner_text(f'{EXPLORER} [data-control="why"]')
    page.click(f'{EXPLORER} [data-control="why"]')
    page.wait_for_function(
        "where => document.querySelector(where + ' .rt-lead').innerText.includes('are never written to memory')",
        arg=where,
    )
    lab.wait_python(f"bool(study.ask('why', variant='fp32', pair='layer {layer}').result.experiments)")
    joined = lab.python(f"list(study.ask('why', variant='fp32', pair='layer {layer}').result.nodes)")
    assert {"conv0", "bn0", "relu0"} == {*joined}
    page.wait_for_selector(f'{where} button:has-text("Ask again")')
    assert [] == lab.console_errors
