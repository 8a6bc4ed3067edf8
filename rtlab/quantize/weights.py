"""Weights stored in four bits, INT4 or FP4 (E2M1): a dequantization before the product, which keeps its own type.

A compiler reads a quarter or an eighth of the bytes and multiplies in the activations' type. Scales are per block of
consecutive weights along the axis that the product sums over; for convolutions, where TensorRT-RTX takes no blocks,
per output channel.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Collection, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np
import onnx_ir as ir

from rtlab.core.node import ONNX_DOMAINS
from rtlab.core.variant import Precision
from rtlab.quantize import passes
from rtlab.quantize.narrow import HALVES
from rtlab.quantize.placement import WEIGHTED, unknown
from rtlab.quantize.rewrite import finite

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rtlab.core.model import Model
    from rtlab.core.node import Node
    from rtlab.quantize.edit import Edit

#: First opset with the type; blocks came with INT4.
OPSETS: Mapping[Precision, int] = {Precision.INT4: 21, Precision.FP4: 23}
#: Weights that share a scale: at most for INT4, exactly for FP4 (the size that NVFP4 defines).
_INT4_BLOCK, _FP4_BLOCK = 128, 16
#: Fewer are not worth a scale of their own.
_LEAST_BLOCK = 8
_MOST_DIMENSIONS = 4
#: Largest numbers of the types; INT4 leaves -8 out, as it has no positive twin.
_INT4_LARGEST, _FP4_LARGEST, _FP8_LARGEST = 7.0, 6.0, 448.0


@dataclasses.dataclass(frozen=True)
class ScaleLayout:
    """How a weight is divided: into blocks of ``block`` elements along ``axis``, or channels of it when that is 0."""

    axis: int
    block: int

    def spread(self, scale: NDArray[Any], rank: int) -> NDArray[Any]:
        """Scales in a shape that fits the weight's."""
        if self.block:
            return np.repeat(scale, self.block, self.axis)
        return scale.reshape([-1 if i == self.axis else 1 for i in range(rank)])


@dataclasses.dataclass(frozen=True)
class Stored:
    """One weight in four bits.

    ``values`` has the weight's shape; ``scale`` one number per block or channel. ``tensor_scale`` is None for INT4; for
    FP4 it is the scalar FP32 number that ``scale``, then in FP8, is multiplied with.
    """

    form: ScaleLayout
    values: NDArray[Any]
    scale: NDArray[Any]
    tensor_scale: NDArray[np.float32] | None = None

    def dequantized(self) -> NDArray[np.float32]:
        """The numbers that DequantizeLinear makes of it, in FP32 arithmetic."""
        scale = self.scale.astype(np.float32)
        if self.tensor_scale is not None:
            scale = scale * self.tensor_scale
        numbers: NDArray[np.float32] = self.values.astype(np.float32) * self.form.spread(
            scale, self.values.ndim
        )
        return numbers


@dataclasses.dataclass(frozen=True)
class FourBitPlan:
    """Which weights are stored in four bits: a constant and its form, by the nodes that read it.

    ``kept`` are the nodes that keep their weights, by reason.
    """

    weights: Mapping[tuple[str, ScaleLayout], tuple[str, ...]]
    kept: Mapping[str, tuple[str, ...]]

    @property
    def nodes(self) -> frozenset[str]:
        """Ids of the nodes whose weights are stored in four bits."""
        return frozenset(node for found in self.weights.values() for node in found)


def plan(model: Model, nodes: Collection[str], precision: Precision) -> FourBitPlan:
    """Choose products with constant weights among the nodes; what TensorRT-RTX does not compile is kept."""
    known = model.known
    weights: dict[tuple[str, ScaleLayout], list[str]] = {}
    kept: dict[str, list[str]] = {}
    for node in model.top:
        if node.id not in nodes or node.domain not in ONNX_DOMAINS or node.op not in WEIGHTED:
            continue
        found = _form(model, node, known, precision)
        if isinstance(found, ScaleLayout):
            weights.setdefault((node.inputs[1], found), []).append(node.id)
        else:
            kept.setdefault(found, []).append(node.id)
    return FourBitPlan({k: tuple(v) for k, v in weights.items()}, {k: tuple(v) for k, v in kept.items()})


