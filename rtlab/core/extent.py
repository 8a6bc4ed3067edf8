"""Limits of the size of a file, beyond which it is refused."""

from __future__ import annotations

import onnx

from rtlab.core import proto_repair
from rtlab.errors import ModelError

#: Nodes of all graphs of a model; layers of an engine.
MOST_NODES, MOST_LAYERS = 100_000, 100_000
#: Values and constants of a model, with inputs and outputs of graphs; inputs, outputs and attributes of all nodes.
MOST_VALUES, MOST_PARTS = 300_000, 1_000_000
#: Inputs, outputs or attributes of one node; outputs of a graph, local functions, and entries of metadata.
MOST_LISTED = 10_000
#: Dimensions of a tensor, as NumPy has them.
MOST_DIMENSIONS = 64


def check_extent(proto: onnx.ModelProto, error_prefix: str) -> None:
    """Raise ``ModelError`` for a model of more parts than the limits."""

    def check_count(count: int, most: int, what: str) -> None:
        if count > most:
            raise ModelError(
                f"{error_prefix} it has {count:,} {what}, and at most {most:,} are read. Export a smaller model, "
                "or the part of it that matters."
            )

    check_count(len(proto.functions), MOST_LISTED, "local functions")
    for listed in (proto.metadata_props, proto.opset_import, proto.training_info):
        check_count(len(listed), MOST_LISTED, "entries of metadata, operator sets or training")
    nodes = values = parts = 0
    for graph in proto_repair.iter_graphs(proto):
        nodes += len(graph.node)
        check_count(nodes, MOST_NODES, "nodes")
        check_count(len(graph.output), MOST_LISTED, "outputs of a graph")
        values += len(graph.input) + len(graph.output) + len(graph.value_info)
        if isinstance(graph, onnx.GraphProto):
            values += (
                len(graph.initializer) + len(graph.sparse_initializer) + len(graph.quantization_annotation)
            )
        check_count(values, MOST_VALUES, "values and constants")
        for node in graph.node:
            for what in ("input", "output", "attribute"):
                count = len(getattr(node, what))
                check_count(count, MOST_LISTED, f'{what}s of node "{node.name or node.op_type}"')
                parts += count
        check_count(parts, MOST_PARTS, "inputs, outputs and attributes of nodes")
        if isinstance(graph, onnx.GraphProto):
            ranks = [(t.name, len(t.dims)) for t in graph.initializer]
            infos = (*graph.input, *graph.output, *graph.value_info)
            ranks += [(v.name, len(v.type.tensor_type.shape.dim)) for v in infos]
            for name, rank in ranks:
                check_count(rank, MOST_DIMENSIONS, f'dimensions of value "{name}"')
