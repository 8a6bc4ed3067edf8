"""How many bytes the outputs of nodes and layers take, from their shapes and types."""

from __future__ import annotations

import contextlib
import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import TypeAlias

import onnx_ir as ir

from rtlab.core.engine import Engine, Tensor
from rtlab.core.model import Model
from rtlab.core.schema import Origin
from rtlab.core.value import dtype_text
from rtlab.errors import ModelError

Shape: TypeAlias = tuple[int, ...] | None

_BITS = {
    dtype_text(d): d.bitwidth for d in ir.DataType if d not in {ir.DataType.UNDEFINED, ir.DataType.STRING}
}
_BITS["tf32"] = 32
#: What no machine addresses: a file that tells of so many bytes or elements is wrong.
SIZE_LIMIT = 1 << 63


@dataclasses.dataclass(frozen=True)
class Footprint:
    """Bytes of all outputs of one node or layer; ``tensors`` counts them.

    ``origin`` is ``reported`` where the compiler told the sizes, otherwise ``estimate``: padding, alignment, and
    memory that outputs share are not in it.
    """

    nbytes: int
    tensors: int
    origin: Origin


def nbytes(dtype: str, shape: Sequence[int | str | None] | None) -> int | None:
    """Bytes of a dense tensor, types of less than a byte packed; None where type or shape are not known, or wrong."""
    bits = _BITS.get(dtype)
    if bits is None or shape is None:
        return None
    sizes = [d for d in shape if isinstance(d, int) and d >= 0]
    if len(sizes) < len(shape):
        return None
    byte_count = (math.prod(sizes) * bits + 7) // 8
    return byte_count if byte_count < SIZE_LIMIT else None


def of_nodes(model: Model) -> dict[str, Footprint]:
    """Estimates by place, at the shapes of ``Model.sizes``; no constants, no nodes with an output of unknown size."""
    model_sizes = model.sizes()
    table: dict[str, Footprint] = {}
    for scope in model.scopes:
        for node, place in zip(scope.nodes, scope.places, strict=True):
            if node.op_type == "Constant":
                continue
            values = [v for v in node.outputs if v.name]
            parts = [
                nbytes(model_sizes.dtype(v, scope.space), model_sizes.of(v, scope.space)) for v in values
            ]
            if footprint := _sum(parts, "estimated"):
                table[place.id] = footprint
    return table


def of_layers(engine: Engine, built: Model) -> dict[str, Footprint]:
    """By layer id: as reported where every output has an allocation, else estimated, with sizes of the built model."""
    reported_bytes = {a.value: a.nbytes for a in engine.allocations if a.origin == "reported"}
    model_sizes = built.sizes()

    def estimate(tensor: Tensor) -> int | None:
        shape = tensor.shape
        if shape is not None and min(shape, default=0) < 0:
            shape = model_sizes.get(tensor.name)
        return nbytes(tensor.dtype, shape)

    table: dict[str, Footprint] = {}
    for layer in engine.layers:
        if layer.outputs and all(t.name in reported_bytes for t in layer.outputs):
            footprint = _sum([reported_bytes[t.name] for t in layer.outputs], "reported")
        else:
            footprint = _sum([estimate(t) for t in layer.outputs], "estimated")
        if footprint:
            table[layer.id] = footprint
    return table


def sizes(model: Model) -> Mapping[str, int]:
    """The size of each symbol in the shapes of the inputs, as the model is built: what was named, else a batch of 1."""
    table: dict[str, int] = {}
    for name in model.inputs:
        with contextlib.suppress(ModelError):
            pairs = zip(model.values[name].shape or (), model.input_shape(name), strict=False)
            table |= {dim: size for dim, size in pairs if isinstance(dim, str)}
    return table


def total(parts: Sequence[int | None]) -> int | None:
    """The sum of some numbers; None where one is not known."""
    counts = [p for p in parts if p is not None]
    return sum(counts) if len(counts) == len(parts) else None


def _sum(parts: Sequence[int | None], origin: Origin) -> Footprint | None:
    byte_count = total(parts)
    is_valid = bool(parts) and byte_count is not None and byte_count < SIZE_LIMIT
    return Footprint(byte_count, len(parts), origin) if is_valid else None  # type: ignore[arg-type]
