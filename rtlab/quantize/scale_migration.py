"""Moving scale, channel by channel, from the node that writes a value to those that read it, so that outputs stay.

A channel that is divided by s > 0 where it is written and multiplied by s where it is read changes no output, if all
operators between are positively homogeneous: f(s x) = s f(x).
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import onnx_ir as ir

from rtlab.core.node import ONNX_DOMAINS
from rtlab.core.precision import compute_amax
from rtlab.quantize import passes
from rtlab.quantize.placement import POOLS, WEIGHTED, find_captured_values, get_weight_axes

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rtlab.core.model import Model
    from rtlab.core.node import Node
    from rtlab.quantize.edit import Edit

Array: TypeAlias = "NDArray[np.float64]"
#: Positively homogeneous operators; a slope may differ between channels.
_HOMOGENEOUS = {"Relu", "LeakyRelu", "PRelu", "Identity", "Dropout"}
#: Operators with a factor and an offset per channel.
NORMS = frozenset({"LayerNormalization", "RMSNormalization", "Mul"})
_MATRIX = 2
#: What holds where scale moved: values between have other numbers.
MIGRATION_PROMISES = (passes.INTERFACE, passes.NODES, passes.VALUES, passes.ORDER, passes.TYPES)


@dataclasses.dataclass(frozen=True)
class ChannelReader:
    """A product that reads the channels: its node, the value, the axis there, and how many columns a channel is."""

    node: str
    value: str
    axis: int
    repeat: int = 1


@dataclasses.dataclass(frozen=True)
class ChannelLink:
    """A node whose output channels can be divided, and their readers.

    ``offsets`` and ``factors`` are constants between that are added to channels, which are divided too, or multiply
    them: (node, position, axis, rank).
    """

    first: str
    channels: int
    offsets: tuple[tuple[str, int, int, int], ...]
    factors: tuple[tuple[str, int, int, int], ...]
    readers: tuple[ChannelReader, ...]


class Constants:
    """Constants in float64 while scale moves between them, by node and position."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self.order = {n.id: i for i, n in enumerate(model.top)}
        self._arrays: dict[tuple[str, int], Array] = {}
        self.changed: set[tuple[str, int]] = set()

    def __getitem__(self, at: tuple[str, int]) -> Array:
        if at not in self._arrays:
            node, position = at
            tensor = self.model.known[self.model.by_id[node].inputs[position]]
            self._arrays[at] = np.asarray(tensor.numpy(), np.float64)
        return self._arrays[at]

    def __setitem__(self, at: tuple[str, int], array: Array) -> None:
        self._arrays[at] = array
        self.changed.add(at)

    def write(self, edit: Edit) -> None:
        """Let each node read its changed numbers, in their former type."""
        for node, position in sorted(self.changed):
            old = edit.nodes[node].inputs[position]
            assert old is not None and old.dtype is not None  # noqa: S101, PT018 - it is a constant
            name = f"{node}/{'weight' if position == 1 else f'input{position}'}"
            numbers = self._arrays[node, position].astype(old.dtype.numpy())
            edit.set_input(node, position, edit.add_constant(name, numbers))


def find_links(model: Model, firsts: frozenset[str] = WEIGHTED) -> Iterator[ChannelLink]:
    """Where scale can move, in graph order, from the operators ``firsts``."""
    outside = find_captured_values(model)
    for node in model.top:
        if node.op in firsts and node.domain in ONNX_DOMAINS:
            link = _Follower(model, outside).link(node)
            if link is not None:
                yield link


class _NotHomogeneous(Exception):  # noqa: N818 - no error: the scale has to stay
    """A reader of the value is not homogeneous."""


@dataclasses.dataclass(frozen=True)
class _ChannelPosition:
    """Where channels are: the value, its axis, its rank, and how many neighbours along it are one channel."""

    value: str
    axis: int
    rank: int
    repeat: int = 1


