"""Models without the numbers of their large weights."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import onnx
import onnx_ir as ir

#: Elements beyond which a constant is a weight, whose numbers no rule about nodes needs.
LARGE = 1024


def strip_weights(model: ir.Model) -> tuple[onnx.ModelProto, Mapping[str, ir.TensorProtocol]]:
    """A proto in which large initializers of the main graph have a type and a shape alone, and their tensors by name.

    Those that are inputs or outputs as well keep their numbers.
    """
    graph = model.graph
    listed = {v.name for v in (*graph.inputs, *graph.outputs)}
    weights = {
        name: value.const_value
        for name, value in graph.initializers.items()
        if value.const_value is not None and name not in listed and _is_large(value.const_value)
    }
    light = {
        name: _AttributeProxy(value, const_value=_make_stub(weights[name], name))
        if name in weights
        else value
        for name, value in graph.initializers.items()
    }
    outline: Any = _AttributeProxy(model, graph=_AttributeProxy(graph, initializers=light))
    return ir.serde.serialize_model(outline), weights


def _is_large(tensor: ir.TensorProtocol) -> bool:
    return tensor.size > LARGE and tensor.dtype != ir.DataType.STRING


def _make_stub(tensor: ir.TensorProtocol, name: str) -> ir.TensorProtoTensor:
    """A tensor of the same type and shape, and without numbers."""
    return ir.TensorProtoTensor(
        onnx.TensorProto(name=name, data_type=int(tensor.dtype), dims=tensor.shape.numpy())
    )


class _AttributeProxy:
    """An object of onnx-ir with some attributes replaced, as long as it is serialized; the object stays as it is."""

    def __init__(self, target: Any, **replaced: object) -> None:
        self._target = target
        vars(self).update(replaced)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._target, name)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._target)

    def __len__(self) -> int:
        return len(self._target)
