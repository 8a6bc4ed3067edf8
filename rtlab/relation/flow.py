"""Producers and readers of a model's values, and what the graph alone tells of each node."""

from __future__ import annotations

import functools
from collections import defaultdict
from collections.abc import Callable, Container, Iterable, Sequence
from typing import Literal, TypeAlias

from rtlab.core.model import Model
from rtlab.core.node import Node

#: Why a node has no layer.
Reason = Literal["folded", "view", "shape", "dead", "unknown"]

#: A value: its name, with that of the function in front where it is one of a function's, which has its own names.
Key: TypeAlias = str | tuple[str, str]

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
        self.producer: dict[Key, Node] = {}
        self._readers: defaultdict[Key, list[Node]] = defaultdict(list)
        self._inputs: dict[str, Sequence[Key]] = {}
        for node in model.nodes:
            for out in _list_value_keys(node, node.outputs):
                self.producer[out] = node
            self._inputs[node.id] = keys = _list_value_keys(node, node.inputs)
            for key in dict.fromkeys(keys):
                self._readers[key].append(node)

    def inputs(self, node: Node) -> Sequence[Key]:
        """The values that a node reads."""
        return self._inputs[node.id]

    def writers(self, node: Node) -> list[Node]:
        """The nodes that write what a node reads."""
        return [w for k in self.inputs(node) if (w := self.producer.get(k)) is not None]

    def value_readers(self, key: Key) -> list[Node]:
        """The nodes that read a value, in graph order."""
        return self._readers.get(key, [])

    def readers(self, node: Node) -> list[Node]:
        """The nodes that read a node's outputs."""
        return [r for key in _list_value_keys(node, node.outputs) for r in self.value_readers(key)]

    def reasons(self) -> dict[str, Reason]:
        """The reason for having no layer, for each node for which the graph tells one."""
        folded_ids, shape_ids = self._find_folded(), self._find_shape_nodes()
        alive = self._find_live_nodes()
        table: dict[str, Reason] = {}
        for node in self.model.nodes:
            if node.id not in alive:
                table[node.id] = "dead"
            elif node.id in shape_ids:
                table[node.id] = "shape"
            elif node.id in folded_ids:
                table[node.id] = "folded"
            elif node.op in VIEWS or _is_identity_pool(node):
                table[node.id] = "view"
        return table

    def _find_folded(self) -> set[str]:
        done: set[str] = set()
        constant_keys: set[Key] = set(self._stored_values)
        for node in self.model.nodes:
            is_constant = (
                (node.inputs and constant_keys.issuperset(self.inputs(node)))
                or node.op == "Constant"
                or (node.op in _SHAPE_SOURCES and self._has_fixed_size(node))
            )
            if is_constant:
                done.add(node.id)
                constant_keys.update(self._list_last_outputs(node))
        return done

    def _has_fixed_size(self, node: Node) -> bool:
        """Whether the sizes that a node asks for are numbers in the model, so that its answer is a constant."""
        read = self.inputs(node)
        if len(read) != 1 or not isinstance(read[0], str):
            return False
        value = self.model.values.get(read[0])
        if value is not None and _is_static_shape(value.shape):
            return True
        # What ONNX left open follows from the inputs, where these are fixed.
        return self._static and self.model.sizes().get(read[0]) is not None

    @functools.cached_property
    def _static(self) -> bool:
        return all(_is_static_shape(self.model.values[name].shape) for name in self.model.inputs)

    def between(self, first: Node, last: Node, closed_ids: Container[str] = ()) -> list[Node]:
        """The nodes on the paths from one node to another, in graph order; none leads through ``closed_ids``."""

        def inside(node: Node) -> bool:
            return first.index <= node.index <= last.index and (
                node.id not in closed_ids or node is first or node is last
            )

        down, up = reach(first, self.readers, inside), reach(last, self.writers, inside)
        return sorted((n for i, n in down.items() if i in up), key=lambda n: n.index)

    @functools.cached_property
    def _stored_values(self) -> frozenset[Key]:
        """The values that are stored in the model."""
        named_values = self.model.values.items()
        return frozenset(n for n, v in named_values if v.kind == "constant" and n not in self.producer)

    def _list_last_outputs(self, node: Node) -> Iterable[Key]:
        """What a node writes and no later one writes again, as the branches of an If may."""
        return [key for key in _list_value_keys(node, node.outputs) if self.producer[key] is node]

    def _find_shape_nodes(self) -> set[str]:
        done: set[str] = set()
        sizes: set[Key] = set()
        for node in self.model.nodes:
            if node.op not in _SHAPE_SOURCES:
                if not done:
                    continue
                read = [k for k in self.inputs(node) if k not in self._stored_values]
                if not read or not sizes.issuperset(read):
                    continue
            done.add(node.id)
            sizes.update(self._list_last_outputs(node))
        # Backwards: what only feeds size inputs is shape arithmetic too.
        for node in reversed(self.model.nodes):
            if self._feeds_only_sizes(node, done):
                done.add(node.id)
        # A node that turns sizes into data (ConstantOfShape, Range) makes a constant, not a size.
        return {i for i in done if self.model.by_id[i].op not in {"ConstantOfShape", "Range", "Expand"}}

    def _feeds_only_sizes(self, node: Node, done: set[str]) -> bool:
        """Whether there are readers of what a node writes, and all are done or read it as sizes alone."""
        has_readers = False
        for key in _list_value_keys(node, node.outputs):
            for reader in self.value_readers(key):
                if reader.id not in done and (
                    reader.op not in _SHAPE_SLOTS or not _reads_as_size(reader, key)
                ):
                    return False
                has_readers = True
        return has_readers

    def _find_live_nodes(self) -> set[str]:
        visited: set[str] = set()
        todo = [self.producer[o] for o in self.model.outputs if o in self.producer]
        by_owner: defaultdict[str, list[Node]] = defaultdict(list)
        for node in self.model.nodes:
            if node.scope:
                by_owner[node.scope[-1]].append(node)
        while todo:
            node = todo.pop()
            if node.id in visited:
                continue
            visited.add(node.id)
            for key in self.inputs(node):
                writer = self.producer.get(key)
                if writer is not None and writer.id not in visited:
                    todo.append(writer)
            # A body counts as used when its owner is; what it reads from outside is used too.
            if by_owner:
                todo += by_owner.pop(node.id, ())
                todo += by_owner.pop(f"function {node.op}", ())
        return visited


