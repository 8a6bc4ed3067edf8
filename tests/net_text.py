"""Small graphs written as text: ``x[N, 3]; name: y = Operator(x, _, attribute=1); y[N, 3]``.

Inputs with their sizes come before the nodes and outputs behind them, whose sizes may be left out. ``_`` is an input
that is not there. An attribute ``value`` that is a list is a tensor.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence

import numpy as np
import onnx
from onnx import helper, numpy_helper

from nets import graph_proto
from rtlab.core.model import Model, load

Shapes = Mapping[str, "Sequence[int | str | None] | None"]


def parsed(*pieces: onnx.NodeProto | str) -> tuple[list[onnx.NodeProto], Shapes, Shapes]:
    """Nodes, and shapes of inputs and outputs by name; of text, and of nodes that no text can say."""
    nodes: list[onnx.NodeProto] = []
    ends: tuple[dict[str, list[int | str] | None], ...] = {}, {}
    for one in (o for p in pieces for o in (ast.parse(p).body if isinstance(p, str) else [p])):
        if isinstance(one, onnx.NodeProto):
            nodes.append(one)
        elif isinstance(one, ast.AnnAssign):
            reads = ["" if a.id == "_" else a.id for a in one.value.args]
            more = {k.arg: ast.literal_eval(k.value) for k in one.value.keywords}
            if isinstance(more.get("value"), list):
                more["value"] = numpy_helper.from_array(np.float32(more["value"]))
            op = one.value.func.id
            nodes.append(helper.make_node(op, reads, [one.annotation.id], name=one.target.id, **more))
        elif isinstance(one.value, ast.Name):
            ends[bool(nodes)][one.value.id] = None
        else:
            sizes = getattr(one.value.slice, "elts", [one.value.slice])
            named = [d.id if isinstance(d, ast.Name) else d.value for d in sizes]
            ends[bool(nodes)][one.value.value.id] = named
    return nodes, *ends


def sized(proto: onnx.ModelProto) -> onnx.ModelProto:
    """With the sizes of outputs that were left out."""
    known = all(o.type.tensor_type.HasField("shape") for o in proto.graph.output)
    return proto if known else onnx.shape_inference.infer_shapes(proto)


def written(*pieces: onnx.NodeProto | str, opset: int = 17, **weights: np.ndarray) -> Model:
    """A model of FP32 inputs and outputs."""
    nodes, *ends = parsed(*pieces)
    inputs, outputs = ([(n, onnx.TensorProto.FLOAT, s) for n, s in e.items()] for e in ends)
    return load(sized(graph_proto(nodes, inputs, outputs, weights, opset)), name="m")
