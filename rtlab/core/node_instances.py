"""Where the nodes of a model run: in the main graph, in a body, or in a function once per call."""

from __future__ import annotations

import dataclasses
from collections import Counter, deque
from typing import TYPE_CHECKING, Any, NamedTuple

import onnx_ir as ir

from rtlab.core.node import Node, bodies

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

#: Nodes of all subgraphs beyond which calls are not expanded.
_MOST = 100_000


class NodeInstance(NamedTuple):
    """A node where it runs.

    ``id`` is the node's own where it runs in one place, in a function that is called several times the id of the call's
    place and that of the node, joined by ``/``.
    """

    id: str
    node: Node


@dataclasses.dataclass(frozen=True, eq=False)
class Subgraph:
    """A graph where it runs: the main graph, a body of the node at place ``owner``, or a function that is called there.

    ``body`` is the name of the attribute or of the function, empty for the main graph. ``space`` is the number of the
    function call: values are the same when they are the same object in the same space. ``places`` belong to ``nodes``.
    """

    owner: str
    body: str
    graph: ir.Graph | ir.Function
    space: int
    nodes: tuple[ir.Node, ...]
    places: tuple[NodeInstance, ...]


@dataclasses.dataclass
class _PendingSubgraph:
    """A scope without ids; ``call`` is the scope and position of the node that opens this space."""

    graph: ir.Graph | ir.Function
    owner: tuple[int, int] | None
    body: str
    space: int
    call: tuple[int, int] | None
    functions: tuple[Any, ...]


def list_subgraphs(model: ir.Model, nodes: Mapping[int, Node]) -> tuple[Subgraph, ...]:
    """The main graph, and after each scope those that its nodes open; ``nodes`` by identity of those of onnx-ir."""
    pending = list(_iter_pending(model))
    runs = Counter(id(f.graph) for f in pending)
    spaces = {f.space: runs[id(f.graph)] > 1 for f in pending if isinstance(f.graph, ir.Function)}
    taken = {n.id for n in nodes.values()}
    subgraphs: list[Subgraph] = []
    for scope in pending:
        # A function that is called once by one that is called twice runs twice, so this covers nesting.
        call = scope.call if scope.call and spaces[scope.space] else None
        prefix = f"{subgraphs[call[0]].places[call[1]].id}/" if call else ""
        inner = tuple(scope.graph)
        places = []
        for node in (nodes[id(n)] for n in inner):
            id_ = prefix + node.id
            while prefix and id_ in taken:
                id_ += "'"
            taken.add(id_)
            places.append(NodeInstance(id_, node))
        owner = subgraphs[scope.owner[0]].places[scope.owner[1]].id if scope.owner else ""
        subgraphs.append(Subgraph(owner, scope.body, scope.graph, scope.space, inner, tuple(places)))
    return tuple(subgraphs)


def _iter_pending(model: ir.Model) -> Iterator[_PendingSubgraph]:
    todo = deque([_PendingSubgraph(model.graph, None, "", 0, None, ())])
    scope = spaces = 0
    total = len(model.graph)
    while todo:
        at = todo.popleft()
        yield at
        for position, node in enumerate(at.graph):
            owner = (scope, position)
            for attribute in bodies(node):
                body = attribute.as_graph()
                total += len(body)
                todo.append(_PendingSubgraph(body, owner, attribute.name, at.space, at.call, at.functions))
            if not model.functions:
                continue
            key = node.op_identifier()
            function = model.functions.get(key)
            # A recursive call, which is invalid, is not expanded.
            if function is not None and key not in at.functions and total + len(function) <= _MOST:
                spaces += 1
                total += len(function)
                todo.append(
                    _PendingSubgraph(function, owner, function.name, spaces, owner, (*at.functions, key))
                )
        scope += 1
