"""Tensors of a graph, and how their types and shapes are written."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Literal

import onnx_ir as ir

ValueKind = Literal["input", "output", "constant", "activation"]

_DTYPES = {
    "FLOAT": "fp32",
    "FLOAT16": "fp16",
    "BFLOAT16": "bf16",
    "DOUBLE": "fp64",
    "FLOAT8E4M3FN": "fp8",
    "FLOAT4E2M1": "fp4",
    "FLOAT8E8M0": "e8m0",
}


@dataclasses.dataclass(frozen=True)
class Value:
    """A tensor of the graph.

    ``shape`` has an int, a symbol's name or None per dimension; it is None when nothing is known.
    """

    name: str
    dtype: str
    shape: tuple[int | str | None, ...] | None
    kind: ValueKind


def shape_text(shape: Sequence[int | str | None] | None) -> str:
    """A shape as the graph shows it: ``1×3×224×224``, ``?`` for an unknown dimension."""
    if shape is None:
        return "?"
    return "×".join("?" if d in {None, -1} else str(d) for d in shape) or "scalar"


def dtype_text(dtype: ir.DataType | None) -> str:
    """An ONNX type in rtlab's names: ``fp32``, ``fp16``, ``int8``, ..., empty when unknown."""
    if dtype is None or dtype == ir.DataType.UNDEFINED:
        return ""
    return _DTYPES.get(dtype.name, dtype.name.lower())


def describe(value: ir.Value, kind: ValueKind) -> Value:
    """What is known of a value, by the value itself: names of bodies and functions may repeat."""
    shape: tuple[int | str | None, ...] | None = None
    if value.shape is not None:
        shape = tuple(d if isinstance(d, int) else d.value for d in value.shape)
    dtype = value.dtype
    if value.const_value is not None:
        shape = tuple(value.const_value.shape.numpy())
        dtype = value.const_value.dtype
    return Value(value.name or "", dtype_text(dtype), shape, kind)
