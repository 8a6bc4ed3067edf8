"""What a graph does with an input of a language model: rows of a table that it picks, tokens that it masks."""

from __future__ import annotations

import collections
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Literal

from rtlab.core.input_names import is_positions
from rtlab.core.node import ONNX_DOMAINS, Node

if TYPE_CHECKING:
    from onnx_ir import TensorProtocol

    from rtlab.core.value import Value

#: How a mask is read: 1 or True lets a token through, or blocks it, or the mask is added to the scores of attention.
MaskUse = Literal["keeps", "blocks", "added"]

#: Operators whose outputs have the numbers of their first input in another form or order, or some of them.
_MOVES = frozenset({
    "Cast", "Clip", "Expand", "Flatten", "Gather", "GatherElements", "GatherND", "Identity", "Reshape", "Slice",
    "Split", "Squeeze", "Tile", "Transpose", "Unsqueeze",
})  # fmt: skip
#: Those that have the numbers of any of their inputs.
_CHOICES = frozenset({"Concat", "Max", "Min"})
#: A constant below this, in the place of a score, blocks a token.
_BLOCKED = -1e3
#: Sizes of one kind that are taken from constants.
_MOST_WRITTEN = 8


class InputUses:
    """Follows inputs of a model to the nodes that give them a meaning; bodies of functions are left out.

    ``nodes``, ``values`` and ``inputs`` are those of a ``Model``, ``constants`` the values that are known beforehand.
    """

    def __init__(
        self,
        nodes: Iterable[Node],
        values: Mapping[str, Value],
        inputs: Sequence[str],
        constants: Mapping[str, TensorProtocol],
    ) -> None:
        self._values, self._inputs, self._constants = values, inputs, constants
        self._readers: dict[str, list[tuple[Node, int]]] = collections.defaultdict(list)
        self._producers: dict[str, Node] = {}
        for node in nodes:
            if node.domain not in ONNX_DOMAINS or any(s.startswith("function ") for s in node.scope):
                continue
            for place, name in enumerate(node.inputs):
                self._readers[name].append((node, place))
            self._producers |= dict.fromkeys(node.outputs, node)

    def count_rows(self, name: str) -> int | None:
        """The rows of the smallest table from which this input picks by number; None where it picks none."""
        limits: list[int] = []
        todo, visited = [(name, 0)], {(name, 0)}
        while todo:
            value, offset = todo.pop()
            for node, place in self._readers[value]:
                rows = self._count_rows(node, place)
                if rows is not None and rows > offset:
                    limits.append(rows - offset)
                for following in self._iter_moved(node, place, offset):
                    if following not in visited:
                        visited.add(following)
                        todo.append(following)
        return min(limits, default=None)

    def _count_rows(self, node: Node, place: int) -> int | None:
        """The rows from which a node picks by what it reads at this place."""
        if (node.op, place) == ("OneHot", 0):
            depth = self._get_number(node.inputs[1])
            return None if depth is None else int(depth)
        if (node.op, place) != ("Gather", 1):
            return None
        axis, table = node.attributes.get("axis", 0), self._values.get(node.inputs[0])
        shape = table.shape if table is not None else None
        if not shape or not isinstance(axis, int) or not -len(shape) <= axis < len(shape):
            return None
        rows = shape[axis]
        return rows if isinstance(rows, int) else None

    def _iter_moved(self, node: Node, place: int, offset: int) -> Iterator[tuple[str, int]]:
        """The outputs of a node that have the numbers which it reads at this place, each with what is added to them."""
        if (node.op in _MOVES and place == 0) or node.op in _CHOICES or (node.op == "Where" and place):
            yield from ((out, offset) for out in node.outputs)
        elif node.op == "Add" or (node.op == "Sub" and place == 0):
            number = self._get_number(node.inputs[1 - place])
            if number is not None and number == int(number):
                yield node.outputs[0], offset + int(number) * (1 if node.op == "Add" else -1)

    def find_mask_use(self, name: str) -> MaskUse | None:
        """How a mask is read; None where that does not show."""
        todo, visited = [(name, False)], {name}
        while todo:
            value, inverted = todo.pop(0)
            for node, place in self._readers[value]:
                use, following = self._read_mask(node, place)
                if use in {"keeps", "blocks"} and inverted:
                    return "blocks" if use == "keeps" else "keeps"
                if use is not None:
                    return use
                for out in node.outputs if following is not None and node.outputs[0] not in visited else ():
                    visited.add(out)
                    todo.append((out, inverted != following))
        return None

    def _read_mask(self, node: Node, place: int) -> tuple[MaskUse | None, bool | None]:
        """How a node reads a mask; or whether it passes it on inverted, None where it does neither."""
        value = self._values.get(node.inputs[place])
        is_float = value is not None and value.dtype in {"fp32", "fp16", "bf16", "fp64"}
        if node.op == "Where" and place == 0:
            blocked = [(n := self._get_number(v)) is not None and n < _BLOCKED for v in node.inputs[1:3]]
            return ("blocks", None) if blocked[0] else ("keeps", None) if blocked[1] else (None, None)
        if (node.op, place) == ("Attention", 3):
            return ("added" if is_float else "keeps"), None
        if node.op == "Add" and is_float and self._get_number(node.inputs[1 - place]) is None:
            return "added", None
        if (node.op, place) == ("Sub", 1) and self._get_number(node.inputs[0]) == 1:
            return "keeps", None
        if node.op == "Equal":
            number = self._get_number(node.inputs[1 - place])
            return None, None if number is None else number == 0
        if node.op in {"Not", "And"} or (node.op in _MOVES and place == 0):
            return None, node.op == "Not"
        return None, None

    def _get_number(self, name: str) -> float | None:
        """A constant of one element."""
        tensor = self._constants.get(name)
        if (
            tensor is None
            or math.prod(tensor.shape.numpy()) != 1
            or not tensor.dtype.is_integer() | tensor.dtype.is_floating_point()
        ):
            return None
        return float(tensor.numpy().reshape(-1)[0])

    def count_positions(self) -> int | None:
        """The rows of the smallest table from which positions pick that the graph counts or reads; None for none."""
        limits: list[int] = []
        for node in {id(n): n for n in self._producers.values()}.values():
            table = self._values.get(node.inputs[0]) if node.op == "Gather" else None
            if table is None or table.kind != "constant" or len(table.shape or ()) < 2:
                continue
            rows, offset = self._count_rows(node, 1), self._find_count(node.inputs[1])
            if rows is not None and offset is not None:
                limits.append(rows - offset)
        return min((limit for limit in limits if limit > 0), default=None)

    def _find_count(self, value: str) -> int | None:
        """What is added to positions before they are this value; None where it has no positions."""
        todo, visited = [(value, 0, False)], {value}
        while todo:
            name, offset, sliced = todo.pop()
            # Exporters keep all positions in a constant, of which as many are taken as there are tokens.
            if (name in self._inputs and is_positions(name)) or (sliced and name in self._constants):
                return offset
            node = self._producers.get(name)
            if node is None:
                continue
            if node.op in {"Range", "CumSum"}:
                return offset
            # A sum of two counts, such as tokens before and tokens, counts on; a difference is a distance.
            places = (0, 1) if node.op in {"Add", "Mul"} else (0,) if node.op in _MOVES - {"Gather"} else ()
            for place in places:
                number = self._get_number(node.inputs[1 - place]) if node.op == "Add" else None
                if node.inputs[place] not in visited:
                    visited.add(node.inputs[place])
                    todo.append((node.inputs[place], offset + int(number or 0), sliced or node.op == "Slice"))
        return None

    def list_written_lengths(self) -> tuple[int, ...]:
        """Sizes above 1 in constants to which tensors are reshaped, in the order of the graph."""
        lengths: dict[int, None] = {}
        for node, place in (reader for name in self._constants for reader in self._readers.get(name, ())):
            target = self._constants[node.inputs[1]] if (node.op, place) == ("Reshape", 1) else None
            if target is not None and len(target.shape) == 1:
                lengths |= dict.fromkeys(int(n) for n in target.numpy() if n > 1)
        return tuple(lengths)[:_MOST_WRITTEN]
