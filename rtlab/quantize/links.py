"""Where scale can move from what writes a value to what reads it, channel by channel, so that outputs stay.

A channel that is divided by s > 0 where it is written and multiplied by s where it is read changes no output, if all
between is positively homogeneous: f(s x) = s f(x).
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx_ir as ir

from rtlab.core.node import ONNX_DOMAINS
from rtlab.quantize.placement import captured

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rtlab.core.model import Model
    from rtlab.core.node import Node
    from rtlab.quantize.edit import Edit

#: What gives the same multiple of what it is given; a slope or a window may differ between channels.
_STRAIGHT = {"Relu", "LeakyRelu", "PRelu", "Identity", "Dropout"}
_POOLS = {"MaxPool", "AveragePool", "GlobalAveragePool", "GlobalMaxPool"}
#: Products, which bear a scale in their weights, and what bears it in a factor and an offset per channel.
PRODUCTS = frozenset({"Conv", "ConvTranspose", "Gemm", "MatMul"})
NORMS = frozenset({"LayerNormalization", "RMSNormalization", "Mul"})
_MATRIX = 2


@dataclasses.dataclass(frozen=True)
class ChannelReader:
    """A product that reads the channels: its node, the value, the axis there, and how many columns a channel is."""

    node: str
    value: str
    axis: int
    repeat: int = 1


@dataclasses.dataclass(frozen=True)
class ChannelLink:
    """A node whose output channels can be divided, what has an offset or a factor behind it, and the readers."""

    first: str
    channels: int
    #: Nodes between whose constants are offsets of channels, which are divided too: (node, position, axis, rank).
    offsets: tuple[tuple[str, int, int, int], ...]
    #: Nodes between that multiply channels.
    factors: tuple[tuple[str, int, int, int], ...]
    readers: tuple[ChannelReader, ...]


class Constants:
    """The constants of some nodes in float64 while scale moves between them; each node has its own."""

    def __init__(self, model: Model) -> None:
        self.model = model
        #: Where each node stands in the graph.
        self.order = {n.id: i for i, n in enumerate(model.top)}
        self._held: dict[tuple[str, int], NDArray[np.float64]] = {}
        self.changed: set[tuple[str, int]] = set()

    def __getitem__(self, at: tuple[str, int]) -> NDArray[np.float64]:
        if at not in self._held:
            node, position = at
            read = self.model.known[self.model.by_id[node].inputs[position]]
            self._held[at] = np.asarray(read.numpy(), np.float64)
        return self._held[at]

    def __setitem__(self, at: tuple[str, int], array: NDArray[np.float64]) -> None:
        self._held[at] = array
        self.changed.add(at)

    def write(self, edit: Edit) -> None:
        """Let each node read its new numbers, in the type that they had."""
        for node, position in sorted(self.changed):
            old = edit.nodes[node].inputs[position]
            assert old is not None and old.dtype is not None  # noqa: S101, PT018 - it is a constant
            name = f"{node}/{'weight' if position == 1 else f'input{position}'}"
            numbers = self._held[node, position].astype(old.dtype.numpy())
            edit.feed(node, position, edit.constant(name, numbers))


def links(model: Model, firsts: frozenset[str] = PRODUCTS) -> Iterator[ChannelLink]:
    """Where scale can move, in graph order; ``firsts`` are the operators that may bear it in front."""
    outside = captured(model)
    for node in model.top:
        if node.op in firsts and node.domain in ONNX_DOMAINS:
            found = _Follower(model, outside).link(node)
            if found is not None:
                yield found


class _Refused(Exception):  # noqa: N818 - no error: the scale has to stay
    """Something reads the value that is not homogeneous."""


@dataclasses.dataclass(frozen=True)
class _Place:
    """Where channels are on the way: the value, its axis, its rank, and how many neighbours each channel has become."""

    value: str
    axis: int
    rank: int
    repeat: int = 1


class _Follower:
    """Goes from one node to all that reads what it writes."""

    def __init__(self, model: Model, outside: frozenset[str]) -> None:
        self.model, self.known, self._outside = model, model.known, outside
        self._offsets: list[tuple[str, int, int, int]] = []
        self._factors: list[tuple[str, int, int, int]] = []
        self._readers: list[ChannelReader] = []

    def link(self, node: Node) -> ChannelLink | None:
        axis = self._bears(node)
        if axis is None:
            return None
        shape = self._shape(node.outputs[0])
        try:
            self._follow(_Place(node.outputs[0], axis, len(shape)))
        except _Refused:
            return None
        if not self._readers or not isinstance(shape[axis], int):
            return None
        return ChannelLink(
            node.id, shape[axis], tuple(self._offsets), tuple(self._factors), tuple(self._readers)
        )

    def _bears(self, node: Node) -> int | None:
        """The axis of the channels that a node could divide; None where it cannot."""
        shape = self._shape(node.outputs[0]) if node.outputs else ()
        if not shape or len([o for o in node.outputs if o]) != 1:
            return None
        if node.op == "Mul":
            return self._multiplies(node, shape)
        constants = [v for i, v in enumerate(node.inputs) if i and v]
        if not constants or not all(v in self.known and self._float(v) for v in constants):
            return None
        if node.op in NORMS:
            told = node.attributes.get("axis", -1)
            return len(shape) - 1 if told in (-1, len(shape) - 1) else None
        if node.op in {"Gemm", "MatMul"}:
            matrix = len(self._sizes(node, 1)) == _MATRIX and len(shape) > 1
            return len(shape) - 1 if matrix else None
        return 1 if node.op == "Conv" or node.attributes.get("group", 1) == 1 else None

    def _multiplies(self, node: Node, shape: tuple[Any, ...]) -> int | None:
        """A product with one constant number for each place of the last axis, as an exported normalization ends."""
        which = [i for i, v in enumerate(node.inputs) if v in self.known]
        if len(which) != 1 or not self._float(node.inputs[which[0]]):
            return None
        sizes = self._sizes(node, which[0])
        fits = sizes and sizes[-1] == shape[-1] and math.prod(sizes) == sizes[-1]
        return len(shape) - 1 if fits else None

    def _follow(self, place: _Place) -> None:
        """Go on to all readers of a value.

        Raises:
            _Refused: one of them would compute something else.
        """
        value = place.value
        if value in self.model.outputs or value in self._outside or not place.rank:
            raise _Refused
        for node in self.model.consumers.get(value, ()):
            if node.domain not in ONNX_DOMAINS or node.inputs.count(value) != 1 or any(node.outputs[1:]):
                raise _Refused
            at = node.inputs.index(value)
            if node.op in {"Add", "Mul"}:
                self._shifts(node, 1 - at, place)
            elif at != 0:
                raise _Refused
            elif node.op in PRODUCTS:
                self._readers.append(self._reads(node, place))
                continue
            elif node.op == "BatchNormalization":
                self._normalizes(node, place)
            elif node.op in {"Flatten", "Reshape", "Transpose"}:
                self._follow(self._moved(node, place))
                continue
            elif not self._straight(node, place):
                raise _Refused
            self._follow(dataclasses.replace(place, value=node.outputs[0]))

    def _straight(self, node: Node, place: _Place) -> bool:
        """Whether a node keeps multiples, whatever the sign of what it reads."""
        if node.op == "PRelu" and node.inputs[1] not in self.known:
            return False
        return node.op in _STRAIGHT or (node.op in _POOLS and place.axis == 1)

    def _normalizes(self, node: Node, place: _Place) -> None:
        self._constant(node, *range(1, 5))
        if place.axis != 1 or place.repeat != 1 or node.attributes.get("training_mode"):
            raise _Refused
        self._offsets += [(node.id, 2, 0, 1), (node.id, 3, 0, 1)]
        self._factors.append((node.id, 1, 0, 1))

    def _shifts(self, node: Node, other: int, place: _Place) -> None:
        self._constant(node, other)
        sizes = self._sizes(node, other)
        grown = (1,) * (place.rank - len(sizes)) + sizes
        if place.repeat != 1 or len(sizes) > place.rank or math.prod(grown) != grown[place.axis]:
            raise _Refused
        (self._offsets if node.op == "Add" else self._factors).append(
            (node.id, other, place.axis, place.rank)
        )

    def _moved(self, node: Node, place: _Place) -> _Place:
        """Where the channels are behind a view."""
        before, after = self._shape(place.value), self._shape(node.outputs[0])
        axis, repeat = place.axis, place.repeat
        if node.op == "Transpose":
            order = node.attributes.get("perm")
            if not isinstance(order, list):
                raise _Refused
            return _Place(node.outputs[0], order.index(axis), place.rank, repeat)
        if after and axis == len(before) - 1 and before[-1] == after[-1]:
            return _Place(node.outputs[0], len(after) - 1, len(after), repeat)
        if axis != 1 or len(after) != _MATRIX or not all(isinstance(d, int) for d in before[1:]):
            raise _Refused
        columns = math.prod(before[2:])
        if after[1] != before[1] * columns:
            raise _Refused
        return _Place(node.outputs[0], 1, _MATRIX, repeat * columns)

    def _reads(self, node: Node, place: _Place) -> ChannelReader:
        self._constant(node, 1)
        if node.op in {"Conv", "ConvTranspose"}:
            fits = place.axis == 1 and place.repeat == 1
        else:
            matrix = len(self._sizes(node, 1)) == _MATRIX and not node.attributes.get("transA", 0)
            fits = matrix and place.axis == place.rank - 1
        if not fits:
            raise _Refused
        return ChannelReader(node.id, place.value, place.axis, place.repeat)

    def _constant(self, node: Node, *positions: int) -> None:
        for i in positions:
            if node.inputs[i] not in self.known or not self._float(node.inputs[i]):
                raise _Refused

    def _float(self, value: str) -> bool:
        return self.known[value].dtype == ir.DataType.FLOAT

    def _sizes(self, node: Node, position: int) -> tuple[int, ...]:
        return tuple(self.known[node.inputs[position]].shape.numpy())

    def _shape(self, value: str) -> tuple[Any, ...]:
        found = self.model.values.get(value)
        return tuple(found.shape) if found is not None and found.shape is not None else ()


def written(constants: Constants, link: ChannelLink) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Of what a link's first node writes: the largest weight of each channel, and what it gives for an input of zero.

    Both with the factors behind it, as far as constants tell; each of shape ``(channels,)``.
    """
    node = constants.model.by_id[link.first]
    weight = constants[link.first, 1]
    peak = np.abs(np.moveaxis(weight, _outgoing(node), 0)).reshape(link.channels, -1).max(axis=1)
    start = np.zeros(link.channels)
    if len(node.inputs) > _MATRIX and node.inputs[2]:
        start = start + constants[link.first, 2].reshape(-1)
    for id_, position, _, _ in sorted({*link.offsets, *link.factors}, key=lambda o: constants.order[o[0]]):
        behind = constants.model.by_id[id_]
        if behind.op == "BatchNormalization":
            if position != 1:
                continue
            epsilon = behind.attributes.get("epsilon", 1e-5)
            gain = constants[id_, 1] / np.sqrt(constants[id_, 4] + float(epsilon))  # type: ignore[arg-type]
            start = (start - constants[id_, 3]) * gain + constants[id_, 2]
            peak = peak * np.abs(gain)
        elif behind.op == "Mul":
            peak, start = (
                peak * np.abs(constants[id_, position].reshape(-1)),
                start * constants[id_, position].reshape(-1),
            )
        else:
            start = start + constants[id_, position].reshape(-1)
    return peak, start