class _Follower:
    """Follows the output of one node to all its readers."""

    def __init__(self, model: Model, outside: frozenset[str]) -> None:
        self.model, self.constants, self._outside = model, model.known, outside
        self._offsets: list[tuple[str, int, int, int]] = []
        self._factors: list[tuple[str, int, int, int]] = []
        self._readers: list[ChannelReader] = []

    def link(self, node: Node) -> ChannelLink | None:
        axis = self._find_channel_axis(node)
        if axis is None:
            return None
        shape = self._get_shape(node.outputs[0])
        try:
            self._follow(_ChannelPosition(node.outputs[0], axis, len(shape)))
        except _NotHomogeneous:
            return None
        if not self._readers or not isinstance(shape[axis], int):
            return None
        constants = tuple(self._offsets), tuple(self._factors)
        return ChannelLink(node.id, shape[axis], *constants, tuple(self._readers))

    def _find_channel_axis(self, node: Node) -> int | None:
        """The axis of the channels that a node can divide; None where it cannot."""
        shape = self._get_shape(node.outputs[0]) if node.outputs else ()
        if not shape or len([o for o in node.outputs if o]) != 1:
            return None
        if node.op == "Mul":
            return self._find_multiplied_axis(node, shape)
        constants = [v for i, v in enumerate(node.inputs) if i and v]
        if not constants or not all(v in self.constants and self._is_float(v) for v in constants):
            return None
        if node.op in NORMS:
            norm_axis = node.attributes.get("axis", -1)
            return len(shape) - 1 if norm_axis in (-1, len(shape) - 1) else None
        if node.op in {"Gemm", "MatMul"}:
            matrix = len(self._get_sizes(node, 1)) == _MATRIX and len(shape) > 1
            return len(shape) - 1 if matrix else None
        return 1 if node.op == "Conv" or node.attributes.get("group", 1) == 1 else None

    def _find_multiplied_axis(self, node: Node, shape: tuple[Any, ...]) -> int | None:
        """The last axis of a product with one constant number for each place of it, as exported normalizations end."""
        which = [i for i, v in enumerate(node.inputs) if v in self.constants]
        if len(which) != 1 or not self._is_float(node.inputs[which[0]]):
            return None
        sizes = self._get_sizes(node, which[0])
        fits = sizes and sizes[-1] == shape[-1] and math.prod(sizes) == sizes[-1]
        return len(shape) - 1 if fits else None

    def _follow(self, place: _ChannelPosition) -> None:
        """Follow a value to all its readers; raises ``_NotHomogeneous`` where one of them is not."""
        value = place.value
        if value in self.model.outputs or value in self._outside or not place.rank:
            raise _NotHomogeneous
        for node in self.model.consumers.get(value, ()):
            if node.domain not in ONNX_DOMAINS or node.inputs.count(value) != 1 or any(node.outputs[1:]):
                raise _NotHomogeneous
            at = node.inputs.index(value)
            if node.op in {"Add", "Mul"}:
                self._add_offset_or_factor(node, 1 - at, place)
            elif at != 0:
                raise _NotHomogeneous
            elif node.op in WEIGHTED:
                self._readers.append(self._make_reader(node, place))
                continue
            elif node.op == "BatchNormalization":
                self._add_batch_norm(node, place)
            elif node.op in {"Flatten", "Reshape", "Transpose"}:
                self._follow(self._follow_view(node, place))
                continue
            elif not self._is_homogeneous(node, place):
                raise _NotHomogeneous
            self._follow(dataclasses.replace(place, value=node.outputs[0]))

    def _is_homogeneous(self, node: Node, place: _ChannelPosition) -> bool:
        """Whether a node keeps multiples, whatever the sign of what it reads."""
        if node.op == "PRelu" and node.inputs[1] not in self.constants:
            return False
        return node.op in _HOMOGENEOUS or (node.op in POOLS and place.axis == 1)

    def _add_batch_norm(self, node: Node, place: _ChannelPosition) -> None:
        self._require_constants(node, *range(1, 5))
        if place.axis != 1 or place.repeat != 1 or node.attributes.get("training_mode"):
            raise _NotHomogeneous
        self._offsets += [(node.id, 2, 0, 1), (node.id, 3, 0, 1)]
        self._factors.append((node.id, 1, 0, 1))

    def _add_offset_or_factor(self, node: Node, other: int, place: _ChannelPosition) -> None:
        self._require_constants(node, other)
        sizes = self._get_sizes(node, other)
        if place.repeat != 1 or len(sizes) > place.rank:
            raise _NotHomogeneous
        padded_sizes = (1,) * (place.rank - len(sizes)) + sizes
        if math.prod(padded_sizes) != padded_sizes[place.axis]:
            raise _NotHomogeneous
        constant = (node.id, other, place.axis, place.rank)
        (self._offsets if node.op == "Add" else self._factors).append(constant)

    def _follow_view(self, node: Node, place: _ChannelPosition) -> _ChannelPosition:
        """The channels behind a view."""
        input_shape, output_shape = self._get_shape(place.value), self._get_shape(node.outputs[0])
        axis, repeat = place.axis, place.repeat
        if node.op == "Transpose":
            order = node.attributes.get("perm")
            if not isinstance(order, list):
                raise _NotHomogeneous
            return _ChannelPosition(node.outputs[0], order.index(axis), place.rank, repeat)
        if output_shape and axis == len(input_shape) - 1 and input_shape[-1] == output_shape[-1]:
            return _ChannelPosition(node.outputs[0], len(output_shape) - 1, len(output_shape), repeat)
        if axis != 1 or len(output_shape) != _MATRIX or not all(isinstance(d, int) for d in input_shape[1:]):
            raise _NotHomogeneous
        columns = math.prod(input_shape[2:])
        if output_shape[1] != input_shape[1] * columns:
            raise _NotHomogeneous
        return _ChannelPosition(node.outputs[0], 1, _MATRIX, repeat * columns)

    def _make_reader(self, node: Node, place: _ChannelPosition) -> ChannelReader:
        self._require_constants(node, 1)
        if node.op in {"Conv", "ConvTranspose"}:
            fits = place.axis == 1 and place.repeat == 1
        else:
            matrix = len(self._get_sizes(node, 1)) == _MATRIX and not node.attributes.get("transA", 0)
            fits = matrix and place.axis == place.rank - 1
        if not fits:
            raise _NotHomogeneous
        return ChannelReader(node.id, place.value, place.axis, place.repeat)

    def _require_constants(self, node: Node, *positions: int) -> None:
        for i in positions:
            if node.inputs[i] not in self.constants or not self._is_float(node.inputs[i]):
                raise _NotHomogeneous

    def _is_float(self, value: str) -> bool:
        return self.constants[value].dtype == ir.DataType.FLOAT

    def _get_sizes(self, node: Node, position: int) -> tuple[int, ...]:
        return tuple(self.constants[node.inputs[position]].shape.numpy())

    def _get_shape(self, value: str) -> tuple[Any, ...]:
        value_info = self.model.values.get(value)
        return tuple(value_info.shape) if value_info is not None and value_info.shape is not None else ()


