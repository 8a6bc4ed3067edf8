"""The whole path in a real JupyterLab: open, look, click, build, compare. Offline."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper

from explorer import EXPLORER, Explorer
from nets import graph_proto

ROOT = Path(__file__).parents[2]
FIRST = ROOT / "notebooks" / "01_first_look.ipynb"


#: Counts the cards that come up in the Explorer.
CARDS = """() => {
  window.cards = 0;
  const card = one => one instanceof Element
    && (one.matches('[role=alertdialog]') || one.querySelector('[role=alertdialog]'));
  new MutationObserver(seen => {
    for (const {addedNodes} of seen) window.cards += [...addedNodes].filter(card).length;
  }).observe(document.querySelector('.rt-explorer').parentElement, {childList: true, subtree: true});
}"""


@pytest.fixture
def explorer(lab_page):
    lab_page.open(FIRST)
    lab_page.run_all()
    found = Explorer(lab_page)
    found.shown("fp32")
    return found


def test_the_first_notebook_from_run_all_to_a_compared_int8_engine(explorer, lab_page) -> None:
    # Run All has selected a node; both sides show it.
    conv = lab_page.python("first_conv.id")
    explorer.wait_data("selection", [conv])
    assert lab_page.python("list(study['fp32'].mapping.layers(first_conv.id))") == explorer.listed("layers")

    # A click on a node lights up the layer that swallowed it, in the browser and in the kernel.
    relu = lab_page.python("next(n.id for n in sample.model.top if n.op == 'Relu')")
    explorer.click("node", relu)
    explorer.wait_data("selection", [relu])
    lab_page.wait_python(f"explorer.state.selection == ({relu!r},)")
    layers = lab_page.python(f"list(study['fp32'].mapping.layers({relu!r}))")
    assert layers == explorer.listed("layers")

    # A click on that layer lights up all its nodes.
    explorer.click("layer", layers[0])
    fused = lab_page.python(f"sorted(study['fp32'].mapping.nodes({layers[0]!r}))")
    lab_page.wait_python(f"sorted(explorer.state.selection) == {fused!r}")
    assert fused == sorted(explorer.listed("selection"))
    assert len(fused) == 3

    # Another precision and calibrator, one click on Build, no cell.
    explorer.choose("precision", "int8")
    enabled = '[data-control="calibrator"][data-value="auto"] button[aria-disabled="false"]'
    lab_page.page.wait_for_selector(f"{EXPLORER} {enabled}")
    explorer.choose("calibrator", "minmax")
    explorer.choose("calibrator", "entropy2")
    assert "1" == explorer.data("stale")
    explorer.build()
    explorer.shown("int8·entropy2")
    assert lab_page.python("len(explorer.study[explorer.state.variant].engine.layers)") > 1
    # The engine is shown when it is compiled; times and errors follow it.
    decode = "__import__('rtlab.documents.serialization').documents.serialization.decode"
    overlays = (
        f"{{o['id'] for p in (explorer.engine, explorer.engine_later) if p for o in {decode}(p)['overlays']}}"
    )
    lab_page.wait_python(f"{overlays} >= {{'estimate', 'time', 'error', 'memory'}}")
    assert 2 == lab_page.page.locator(f"{EXPLORER} [data-chip]").count()
    lab_page.page.click(f'{EXPLORER} [data-tab="timing"]')
    for chart in ("timing", "accuracy"):
        lab_page.page.wait_for_selector(
            f'{EXPLORER} [data-chart="{chart}"] .points .point >> visible=true >> nth=0'
        )
    assert "0" == explorer.data("stale")
    # The selected nodes are what variants have in common: they stay, and their new layers light up.
    assert fused == sorted(explorer.listed("selection"))
    now = lab_page.python(
        f"[i for n in {fused!r} for i in explorer.study[explorer.state.variant].mapping.layers(n)]"
    )
    assert set(now) == set(explorer.listed("layers"))

    # A variant already built comes back at once, by its row.
    lab_page.page.click(f'{EXPLORER} [data-chip="fp32"] button')
    explorer.shown("fp32")
    assert fused == sorted(explorer.listed("selection"))

    lab_page.theme(dark=True)
    explorer.ready()

    assert [] == lab_page.left_machine
    assert [] == lab_page.console_errors


def test_cancel_ends_a_build_and_keeps_the_picture(explorer, lab_page) -> None:
    explorer.choose("model", "resnet50")
    lab_page.page.wait_for_selector(f'{EXPLORER} [data-control="cancel"]')
    # What is being opened is named at once, although the kernel still has the old model.
    assert "resnet50" == lab_page.page.get_attribute(f'{EXPLORER} [data-control="model"]', "data-value")
    lab_page.wait_python("explorer.study.model.name == 'resnet50'")
    lab_page.page.click(f'{EXPLORER} [data-control="cancel"]')
    lab_page.wait_python("not explorer.build['running']")
    assert lab_page.python("explorer.failure") is None
    assert [] == lab_page.python("list(explorer.study)")
    assert [] == lab_page.console_errors


@pytest.mark.slow
def test_bad_input_is_a_card_and_the_notebook_lives_on(explorer, lab_page, tmp_path) -> None:
    bad = tmp_path / "bad.onnx"
    bad.write_bytes(b"no model at all")
    before = lab_page.python("len(explorer.engine)")
    lab_page.page.evaluate(CARDS)
    lab_page.python(f"explorer.load({str(bad)!r}).wait(60) and None")
    card = lab_page.page.locator(f"{EXPLORER} [role=alertdialog]")
    card.filter(has_text="not an ONNX model").wait_for()
    assert before == lab_page.python("len(explorer.engine)")
    assert 4 == lab_page.python("2 + 2")
    assert b"no model at all" == bad.read_bytes()
    # One failure is one card, which is drawn once and stays.
    assert 1 == lab_page.page.evaluate("window.cards")
    assert card.is_visible()


@pytest.mark.slow
def test_a_variant_at_sizes_of_its_own_stands_beside_the_others(explorer, lab_page, tmp_path) -> None:
    nodes = [
        helper.make_node("MatMul", ["words", "w"], ["h"], name="product"),
        helper.make_node("Relu", ["h"], ["y"]),
    ]
    ends = ("words", 1, ["N", "length", 8]), ("y", 1, ["N", "length", 4])
    onnx.save(
        graph_proto(nodes, [ends[0]], [ends[1]], {"w": np.ones((8, 4), np.float32)}), tmp_path / "m.onnx"
    )
    page = lab_page.page
    lab_page.python(f"explorer.load({str(tmp_path / 'm.onnx')!r}).wait(60) and None")
    submit = page.locator(f'{EXPLORER} [data-control="sizes"] [type="submit"]')
    submit.click()
    lab_page.wait_python("explorer.state.variant == 'fp32@sm86'")
    page.click(f'{EXPLORER} [data-control="settings"] button')
    page.click(f"{EXPLORER} >> text=N 1, length 128, change…")
    page.fill(f'{EXPLORER} label:has-text("length") input', "1")
    submit.click()
    lab_page.wait_python("explorer.state.variant == 'fp32 length=1@sm86'")
    shapes = lab_page.python(
        "{n: list(explorer.study[n].engine.layers[-1].outputs[0].shape) for n in explorer.study.state.results}"
    )
    assert {"fp32@sm86": [1, 128, 4], "fp32 length=1@sm86": [1, 1, 4]} == shapes
    assert [1, 128, 8] == lab_page.python("list(explorer.study.model.input_shape('words'))")
    # The next choice has the sizes that the last one had, and says so.
    page.click(f'{EXPLORER} [data-control="settings"] button')
    page.click(f"{EXPLORER} >> text=N 1, length 1, change…")
    assert "1" == page.input_value(f'{EXPLORER} label:has-text("length") input')
    page.fill(f'{EXPLORER} label:has-text("length") input', "128")
    submit.click()
    lab_page.wait_python("explorer.state.variant == 'fp32@sm86'")
    assert [] == lab_page.python("explorer.choice['sizes']")
    assert [] == lab_page.console_errors


@pytest.mark.slow
def test_sizes_that_a_model_leaves_open_are_named_on_the_card(explorer, lab_page, tmp_path) -> None:
    open_sizes = tmp_path / "reader.onnx"
    nodes = [
        helper.make_node("Conv", ["image", "w"], ["c"], name="conv"),
        helper.make_node("Relu", ["c"], ["y"]),
    ]
    ends = ("image", 1, ["N", 3, "height", None]), ("y", 1, ["N", 4, None, None])
    weights = {"w": np.full((4, 3, 3, 3), 0.1, np.float32)}
    onnx.save(graph_proto(nodes, [ends[0]], [ends[1]], weights), open_sizes)
    page = lab_page.page
    lab_page.python(f"explorer.load({str(open_sizes)!r}).wait(60) and None")
    # It is a question, and no failure of anything.
    page.wait_for_selector(f'{EXPLORER} [data-control="sizing"] >> text=Which sizes do the inputs have?')
    assert 0 == page.locator(f'{EXPLORER} [data-control="failure"]').count()
    fields = page.locator(f'{EXPLORER} [data-control="sizes"] input')
    assert ["1", "224", "224"] == [fields.nth(i).input_value() for i in range(fields.count())]
    build = page.locator(f'{EXPLORER} [data-control="sizes"] [type="submit"]')
    page.fill(f'{EXPLORER} label:has-text("height") input', "none")
    assert "true" == build.get_attribute("aria-disabled")
    page.fill(f'{EXPLORER} label:has-text("height") input', "48")
    page.fill(f'{EXPLORER} label:has-text("image[3]") input', "64")
    build.click()
    lab_page.wait_python("explorer.state.variant == 'fp32@sm86'")
    assert [1, 3, 48, 64] == lab_page.python("list(explorer.study.model.input_shape('image'))")
    # A convolution of 3x3 without padding takes two from both.
    assert [1, 4, 46, 62] == lab_page.python(
        "list(explorer.study['fp32@sm86'].engine.layers[-1].outputs[0].shape)"
    )
    assert 0 == page.locator(f'{EXPLORER} [data-control="sizing"]').count()

    # There is a way back from sizes that the compiler took, and from those that it refuses.
    page.click(f'{EXPLORER} [data-control="settings"] button')
    page.click(f"{EXPLORER} >> text=N 1, height 48, image[3] 64, change…")
    page.fill(f'{EXPLORER} label:has-text("height") input', "2")
    build.click()
    page.wait_for_selector(
        f'{EXPLORER} [data-control="failure"] >> text=sizes of the inputs may be the reason'
    )
    # On a laptop too: what is said scrolls, what can be done is in view.
    before = page.viewport_size
    page.set_viewport_size({"width": 1280, "height": 720})
    page.wait_for_function("() => document.querySelector('.rt-explorer').clientHeight < 640")
    card = page.locator(f'{EXPLORER} [data-control="failure"]').bounding_box()
    for button in (build, page.locator(f'{EXPLORER} [data-control="dismiss"]')):
        box = button.bounding_box()
        assert card["y"] < box["y"] < card["y"] + card["height"] - box["height"]
    page.set_viewport_size(before)
    assert ["1", "2", "64"] == [fields.nth(i).input_value() for i in range(fields.count())]
    page.fill(f'{EXPLORER} label:has-text("height") input', "32")
    build.click()
    lab_page.wait_python("explorer.state.variant == 'fp32@sm86'")
    assert [1, 3, 32, 64] == lab_page.python("list(explorer.study.model.input_shape('image'))")
    assert 0 == page.locator(f'{EXPLORER} [data-control="failure"]').count()
    assert [] == lab_page.console_errors
