"""What files of other tools get wrong and everybody means alike: put right in memory, and said.

Each is a pass over the file's proto: what it puts right no model can hold.
"""

from __future__ import annotations

import dataclasses
import graphlib
import heapq
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from typing import TypeAlias

import onnx

from rtlab.core.change import Pass, Promise
from rtlab.core.phrases import many
from rtlab.core.value import shape_text
from rtlab.errors import ModelError

Graph: TypeAlias = onnx.GraphProto | onnx.FunctionProto

#: So many nodes of a cycle, and values whose sizes were put right, are named.
_NAMED = 8
_LISTED = 3


def mended(proto: onnx.ModelProto, doing: str) -> Iterator[str]:
    """Put right what is wrong, with a sentence about each kind; errors are those of ``order``."""
    for one in passes(proto, doing):
        one(proto)
        yield from one.notes


def passes(proto: onnx.ModelProto, doing: str) -> Iterator[Pass[onnx.ModelProto, onnx.ModelProto]]:
    """What there is to put right. None is decided before the one that came first was applied."""
    if (dynamic := sizes(proto)).notes:
        yield dynamic
    if (sort := order(proto, doing)).notes:
        yield sort


def graphs(proto: onnx.ModelProto) -> Iterator[Graph]:
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


def _kept(before: onnx.ModelProto, after: onnx.ModelProto) -> str:
    was, now = ([n.name for g in graphs(p) for n in g.node] for p in (before, after))
    return "" if was == now else f"nodes were {was} and are {now}"


def _possible(_: onnx.ModelProto, after: onnx.ModelProto) -> str:
    left = sizes(after).notes
    return left[0] if left else ""


@dataclasses.dataclass(frozen=True)
class ImpossibleSizes:
    """Sizes that no tensor has become dynamic; ``dims`` are those."""

    dims: tuple[onnx.TensorShapeProto.Dimension, ...]
    notes: tuple[str, ...]
    name = "sizes that no tensor has"
    needs = ()
    promises = (
        Promise("nodes stay as they are", _kept),
        Promise("every size that is left is one", _possible),
    )
    changes = ""

    def __call__(self, _: onnx.ModelProto) -> None:
        """Clear them."""
        for dim in self.dims:
            dim.ClearField("dim_value")


def sizes(proto: onnx.ModelProto) -> ImpossibleSizes:
    """Take sizes that no tensor has as dynamic, as their exporters mean them; a sentence about each kind.

    A size below zero is unknown wherever it stands. Zero in an input of the main graph is too: no data has it. Where
    an input is written like that, zero says no more in the shapes of inner values, and what they are is inferred.
    """
    stored = {t.name for t in proto.graph.initializer}
    dims: list[onnx.TensorShapeProto.Dimension] = []
    found: list[str] = []
    for info in proto.graph.input:
        if info.name not in stored and (none := _none(info.type, zero=True)):
            dims += none
            before = _shape(info.type)
            after = [None if isinstance(d, int) and d < 1 else d for d in before]
            found.append(f'"{info.name}" {_written(before)} is {shape_text(after)}')
    inner = 0
    for graph in graphs(proto):
        infos = list(graph.value_info)
        if isinstance(graph, onnx.GraphProto):
            infos += [i for i in graph.input if graph is not proto.graph or i.name in stored]
            infos += graph.output
        for info in infos:
            empty = graph is proto.graph and info.name in stored
            none = _none(info.type, zero=bool(found) and not empty)
            dims += none
            inner += bool(none)
    notes: tuple[str, ...] = ()
    if found:
        more = f", and {len(found) - _LISTED} more" if len(found) > _LISTED else ""
        notes = (
            f"Sizes of 0 or below are taken as dynamic: input {', '.join(found[:_LISTED])}{more}"
            + (f"; so are those of {many(inner, 'other value')}" if inner else ""),
        )
    elif inner:
        notes = (f"Sizes below 0 of {many(inner, 'value')} are taken as unknown",)
    return ImpossibleSizes(tuple(dims), notes)


