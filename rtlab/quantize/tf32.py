"""Emulating TF32, a switch of the compiler: both factors of a product have ten explicit bits of mantissa."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING

import numpy as np
import onnx_ir as ir

from rtlab.core.node import ONNX_DOMAINS
from rtlab.quantize import passes
from rtlab.quantize.placement import WEIGHTED

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rtlab.core.model import Model
    from rtlab.quantize.edit import Edit

#: Bits of a float32's mantissa that TF32 lacks.
_DROPPED = 13
#: Beyond, the splitting's product would overflow; such numbers pass as they are.
_GUARD = 2.0**114


def find_tf32_products(model: Model) -> tuple[str, ...]:
    """Ids of the main-graph nodes that TF32 concerns: products of two FP32 values."""
    return tuple(
        n.id
        for n in model.top
        if n.op in WEIGHTED
        and n.domain in ONNX_DOMAINS
        and all(model.values[v].dtype == "fp32" for v in n.inputs[:2])
    )


def truncate(nodes: Collection[str], check: Callable[[], object] = lambda: None) -> passes.Pass:
    """Both factors of some products rounded to TF32; ``check`` is called before each and may raise.

    Constants are rounded to nearest, ties to even. Activations are split in the graph after Veltkamp: with
    ``c = (2^13 + 1) x``, ``c - (c - x)`` is the nearest number of 11 bits (Dekker, Numer. Math. 18, 1971; proved
    by Boldo, IJCAR 2006), ties go either way. Magnitudes from 2^114 on, infinity and NaN pass as they are.
    """

    def edit_graph(edit: Edit) -> None:
        model = edit.model
        rounded_values: dict[str, ir.Value] = {}
        for node in model.top:
            if node.id not in nodes:
                continue
            check()
            for i, value in enumerate(node.inputs[:2]):
                name = f"{node.id}/input{i or ''}/tf32"
                if value not in rounded_values and value in model.known:
                    numbers = np.asarray(model.known[value].numpy(), np.float32)
                    rounded_values[value] = edit.add_constant(name, round_to_tf32(numbers))
                elif value not in rounded_values:
                    rounded_values[value] = _insert_rounding(edit, edit.values[value], name, node.id)
                edit.set_input(node.id, i, rounded_values[value])

    return passes.Pass("rounding to TF32", edit_graph, passes.INSERTION_PROMISES, 9)


def round_to_tf32(x: NDArray[np.float32]) -> NDArray[np.float32]:
    """Round to ten explicit bits of mantissa, to nearest with ties to even; infinity and NaN stay."""
    bits = np.ascontiguousarray(x, np.float32).view(np.uint32)
    odd = (bits >> _DROPPED) & 1
    rounded_bits = (bits + ((1 << (_DROPPED - 1)) - 1) + odd) & np.uint32(0xFFFFFFFF ^ ((1 << _DROPPED) - 1))
    return np.where(np.isfinite(x), rounded_bits.astype(np.uint32).view(np.float32), x).astype(np.float32)


def _insert_rounding(edit: Edit, value: ir.Value, name: str, node: str) -> ir.Value:
    def add(op: str, *inputs: ir.Value, kind: ir.DataType | None = None) -> ir.Value:
        return edit.insert(
            op, f"{name}/{op}", inputs, origin=edit.get_origin(node), like=value, kind=kind, before=node
        )

    factor = edit.add_constant(f"{name}/factor", np.array(2.0**_DROPPED + 1, np.float32))
    guard = edit.add_constant(f"{name}/guard", np.array(_GUARD, np.float32))
    large = add("Mul", value, factor)
    head = add("Sub", large, add("Sub", large, value))
    return add("Where", add("Less", add("Abs", value), guard, kind=ir.DataType.BOOL), head, value)
