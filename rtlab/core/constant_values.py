"""Values of a graph that are known before the first inference."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import numpy as np
import onnx_ir as ir

from rtlab.core.node import ONNX_DOMAINS


def find_constant_values(graph: ir.Graph, inputs: Collection[str]) -> Mapping[str, ir.TensorProtocol]:
    """What initializers that are no ``inputs`` hold, and Constant nodes, straight or through Identity, by value."""
    table: dict[str, ir.TensorProtocol] = {}
    for name, value in graph.initializers.items():
        if value.const_value is not None and name not in inputs:
            table[name] = value.const_value
    for node in graph:
        if node.domain not in ONNX_DOMAINS or not node.outputs:
            continue
        out = node.outputs[0].name or ""
        if node.op_type == "Constant" and (attribute := node.attributes.get("value")) is not None:
            table[out] = attribute.as_tensor()
        elif node.op_type == "Constant" and (tensor := _read_numbers(node)) is not None:
            table[out] = tensor
        elif node.op_type == "Identity" and node.inputs and node.inputs[0] is not None:
            source = node.inputs[0].name or ""
            if source in table:
                table[out] = table[source]
    return table


def _read_numbers(node: ir.Node) -> ir.TensorProtocol | None:
    """What a Constant node holds as numbers in place of a tensor."""
    for name, kind in (("float", np.float32), ("floats", np.float32), ("int", np.int64), ("ints", np.int64)):
        attribute = node.attributes.get(f"value_{name}")
        if attribute is not None and not attribute.is_ref():
            return ir.Tensor(np.array(attribute.value, kind))
    return None