def compute_write_peaks(constants: Constants, link: ChannelLink) -> tuple[Array, Array]:
    """The largest weight of each channel that a link's first node writes, and its output for an input of zero.

    Both with the constants behind it; each of shape ``(channels,)``.
    """
    node = constants.model.by_id[link.first]
    weight = constants[link.first, 1]
    rows = np.moveaxis(weight, get_weight_axes(node, weight.ndim)[0], 0).reshape(link.channels, -1)
    peak = compute_amax(rows, axis=1)
    start = np.zeros(link.channels)
    if len(node.inputs) > _MATRIX and node.inputs[2]:
        start = start + constants[link.first, 2].reshape(-1)
    for id_, position, _, _ in sorted({*link.offsets, *link.factors}, key=lambda o: constants.order[o[0]]):
        successor = constants.model.by_id[id_]
        if successor.op == "BatchNormalization":
            if position != 1:
                continue
            epsilon = successor.attributes.get("epsilon", 1e-5)
            gain = constants[id_, 1] / np.sqrt(constants[id_, 4] + float(epsilon))  # type: ignore[arg-type]
            start = (start - constants[id_, 3]) * gain + constants[id_, 2]
            peak = peak * np.abs(gain)
        elif successor.op == "Mul":
            factor = constants[id_, position].reshape(-1)
            peak, start = peak * np.abs(factor), start * factor
        else:
            start = start + constants[id_, position].reshape(-1)
    return peak, start


def compute_read_peaks(constants: Constants, link: ChannelLink) -> Array:
    """The largest weight that any reader multiplies each channel with; shape ``(channels,)``."""
    peaks = [compute_amax(_extract_columns(constants, r, link.channels), axis=0) for r in link.readers]
    return np.asarray(np.max(peaks, axis=0))


def move_scale(constants: Constants, link: ChannelLink, scale: Array) -> None:
    """Divide the channels where they are written by ``scale``, and multiply them with it where they are read."""
    model = constants.model
    node = model.by_id[link.first]
    if node.op == "Mul":
        at = next(i for i, v in enumerate(node.inputs) if v in model.known)
        constants[link.first, at] = constants[link.first, at] / scale
    else:
        for i in (i for i, v in enumerate(node.inputs) if i and v):
            array = constants[link.first, i]
            axis = get_weight_axes(node, array.ndim)[0] if i == 1 and node.op in WEIGHTED else -1
            constants[link.first, i] = _multiply_along(array, 1 / scale, axis)
    for id_, position, axis, rank in link.offsets:
        offset = constants[id_, position]
        spread = offset.reshape((1,) * (rank - offset.ndim) + offset.shape)
        constants[id_, position] = _multiply_along(spread, 1 / scale, axis)
    for reader in link.readers:
        weight = constants[reader.node, 1]
        node = model.by_id[reader.node]
        columns = np.repeat(scale, reader.repeat)
        group = node.attributes.get("group", 1)
        if node.op == "Conv" and group != 1:
            parts = weight.reshape(int(group), -1, *weight.shape[1:])  # type: ignore[call-overload]
            column_scale = columns.reshape(parts.shape[0], 1, parts.shape[2], *[1] * (weight.ndim - 2))
            constants[reader.node, 1] = (parts * column_scale).reshape(weight.shape)
        else:
            constants[reader.node, 1] = _multiply_along(
                weight, columns, get_weight_axes(node, weight.ndim)[1]
            )


def _extract_columns(constants: Constants, reader: ChannelReader, channels: int) -> Array:
    """What a reader multiplies each channel with, shape ``(n, channels)``."""
    node, weight = constants.model.by_id[reader.node], constants[reader.node, 1]
    group = node.attributes.get("group", 1)
    if node.op == "Conv" and group != 1:
        parts = weight.reshape(int(group), -1, *weight.shape[1:])  # type: ignore[call-overload]
        first = np.moveaxis(parts, 1, -1)
    else:
        first = np.moveaxis(weight, get_weight_axes(node, weight.ndim)[1], 0)
    return np.asarray(first.reshape(channels, -1).T)


def _multiply_along(array: Array, scale: Array, axis: int) -> Array:
    if array.ndim == 0 or (axis == -1 and array.shape[-1] == 1 != scale.size):
        return array * scale
    shape = [1] * array.ndim
    shape[axis] = -1
    return array * scale.reshape(shape)
