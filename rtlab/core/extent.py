"""How much of a file is looked at: beyond these limits it is refused in words, before work that would take hours."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import onnx

from rtlab.core import mend
from rtlab.errors import ModelError

#: Nodes of all graphs of a model; layers of an engine.
MOST_NODES, MOST_LAYERS = 100_000, 100_000
#: Values and constants of a model, with inputs and outputs of graphs; inputs, outputs and attributes of all nodes.
MOST_VALUES, MOST_PARTS = 300_000, 1_000_000
#: Inputs, outputs or attributes of one node; outputs of a graph, local functions, and entries of metadata.
MOST_LISTED = 10_000
#: Dimensions of a tensor, as NumPy has them.
MOST_DIMENSIONS = 64
#: Bodies inside each other that protobuf reads: three messages each, of a hundred.
MOST_NESTED = 32

#: Numbers of the fields of a file's bytes: a graph in a model, nodes in a graph, attributes in a node, graphs in one.
_INTO = {
    "model": {7: "graph"},
    "graph": {1: "node"},
    "node": {5: "attribute"},
    "attribute": {6: "graph", 11: "graph"},
}
#: Fields that are looked at for how deep a file is nested.
_MOST_FIELDS = 1_000_000


def check_extent(proto: onnx.ModelProto, doing: str) -> None:
    """Raise ``ModelError`` for a model of more parts than are looked at, without looking at all of them."""

    def see(count: int, most: int, what: str) -> None:
        if count > most:
            raise ModelError(
                f"{doing} it has {count:,} {what}, and at most {most:,} are looked at. Export a smaller model, or the "
                "part of it that matters."
            )

    see(len(proto.functions), MOST_LISTED, "local functions")
    for listed in (proto.metadata_props, proto.opset_import, proto.training_info):
        see(len(listed), MOST_LISTED, "entries of metadata, operator sets or training")
    nodes = values = parts = 0
    for graph in mend.graphs(proto):
        nodes += len(graph.node)
        see(nodes, MOST_NODES, "nodes")
        lists = [graph.input, graph.output, graph.value_info]
        if isinstance(graph, onnx.GraphProto):
            lists += [graph.initializer, graph.sparse_initializer, graph.quantization_annotation]
        see(len(graph.output), MOST_LISTED, "outputs of a graph")
        values += sum(map(len, lists))
        see(values, MOST_VALUES, "values and constants")
        for node in graph.node:
            for one, what in (
                (node.input, "inputs"),
                (node.output, "outputs"),
                (node.attribute, "attributes"),
            ):
                see(len(one), MOST_LISTED, f'{what} of node "{node.name or node.op_type}"')
            parts += len(node.input) + len(node.output) + len(node.attribute)
        see(parts, MOST_PARTS, "inputs, outputs and attributes of nodes")
        _check_dimensions(graph, see)


def _check_dimensions(graph: mend.Graph, see: Callable[[int, int, str], None]) -> None:
    if isinstance(graph, onnx.GraphProto):
        for tensor in graph.initializer:
            see(len(tensor.dims), MOST_DIMENSIONS, f'dimensions of constant "{tensor.name}"')
        for value in (*graph.input, *graph.output, *graph.value_info):
            see(len(value.type.tensor_type.shape.dim), MOST_DIMENSIONS, f'dimensions of value "{value.name}"')


def nested(data: bytes) -> int:
    """How many graphs are inside each other in the bytes of a model, as far as they are those of protobuf."""
    deepest = seen = 0
    todo = [(0, len(data), "model", 0)]
    while todo:
        begin, end, kind, depth = todo.pop()
        for number, start, stop in _fields(data, begin, end):
            seen += 1
            into = _INTO[kind].get(number)
            if into is not None:
                inner = depth + (into == "graph")
                deepest = max(deepest, inner)
                todo.append((start, stop, into, inner))
            if seen > _MOST_FIELDS:
                return deepest
    return deepest


def _fields(data: bytes, at: int, end: int) -> Iterator[tuple[int, int, int]]:
    """Numbers of the fields of a message that hold bytes, with where these begin and end."""

    def number() -> int:
        nonlocal at
        found = shift = 0
        while at < end and shift < 64:
            byte = data[at]
            at += 1
            found |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                break
        return found

    while at < end:
        key = number()
        kind = key & 7
        if kind == 2:
            size = number()
            if at + size > end:
                return
            yield key >> 3, at, at + size
            at += size
        elif kind in {1, 5}:
            at += 8 if kind == 1 else 4
        elif kind == 0:
            number()
        else:
            return
