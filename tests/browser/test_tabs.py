"""Files that open in a tab of their own: JupyterLab's extension."""

from __future__ import annotations

import shutil

import numpy as np
import onnx
import pytest

import rtlab
from cached_decoder import decoder_proto
from nets import graph_proto
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


#: The fields of sizes that are asked for, by what they are called.
FIELDS = """() => Object.fromEntries([...document.querySelectorAll('.rtlab-document .rt-sizes label')]
  .map(label => [label.innerText.trim(), label.querySelector('input').value]))"""
#: What no model should bring on screen by being opened: a card of an error, or a dialog.
CARDS = ".rtlab-document [role=alertdialog], .rtlab-document [role=alert], .jp-Dialog"


def detector() -> onnx.ModelProto:
    """Two convolutions of a picture of any size; the file says for which it was trained, as Ultralytics' do."""
    node, zeros = onnx.helper.make_node, np.zeros
    nodes = [
        node("Conv", ["images", "w"], ["half"], "stem", strides=[2, 2], pads=[1, 1, 1, 1]),
        node("Relu", ["half"], ["active"], "relu"),
        node("Conv", ["active", "v"], ["boxes"], "head"),
    ]
    proto = graph_proto(
        nodes,
        [("images", onnx.TensorProto.FLOAT, ["batch", 3, "height", "width"])],
        [("boxes", onnx.TensorProto.FLOAT, ["batch", 6, None, None])],
        {"w": zeros((8, 3, 3, 3), np.float32), "v": zeros((6, 8, 1, 1), np.float32)},
    )
    onnx.helper.set_model_props(proto, {"stride": "32", "imgsz": "[96, 160]"})
    return proto


def unnamed_decoder() -> onnx.ModelProto:
    """A decoder with a cache whose open sizes have no symbols."""
    proto = decoder_proto()
    for value in (*proto.graph.input, *proto.graph.output):
        for dim in value.type.tensor_type.shape.dim:
            dim.ClearField("dim_param")
    return proto


@pytest.mark.parametrize(
    ("make", "fields"),
    [
        (detector, {"batch": "1", "height": "96", "width": "160"}),
        (
            unnamed_decoder,
            {
                "input_ids[0] and 4 others": "1", "input_ids[1]": "1", "attention_mask[1]": "128",
                "position_ids[1]": "1", "past_key_values.0.key[2] and 1 other": "127",
            },
        ),
    ],
)  # fmt: skip
def test_a_model_from_elsewhere_has_a_field_for_each_size_and_builds_with_what_is_proposed(
    lab_page, make, fields: dict[str, str]
) -> None:
    page, name = lab_page.page, f"{make.__name__}.onnx"
    onnx.save(make(), lab_page.lab.root / name)
    open_file(lab_page, name)
    page.wait_for_selector(READY)
    page.wait_for_selector(".rtlab-document .rt-sizes")
    assert fields == page.evaluate(FIELDS)
    assert 0 == page.locator(CARDS).count()
    page.click(".rtlab-document .rt-sizes button[type=submit]")
    row = ".rtlab-document [data-chip^=fp32].rt-ready"
    page.wait_for_selector(row)
    assert 0 == page.locator(".rtlab-document .rt-sizes").count()
    assert 0 == page.locator(CARDS).count()
    # The table of variants, the panes and Python count alike.
    nodes, layers = page.inner_text(f"{row} [data-column=layers]").split(" → ")
    text = lab_page.python("repr(explorer.study[explorer.state.variant])")
    assert f": {nodes} nodes, {layers} layer" in text
    heads = page.inner_text(".rtlab-document .rt-panes")
    assert f"{nodes} nodes" in heads
    assert f"{layers} layer" in heads
    assert [] == lab_page.left_machine
