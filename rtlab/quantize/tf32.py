"""TF32 is no type in the graph but a switch of the compiler; here is what it does to the numbers.

Both factors of a product are rounded to ten explicit bits of mantissa; sums stay FP32.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any

import numpy as np

from rtlab.quantize.edit import Edit
from rtlab.quantize.placement import WEIGHTED

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rtlab.core.model import Model

#: Bits of a float32's mantissa that TF32 lacks.
_DROPPED = 13
#: Beyond, the splitting's product would overflow; such numbers pass as they are.
_GUARD = 2.0**114
_DEFAULT = {"", "ai.onnx"}


def products(model: Model) -> tuple[str, ...]:
    """Ids of the main-graph nodes that TF32 concerns: products of two FP32 values."""
    return tuple(
        n.id
        for n in model.top
        if n.op in WEIGHTED
        and n.domain in _DEFAULT
        and all(model.values[v].dtype == "fp32" for v in n.inputs[:2])
    )


def emulation(
    model: Model,
    nodes: Collection[str],
    *,
    later: bool = False,
    check: Callable[[], object] = lambda: None,
) -> Model:
    """The model with both factors of each of the nodes rounded to TF32; ``later`` as for ``Edit``.

    ``check`` is called before each node, and may raise.

    Constants are rounded to nearest, ties to even. Activations are split in the graph after Veltkamp: with
    ``c = (2^13 + 1) x``, ``c - (c - x)`` is the nearest number of 11 bits (Dekker, Numer. Math. 18, 1971; proved
    by Boldo, IJCAR 2006), ties go either way. Magnitudes from 2^114 on, infinity and NaN pass as they are.
    """
    edit = Edit(model, later=later)
    known = model.known
    rounded: dict[str, Any] = {}
    for node in model.top:
        if node.id not in nodes:
            continue
        check()
        origin = node.origin if later else node.id
        for i, value in enumerate(node.inputs[:2]):
            name = f"{node.id}/input{i or ''}/tf32"
            if value not in rounded:
                rounded[value] = (
                    edit.constant(name, tf32(np.asarray(known[value].numpy(), np.float32)))
                    if value in known
                    else _split(edit, edit.tensors[value], name, node.id, origin)
                )
            edit.nodes[node.id].inputs[i] = rounded[value]
    return edit.finish()


def tf32(x: NDArray[np.float32]) -> NDArray[np.float32]:
    """Round to ten explicit bits of mantissa, to nearest with ties to even; infinity and NaN stay."""
    bits = np.ascontiguousarray(x, np.float32).view(np.uint32)
    odd = (bits >> _DROPPED) & 1
    whole = (bits + ((1 << (_DROPPED - 1)) - 1) + odd) & np.uint32(0xFFFFFFFF ^ ((1 << _DROPPED) - 1))
    return np.where(np.isfinite(x), whole.astype(np.uint32).view(np.float32), x).astype(np.float32)


def _split(edit: Edit, tensor: Any, name: str, node: str, origin: str) -> Any:
    def add(op: str, *inputs: Any) -> Any:
        return edit.insert(op, f"{name}/{op}", list(inputs), origin=origin, before=node)

    factor = edit.constant(f"{name}/factor", np.array(2.0**_DROPPED + 1, np.float32))
    guard = edit.constant(f"{name}/guard", np.array(_GUARD, np.float32))
    large = add("Mul", tensor, factor)
    head = add("Sub", large, add("Sub", large, tensor))
    return add("Where", add("Less", add("Abs", tensor), guard), head, tensor)