def reach(
    node: Node, step: Callable[[Node], Iterable[Node]], inside: Callable[[Node], bool] | None = None
) -> dict[str, Node]:
    """A node and all that steps lead to from it, by id; only through those that are ``inside``."""
    visited = {node.id: node}
    todo = [node]
    while todo:
        for other in step(todo.pop()):
            if other.id not in visited and (inside is None or inside(other)):
                visited[other.id] = other
                todo.append(other)
    return visited


def _list_value_keys(node: Node, names: tuple[str, ...]) -> Sequence[Key]:
    """What a node means by names of values; bodies share those of the graph around them."""
    if "" in names:
        names = tuple(filter(None, names))
    if node.scope and node.scope[0].startswith("function "):
        return [(node.scope[0], name) for name in names]
    return names


def _is_static_shape(shape: Sequence[int | str | None] | None) -> bool:
    """Whether all dimensions are numbers."""
    return shape is not None and all(isinstance(d, int) and d >= 0 for d in shape)


def _reads_as_size(reader: Node, value: Key) -> bool:
    """Whether a node that has inputs for sizes reads a value by these alone."""
    name, slots = value if isinstance(value, str) else value[1], _SHAPE_SLOTS[reader.op]
    return all(p in slots for p, read in enumerate(reader.inputs) if read == name)


def _is_identity_pool(node: Node) -> bool:
    """Whether a pooling has windows of one element each, and so gives what it reads."""
    return node.op in _POOLS and all(
        not isinstance(attribute := node.attributes.get(key, plain), list) or set(attribute) == set(plain)
        for key, plain in (("kernel_shape", [1]), ("strides", [1]), ("pads", [0]))
    )
