"""How many bytes the outputs of nodes and layers take, from their shapes and types."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
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
BEYOND = 1 << 63


@dataclasses.dataclass(frozen=True)
class Footprint:
    """Bytes of all outputs of one node or layer; ``tensors`` counts them.

    ``origin`` is ``reported`` where the compiler told the sizes, otherwise ``estimated``: padding, alignment, and
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
    found = (math.prod(sizes) * bits + 7) // 8
    return found if found < BEYOND else None


def of_nodes(model: Model) -> dict[str, Footprint]:
    """Estimates by place (``Model.places``), at the shapes that ``Model.sizes`` gives.

    A node with an output of unknown shape or type is left out, and so is a constant, which no run computes.
    """
    known = model.sizes()

    # Shapes and types repeat from node to node.
    @functools.cache
    def estimated(*parts: tuple[str, Shape]) -> Footprint | None:
        return _sum([nbytes(dtype, shape) for dtype, shape in parts], "estimated")

    table: dict[str, Footprint] = {}
    for scope in model.scopes:
        for node, place in zip(scope.nodes, scope.places, strict=True):
            if node.op_type == "Constant":
                continue
            values = [v for v in node.outputs if v.name]
            parts = [(known.dtype(v, scope.space), known.of(v, scope.space)) for v in values]
            if found := estimated(*parts):
                table[place.id] = found
    return table


def of_layers(engine: Engine, built: Model) -> dict[str, Footprint]:
    """By layer id: as reported where every output has an allocation, otherwise estimated.

    Where the compiler left a dimension open, the shape is that of the built model's value of this name.
    """
    told = {a.value: a.nbytes for a in engine.allocations if a.origin == "reported"}
    known = built.sizes()

    def estimated(tensor: Tensor) -> int | None:
        shape = tensor.shape
        if shape is not None and min(shape, default=0) < 0:
            shape = known.get(tensor.name)
        return nbytes(tensor.dtype, shape)

    table: dict[str, Footprint] = {}
    for layer in engine.layers:
        if layer.outputs and all(t.name in told for t in layer.outputs):
            found = _sum([told[t.name] for t in layer.outputs], "reported")
        else:
            found = _sum([estimated(t) for t in layer.outputs], "estimated")
        if found:
            table[layer.id] = found
    return table


def sizes(model: Model) -> Mapping[str, int]:
    """The size of each symbol in the shapes of the inputs, as the model is built: what was named, else a batch of 1."""
    table: dict[str, int] = {}
    for name in model.inputs:
        with contextlib.suppress(ModelError):
            pairs = zip(model.values[name].shape or (), model.input_shape(name), strict=False)
            table |= {dim: size for dim, size in pairs if isinstance(dim, str)}
    return table


def _sum(parts: Sequence[int | None], origin: Origin) -> Footprint | None:
    known = [p for p in parts if p is not None]
    whole = bool(parts) and len(known) == len(parts) and sum(known) < BEYOND
    return Footprint(sum(known), len(known), origin) if whole else None