def _none(kind: onnx.TypeProto, *, zero: bool) -> list[onnx.TensorShapeProto.Dimension]:
    """The sizes of a type that are none."""
    dims = (dim for shape in _shapes(kind) for dim in shape.dim)
    return [d for d in dims if d.HasField("dim_value") and d.dim_value < (1 if zero else 0)]


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


# --- order -----------------------------------------------------------------------------------------------------------


def _same(before: onnx.ModelProto, after: onnx.ModelProto) -> str:
    was, now = (sorted(n.name for g in graphs(p) for n in g.node) for p in (before, after))
    return "" if was == now else f"nodes were {was} and are {now}"


def _ordered(_: onnx.ModelProto, after: onnx.ModelProto) -> str:
    left = order(after, "Cannot sort:").notes
    return left[0] if left else ""


@dataclasses.dataclass(frozen=True)
class NodeOrder:
    """Nodes come after those that they read from; ``orders`` are graphs with the nodes' old places in the new order."""

    orders: tuple[tuple[Graph, Sequence[int]], ...]
    notes: tuple[str, ...]
    name = "order of nodes"
    needs = ()
    promises = (
        Promise("no node is lost, and none is new", _same),
        Promise("nodes stand behind what they read", _ordered),
    )
    changes = ""

    def __call__(self, _: onnx.ModelProto) -> None:
        """Sort them."""
        for graph, places in self.orders:
            nodes = list(graph.node)
            rank = {id(nodes[at]): i for i, at in enumerate(places)}
            graph.node.sort(key=lambda node, rank=rank: rank[id(node)])


def order(proto: onnx.ModelProto, doing: str) -> NodeOrder:
    """Sort the nodes of every graph so that each comes after those that it reads from; a sentence if any moved.

    Nodes that stand well keep their order: of those that may come next, the first of the file does.

    Raises:
        ModelError: nodes read from each other in a circle.
    """
    # Owners come before what they own, so what a body reads from outside is known when its owner is looked at.
    listed = list(graphs(proto))
    outer: dict[int, set[str]] = {}
    orders: list[tuple[Graph, Sequence[int]]] = []
    moved = 0
    for graph in reversed(listed):
        reads = [_reads(node, outer) for node in graph.node]
        made = Counter(name for node in graph.node for name in node.output if name)
        given = set(_given(graph))
        ends = graph.output if isinstance(graph, onnx.FunctionProto) else [v.name for v in graph.output]
        outer[id(graph)] = set(ends).union(*reads) - given - made.keys()
        # A name that is written twice has no one writer; the checker tells of it.
        if max(made.values(), default=1) == 1 and not given & made.keys() and not _sorted(graph, reads, made):
            places, early = _places(graph, reads, doing)
            orders.append((graph, places))
            moved += early
    words = f"{many(moved, 'node')} stood before what {'it reads' if moved == 1 else 'they read'}: sorted"
    return NodeOrder(tuple(orders), (words,) if moved else ())


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


def _places(graph: Graph, reads: Sequence[set[str]], doing: str) -> tuple[list[int], int]:
    """The places of one graph's nodes in a good order, and how many of them stand before a node that they read from."""
    writers = {name: at for at, node in enumerate(graph.node) for name in node.output if name}
    before = [{writers[name] for name in names if name in writers} for names in reads]
    sorter = graphlib.TopologicalSorter(dict(enumerate(before)))
    try:
        sorter.prepare()
    except graphlib.CycleError as error:
        raise ModelError(_circle(graph, error.args[1], doing)) from None
    ready: list[int] = []
    places: list[int] = []
    while sorter.is_active():
        for at in sorter.get_ready():
            heapq.heappush(ready, at)
        at = heapq.heappop(ready)
        places.append(at)
        sorter.done(at)
    return places, sum(any(writer > at for writer in own) for at, own in enumerate(before))


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
