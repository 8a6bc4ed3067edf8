"""Repairs of unambiguous mistakes in files of other tools, in memory, each with a note."""

from __future__ import annotations

import graphlib
import heapq
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import TypeAlias

import onnx

from rtlab.core.phrases import list_first, pluralize
from rtlab.core.value import shape_text
from rtlab.errors import ModelError

Graph: TypeAlias = onnx.GraphProto | onnx.FunctionProto

#: Nodes of a cycle, and values with repaired sizes, that a message names.
_NAMED = 8
_LISTED = 3


def repair(proto: onnx.ModelProto, error_prefix: str) -> list[str]:
    """Repair in place and return the notes; ``ModelError`` where nodes read from each other in a circle."""
    return [note for note in (clear_impossible_sizes(proto), sort_nodes(proto, error_prefix)) if note]


def iter_graphs(proto: onnx.ModelProto) -> Iterator[Graph]:
    """The main graph, the local functions and every body inside them, after what they are in."""
    stack: list[Graph] = [*proto.functions, proto.graph]
    while stack:
        graph = stack.pop()
        yield graph
        for node in graph.node:
            for attribute in node.attribute:
                if attribute.HasField("g"):
                    stack.append(attribute.g)
                stack.extend(attribute.graphs)


def clear_impossible_sizes(proto: onnx.ModelProto) -> str:
    """Make sizes that no tensor has dynamic, as their exporters mean them; a sentence about it, empty for none.

    A size below zero is unknown everywhere, and so is zero in an input of the main graph. Where an input has such a
    size, zero is unknown in the shapes of inner values too.
    """
    stored = {t.name for t in proto.graph.initializer}
    descriptions: list[str] = []
    for info in proto.graph.input:
        before = _read_shape(info.type)
        if info.name not in stored and _clear_dims(info.type, zero=True):
            # As the file has it, with the sizes that are none.
            written = "×".join("?" if d is None else str(d) for d in before)
            descriptions.append(f'"{info.name}" {written} is {shape_text(_read_shape(info.type))}')
    inner = 0
    for graph in iter_graphs(proto):
        infos = list(graph.value_info)
        if isinstance(graph, onnx.GraphProto):
            infos += [i for i in graph.input if graph is not proto.graph or i.name in stored]
            infos += graph.output
        for info in infos:
            empty = graph is proto.graph and info.name in stored
            inner += _clear_dims(info.type, zero=bool(descriptions) and not empty)
    if descriptions:
        more = f", and {len(descriptions) - _LISTED} more" if len(descriptions) > _LISTED else ""
        others = f"; so are those of {pluralize(inner, 'other value')}" if inner else ""
        return f"Sizes of 0 or below are taken as dynamic: input {', '.join(descriptions[:_LISTED])}{more}{others}"
    return f"Sizes below 0 of {pluralize(inner, 'value')} are taken as unknown" if inner else ""


def replace_types(proto: onnx.ModelProto, types: Mapping[str, int]) -> str:
    """Let values of the main graph have the types of the operators that write them; a sentence, empty for none.

    ``types`` are elements' types by name. Wrong ones of inner values are dropped with their shapes, those of outputs
    replaced.
    """
    graph = proto.graph
    infos = [*graph.value_info, *graph.output]
    wrong = {i.name for i in infos if types.get(i.name, 0) not in {0, i.type.tensor_type.elem_type}}
    if not wrong:
        return ""
    right = [i for i in graph.value_info if i.name not in wrong]
    del graph.value_info[:]
    graph.value_info.extend(right)
    for output in graph.output:
        if output.name in wrong:
            output.type.tensor_type.elem_type = types[output.name]
    subject = pluralize(len(wrong), "value has", "values have")
    return (
        f"{subject} other types in the file than the operators that write them give: those of the operators count "
        f"({list_first(sorted(wrong))})"
    )


def _clear_dims(kind: onnx.TypeProto, *, zero: bool) -> bool:
    """Clear the sizes of a type that are below zero, or ``zero``; whether there were any."""
    dims = [d for s in _iter_shapes(kind) for d in s.dim if d.HasField("dim_value") and d.dim_value < zero]
    for dim in dims:
        dim.ClearField("dim_value")
    return bool(dims)


