"""The rule of each operator: what the gradients of its outputs say of those of its inputs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

import onnx_ir as ir

from rtlab.adjoint import moves, norms, pointwise, products
from rtlab.adjoint.tape import Tape

#: Gradients of a node's outputs, None where nobody wants one, and which inputs are asked for; gives those of inputs.
Rule: TypeAlias = Callable[
    [Tape, ir.Node, Sequence["ir.Value | None"], Sequence[bool]], Sequence["ir.Value | None"]
]

RULES: Mapping[str, Rule] = {**pointwise.RULES, **products.RULES, **moves.RULES, **norms.RULES}
