"""What files of other tools get wrong and everybody means alike: put right in memory, and said.

Each is a pass over the file's proto: what it puts right no model can hold.
"""

from __future__ import annotations

import graphlib
import heapq
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from typing import TypeAlias

import onnx

from rtlab.core.pass_protocol import Pass, Promise
from rtlab.core.phrases import pluralize
from rtlab.core.value import shape_text
from rtlab.errors import ModelError

Graph: TypeAlias = onnx.GraphProto | onnx.FunctionProto
ProtoPass: TypeAlias = Pass[onnx.ModelProto, onnx.ModelProto]

#: So many nodes of a cycle, and values whose sizes were put right, are named.
_NAMED = 8
_LISTED = 3


def repair(proto: onnx.ModelProto, error_prefix: str) -> Iterator[str]:
    """Put right what is wrong, with a sentence about each kind; errors are those of ``find_node_order``."""
    for one in passes(proto, error_prefix):
        one.edit(proto)
        yield from one.notes


def passes(proto: onnx.ModelProto, error_prefix: str) -> Iterator[ProtoPass]:
    """What there is to put right. None is decided before the one that came first was applied."""
    if (dynamic := find_impossible_sizes(proto)).notes:
        yield dynamic
    if (sort := find_node_order(proto, error_prefix)).notes:
        yield sort


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


# --- sizes -----------------------------------------------------------------------------------------------------------


def _check_nodes_unchanged(before: onnx.ModelProto, after: onnx.ModelProto) -> str:
    was, now = ([n.name for g in iter_graphs(p) for n in g.node] for p in (before, after))
    return "" if was == now else f"nodes were {was} and are {now}"


def _check_sizes_possible(_: onnx.ModelProto, after: onnx.ModelProto) -> str:
    notes = find_impossible_sizes(after).notes
    return notes[0] if notes else ""


def find_impossible_sizes(proto: onnx.ModelProto) -> ProtoPass:
    """Take sizes that no tensor has as dynamic, as their exporters mean them; a sentence about each kind.

    A size below zero is unknown wherever it stands. Zero in an input of the main graph is too: no data has it. Where
    an input is written like that, zero says no more in the shapes of inner values, and what they are is inferred.
    """
    stored = {t.name for t in proto.graph.initializer}
    dims: list[onnx.TensorShapeProto.Dimension] = []
    descriptions: list[str] = []
    for info in proto.graph.input:
        if info.name not in stored and (none := _find_impossible_dims(info.type, zero=True)):
            dims += none
            before = _read_shape(info.type)
            after = [None if isinstance(d, int) and d < 1 else d for d in before]
            descriptions.append(f'"{info.name}" {_format_shape(before)} is {shape_text(after)}')
    inner = 0
    for graph in iter_graphs(proto):
        infos = list(graph.value_info)
        if isinstance(graph, onnx.GraphProto):
            infos += [i for i in graph.input if graph is not proto.graph or i.name in stored]
            infos += graph.output
        for info in infos:
            empty = graph is proto.graph and info.name in stored
            none = _find_impossible_dims(info.type, zero=bool(descriptions) and not empty)
            dims += none
            inner += bool(none)
    notes: tuple[str, ...] = ()
    if descriptions:
        more = f", and {len(descriptions) - _LISTED} more" if len(descriptions) > _LISTED else ""
        notes = (
            f"Sizes of 0 or below are taken as dynamic: input {', '.join(descriptions[:_LISTED])}{more}"
            + (f"; so are those of {pluralize(inner, 'other value')}" if inner else ""),
        )
    elif inner:
        notes = (f"Sizes below 0 of {pluralize(inner, 'value')} are taken as unknown",)

    def clear_sizes(_: onnx.ModelProto) -> None:
        for dim in dims:
            dim.ClearField("dim_value")

    promises = (
        Promise("nodes stay as they are", _check_nodes_unchanged),
        Promise("every size that is left is one", _check_sizes_possible),
    )
    return Pass("sizes that no tensor has", clear_sizes, promises, notes=notes)


def _find_impossible_dims(kind: onnx.TypeProto, *, zero: bool) -> list[onnx.TensorShapeProto.Dimension]:
    """The sizes of a type that are none."""
    dims = (dim for shape in _iter_shapes(kind) for dim in shape.dim)
    return [d for d in dims if d.HasField("dim_value") and d.dim_value < (1 if zero else 0)]


def _iter_shapes(kind: onnx.TypeProto) -> Iterator[onnx.TensorShapeProto]:
    """The shapes in a type: of a tensor, or of the tensors in a sequence, an optional or a map."""
    while (which := kind.WhichOneof("value")) is not None:
        inner_type = getattr(kind, which)
        if which in {"tensor_type", "sparse_tensor_type"}:
            if inner_type.HasField("shape"):
                yield inner_type.shape
            return
        if which not in {"sequence_type", "optional_type", "map_type"}:
            return
        kind = inner_type.value_type if which == "map_type" else inner_type.elem_type