def _form(
    model: Model, node: Node, known: Mapping[str, ir.TensorProtocol], precision: Precision
) -> ScaleLayout | str:
    """How a node's weight is divided, or why it is kept."""
    weight = known.get(node.inputs[1])
    if weight is None:
        return unknown(model, node.inputs[1])
    sizes = weight.shape.numpy()
    if weight.dtype != ir.DataType.FLOAT or 0 in sizes or not 2 <= len(sizes) <= _MOST_DIMENSIONS:
        return f"its weight is no FP32 tensor of 2 to {_MOST_DIMENSIONS} dimensions"
    if math.prod(sizes) % 2:
        return "TensorRT-RTX takes no odd number of 4-bit weights"
    if node.op == "Conv" and precision is Precision.INT4:
        before = model.producers.get(node.inputs[0])
        if before is not None and before.op == "DequantizeLinear":
            return "TensorRT-RTX compiles no INT4 Conv on a quantized input"
        return ScaleLayout(0, 0)
    if node.op not in {"MatMul", "Gemm"}:
        return f"{precision.upper()} weights are for products of matrices" + (
            " and for Conv" if precision is Precision.INT4 else ""
        )
    transposed = node.op == "Gemm" and node.attributes.get("transB", 0)
    axis = 1 if transposed else len(sizes) - 2
    if precision is Precision.FP4:
        fits = sizes[axis] % _FP4_BLOCK == 0
        return (
            ScaleLayout(axis, _FP4_BLOCK)
            if fits
            else f"its weight does not divide into blocks of {_FP4_BLOCK}"
        )
    return ScaleLayout(axis, int4_block(sizes[axis]))


@dataclasses.dataclass(frozen=True)
class _FourBits:
    """What both forms share: the weights of a plan, rounded to a type of four bits."""

    plan: FourBitPlan
    precision: Precision
    #: Weights that are in four bits already, by value and layout; the others are rounded to nearest.
    made: Mapping[tuple[str, ScaleLayout], Stored] = dataclasses.field(default_factory=dict, kw_only=True)
    promises = passes.KEPT

    @property
    def changes(self) -> str:
        """What becomes of the numbers."""
        return f"weights rounded to {self.precision.upper()}"

    def _stored(self, model: Model) -> Iterator[tuple[str, tuple[str, ...], Stored]]:
        """Each weight with the nodes that read it, in four bits.

        Raises:
            ModelError: a weight holds NaN or infinity.
        """
        for (value, layout), nodes in self.plan.weights.items():
            known = self.made.get((value, layout))
            yield value, nodes, known or store(read(model, value, nodes[0]), layout, self.precision)


@dataclasses.dataclass(frozen=True)
class Store(_FourBits):
    """Weights stored in four bits, and dequantized before the products that read them."""

    notes: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """What it does, in a few words."""
        return f"{self.precision.upper()} weights"

    @property
    def needs(self) -> tuple[passes.Need, ...]:
        """The opset that has the type."""
        return (passes.opset(OPSETS[self.precision]),)

    def __call__(self, edit: Edit) -> None:
        """Do it.

        Raises:
            ModelError: a weight holds NaN or infinity.
        """
        for value, nodes, stored in self._stored(edit.model):
            name, like, form = f"{nodes[0]}/weight", edit.values[value], stored.form
            place: dict[str, Any] = {"origin": nodes[0], "before": nodes[0]}
            scale = edit.constant(f"{name}/scale", stored.scale)
            if stored.tensor_scale is not None:
                whole = edit.constant(f"{name}/tensor_scale", stored.tensor_scale)
                scale = edit.insert(
                    "DequantizeLinear",
                    f"{name}/scale/DequantizeLinear",
                    [scale, whole],
                    kind=ir.DataType.FLOAT,
                    **place,
                )
            numbers = edit.insert(
                "DequantizeLinear",
                f"{name}/DequantizeLinear",
                [edit.constant(f"{name}/{self.precision}", stored.values), scale],
                like=like,
                attrs={"axis": form.axis, **({"block_size": form.block} if form.block else {})},
                **place,
            )
            for node in nodes:
                edit.feed(node, 1, numbers)


