"""A model that others exported: the SqueezeNet of the onnx package's own backend tests, opset 9, constant weights."""

from __future__ import annotations

from pathlib import Path

import onnx
import onnx.backend.test

from explorer import EXPLORER, Explorer

SQUEEZENET = Path(onnx.backend.test.__path__[0]) / "data/light/light_squeezenet.onnx"


def test_a_model_from_elsewhere_is_compiled_and_linked_both_ways(lab_page) -> None:
    convolutions = [n.output[0] for n in onnx.load(SQUEEZENET).graph.node if n.op_type == "Conv"]
    lab_page.open(
        [
            f"import rtlab\nexplorer = rtlab.explore({str(SQUEEZENET)!r})\nexplorer",
            "explorer.wait(120) and None",
        ]
    )
    lab_page.run_all()
    shown = Explorer(lab_page)
    shown.ready()
    lab_page.wait_python("explorer.state.variant and not explorer.build['running']")
    nodes = lab_page.python(
        f"[next(n.id for n in explorer.study.model.top if v in n.outputs) for v in {convolutions!r}]"
    )
    result = "explorer.study[explorer.state.variant]"
    layers = lab_page.python(f"[list({result}.mapping.layers(n)) for n in {nodes!r}]")
    # SqueezeNet 1.1 has 26 convolutions, and each is in one layer or more.
    assert 26 == len(layers)
    assert all(layers)

    shown.wait_data("variant", lab_page.python("explorer.state.variant"))
    shown.click("node", nodes[0])
    shown.wait_data("selection", [nodes[0]])
    assert layers[0] == shown.listed("layers")
    shown.click("layer", layers[0][-1])
    lab_page.wait_python(f"{nodes[0]!r} in explorer.state.selection")
    assert 0 == lab_page.page.locator(f"{EXPLORER} [role=alertdialog]").count()
    assert [] == lab_page.left_machine
    assert [] == lab_page.console_errors
