"""Producers and readers of a model's values, and what the graph alone tells of each node."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Container, Iterable
from typing import Literal

from rtlab.core.model import Model
from rtlab.core.node import Node

#: Why a node has no layer.
Reason = Literal["folded", "view", "shape", "dead", "unknown"]

#: Operators that only rename, re-index or re-label memory; a compiler need not run anything for them.
VIEWS = frozenset({
    "Identity", "Dropout", "Reshape", "Flatten", "Squeeze", "Unsqueeze", "Transpose", "Slice", "Split", "Concat",
    "Expand", "Cast", "CastLike", "DepthToSpace", "SpaceToDepth",
})  # fmt: skip
_POOLS = frozenset({"MaxPool", "AveragePool"})
_SHAPE_SOURCES = frozenset({"Shape", "Size"})
#: Inputs that carry sizes, not data: operator to positions.
_SHAPE_SLOTS = {
    "Reshape": (1,), "Expand": (1,), "Tile": (1,), "ConstantOfShape": (0,), "Slice": (1, 2, 3, 4),
    "Resize": (1, 2, 3), "Unsqueeze": (1,), "Squeeze": (1,), "Pad": (1,), "Upsample": (1,), "Range": (0, 1, 2),
    "TopK": (1,), "Split": (1,),
}  # fmt: skip


class Flow:
    """Producers and readers in every graph of a model, and what the graph alone tells of each node."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self.producer: dict[tuple[str, str], Node] = {}
        self._readers: dict[tuple[str, str], list[Node]] = {}
        self._inputs: dict[str, list[tuple[str, str]]] = {}
        for node in model.nodes:
            where = space(node)
            for out in node.outputs:
                if out:
                    self.producer[where, out] = node
            self._inputs[node.id] = keys = [(where, i) for i in node.inputs if i]
            for key in dict.fromkeys(keys):
                self._readers.setdefault(key, []).append(node)

    def inputs(self, node: Node) -> list[tuple[str, str]]:
        """Keys of the values that a node reads: name space and name."""
        return self._inputs[node.id]

    def writers(self, node: Node) -> list[Node]:
        """The nodes that write what a node reads."""
        return [w for k in self.inputs(node) if (w := self.producer.get(k)) is not None]

    def reading(self, key: tuple[str, str]) -> list[Node]:
        """The nodes that read a value, in graph order."""
        return self._readers.get(key, [])

    def readers(self, node: Node) -> list[Node]:
        """The nodes that read a node's outputs."""
        return [r for o in node.outputs if o for r in self.reading((space(node), o))]

    def reasons(self) -> dict[str, Reason]:
        """The reason for having no layer, for each node for which the graph tells one."""
        folded, shaped = self._folded(), self._shaped()
        alive = self._alive()
        table: dict[str, Reason] = {}
        for node in self.model.nodes:
            if node.id not in alive:
                table[node.id] = "dead"
            elif node.id in shaped:
                table[node.id] = "shape"
            elif node.id in folded:
                table[node.id] = "folded"
            elif node.op in VIEWS or _passes(node):
                table[node.id] = "view"
        return table

    def _folded(self) -> set[str]:
        done: set[str] = set()
        for node in self.model.nodes:
            if node.op == "Constant" or (
                node.inputs and all(self._fixed(k, done) for k in self.inputs(node))
            ):
                done.add(node.id)
        return done

    def between(self, first: Node, last: Node, closed: Container[str] = ()) -> list[Node]:
        """The nodes on the paths from one node to another, both included, in graph order; empty when there is none.

        A path never leaves the stretch of the graph between its ends, because a graph lists writers before readers, and
        does not lead through the nodes whose ids are in ``closed``.
        """

        def reached(node: Node, step: Callable[[Node], Iterable[Node]]) -> dict[str, Node]:
            seen: dict[str, Node] = {node.id: node}
            todo = [node]
            while todo:
                for found in step(todo.pop()):
                    inside = found.id not in closed or found is first or found is last
                    if inside and found.id not in seen and first.index <= found.index <= last.index:
                        seen[found.id] = found
                        todo.append(found)
            return seen

        down, up = reached(first, self.readers), reached(last, self.writers)
        return sorted((n for i, n in down.items() if i in up), key=lambda n: n.index)

    def _fixed(self, key: tuple[str, str], done: set[str]) -> bool:
        node = self.producer.get(key)
        return node.id in done if node is not None else self._stored(key)

    def _stored(self, key: tuple[str, str]) -> bool:
        """Whether a value is stored in the model."""
        value = self.model.values.get(key[1]) if not key[0] and key not in self.producer else None
        return value is not None and value.kind == "constant"

    def _shaped(self) -> set[str]:
        done: set[str] = set()
        for node in self.model.nodes:
            if node.op in _SHAPE_SOURCES:
                done.add(node.id)
            elif done:
                makers = [self.producer.get(k) for k in self.inputs(node) if not self._stored(k)]
                if makers and all(n is not None and n.id in done for n in makers):
                    done.add(node.id)
        # Backwards: what only feeds size inputs is shape arithmetic too.
        for node in reversed(self.model.nodes):
            where = space(node)
            uses = [(r, out) for out in node.outputs if out for r in self.reading((where, out))]
            if uses and all(r.id in done or _sizes(r, value) for r, value in uses):
                done.add(node.id)
        # A node that turns sizes into data (ConstantOfShape, Range) makes a constant, not a size.
        return {i for i in done if self.model.by_id[i].op not in {"ConstantOfShape", "Range", "Expand"}}

    def _alive(self) -> set[str]:
        seen: set[str] = set()
        todo = [self.producer[k] for o in self.model.outputs if (k := ("", o)) in self.producer]
        by_owner: defaultdict[str, list[Node]] = defaultdict(list)
        for node in self.model.nodes:
            if node.scope:
                by_owner[node.scope[-1]].append(node)
        while todo:
            node = todo.pop()
            if node.id in seen:
                continue
            seen.add(node.id)
            todo += [self.producer[k] for k in self.inputs(node) if k in self.producer]
            # A body counts as used when its owner is; what it reads from outside is used too.
            if by_owner:
                todo += by_owner.pop(node.id, ())
                todo += by_owner.pop(f"function {node.op}", ())
        return seen


def space(node: Node) -> str:
    """The name space of a node's values: functions have their own; bodies share that of the graph around them."""
    return node.scope[0] if node.scope and node.scope[0].startswith("function ") else ""


def _sizes(reader: Node, value: str) -> bool:
    """Whether a node reads a value as sizes alone."""
    slots = _SHAPE_SLOTS.get(reader.op, ())
    return bool(slots) and all(p in slots for p, name in enumerate(reader.inputs) if name == value)


def _passes(node: Node) -> bool:
    """Whether a pooling has windows of one element each, and so gives what it reads."""
    return node.op in _POOLS and all(
        not isinstance(told := node.attributes.get(key, plain), list) or set(told) == set(plain)
        for key, plain in (("kernel_shape", [1]), ("strides", [1]), ("pads", [0]))
    )
