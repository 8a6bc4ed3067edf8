"""Models made of another one: nodes cut out, and a graph edited with ONNX GraphSurgeon."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import Any

import onnx
import onnx_ir as ir

from rtlab.errors import ModelError

#: First IR version in which an initializer need not be a graph input as well.
_MIN_IR = 8


def extract_nodes(source: ir.Model, title: str, chosen: Collection[str]) -> onnx.ModelProto:
    """The chosen nodes of the main graph, by name, as a model of their own.

    Values from outside become inputs, or are included where they are constant; values that the rest of the model or no
    node reads become outputs. Types and shapes are kept as far as they are known. ``title`` is the name of the source
    in errors.

    Raises:
        ModelError: none is chosen, or the weights cannot be read or exceed one file.
    """
    graph = source.graph
    nodes = [n for n in graph if n.name in chosen]
    if not nodes:
        raise ModelError(
            f'Cannot extract a part of model "{title}": no node is chosen. Select at least one node.'
        )
    reads = {id(n): list(_iter_reads(n)) for n in graph}
    produced_ids = {id(v) for n in nodes for v in n.outputs}
    outside = {id(v): v for n in nodes for v in reads[id(n)] if id(v) not in produced_ids}
    # A Constant node is an initializer in another form, so it comes along like one.
    makers = [p for v in outside.values() if (p := v.producer()) is not None]
    constants = {id(p) for p in makers if p.op_type == "Constant"}
    nodes = [n for n in graph if n.name in chosen or id(n) in constants]
    produced_ids = {id(v) for n in nodes for v in n.outputs}
    weights = [v for v in outside.values() if v.const_value is not None and id(v) not in produced_ids]
    inputs = [v for v in outside.values() if v.const_value is None and id(v) not in produced_ids]
    read = {id(v) for n in graph for v in reads[id(n)]}
    elsewhere = {id(v) for n in graph if n.name not in chosen for v in reads[id(n)]}
    elsewhere |= {id(v) for v in graph.outputs}
    outputs = [
        v for n in nodes if id(n) not in constants or n.name in chosen for v in n.outputs
        if v.name and (id(v) in elsewhere or id(v) not in read)
    ]  # fmt: skip
    inner = [v for n in nodes for v in n.outputs if v.name and v.type is not None]
    proto = onnx.ModelProto(ir_version=source.ir_version, producer_name="rtlab")
    proto.graph.name = f"{graph.name or title} (part)"
    graph_output_ids = {id(v) for v in outputs}
    try:
        proto.graph.node.extend(ir.serde.serialize_node(n) for n in nodes)
        proto.graph.input.extend(_info(v) for v in inputs)
        proto.graph.output.extend(_info(v) for v in outputs)
        proto.graph.value_info.extend(_info(v) for v in inner if id(v) not in graph_output_ids)
        proto.graph.initializer.extend(
            _tensor(v, v.const_value) for v in weights if v.const_value is not None
        )
        proto.functions.extend(map(ir.serde.serialize_function, source.functions.values()))
    except (OSError, RuntimeError, ValueError) as error:
        raise ModelError(
            f'Cannot extract {len(nodes)} nodes of model "{title}": their weights cannot be read, or exceed the '
            "2 GiB of one ONNX file. Select fewer nodes, or put the data file back beside the model.",
            details=str(error),
        ) from error
    for domain, version in graph.opset_imports.items():
        proto.opset_import.add(domain=domain, version=version)
    return proto


def _iter_reads(node: ir.Node) -> Iterator[ir.Value]:
    """Values that a node reads from the graph that it stands in, those that its bodies read included."""
    local_ids: set[int] = set()
    read_values: dict[int, ir.Value] = {}
    todo = [node]
    while todo:
        at = todo.pop()
        read_values |= {id(v): v for v in at.inputs if v is not None and v.name}
        for attribute in at.attributes.values():
            if attribute.type == ir.AttributeType.GRAPH and not attribute.is_ref():
                body = attribute.as_graph()
                local_ids |= {id(v) for v in (*body.inputs, *body.initializers.values())}
                local_ids |= {id(v) for inner in body for v in inner.outputs}
                read_values |= {id(v): v for v in body.outputs}
                todo += body
    yield from (v for k, v in read_values.items() if k not in local_ids)


def _info(value: ir.Value) -> onnx.ValueInfoProto:
    if value.type is not None:
        return ir.serde.serialize_value(value)
    # A value needs a type, and "undefined" is one; a shape that nobody knows is not invented.
    return onnx.helper.make_tensor_value_info(value.name or "", onnx.TensorProto.UNDEFINED, None)


def _tensor(value: ir.Value, tensor: ir.TensorProtocol) -> onnx.TensorProto:
    if isinstance(tensor, ir.ExternalTensor):
        tensor = ir.Tensor(tensor.numpy(), dtype=tensor.dtype, name=value.name)
    proto = ir.serde.serialize_tensor(tensor)
    proto.name = value.name or ""
    return proto


def edit_graph(source: onnx.ModelProto, title: str, change: Callable[[Any], Any]) -> onnx.ModelProto:
    """A model with its graph changed by a function: see ``Model.edit``. ``title`` is its name in errors."""
    import onnx_graphsurgeon as gs

    with gs.logger.G_LOGGER.suppress():
        graph = gs.import_onnx(source)
    changed = change(graph)
    changed = graph if changed is None else changed
    if not isinstance(changed, gs.Graph):
        raise ModelError(
            f'Cannot edit model "{title}": the function returned {type(changed).__name__}. Return the graph, or '
            "nothing where it was changed in place."
        )
    try:
        with gs.logger.G_LOGGER.suppress():
            proto: onnx.ModelProto = gs.export_onnx(changed.cleanup().toposort(), do_type_check=False)
    except Exception as error:
        raise ModelError(
            f'Cannot edit model "{title}": ONNX GraphSurgeon cannot export the result of the function. Try it on '
            "onnx_graphsurgeon.import_onnx(model.proto()).",
            details=str(error),
        ) from error
    # ONNX Runtime may not know the newest one.
    proto.ir_version = max(source.ir_version, _MIN_IR)
    # GraphSurgeon drops metadata, such as original names, and documentation.
    source_nodes = {(node.name, node.op_type): node for node in source.graph.node}
    for node in proto.graph.node:
        if (was := source_nodes.get((node.name, node.op_type))) is not None:
            del node.metadata_props[:]
            node.metadata_props.extend(was.metadata_props)
            node.doc_string = was.doc_string
    del proto.metadata_props[:]
    proto.metadata_props.extend(source.metadata_props)
    return proto
