"""A node of the forward part, as the rule sees it that writes its gradients."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import onnx_ir as ir

from rtlab.adjoint.tape import Tape, Unruled

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


@dataclasses.dataclass(frozen=True, eq=False)
class Site:
    """What a rule is given.

    Attributes:
        tape: Writes to the graph.
        node: The node itself.
        given: The gradient of each output, None where nobody wants one.
        wanted: Whether that of each input is asked for.
    """

    tape: Tape
    node: ir.Node
    given: Sequence[ir.Value | None]
    wanted: Sequence[bool]

    @property
    def g(self) -> ir.Value:
        """The gradient of the first output."""
        if self.given[0] is None:
            raise Unruled("its first output has no gradient")
        return self.given[0]

    @property
    def y(self) -> ir.Value:
        """The first output, as FP32."""
        return self.tape.real(self.node.outputs[0])

    @property
    def x(self) -> ir.Value:
        """The first input, as FP32."""
        return self.at(0)

    def at(self, i: int) -> ir.Value:
        """An input, as FP32."""
        return self.tape.real(self.raw(i))

    def raw(self, i: int) -> ir.Value:
        """An input as it is."""
        value = self.node.inputs[i] if self.has(i) else None
        if value is None:
            raise Unruled(f"input {i} is missing")
        return value

    def has(self, i: int) -> bool:
        """Whether an input is there."""
        return i < len(self.node.inputs) and self.node.inputs[i] is not None

    def asks(self, i: int) -> bool:
        """Whether the gradient of an input is there to be written."""
        return i < len(self.wanted) and self.wanted[i]

    def held(self, name: str, default: Any) -> Any:
        """An attribute as a plain value."""
        found = self.node.attributes.get(name)
        return default if found is None else found.value

    def number(self, i: int) -> NDArray[np.generic] | None:
        """What an input is before the first inference; None where that is not known, or where it is missing."""
        return self.tape.number(self.node.inputs[i]) if self.has(i) else None

    def sizes(self, i: int = 0) -> tuple[int | None, ...]:
        """The sizes of an input, None for one that is not known."""
        return self.tape.sizes(self.raw(i))

    @property
    def rank(self) -> int:
        """The number of dimensions of the first input."""
        return len(self.sizes())

    def narrowed(self, gradient: ir.Value, i: int) -> ir.Value:
        """The gradient of an input that was repeated to the shape of the output."""
        return self.tape.narrowed(gradient, self.raw(i), self.node.outputs[0])

    def op(self, kind: str, *reads: ir.Value | None, **attributes: Any) -> ir.Value:
        """The output of a node."""
        return self.tape.op(kind, *reads, **attributes)

    def mul(self, one: ir.Value, other: ir.Value | float) -> ir.Value:
        """A product, with a number too."""
        return self.op("Mul", one, self.c(other) if isinstance(other, float) else other)

    def add(self, one: ir.Value, other: ir.Value | float) -> ir.Value:
        """A sum, with a number too."""
        return self.op("Add", one, self.c(other) if isinstance(other, float) else other)

    def c(self, numbers: NDArray[Any] | Sequence[int] | float) -> ir.Value:
        """A constant."""
        return self.tape.constant(numbers)


#: Gives the gradients of a node's inputs, None for one that is zero; a single one is that of the first input.
Rule: TypeAlias = Callable[[Site], "Sequence[ir.Value | None] | ir.Value | None"]
Rules: TypeAlias = Mapping[str, Rule]