def _read_shape(kind: onnx.TypeProto) -> list[int | str | None]:
    shape = next(_iter_shapes(kind), onnx.TensorShapeProto())
    return [d.dim_value if d.HasField("dim_value") else d.dim_param or None for d in shape.dim]


def _format_shape(shape: Sequence[int | str | None]) -> str:
    """A shape as the file has it, the sizes that are none included."""
    return "×".join("?" if d is None else str(d) for d in shape)


# --- order -----------------------------------------------------------------------------------------------------------


def _check_same_nodes(before: onnx.ModelProto, after: onnx.ModelProto) -> str:
    was, now = (sorted(n.name for g in iter_graphs(p) for n in g.node) for p in (before, after))
    return "" if was == now else f"nodes were {was} and are {now}"


def _check_order(_: onnx.ModelProto, after: onnx.ModelProto) -> str:
    notes = find_node_order(after, "Cannot sort:").notes
    return notes[0] if notes else ""


def find_node_order(proto: onnx.ModelProto, error_prefix: str) -> ProtoPass:
    """Sort the nodes of every graph so that each comes after those that it reads from; a sentence if any moved.

    Nodes that stand well keep their order: of those that may come next, the first of the file does.

    Raises:
        ModelError: nodes read from each other in a circle.
    """
    # Owners come before what they own, so what a body reads from outside is known when its owner is looked at.
    listed = list(iter_graphs(proto))
    outer: dict[int, set[str]] = {}
    orders: list[tuple[Graph, Sequence[int]]] = []
    moved = 0
    for graph in reversed(listed):
        reads = [_collect_reads(node, outer) for node in graph.node]
        output_counts = Counter(name for node in graph.node for name in node.output if name)
        initial_names = set(_iter_initial_names(graph))
        ends = graph.output if isinstance(graph, onnx.FunctionProto) else [v.name for v in graph.output]
        outer[id(graph)] = set(ends).union(*reads) - initial_names - output_counts.keys()
        # A name that is written twice has no one writer; the checker tells of it.
        if (
            max(output_counts.values(), default=1) == 1
            and not initial_names & output_counts.keys()
            and not _is_sorted(graph, reads, output_counts)
        ):
            places, early = _sort_nodes(graph, reads, error_prefix)
            orders.append((graph, places))
            moved += early
    words = (
        f"{pluralize(moved, 'node')} stood before what {'it reads' if moved == 1 else 'they read'}: sorted"
    )

    def sort_nodes(_: onnx.ModelProto) -> None:
        for graph, places in orders:
            nodes = list(graph.node)
            rank = {id(nodes[at]): i for i, at in enumerate(places)}
            graph.node.sort(key=lambda node, rank=rank: rank[id(node)])

    promises = (
        Promise("no node is lost, and none is new", _check_same_nodes),
        Promise("nodes stand behind what they read", _check_order),
    )
    return Pass("order of nodes", sort_nodes, promises, notes=(words,) if moved else ())


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


def _is_sorted(graph: Graph, reads: Sequence[set[str]], produced_names: Collection[str]) -> bool:
    done: set[str] = set()
    for node, names in zip(graph.node, reads, strict=True):
        if any(name in produced_names and name not in done for name in names):
            return False
        done.update(node.output)
    return True


def _sort_nodes(graph: Graph, reads: Sequence[set[str]], error_prefix: str) -> tuple[list[int], int]:
    """The places of one graph's nodes in a good order, and how many of them stand before a node that they read from."""
    writers = {name: at for at, node in enumerate(graph.node) for name in node.output if name}
    before = [{writers[name] for name in names if name in writers} for names in reads]
    sorter = graphlib.TopologicalSorter(dict(enumerate(before)))
    try:
        sorter.prepare()
    except graphlib.CycleError as error:
        raise ModelError(_describe_cycle(graph, error.args[1], error_prefix)) from None
    ready: list[int] = []
    places: list[int] = []
    while sorter.is_active():
        for at in sorter.get_ready():
            heapq.heappush(ready, at)
        at = heapq.heappop(ready)
        places.append(at)
        sorter.done(at)
    return places, sum(any(writer > at for writer in predecessors) for at, predecessors in enumerate(before))


def _describe_cycle(graph: Graph, cycle: Sequence[int], error_prefix: str) -> str:
    names = [
        f'"{graph.node[at].name}"' if graph.node[at].name else f"unnamed {graph.node[at].op_type} ({at})"
        for at in cycle
    ]
    listed_names = (
        [*names[:_NAMED], f"{len(names) - _NAMED - 1} more", names[-1]] if len(names) > _NAMED + 2 else names
    )
    where = f' of function "{graph.name}"' if isinstance(graph, onnx.FunctionProto) else ""
    return (
        f"{error_prefix} nodes{where} read from each other in a circle: {' → '.join(listed_names)}. A graph has no "
        "circles; a recurrence is a Loop, a Scan or an LSTM. Export the model again."
    )
