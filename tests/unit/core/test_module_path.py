"""Names by PyTorch's modules, from metadata as torch.onnx writes it."""

from __future__ import annotations

import onnx
import pytest
from onnx import helper

from rtlab import load
from rtlab.web.page.graph import source_graph

PREFIX = "pkg.torch.onnx."
STACK = (
    'File "/home/someone/run.py", line 8, in forward\n    return self.net(x)\n'
    '  File "/lib/net/blocks.py", line 66, in forward\n    y = torch.relu(x)'
)


def exported(scopes: list[str] | None, *, namespace: bool = False) -> onnx.ModelProto:
    """Two Relu of one module and one of the outermost; with ``namespace`` the older key alone."""
    nodes = [helper.make_node("Relu", [a], [b], name=f"node_relu_{a}") for a, b in ("xh", "hg", "gy")]
    for k, node in enumerate(nodes):
        path = [*(scopes or []), f"relu_{k}"] if k < 2 else ["", "relu_2"]
        classes = [f"net.{s or 'Net'}" for s in path[:-1]]
        if scopes is None:
            continue
        if namespace:
            text = "/".join(f"{s}: {c}" for s, c in zip(path, [*classes, "aten.relu"], strict=True))
            node.metadata_props.add(key="namespace", value=text)
            continue
        for key, value in (
            ("name_scopes", repr(path)), ("class_hierarchy", repr([*classes, "aten.relu"])), ("stack_trace", STACK),
        ):  # fmt: skip
            node.metadata_props.add(key=PREFIX + key, value=value)
    ends = [helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, [1, 4]) for n in "xy"]
    made = helper.make_model(
        helper.make_graph(nodes, "g", ends[:1], ends[1:]), opset_imports=[helper.make_opsetid("", 17)],
        producer_name="pytorch", producer_version="2.13",
    )  # fmt: skip
    helper.set_model_props(made, {"license": "MIT"})
    return made


SCOPES = ["", "model", "model.layers.0", "model.layers.0.mlp"]


@pytest.mark.parametrize("namespace", [False, True])
def test_a_node_is_called_by_its_module_and_numbered_there(*, namespace: bool) -> None:
    model = load(exported(SCOPES, namespace=namespace))
    titles = ["model/layers.0/mlp/Relu", "model/layers.0/mlp/Relu_1", "Relu"]
    assert titles == [n.title for n in model.nodes]
    assert ["node_relu_x", "node_relu_h", "node_relu_g"] == [n.id for n in model.nodes]
    assert "node_relu_h" == model.node(titles[1]).id


def test_without_scopes_a_node_is_called_by_its_name() -> None:
    assert ["node_relu_x", "node_relu_h", "node_relu_g"] == [n.title for n in load(exported(None)).nodes]


def test_the_side_panel_has_module_class_and_line_of_source() -> None:
    box = next(b for b in source_graph(load(exported(SCOPES)))["boxes"] if b["id"] == "node_relu_x")
    details = {d["key"]: d["value"] for d in box["details"]}
    assert {
        "name": "node_relu_x",
        "operator": "Relu",
        "module": "model.layers.0.mlp",
        "class": "net.model.layers.0.mlp",
        "source": "net/blocks.py:66 in forward: y = torch.relu(x)",
    } == details


def test_the_graph_has_what_the_file_says_of_itself() -> None:
    details = {d["key"]: d["value"] for d in source_graph(load(exported(None)))["details"]}
    assert ("pytorch 2.13", "MIT", "ai.onnx 17") == (
        details["producer"],
        details["license"],
        details["opset"],
    )
