"""A node of the forward part, as a rule reads it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import onnx_ir as ir

from rtlab.gradients.tape import NotDifferentiable, Tape

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


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
