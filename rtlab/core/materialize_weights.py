"""Weights of a loaded model as arrays, which are read again and again; a proto copies them each time."""

from __future__ import annotations

import onnx
import onnx_ir as ir

from rtlab.core.external_data import map_tensors
from rtlab.core.strip_weights import LARGE


def materialize_weights(model: ir.Model) -> None:
    """Let each large weight of a graph be an array, and everything else a proto of its own.

    A tensor that is left in the proto that was read would keep all of it in memory, weights included. What is small, or
    stored in another form than an array's, stays as the file has it, to the last byte.
    """
    map_tensors(model, lambda t: _materialize(t) if isinstance(t, ir.TensorProtoTensor) else t)


def _materialize(tensor: ir.TensorProtoTensor) -> ir.TensorProtocol:
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
    proto_copy = onnx.TensorProto()
    proto_copy.CopyFrom(raw)
    return ir.TensorProtoTensor(proto_copy)