def _iter_shapes(kind: onnx.TypeProto) -> Iterator[onnx.TensorShapeProto]:
    """The shape in a type: of a tensor, or of the tensors in a sequence or an optional."""
    which = kind.WhichOneof("value")
    while which in {"sequence_type", "optional_type"}:
        kind = getattr(kind, which).elem_type
        which = kind.WhichOneof("value")
    if which in {"tensor_type", "sparse_tensor_type"} and getattr(kind, which).HasField("shape"):
        yield getattr(kind, which).shape


def _read_shape(kind: onnx.TypeProto) -> list[int | str | None]:
    shape = next(_iter_shapes(kind), onnx.TensorShapeProto())
    return [d.dim_value if d.HasField("dim_value") else d.dim_param or None for d in shape.dim]


def sort_nodes(proto: onnx.ModelProto, error_prefix: str) -> str:
    """Sort the nodes of every graph so that each comes after those that it reads from; a sentence if any moved.

    Nodes that stand well keep their order: of those that may come next, the first of the file does.

    Raises:
        ModelError: nodes read from each other in a circle.
    """
    # Owners come before what they own, so what a body reads from outside is known when its owner is looked at.
    outer: dict[int, set[str]] = {}
    moved = 0
    for graph in reversed(list(iter_graphs(proto))):
        reads = [_collect_reads(node, outer) for node in graph.node]
        output_counts = Counter(name for node in graph.node for name in node.output if name)
        initial_names = set(_iter_initial_names(graph))
        ends = graph.output if isinstance(graph, onnx.FunctionProto) else [v.name for v in graph.output]
        outer[id(graph)] = set(ends).union(*reads) - initial_names - output_counts.keys()
        # A name that is written twice has no one writer; the checker tells of it.
        if max(output_counts.values(), default=1) == 1 and not initial_names & output_counts.keys():
            moved += _sort_graph(graph, reads, error_prefix)
    if not moved:
        return ""
    return f"{pluralize(moved, 'node')} stood before what {'it reads' if moved == 1 else 'they read'}: sorted"


def _iter_initial_names(graph: Graph) -> Iterator[str]:
    """Names that are there before the first node runs."""
    if isinstance(graph, onnx.FunctionProto):
        yield from graph.input
        return
    yield from (v.name for v in (*graph.input, *graph.initializer))
    yield from (s.values.name for s in graph.sparse_initializer)


def _collect_reads(node: onnx.NodeProto, outer: dict[int, set[str]]) -> set[str]:
    """Names that a node reads, those that its bodies read from outside included."""
    names = {name for name in node.input if name}
    for attribute in node.attribute:
        for body in (attribute.g, *attribute.graphs) if attribute.HasField("g") else attribute.graphs:
            names |= outer[id(body)]
    return names


def _sort_graph(graph: Graph, reads: Sequence[set[str]], error_prefix: str) -> int:
    """Sort the nodes of one graph; how many stood before a node that they read from."""
    writers = {name: at for at, node in enumerate(graph.node) for name in node.output if name}
    before = [{writers[name] for name in names if name in writers} for names in reads]
    early = sum(max(predecessors, default=-1) >= at for at, predecessors in enumerate(before))
    if not early:
        return 0
    sorter = graphlib.TopologicalSorter(dict(enumerate(before)))
    try:
        sorter.prepare()
    except graphlib.CycleError as error:
        raise ModelError(_describe_cycle(graph, error.args[1], error_prefix)) from None
    nodes = list(graph.node)
    rank: dict[int, int] = {}
    ready: list[int] = []
    while sorter.is_active():
        for at in sorter.get_ready():
            heapq.heappush(ready, at)
        at = heapq.heappop(ready)
        rank[id(nodes[at])] = len(rank)
        sorter.done(at)
    graph.node.sort(key=lambda node: rank[id(node)])
    return early


def _describe_cycle(graph: Graph, cycle: Sequence[int], error_prefix: str) -> str:
    nodes = [(graph.node[at], at) for at in cycle]
    names = [f'"{node.name}"' if node.name else f"unnamed {node.op_type} ({at})" for node, at in nodes]
    if len(names) > _NAMED:
        names[_NAMED - 1 : -1] = ["…"]
    where = f' of function "{graph.name}"' if isinstance(graph, onnx.FunctionProto) else ""
    return (
        f"{error_prefix} nodes{where} read from each other in a circle: {' → '.join(names)}. A graph has no "
        "circles; a recurrence is a Loop, a Scan or an LSTM. Export the model again."
    )


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
    for graph in iter_graphs(proto):
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
