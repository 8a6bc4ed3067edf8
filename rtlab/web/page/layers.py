"""An engine as an ONNX model, which any viewer of such files can open: a picture, which nothing can run."""

from __future__ import annotations

from typing import TYPE_CHECKING

import onnx
import onnx_ir as ir
from onnx import helper

from rtlab.analyses.fusion import map_nodes
from rtlab.core.engine import Layer, Tensor
from rtlab.core.value import dtype_text

if TYPE_CHECKING:
    from rtlab.core.facts import VariantResult

#: Domain of operators that only this picture has.
DOMAIN = "tensorrt"
_TYPES = {dtype_text(d): d.value for d in ir.DataType if d is not ir.DataType.UNDEFINED}
_TYPES["tf32"] = onnx.TensorProto.FLOAT


def layers_model(result: VariantResult) -> onnx.ModelProto:
    """The layers of a variant's engine in order of execution.

    The operator is the compiler's word for the layer. Attributes tell ``precision``, ``stream``, ``tactic``, the ids of
    the ``nodes`` that it runs, and the memory layouts of its tensors; tensors have their types and shapes.
    """
    engine = result.engine
    graph = onnx.GraphProto(name=engine.title, doc_string="; ".join(engine.notes))
    infos: dict[str, onnx.ValueInfoProto] = {}
    written_tensors = {t.name for t in engine.inputs}
    for layer in engine.layers:
        graph.node.append(_node(layer, map_nodes(result).nodes(layer.id), written_tensors))
        for tensor in (*layer.inputs, *layer.outputs):
            infos.setdefault(tensor.name, _info(tensor))
        written_tensors |= {t.name for t in layer.outputs}
    # What no layer makes comes from outside, though the compiler does not list it: constants, for one.
    loose = {
        t.name: t
        for layer in engine.layers
        for t in (*layer.inputs, *layer.constants)
        if t.name not in written_tensors
    }
    graph.input.extend(_info(t) for t in engine.inputs)
    graph.input.extend(_info(t) for name, t in loose.items() if name)
    graph.output.extend(_info(t) for t in engine.outputs)
    ends = {i.name for i in (*graph.input, *graph.output)}
    graph.value_info.extend(i for name, i in infos.items() if name and name not in ends)
    return helper.make_model(
        graph,
        producer_name=engine.backend,
        producer_version=engine.version,
        opset_imports=[helper.make_opsetid("", 17), helper.make_opsetid(DOMAIN, 1)],
        ir_version=9,
    )


def _node(layer: Layer, nodes: tuple[str, ...], written_tensors: set[str]) -> onnx.NodeProto:
    # A tensor that several layers write, such as a buffer, has its first writer only: a graph names a value once.
    outputs = [
        t.name if t.name not in written_tensors else f"{t.name} ({layer.index + 1})" for t in layer.outputs
    ]
    reads = [t.name for t in (*layer.inputs, *layer.constants)]
    node = helper.make_node(layer.kind or "layer", reads, outputs, name=layer.name, domain=DOMAIN)
    attributes = {
        "layer": layer.id,
        "precision": layer.precision,
        "stream": layer.stream,
        "tactic": layer.tactic,
        "nodes": list(nodes),
        "input_formats": [t.format for t in layer.inputs],
        "output_formats": [t.format for t in layer.outputs],
    }
    node.attribute.extend(helper.make_attribute(k, v) for k, v in attributes.items() if v or v == 0)
    return node


def _info(tensor: Tensor) -> onnx.ValueInfoProto:
    shape = None if tensor.shape is None else [d if d >= 0 else "?" for d in tensor.shape]
    kind = _TYPES.get(tensor.dtype, onnx.TensorProto.UNDEFINED)
    return helper.make_tensor_value_info(tensor.name, kind, shape)