def read(constants: Constants, link: ChannelLink) -> NDArray[np.float64]:
    """The largest weight that any reader multiplies each channel with; shape ``(channels,)``."""
    found = [_columns(constants, r, link.channels, np.abs).max(axis=0) for r in link.readers]
    largest: NDArray[np.float64] = np.max(found, axis=0)
    return largest


def move(constants: Constants, link: ChannelLink, scale: NDArray[np.float64]) -> None:
    """Divide the channels where they are written by ``scale``, and multiply them with it where they are read."""
    model = constants.model
    node = model.by_id[link.first]
    if node.op == "Mul":
        at = next(i for i, v in enumerate(node.inputs) if v in model.known)
        constants[link.first, at] = constants[link.first, at] / scale
    else:
        positions = [i for i, v in enumerate(node.inputs) if i and v]
        for i in positions:
            axis = _outgoing(node) if i == 1 and node.op in PRODUCTS else -1
            constants[link.first, i] = _times(constants[link.first, i], 1 / scale, axis)
    for id_, position, axis, rank in link.offsets:
        held = constants[id_, position]
        spread = held.reshape((1,) * (rank - held.ndim) + held.shape)
        constants[id_, position] = _times(spread, 1 / scale, axis)
    for reader in link.readers:
        weight = constants[reader.node, 1]
        node = model.by_id[reader.node]
        columns = np.repeat(scale, reader.repeat)
        group = node.attributes.get("group", 1)
        if node.op == "Conv" and group != 1:
            parts = weight.reshape(int(group), -1, *weight.shape[1:])  # type: ignore[call-overload]
            told = columns.reshape(parts.shape[0], 1, parts.shape[2], *[1] * (weight.ndim - 2))
            constants[reader.node, 1] = (parts * told).reshape(weight.shape)
        else:
            constants[reader.node, 1] = _times(weight, columns, _incoming(node))


