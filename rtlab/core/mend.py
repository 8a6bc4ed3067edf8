"""What files of other tools get wrong and everybody means alike: put right in memory, and said."""

from __future__ import annotations

import graphlib
import heapq
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import TypeAlias

import onnx

from rtlab.core.value import shape_text
from rtlab.errors import ModelError

Graph: TypeAlias = onnx.GraphProto | onnx.FunctionProto

#: So many nodes of a cycle, and values whose sizes were put right, are named.
_NAMED = 8
_LISTED = 3


def sizes(proto: onnx.ModelProto, graphs: Iterable[Graph]) -> tuple[str, ...]:
    """Take sizes that no tensor has as dynamic, as their exporters mean them; a sentence about each kind.

    A size below zero is unknown wherever it stands. Zero in an input of the main graph is too: no data has it. Where
    an input is written like that, zero says no more in the shapes of inner values, and what they are is inferred.
    """
    stored = {t.name for t in proto.graph.initializer}
    found: list[str] = []
    zero = False
    for info in proto.graph.input:
        before = _shape(info.type)
        if info.name in stored or not _open(info.type, zero=True):
            continue
        zero = True
        found.append(f'"{info.name}" {_written(before)} is {shape_text(_shape(info.type))}')
    inner = 0
    for graph in graphs:
        infos = list(graph.value_info)
        if isinstance(graph, onnx.GraphProto):
            infos += [*graph.input, *graph.output]
        for info in infos:
            empty = graph is proto.graph and info.name in stored
            inner += _open(info.type, zero=zero and not empty)
    if not found and not inner:
        return ()
    if not found:
        return (f"Sizes below 0 of {_many(inner, 'value')} are taken as unknown",)
    more = f", and {len(found) - _LISTED} more" if len(found) > _LISTED else ""
    return (
        f"Sizes of 0 or below are taken as dynamic: input {', '.join(found[:_LISTED])}{more}"
        + (f"; so are those of {_many(inner, 'other value')}" if inner else ""),
    )


def _open(kind: onnx.TypeProto, *, zero: bool) -> bool:
    """Clear the sizes of a type that are no sizes; whether there were any."""
    changed = False
    for shape in _shapes(kind):
        for dim in shape.dim:
            if dim.HasField("dim_value") and dim.dim_value < (1 if zero else 0):
                dim.ClearField("dim_value")
                changed = True
    return changed


def _shapes(kind: onnx.TypeProto) -> Iterator[onnx.TensorShapeProto]:
    """The shapes in a type: of a tensor, or of the tensors in a sequence, an optional or a map."""
    while (which := kind.WhichOneof("value")) is not None:
        held = getattr(kind, which)
        if which in {"tensor_type", "sparse_tensor_type"}:
            if held.HasField("shape"):
                yield held.shape
            return
        if which not in {"sequence_type", "optional_type", "map_type"}:
            return
        kind = held.value_type if which == "map_type" else held.elem_type


def _shape(kind: onnx.TypeProto) -> list[int | str | None]:
    shape = next(_shapes(kind), onnx.TensorShapeProto())
    return [d.dim_value if d.HasField("dim_value") else d.dim_param or None for d in shape.dim]


def _written(shape: Sequence[int | str | None]) -> str:
    """A shape as the file has it, the sizes that are none included."""
    return "×".join("?" if d is None else str(d) for d in shape)


def order(graphs: Iterable[Graph], doing: str) -> tuple[str, ...]:
    """Sort the nodes of every graph so that each comes after those that it reads from; a sentence if any moved.

    Nodes that stand well keep their order: of those that may come next, the first of the file does.

    Raises:
        ModelError: nodes read from each other in a circle.
    """
    # Owners come before what they own, so what a body reads from outside is known when its owner is looked at.
    listed = list(graphs)
    outer: dict[int, set[str]] = {}
    moved = 0
    for graph in reversed(listed):
        reads = [_reads(node, outer) for node in graph.node]
        made = Counter(name for node in graph.node for name in node.output if name)
        given = set(_given(graph))
        ends = graph.output if isinstance(graph, onnx.FunctionProto) else [v.name for v in graph.output]
        outer[id(graph)] = set(ends).union(*reads) - given - made.keys()
        # A name that is written twice has no one writer; the checker tells of it.
        if max(made.values(), default=1) == 1 and not given & made.keys() and not _sorted(graph, reads, made):
            moved += _sort(graph, reads, doing)
    return (
        (f"{_many(moved, 'node')} stood before what {'it reads' if moved == 1 else 'they read'}: sorted",)
        if moved
        else ()
    )


def _given(graph: Graph) -> Iterator[str]:
    """Names that are there before the first node runs."""
    if isinstance(graph, onnx.FunctionProto):
        yield from graph.input
        return
    yield from (v.name for v in (*graph.input, *graph.initializer))
    yield from (s.values.name for s in graph.sparse_initializer)


def _reads(node: onnx.NodeProto, outer: dict[int, set[str]]) -> set[str]:
    """Names that a node reads, those that its bodies read from outside included."""
    found = {name for name in node.input if name}
    for attribute in node.attribute:
        for body in (attribute.g, *attribute.graphs) if attribute.HasField("g") else attribute.graphs:
            found |= outer[id(body)]
    return found


def _sorted(graph: Graph, reads: Sequence[set[str]], made: Collection[str]) -> bool:
    done: set[str] = set()
    for node, names in zip(graph.node, reads, strict=True):
        if any(name in made and name not in done for name in names):
            return False
        done.update(node.output)
    return True


def _sort(graph: Graph, reads: Sequence[set[str]], doing: str) -> int:
    """Sort the nodes of one graph; how many of them stood before a node that they read from."""
    nodes = list(graph.node)
    writers = {name: at for at, node in enumerate(nodes) for name in node.output if name}
    before = [{writers[name] for name in names if name in writers} for names in reads]
    sorter = graphlib.TopologicalSorter(dict(enumerate(before)))
    try:
        sorter.prepare()
    except graphlib.CycleError as error:
        raise ModelError(_circle(graph, error.args[1], doing)) from None
    ready: list[int] = []
    rank: dict[int, int] = {}
    while sorter.is_active():
        for at in sorter.get_ready():
            heapq.heappush(ready, at)
        at = heapq.heappop(ready)
        rank[id(nodes[at])] = len(rank)
        sorter.done(at)
    graph.node.sort(key=lambda node: rank[id(node)])
    return sum(any(writer > at for writer in own) for at, own in enumerate(before))


def _circle(graph: Graph, found: Sequence[int], doing: str) -> str:
    names = [
        f'"{graph.node[at].name}"' if graph.node[at].name else f"unnamed {graph.node[at].op_type} ({at})"
        for at in found
    ]
    shown = (
        [*names[:_NAMED], f"{len(names) - _NAMED - 1} more", names[-1]] if len(names) > _NAMED + 2 else names
    )
    where = f' of function "{graph.name}"' if isinstance(graph, onnx.FunctionProto) else ""
    return (
        f"{doing} nodes{where} read from each other in a circle: {' → '.join(shown)}. A graph has no circles; a "
        "recurrence is a Loop, a Scan or an LSTM. Export the model again."
    )


def _many(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"
