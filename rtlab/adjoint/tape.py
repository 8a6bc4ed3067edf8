"""What rules write the backward part of a graph with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx_ir as ir

if TYPE_CHECKING:
    from numpy.typing import NDArray

#: First opset in which axes to sum over, to squeeze and to unsqueeze are inputs, and in which those of others are.
_SUM_AXES, _OTHER_AXES = 13, 18
#: Types of outputs that are not that of what is read first; those of MaxPool and TopK are of their second output.
_TYPES = {
    **dict.fromkeys(("Shape", "Size", "NonZero", "ArgMax", "ArgMin"), ir.DataType.INT64),
    **dict.fromkeys(
        ("Greater", "Less", "GreaterOrEqual", "LessOrEqual", "Equal", "And", "Or", "Not"), ir.DataType.BOOL
    ),
}
_SECOND = {"MaxPool": ir.DataType.INT64, "TopK": ir.DataType.INT64}
#: Gradients are of this type, whatever that of the forward part is.
REAL = ir.DataType.FLOAT


class Unruled(Exception):  # noqa: N818 - it is no fault of anybody's
    """A rule does not cover a node: a size that it needs is not known, or a form of the operator is not ruled."""


class Tape:
    """Appends nodes to a graph.

    The same node on the same reads is written once, so that what several probes need of the forward part is computed
    for all of them together.

    Attributes:
        opset: The default operator set of the graph.
        known: Values known before the first inference, by name.
    """

    def __init__(self, graph: ir.Graph, opset: int, known: Mapping[str, ir.TensorProtocol]) -> None:
        self.graph, self.opset, self.known = graph, opset, known
        self._count = 0
        self._constants: dict[tuple[Any, ...], ir.Value] = {}
        self._written: dict[tuple[Any, ...], list[ir.Value]] = {}

    def op(self, kind: str, *reads: ir.Value | None, **attributes: Any) -> ir.Value:
        """The output of a node."""
        return self.ops(kind, *reads, count=1, **attributes)[0]

    def ops(self, kind: str, *reads: ir.Value | None, count: int, **attributes: Any) -> list[ir.Value]:
        """The outputs of a node."""
        key = (kind, count, *reads, *((n, str(a)) for n, a in sorted(attributes.items())))
        if key not in self._written:
            self._count += 1
            name = f"rtlab.adjoint/{self._count}/{kind}"
            held = ir.convenience.convert_attributes(attributes)
            of = reads[1 if kind == "Where" else 0]
            told = (
                ir.DataType(attributes["to"])
                if kind == "Cast"
                else _TYPES.get(kind, None if of is None else of.dtype)
            )
            types = [told, *[_SECOND.get(kind, told)] * (count - 1)]
            outputs = [
                ir.Value(name=f"{name}/{i}", type=None if one is None else ir.TensorType(one))
                for i, one in enumerate(types)
            ]
            self.graph.append(ir.Node("", kind, reads, held, outputs=outputs, name=name))
            self._written[key] = outputs
        return self._written[key]

    def constant(self, array: NDArray[Any] | Sequence[int] | float) -> ir.Value:
        """An initializer: whole numbers as INT64, others as FP32."""
        numbers = np.asarray(array)
        numbers = numbers.astype(np.int64 if numbers.dtype.kind in "iu" else np.float32)
        key = (numbers.tobytes(), numbers.shape, numbers.dtype.str)
        if numbers.size > 64 or key not in self._constants:
            self._count += 1
            name = f"rtlab.adjoint/{self._count}/constant"
            tensor = ir.Tensor(np.ascontiguousarray(numbers) if numbers.ndim else numbers, name=name)
            value = ir.Value(
                name=name, type=ir.TensorType(tensor.dtype), shape=ir.Shape(numbers.shape), const_value=tensor
            )
            self.graph.register_initializer(value)
            if numbers.size > 64:
                return value
            self._constants[key] = value
        return self._constants[key]

    def number(self, value: ir.Value | None) -> NDArray[Any] | None:
        """What a value is before the first inference; None where that is not known."""
        tensor = None if value is None else value.const_value or self.known.get(value.name or "")
        return None if tensor is None else np.asarray(tensor.numpy())

    def sizes(self, value: ir.Value) -> tuple[int | None, ...]:
        """The sizes of a value, None for one that is not known.

        Raises:
            Unruled: not even their number is known.
        """
        if value.shape is None:
            raise Unruled(f'the number of dimensions of "{value.name}" is not known')
        return tuple(d if isinstance(d, int) else None for d in value.shape)

    def real(self, value: ir.Value) -> ir.Value:
        """A value as FP32."""
        return value if value.dtype in {REAL, None} else self.cast(value, REAL)

    def cast(self, value: ir.Value, kind: ir.DataType) -> ir.Value:
        """A value as another type."""
        return self.op("Cast", value, to=int(kind))

    def where(self, told: ir.Value) -> ir.Value:
        """1.0 where something holds, else 0.0."""
        return self.cast(told, REAL)

    def shape(self, value: ir.Value) -> ir.Value:
        """The sizes of a value as a vector: a constant where all are known."""
        if value.shape is not None and None not in (known := self.sizes(value)):
            return self.constant([s for s in known if s is not None])
        return self.op("Shape", value)

    def size(self, value: ir.Value, axis: int) -> ir.Value:
        """One size of a value as a vector of one element: a constant where it is known."""
        known = self.sizes(value)[axis]
        if known is not None:
            return self.constant([known])
        return self.op("Gather", self.op("Shape", value), self.constant([axis]), axis=0)

    def count(self, value: ir.Value, axes: Sequence[int]) -> ir.Value:
        """How many elements there are along axes together, as FP32."""
        sizes = [self.sizes(value)[a] for a in axes]
        if None not in sizes:
            return self.constant(float(np.prod([s for s in sizes if s is not None])))
        picked = self.op("Gather", self.op("Shape", value), self.constant(list(axes)), axis=0)
        return self.op("ReduceProd", self.cast(picked, REAL), keepdims=0)

    def joined(self, *vectors: ir.Value) -> ir.Value:
        """Vectors behind each other: a constant where all are."""
        numbers = [self.number(v) for v in vectors]
        if all(n is not None for n in numbers):
            return self.constant(np.concatenate([n for n in numbers if n is not None]))
        return self.op("Concat", *vectors, axis=0) if len(vectors) > 1 else vectors[0]

    def summed(self, value: ir.Value, axes: Sequence[int], *, keep: bool) -> ir.Value:
        """A sum over axes."""
        if self.opset >= _SUM_AXES:
            return self.op("ReduceSum", value, self.constant(list(axes)), keepdims=int(keep))
        return self.op("ReduceSum", value, axes=list(axes), keepdims=int(keep))

    def reduced(self, kind: str, value: ir.Value, axes: Sequence[int]) -> ir.Value:
        """Another reduction over axes, which stay as ones."""
        if self.opset >= _OTHER_AXES:
            return self.op(kind, value, self.constant(list(axes)), keepdims=1)
        return self.op(kind, value, axes=list(axes), keepdims=1)

    def mean(self, value: ir.Value, axes: Sequence[int]) -> ir.Value:
        """A mean over axes, which stay as ones."""
        return self.reduced("ReduceMean", value, axes)

    def unsqueezed(self, value: ir.Value, axes: Sequence[int]) -> ir.Value:
        """A value with axes of one element put in."""
        if self.opset >= _SUM_AXES:
            return self.op("Unsqueeze", value, self.constant(list(axes)))
        return self.op("Unsqueeze", value, axes=list(axes))

    def transposed(self, value: ir.Value, order: Sequence[int]) -> ir.Value:
        """A value with its axes in another order."""
        return value if list(order) == sorted(order) else self.op("Transpose", value, perm=list(order))

    def like(self, gradient: ir.Value, value: ir.Value) -> ir.Value:
        """A gradient in the shape of a value with as many elements."""
        sizes = self.sizes(value) if value.shape is not None else (None, None)
        if sizes.count(None) == 1 and 0 not in sizes:
            return self.op("Reshape", gradient, self.constant([-1 if s is None else s for s in sizes]))
        return self.op("Reshape", gradient, self.shape(value))

    def spread(self, gradient: ir.Value, value: ir.Value) -> ir.Value:
        """A gradient repeated to the shape of a value."""
        return self.op("Expand", gradient, self.shape(value))

    def zeros(self, value: ir.Value) -> ir.Value:
        """Zeros in the shape of a value; no product with zero, which would keep what is infinite."""
        return self.op("Expand", self.constant(0.0), self.shape(value))

    def narrowed(
        self, gradient: ir.Value, value: ir.Value, written: ir.Value, *, behind: int = 0
    ) -> ir.Value:
        """The gradient of a value that was repeated to the shape of what was written: summed over where it was.

        The last ``behind`` dimensions are none of those that may be repeated.
        """
        one, all_ = self.sizes(value), self.sizes(written)
        lead, end = len(all_) - len(one), len(one) - behind
        if lead:
            gradient = self.summed(gradient, list(range(lead)), keep=False)
        pairs = list(zip((value.shape or ())[:end], (written.shape or ())[lead : lead + end], strict=True))
        if any(mine != 1 and not _same(mine, its) for mine, its in pairs):
            # Which are repeated shows when it runs.
            parts = [
                self.op("Slice", self.op("Shape", v), *(self.constant([n]) for n in (a, a + end, 0)))
                for v, a in ((value, 0), (written, lead))
            ]
            repeated = self.op("NonZero", self.op("Not", self.op("Equal", *parts)))
            flat = self.op("Reshape", repeated, self.constant([-1]))
            return self.op("ReduceSum", gradient, flat, keepdims=1, noop_with_empty_axes=1)
        axes = [i for i, (mine, its) in enumerate(pairs) if mine == 1 and its != 1]
        return self.summed(gradient, axes, keep=True) if axes else gradient


def _same(one: int | ir.SymbolicDim, other: int | ir.SymbolicDim) -> bool:
    """Whether two sizes are known to be one."""
    if isinstance(one, int) or isinstance(other, int):
        return one == other
    return one.value is not None and one.value == other.value