@dataclasses.dataclass(frozen=True)
class Dequantize(_FourBits):
    """The numbers that the dequantizations of ``Store`` yield, as FP32 constants.

    ``halves`` are the nodes that compute in 16 bits; for those the scales of INT4 are of 16 bits too.
    """

    halves: Mapping[str, Precision]
    notes: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """What it does, in a few words."""
        return f"numbers of {self.precision.upper()} weights"

    needs = ()

    def __call__(self, edit: Edit) -> None:
        """Do it.

        Raises:
            ModelError: a weight holds NaN or infinity.
        """
        for _, nodes, held in self._stored(edit.model):
            half = HALVES.get(self.halves.get(nodes[0], Precision.FP32))
            stored = held
            if half is not None and self.precision is Precision.INT4:
                stored = dataclasses.replace(held, scale=held.scale.astype(half.numpy))
            numbers = edit.constant(f"{nodes[0]}/weight/dequantized", stored.dequantized())
            for node in nodes:
                edit.feed(node, 1, numbers)


def store(weight: NDArray[np.float32], form: ScaleLayout, precision: Precision) -> Stored:
    """Quantize a weight to four bits, to nearest with ties to even.

    INT4: ``q = round(w / s)`` in [-7, 7] with ``s = amax / 7``. FP4: ``q = E2M1(w / s)`` with
    ``s = E4M3(amax / 6 / g) g`` per block and ``g = amax / (6 x 448)`` for the whole weight, the two levels of
    NVIDIA's NVFP4.

    Args:
        weight: Finite numbers.
        form: Blocks, or channels.
        precision: INT4 or FP4.
    """
    tiny = np.finfo(np.float32).tiny
    amax = _amax(np.abs(weight), form)
    if precision is Precision.INT4:
        scale = np.maximum(np.where(amax > 0, amax, np.float32(1)) / np.float32(_INT4_LARGEST), tiny)
        steps = np.rint(weight / form.spread(scale, weight.ndim))
        q = np.clip(steps, -_INT4_LARGEST, _INT4_LARGEST).astype(np.int8).astype(ml_dtypes.int4)
        return Stored(form, q, scale.astype(np.float32))
    whole = np.float32(float(amax.max()) or 1.0) / np.float32(_FP4_LARGEST * _FP8_LARGEST)
    whole = np.maximum(whole, tiny).astype(np.float32)
    relative = np.clip(amax / np.float32(_FP4_LARGEST) / whole, 0, _FP8_LARGEST).astype(
        ml_dtypes.float8_e4m3fn
    )
    scale = form.spread(relative.astype(np.float32) * whole, weight.ndim)
    # A block far below the largest has the scale zero, and is zero.
    steps = np.divide(weight, scale, out=np.zeros_like(weight), where=scale > 0)
    q = np.clip(steps, -_FP4_LARGEST, _FP4_LARGEST).astype(ml_dtypes.float4_e2m1fn)
    return Stored(form, q, relative, np.asarray(whole))


def _amax(magnitudes: NDArray[np.float32], form: ScaleLayout) -> NDArray[np.float32]:
    """The largest magnitude of each block or channel, in the shape of the scales."""
    first = np.moveaxis(magnitudes, form.axis, 0)
    if not form.block:
        largest: NDArray[np.float32] = first.reshape(len(first), -1).max(axis=1)
        return largest
    blocks = first.reshape(-1, form.block, *first.shape[1:]).max(axis=1)
    return np.moveaxis(blocks, 0, form.axis)


def int4_block(size: int) -> int:
    """The largest divisor up to 128 that leaves at least two blocks, or all in one block where there is none.

    TensorRT-RTX fuses the dequantization into the product for two blocks and more; for one it writes all
    numbers out first.
    """
    divisors = (d for d in range(min(_INT4_BLOCK, size // 2), _LEAST_BLOCK - 1, -1) if size % d == 0)
    return next(divisors, size)


def read(model: Model, value: str, node: str) -> NDArray[np.float32]:
    """A weight in FP32.

    Raises:
        ModelError: it holds NaN or infinity.
    """
    return finite(np.asarray(model.known[value].numpy(), dtype=np.float32), value, node)
