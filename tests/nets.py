"""Small models of tame operators, of which only the wiring matters."""

from __future__ import annotations

from typing import TYPE_CHECKING

from onnx import TensorProto, helper

from rtlab.core.model import Model, load, wrap

if TYPE_CHECKING:
    import onnx


def passing(**inputs: tuple[int, list[int | str]]) -> Model:
    """A model named "net" that passes on these inputs, each given as ONNX type and shape."""
    values = [helper.make_tensor_value_info(name, kind, shape) for name, (kind, shape) in inputs.items()]
    nodes = [helper.make_node("Identity", [name], [f"{name}_out"]) for name in inputs]
    outputs = [helper.make_tensor_value_info(f"{n}_out", kind, shape) for n, (kind, shape) in inputs.items()]
    graph = helper.make_graph(nodes, "net", values, outputs)
    return load(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9))


def chain(*names: str) -> Model:
    """Nodes one after the other; each writes ``<name>_out``."""
    flow, nodes = "x", []
    for name in names:
        nodes.append(helper.make_node("Neg", [flow], [f"{name}_out"], name))
        flow = f"{name}_out"
    return wired(nodes, flow)


def wired(nodes: list[onnx.NodeProto], *outputs: str) -> Model:
    """These nodes between "x" and the outputs."""
    infos = [helper.make_tensor_value_info(v, TensorProto.FLOAT, [1, 4]) for v in ("x", *outputs)]
    graph = helper.make_graph(nodes, "g", infos[:1], infos[1:])
    return wrap(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), name="m")