def _columns(
    constants: Constants,
    reader: ChannelReader,
    channels: int,
    of: Callable[[NDArray[np.float64]], NDArray[np.float64]],
) -> NDArray[np.float64]:
    """What a reader multiplies each channel with, shape ``(n, channels)``."""
    node, weight = constants.model.by_id[reader.node], of(constants[reader.node, 1])
    group = node.attributes.get("group", 1)
    if node.op == "Conv" and group != 1:
        parts = weight.reshape(int(group), -1, *weight.shape[1:])  # type: ignore[call-overload]
        first = np.moveaxis(parts, 1, -1)
    else:
        first = np.moveaxis(weight, _incoming(node), 0)
    columns: NDArray[np.float64] = first.reshape(channels, -1).T
    return columns


def _times(array: NDArray[np.float64], scale: NDArray[np.float64], axis: int) -> NDArray[np.float64]:
    if array.ndim == 0 or (axis == -1 and array.shape[-1] == 1 != scale.size):
        return array * scale
    shape = [1] * array.ndim
    shape[axis] = -1
    return array * scale.reshape(shape)


def _outgoing(node: Node) -> int:
    """The axis of a weight that holds what is written."""
    if node.op == "Gemm":
        return 0 if node.attributes.get("transB", 0) else 1
    return {"Conv": 0, "ConvTranspose": 1, "MatMul": 1}[node.op]


def _incoming(node: Node) -> int:
    """The axis of a weight that holds what is read."""
    if node.op == "Gemm":
        return 1 if node.attributes.get("transB", 0) else 0
    return {"Conv": 1, "ConvTranspose": 0, "MatMul": 0}[node.op]
