"""How much of a file is looked at: beyond these limits it is refused in words, before work that would take hours."""

from __future__ import annotations

from collections.abc import Callable

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
    """Raise ``ModelError`` for a model of more parts than are looked at, without looking at all of them."""

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
        lists = [graph.input, graph.output, graph.value_info]
        if isinstance(graph, onnx.GraphProto):
            lists += [graph.initializer, graph.sparse_initializer, graph.quantization_annotation]
        check_count(len(graph.output), MOST_LISTED, "outputs of a graph")
        values += sum(map(len, lists))
        check_count(values, MOST_VALUES, "values and constants")
        for node in graph.node:
            for one, what in (
                (node.input, "inputs"),
                (node.output, "outputs"),
                (node.attribute, "attributes"),
            ):
                check_count(len(one), MOST_LISTED, f'{what} of node "{node.name or node.op_type}"')
            parts += len(node.input) + len(node.output) + len(node.attribute)
        check_count(parts, MOST_PARTS, "inputs, outputs and attributes of nodes")
        _check_dimensions(graph, check_count)


def _check_dimensions(graph: proto_repair.Graph, check_count: Callable[[int, int, str], None]) -> None:
    if isinstance(graph, onnx.GraphProto):
        for tensor in graph.initializer:
            check_count(len(tensor.dims), MOST_DIMENSIONS, f'dimensions of constant "{tensor.name}"')
        for value in (*graph.input, *graph.output, *graph.value_info):
            check_count(
                len(value.type.tensor_type.shape.dim), MOST_DIMENSIONS, f'dimensions of value "{value.name}"'
            )
