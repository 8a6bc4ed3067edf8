"""Writing the backward part of a graph."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import onnx_ir as ir

if TYPE_CHECKING:
    from numpy.typing import NDArray


#: First opset in which the axes of every reduction are an input.
_AXES_ARE_INPUTS = 18
#: Types of outputs where it is not the first input's; of MaxPool and TopK that of the second output.
_TYPES = {
    **dict.fromkeys(("Shape", "Size", "NonZero", "ArgMax", "ArgMin"), ir.DataType.INT64),
    **dict.fromkeys(
        ("Greater", "Less", "GreaterOrEqual", "LessOrEqual", "Equal", "And", "Or", "Not"), ir.DataType.BOOL
    ),
}
_SECOND = {"MaxPool": ir.DataType.INT64, "TopK": ir.DataType.INT64}
#: Gradients are of this type, whatever that of the forward part is.
REAL = ir.DataType.FLOAT


class NotDifferentiable(Exception):  # noqa: N818 - a result, not a fault
    """A rule does not cover a node: a size that it needs is not known, or it does not cover the attributes."""


class Tape:
    """Appends nodes to a graph of an opset from 16 on; the same node on the same inputs is written once.

    ``constant_values`` are the values known before the first inference, by name.
    """

    def __init__(self, graph: ir.Graph, opset: int, constant_values: Mapping[str, ir.TensorProtocol]) -> None:
        self.graph, self.opset, self.constant_values = graph, opset, constant_values
        self._count = 0
        self._constants: dict[tuple[Any, ...], ir.Value] = {}
        self._outputs_by_key: dict[tuple[Any, ...], list[ir.Value]] = {}

    def op(self, kind: str, *reads: ir.Value | None, **attributes: Any) -> ir.Value:
        """The output of a node."""
        return self.ops(kind, *reads, count=1, **attributes)[0]

    def ops(self, kind: str, *reads: ir.Value | None, count: int, **attributes: Any) -> list[ir.Value]:
        """The outputs of a node."""
        key = (kind, count, *reads, *((n, str(a)) for n, a in sorted(attributes.items())))
        if key not in self._outputs_by_key:
            self._count += 1
            name = f"rtlab.gradients/{self._count}/{kind}"
            node_attributes = ir.convenience.convert_attributes(attributes)
            like = reads[1 if kind == "Where" else 0]
            output_type = _TYPES.get(kind, None if like is None else like.dtype)
            if kind == "Cast":
                output_type = ir.DataType(attributes["to"])
            types = [output_type, *[_SECOND.get(kind, output_type)] * (count - 1)]
            outputs = [
                ir.Value(name=f"{name}/{i}", type=None if one is None else ir.TensorType(one))
                for i, one in enumerate(types)
            ]
            self.graph.append(ir.Node("", kind, reads, node_attributes, outputs=outputs, name=name))
            self._outputs_by_key[key] = outputs
        return self._outputs_by_key[key]

    def constant(self, array: NDArray[Any] | Sequence[int] | float) -> ir.Value:
        """An initializer: whole numbers as INT64, others as FP32."""
        numbers = np.asarray(array)
        numbers = numbers.astype(np.int64 if numbers.dtype.kind in "iu" else np.float32)
        key = (numbers.tobytes(), numbers.shape, numbers.dtype.str)
        if key not in self._constants:
            self._count += 1
            tensor = ir.Tensor(numbers, name=f"rtlab.gradients/{self._count}/constant")
            kind, shape = ir.TensorType(tensor.dtype), ir.Shape(numbers.shape)
            value = ir.Value(name=tensor.name, type=kind, shape=shape, const_value=tensor)
            self.graph.register_initializer(value)
            self._constants[key] = value
        return self._constants[key]

    def constant_value(self, value: ir.Value | None) -> NDArray[Any] | None:
        """What a value is before the first inference; None where that is not known."""
        tensor = None if value is None else value.const_value or self.constant_values.get(value.name or "")
        return None if tensor is None else np.asarray(tensor.numpy())

    def sizes(self, value: ir.Value) -> tuple[int | None, ...]:
        """The sizes of a value, None for one that is not known.

        Raises:
            NotDifferentiable: the rank is not known.
        """
        if value.shape is None:
            raise NotDifferentiable(f'the number of dimensions of "{value.name}" is not known')
        return tuple(d if isinstance(d, int) else None for d in value.shape)

    def cast_to_float(self, value: ir.Value) -> ir.Value:
        """A value as FP32."""
        return value if value.dtype in {REAL, None} else self.cast(value, REAL)

    def cast(self, value: ir.Value, kind: ir.DataType) -> ir.Value:
        """A value as another type."""
        return self.op("Cast", value, to=int(kind))

    def cast_mask(self, condition: ir.Value) -> ir.Value:
        """A condition as 1.0 and 0.0."""
        return self.cast(condition, REAL)

    def shape(self, value: ir.Value) -> ir.Value:
        """The sizes of a value as a vector: a constant where all are known."""
        if value.shape is not None and None not in (sizes := self.sizes(value)):
            return self.constant([s for s in sizes if s is not None])
        return self.op("Shape", value)

    def size(self, value: ir.Value, axis: int) -> ir.Value:
        """One size of a value as a vector of one element: a constant where it is known."""
        size = self.sizes(value)[axis]
        if size is not None:
            return self.constant([size])
        return self.op("Gather", self.op("Shape", value), self.constant([axis]), axis=0)

    def spatial_sizes(self, value: ir.Value, rank: int) -> ir.Value:
        """The last ``rank`` sizes of a value as a vector."""
        bounds = (self.constant([n]) for n in (-rank, 2**31, 0))
        return self.op("Slice", self.op("Shape", value), *bounds)

    def count(self, value: ir.Value, axes: Sequence[int]) -> ir.Value:
        """How many elements there are along axes together, as FP32."""
        sizes = [self.sizes(value)[a] for a in axes]
        if None not in sizes:
            return self.constant(float(np.prod([s for s in sizes if s is not None])))
        axis_sizes = self.op("Gather", self.op("Shape", value), self.constant(list(axes)), axis=0)
        return self.op("ReduceProd", self.cast(axis_sizes, REAL), keepdims=0)

    def concat(self, *vectors: ir.Value) -> ir.Value:
        """Vectors behind each other: a constant where all are."""
        numbers = [self.constant_value(v) for v in vectors]
        if all(n is not None for n in numbers):
            return self.constant(np.concatenate([n for n in numbers if n is not None]))
        return self.op("Concat", *vectors, axis=0) if len(vectors) > 1 else vectors[0]

    def reduce_sum(self, value: ir.Value, axes: Sequence[int], *, keep: bool) -> ir.Value:
        """A sum over axes."""
        return self.op("ReduceSum", value, self.constant(list(axes)), keepdims=int(keep))

    def mean(self, value: ir.Value, axes: Sequence[int]) -> ir.Value:
        """A mean over axes, which stay as ones."""
        if self.opset >= _AXES_ARE_INPUTS:
            return self.op("ReduceMean", value, self.constant(list(axes)), keepdims=1)
        return self.op("ReduceMean", value, axes=list(axes), keepdims=1)

    def unsqueeze(self, value: ir.Value, axes: Sequence[int]) -> ir.Value:
        """A value with axes of one element put in."""
        return self.op("Unsqueeze", value, self.constant(list(axes)))

    def transpose(self, value: ir.Value, order: Sequence[int]) -> ir.Value:
        """A value with its axes in another order."""
        return value if list(order) == sorted(order) else self.op("Transpose", value, perm=list(order))

    def reshape_like(self, gradient: ir.Value, value: ir.Value) -> ir.Value:
        """A gradient in the shape of a value with as many elements."""
        sizes = self.sizes(value) if value.shape is not None else (None, None)
        if sizes.count(None) == 1 and 0 not in sizes:
            return self.op("Reshape", gradient, self.constant([-1 if s is None else s for s in sizes]))
        return self.op("Reshape", gradient, self.shape(value))

    def expand_like(self, gradient: ir.Value, value: ir.Value) -> ir.Value:
        """A gradient repeated to the shape of a value."""
        return self.op("Expand", gradient, self.shape(value))

    def zeros_like(self, value: ir.Value) -> ir.Value:
        """Zeros in the shape of a value; a product with zero would keep infinity."""
        return self.op("Expand", self.constant(0.0), self.shape(value))

    def unbroadcast(
        self, gradient: ir.Value, value: ir.Value, output: ir.Value, *, trailing_axes: int = 0
    ) -> ir.Value:
        """A gradient summed over the axes along which a value was broadcast to the shape of an output.

        The last ``trailing_axes`` dimensions are not broadcast.
        """
        sizes, output_sizes = self.sizes(value), self.sizes(output)
        lead, end = len(output_sizes) - len(sizes), len(sizes) - trailing_axes
        if lead:
            gradient = self.reduce_sum(gradient, list(range(lead)), keep=False)
        pairs = list(zip((value.shape or ())[:end], (output.shape or ())[lead : lead + end], strict=True))
        if any(mine != 1 and not _is_same_size(mine, its) for mine, its in pairs):
            # Which axes are broadcast is known at run time only.
            parts = [
                self.op("Slice", self.op("Shape", v), *(self.constant([n]) for n in (a, a + end, 0)))
                for v, a in ((value, 0), (output, lead))
            ]
            broadcast_axes = self.op("NonZero", self.op("Not", self.op("Equal", *parts)))
            flat = self.op("Reshape", broadcast_axes, self.constant([-1]))
            return self.op("ReduceSum", gradient, flat, keepdims=1, noop_with_empty_axes=1)
        axes = [i for i, (mine, its) in enumerate(pairs) if mine == 1 and its != 1]
        return self.reduce_sum(gradient, axes, keep=True) if axes else gradient


def _is_same_size(one: int | ir.SymbolicDim, other: int | ir.SymbolicDim) -> bool:
    """Whether two sizes are known to be one."""
    if isinstance(one, int) or isinstance(other, int):
        return one == other
    return one.value is not None and one.value == other.value


@dataclasses.dataclass(frozen=True, eq=False)
class VjpContext:
    """A node, the gradient of each output or None, and whether each input needs one; a tape to write it with."""

    tape: Tape
    node: ir.Node
    output_gradients: Sequence[ir.Value | None]
    needs_input_gradient: Sequence[bool]

    @property
    def g(self) -> ir.Value:
        """The gradient of the first output."""
        if self.output_gradients[0] is None:
            raise NotDifferentiable("its first output has no gradient")
        return self.output_gradients[0]

    @property
    def y(self) -> ir.Value:
        """The first output, as FP32."""
        return self.tape.cast_to_float(self.node.outputs[0])

    @property
    def x(self) -> ir.Value:
        """The first input, as FP32."""
        return self.at(0)

    def at(self, i: int) -> ir.Value:
        """An input, as FP32."""
        return self.tape.cast_to_float(self.raw(i))

    def raw(self, i: int) -> ir.Value:
        """An input as it is."""
        value = self.node.inputs[i] if self.has(i) else None
        if value is None:
            raise NotDifferentiable(f"input {i} is missing")
        return value

    def has(self, i: int) -> bool:
        """Whether an input is there."""
        return i < len(self.node.inputs) and self.node.inputs[i] is not None

    def needs_gradient(self, i: int) -> bool:
        """Whether the gradient of an input is to be written."""
        return i < len(self.needs_input_gradient) and self.needs_input_gradient[i]

    def get_attribute(self, name: str, default: Any) -> Any:
        """An attribute as a plain value."""
        attribute = self.node.attributes.get(name)
        return default if attribute is None else attribute.value

    def constant_value(self, i: int) -> NDArray[np.generic] | None:
        """An input known before the first inference, else None."""
        return self.tape.constant_value(self.node.inputs[i]) if self.has(i) else None

    def sizes(self, i: int = 0) -> tuple[int | None, ...]:
        """The sizes of an input, None for one that is not known."""
        return self.tape.sizes(self.raw(i))

    @property
    def rank(self) -> int:
        """The number of dimensions of the first input."""
        return len(self.sizes())

    def unbroadcast(self, gradient: ir.Value, i: int) -> ir.Value:
        """The gradient of an input that was broadcast to the shape of the output."""
        return self.tape.unbroadcast(gradient, self.raw(i), self.node.outputs[0])

    def sum_per_channel(self, value: ir.Value) -> ir.Value:
        """A sum over all dimensions but the channels, the second."""
        return self.tape.reduce_sum(value, [0, *range(2, self.rank)], keep=False)

    def op(self, kind: str, *reads: ir.Value | None, **attributes: Any) -> ir.Value:
        """The output of a node."""
        return self.tape.op(kind, *reads, **attributes)

    def mul(self, lhs: ir.Value, rhs: ir.Value | float) -> ir.Value:
        """A product, with a number too."""
        return self.op("Mul", lhs, self.c(rhs) if isinstance(rhs, float) else rhs)

    def add(self, lhs: ir.Value, rhs: ir.Value | float) -> ir.Value:
        """A sum, with a number too."""
        return self.op("Add", lhs, self.c(rhs) if isinstance(rhs, float) else rhs)

    def c(self, numbers: NDArray[Any] | Sequence[int] | float) -> ir.Value:
        """A constant."""
        return self.tape.constant(numbers)


#: Gradients of a node's inputs, None for zero; those after the last are zero.
InputGradients: TypeAlias = "list[ir.Value | None]"
#: Writes the gradients of a node's inputs; a single one is that of the first input.
Rule: TypeAlias = Callable[[VjpContext], "Sequence[ir.Value | None] | ir.Value | None"]
Rules: TypeAlias = Mapping[str, Rule]
