"""What rules write the backward part of a graph with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx_ir as ir

if TYPE_CHECKING:
    from numpy.typing import NDArray

#: First opset in which axes to sum over, to squeeze and to unsqueeze are inputs, and in which those of means are.
_SUM_AXES, _MEAN_AXES = 13, 18
#: Types of outputs that are not FP32: of the first, and of the others.
_TYPES = {
    "Shape": ir.DataType.INT64, "Greater": ir.DataType.BOOL, "Less": ir.DataType.BOOL, "Equal": ir.DataType.BOOL,
}  # fmt: skip
_SECOND = {"MaxPool": ir.DataType.INT64}


class Unruled(Exception):  # noqa: N818 - it is no fault of anybody's
    """A rule does not cover a node: a size that it needs is not known, or a form of the operator is not ruled."""


class Tape:
    """Appends nodes to a graph.

    Attributes:
        opset: The default operator set of the graph.
        known: Values known before the first inference, by name.
    """

    def __init__(self, graph: ir.Graph, opset: int, known: Mapping[str, ir.TensorProtocol]) -> None:
        self.graph, self.opset, self.known = graph, opset, known
        self._count = 0
        self._constants: dict[tuple[Any, ...], ir.Value] = {}

    def op(self, kind: str, *reads: ir.Value | None, **attributes: Any) -> ir.Value:
        """The output of a new node."""
        return self.ops(kind, *reads, count=1, **attributes)[0]

    def ops(self, kind: str, *reads: ir.Value | None, count: int, **attributes: Any) -> list[ir.Value]:
        """The outputs of a new node."""
        self._count += 1
        name = f"rtlab.adjoint/{self._count}/{kind}"
        held = ir.convenience.convert_attributes(attributes)
        told = ir.DataType(attributes["to"]) if kind == "Cast" else _TYPES.get(kind, ir.DataType.FLOAT)
        types = [told, *[_SECOND.get(kind, told)] * (count - 1)]
        outputs = [ir.Value(name=f"{name}/{i}", type=ir.TensorType(one)) for i, one in enumerate(types)]
        self.graph.append(ir.Node("", kind, reads, held, outputs=outputs, name=name))
        return outputs

    def constant(self, array: NDArray[Any] | Sequence[int] | float) -> ir.Value:
        """An initializer: whole numbers as INT64, others as FP32."""
        numbers = np.asarray(array)
        numbers = numbers.astype(np.int64 if numbers.dtype.kind in "iu" else np.float32)
        key = (numbers.tobytes(), numbers.shape, numbers.dtype.str) if numbers.size <= 64 else (id(array),)
        if numbers.size > 64 or key not in self._constants:
            self._count += 1
            name = f"rtlab.adjoint/{self._count}/constant"
            tensor = ir.Tensor(np.ascontiguousarray(numbers) if numbers.ndim else numbers, name=name)
            value = ir.Value(
                name=name, type=ir.TensorType(tensor.dtype), shape=ir.Shape(numbers.shape), const_value=tensor
            )
            self.graph.register_initializer(value)
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

    def summed(self, value: ir.Value, axes: Sequence[int], *, keep: bool) -> ir.Value:
        """A sum over axes."""
        if self.opset >= _SUM_AXES:
            return self.op("ReduceSum", value, self.constant(list(axes)), keepdims=int(keep))
        return self.op("ReduceSum", value, axes=list(axes), keepdims=int(keep))

    def mean(self, value: ir.Value, axes: Sequence[int]) -> ir.Value:
        """A mean over axes, which stay as ones."""
        if self.opset >= _MEAN_AXES:
            return self.op("ReduceMean", value, self.constant(list(axes)), keepdims=1)
        return self.op("ReduceMean", value, axes=list(axes), keepdims=1)

    def like(self, gradient: ir.Value, value: ir.Value) -> ir.Value:
        """A gradient in the shape of a value with as many elements."""
        return self.op("Reshape", gradient, self.op("Shape", value))

    def spread(self, gradient: ir.Value, value: ir.Value) -> ir.Value:
        """A gradient repeated to the shape of a value."""
        return self.op("Expand", gradient, self.op("Shape", value))

    def narrowed(self, gradient: ir.Value, value: ir.Value, written: ir.Value) -> ir.Value:
        """The gradient of a value that was repeated to the shape of what was written: summed over where it was."""
        one, all_ = self.sizes(value), self.sizes(written)
        if one == all_ and None not in one[1:]:
            return gradient
        lead = len(all_) - len(one)
        axes = list(range(lead))
        for i, size in enumerate(one):
            other = all_[i + lead]
            if size == 1 and other != 1:
                axes.append(i + lead)
            elif (
                size is None
                and i
                and other is None
                and (value.shape or [])[i] != (written.shape or [])[i + lead]
            ):
                raise Unruled(f'whether dimension {i} of "{value.name}" is repeated is not known')
        if not axes:
            return gradient
        kept = self.summed(gradient, axes, keep=True)
        return self.like(kept, value) if lead else kept
