"""Weights of a loaded model as arrays, which are read again and again; a proto copies them each time."""

from __future__ import annotations

import onnx
import onnx_ir as ir

from rtlab.core.node import walk
from rtlab.core.outline import LARGE
from rtlab.core.outside import initializers


def hold(model: ir.Model) -> None:
    """Let each large weight of a graph be an array, and everything else a proto of its own.

    A tensor that is left in the proto that was read would keep all of it in memory, weights included. What is small, or
    stored in another form than an array's, stays as the file has it, to the last byte.
    """
    for value in initializers(model):
        if isinstance(value.const_value, ir.TensorProtoTensor):
            value.const_value = _held(value.const_value)
    for node, _ in walk(model):
        for name, held in node.attributes.items():
            if held.type == ir.AttributeType.TENSOR and isinstance(held.value, ir.TensorProtoTensor):
                node.attributes[name] = ir.AttrTensor(name, _held(held.value), doc_string=held.doc_string)
            elif held.type == ir.AttributeType.TENSORS and not held.is_ref():
                own = [_held(t) if isinstance(t, ir.TensorProtoTensor) else t for t in held.as_tensors()]
                node.attributes[name] = ir.AttrTensors(name, own, doc_string=held.doc_string)


def _held(tensor: ir.TensorProtoTensor) -> ir.TensorProtocol:
    raw = tensor.raw
    if tensor.size > LARGE and raw.HasField("raw_data") and tensor.dtype.bitwidth % 8 == 0:
        return ir.Tensor(
            tensor.numpy(),
            dtype=tensor.dtype,
            shape=tensor.shape,
            name=tensor.name,
            doc_string=tensor.doc_string,
            metadata_props=dict(tensor.metadata_props),
        )
    own = onnx.TensorProto()
    own.CopyFrom(raw)
    return ir.TensorProtoTensor(own)
