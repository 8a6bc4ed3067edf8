"""Stored weights as FP32 constants: ONNX Runtime would dequantize them in each inference, up to half as long again."""

from __future__ import annotations

from collections.abc import Container
from typing import TYPE_CHECKING, Any

import numpy as np

from rtlab.quantize.edit import Edit

if TYPE_CHECKING:
    import onnx_ir as ir
    from numpy.typing import NDArray

    from rtlab.core.model import Model

#: Bytes that the dequantized constants of a model may take.
_MOST = 1 << 30


def replace_stored_weights(model: Model, keep: Container[str] = ()) -> Model:
    """The model with its stored weights dequantized; itself where there are none, or too many.

    ``keep`` are names of nodes that stay, such as those of the source.
    """
    edit = Edit(model, keep_origins=True)
    if not dequantize_in_place(edit, keep):
        return model
    edit.sort_and_reindex()
    return edit.model


def dequantize_in_place(edit: Edit, keep: Container[str] = ()) -> int:
    """Dequantize stored weights, and return how many; nothing is done where they would take more than a gigabyte."""
    candidates = [n for n in edit.graph if n.op_type == "DequantizeLinear" and (n.name or "") not in keep]
    dequantize_nodes = [n for n in candidates if _has_constant_inputs(n)]
    tensors = [n.inputs[0].const_value for n in dequantize_nodes if n.inputs[0] is not None]
    if 4 * sum(t.size for t in tensors if t is not None) > _MOST:
        return 0
    ends = {id(v) for v in edit.graph.outputs}
    replaced_count = 0
    for node in dequantize_nodes:
        numbers, end = compute_dequantized(node), node.outputs[0]
        if numbers is None or id(end) in ends:
            continue
        end.replace_all_uses_with(edit.add_constant(f"{node.name}/numbers", numbers))
        edit.graph.remove(node, safe=True)
        replaced_count += 1
    return replaced_count


def compute_dequantized(node: ir.Node) -> NDArray[np.float32] | None:
    """What a DequantizeLinear makes of constants, ``(q - zero) * scale`` in FP32; None where it makes another type."""
    if not _has_constant_inputs(node):
        return None
    tensors = [None if v is None else v.const_value for v in node.inputs]
    if tensors[0] is None or tensors[1] is None:
        return None
    integers, scale = tensors[0].numpy(), np.asarray(tensors[1].numpy())
    if scale.dtype != np.float32:
        return None
    axis = (node.attributes["axis"].as_int() if "axis" in node.attributes else 1) % max(integers.ndim, 1)
    size = node.attributes["block_size"].as_int() if "block_size" in node.attributes else 0

    def broadcast_parameters(table: NDArray[Any]) -> NDArray[Any]:
        if not table.ndim or table.size == 1:
            return table.reshape(())
        if size:
            return np.repeat(table, size, axis)[tuple(slice(n) for n in integers.shape)]
        return table.reshape([-1 if i == axis else 1 for i in range(integers.ndim)])

    values = integers.astype(np.float32)
    if len(tensors) > 2 and tensors[2] is not None:
        values = values - broadcast_parameters(np.asarray(tensors[2].numpy())).astype(np.float32)
    return np.asarray(values * broadcast_parameters(scale), np.float32)


def _has_constant_inputs(node: ir.Node) -> bool:
    return all(v is None or v.const_value is not None for v in node.inputs)
