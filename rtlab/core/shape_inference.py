"""Types and shapes of values, as far as ONNX infers them from a graph."""

from __future__ import annotations

import math

import onnx
import onnx_ir as ir

from rtlab.core import check
from rtlab.core.strip_weights import LARGE

#: Sizes beyond this one are not propagated through nodes that fill tensors.
_MOST_FILLED = 1 << 24


def infer_types(model: ir.Model, proto: onnx.ModelProto) -> None:
    """Fill in types and shapes, as far as ONNX can infer them from the same graph as a proto.

    ONNX copies the model several times for this, so large weights are replaced by inputs. The pass of onnx-ir turns
    sequences into tensors (seen in 1.1).
    """
    light = check.replace_weights_with_inputs(proto, lambda t: math.prod(t.dims) > LARGE)
    inferred = onnx.shape_inference.infer_shapes(light, data_prop=not _fills(light))
    del light
    # Read from the proto: making a second model of it takes as long as all the rest.
    todo: list[tuple[ir.Graph, onnx.GraphProto]] = [(model.graph, inferred.graph)]
    while todo:
        graph, inferred_graph = todo.pop()
        types = {
            i.name: i.type
            for i in (*inferred_graph.value_info, *inferred_graph.input, *inferred_graph.output)
        }
        for value in (*graph.inputs, *(o for n in graph for o in n.outputs)):
            type_proto = types.get(value.name or "", onnx.TypeProto())
            if (kind := ir.serde.deserialize_type_proto_for_type(type_proto)) is not None:
                value.type, value.shape = kind, ir.serde.deserialize_type_proto_for_shape(type_proto)
        for node, source in zip(graph, inferred_graph.node, strict=True):
            todo += [(node.attributes[a.name].as_graph(), a.g) for a in source.attribute if a.HasField("g")]


def _fills(proto: onnx.ModelProto) -> bool:
    """Whether a node may fill a tensor of absurd size: ONNX makes that, as it propagates data, and takes all memory."""
    filled = {n.input[0] for n in proto.graph.node if n.op_type == "ConstantOfShape" and n.input}
    if not filled:
        return False
    counts = [onnx.numpy_helper.to_array(t) for t in proto.graph.initializer if t.name in filled]
    dims = [d.dim_value for i in proto.graph.input for d in i.type.tensor_type.shape.dim]
    return max((int(n) for n in (*dims, *(c.max(initial=0) for c in counts))), default=0) > _MOST_FILLED
