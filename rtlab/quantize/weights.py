"""Weights stored in four bits, INT4 or FP4 (E2M1), and with FP4 the activations that they are multiplied with.

INT4 weights are dequantized before a product, which keeps its own type: a compiler reads a quarter or an eighth of the
bytes. With FP4 both factors are in NVFP4: the scales of the activations' blocks are computed at each run
(``TRT_FP4DynamicQuantize``), and a GPU that has it multiplies in four bits. Scales are per block of consecutive numbers
along the axis that the product sums over; for convolutions, where TensorRT-RTX takes no blocks, per output channel.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Collection, Iterator, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import onnx_ir as ir

from rtlab.core.node import ONNX_DOMAINS
from rtlab.core.precision import NVFP4_RANGE, SMALLEST_BLOCK_SCALE, compute_amax
from rtlab.core.trt_operators import DOMAIN
from rtlab.core.variant import Precision
from rtlab.quantize import passes, placement
from rtlab.quantize.placement import FLOATS, WEIGHTED, explain_nonconstant, get_weight_axes
from rtlab.quantize.rewrite import require_finite

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rtlab.core.model import Model
    from rtlab.core.node import Node
    from rtlab.core.scale import Scale
    from rtlab.quantize.edit import Edit

#: Precisions whose weights are in four bits.
WEIGHT_PRECISIONS = tuple(p for p in Precision if p.stored.scaled in {"weights", "blocks"})
#: Weights that share a scale: at most for INT4, exactly for FP4 (the size that NVFP4 defines).
_INT4_BLOCK, _FP4_BLOCK = 128, 16
#: Fewer are not worth a scale of their own.
_LEAST_BLOCK = 8
_MOST_DIMENSIONS = 4


@dataclasses.dataclass(frozen=True)
class ScaleLayout:
    """How a weight is divided: into blocks of ``block`` elements along ``axis``, or channels of it when that is 0."""

    axis: int
    block: int

    def broadcast(self, scale: NDArray[Any], rank: int) -> NDArray[Any]:
        """Scales in a shape that fits the weight's."""
        if self.block:
            return np.repeat(scale, self.block, self.axis)
        return scale.reshape([-1 if i == self.axis else 1 for i in range(rank)])


#: Activations in FP4: blocks along the last axis of a matrix.
FP4_ROWS = ScaleLayout(1, _FP4_BLOCK)


@dataclasses.dataclass(frozen=True)
class FourBitWeight:
    """One weight in four bits.

    ``values`` has the weight's shape; ``scale`` one number per block or channel. ``tensor_scale`` is None for INT4; for
    FP4 it is the scalar FP32 number that ``scale``, then in FP8, is multiplied with.
    """

    form: ScaleLayout
    values: NDArray[Any]
    scale: NDArray[Any]
    tensor_scale: NDArray[np.float32] | None = None

    def dequantize(self) -> NDArray[np.float32]:
        """The numbers that DequantizeLinear makes of it, in FP32 arithmetic."""
        scale = self.scale.astype(np.float32)
        if self.tensor_scale is not None:
            scale = scale * self.tensor_scale
        return np.asarray(
            self.values.astype(np.float32) * self.form.broadcast(scale, self.values.ndim), np.float32
        )


@dataclasses.dataclass(frozen=True)
class FourBitPlan:
    """Which weights are stored in four bits: a constant and its form, by the nodes that read it.

    ``skipped_nodes`` are the nodes that keep their weights, by reason. ``activations`` are the values that these nodes
    read in four bits too, as their first input; only FP4 has such.
    """

    weights: Mapping[tuple[str, ScaleLayout], tuple[str, ...]]
    skipped_nodes: Mapping[str, tuple[str, ...]]
    activations: Mapping[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)

    @property
    def nodes(self) -> frozenset[str]:
        """Ids of the nodes whose weights are stored in four bits."""
        return frozenset(node for readers in self.weights.values() for node in readers)


def plan(model: Model, nodes: Collection[str], precision: Precision) -> FourBitPlan:
    """Choose products with constant weights among the nodes; what TensorRT-RTX does not compile is kept."""
    weights: dict[tuple[str, ScaleLayout], list[str]] = {}
    skipped_nodes: dict[str, list[str]] = {}
    activations: dict[str, list[str]] = {}
    # An activation in FP4 is one that could be in FP8.
    in_fp8 = placement.plan(model, nodes, Precision.FP8) if precision is Precision.FP4 else None
    refused = {n: why for why, ids in in_fp8.skipped_nodes.items() for n in ids} if in_fp8 else {}
    for node in model.top:
        if node.id not in nodes or node.domain not in ONNX_DOMAINS or node.op not in WEIGHTED:
            continue
        layout_or_reason = _choose_layout(model, node, precision)
        if isinstance(layout_or_reason, ScaleLayout):
            layout_or_reason = refused.get(node.id, layout_or_reason)
        if isinstance(layout_or_reason, ScaleLayout):
            weights.setdefault((node.inputs[1], layout_or_reason), []).append(node.id)
            if in_fp8 is not None:
                activations.setdefault(node.inputs[0], []).append(node.id)
        else:
            skipped_nodes.setdefault(layout_or_reason, []).append(node.id)
    return FourBitPlan(
        {k: tuple(v) for k, v in weights.items()},
        {k: tuple(v) for k, v in skipped_nodes.items()},
        {k: tuple(v) for k, v in activations.items()},
    )


def _choose_layout(model: Model, node: Node, precision: Precision) -> ScaleLayout | str:
    """How a node's weight is divided, or why it is not stored in four bits."""
    weight = model.known.get(node.inputs[1])
    if weight is None:
        return explain_nonconstant(model, node.inputs[1])
    sizes = weight.shape.numpy()
    if weight.dtype not in FLOATS or 0 in sizes or not 2 <= len(sizes) <= _MOST_DIMENSIONS:
        return f"its weight is no tensor of floats of 2 to {_MOST_DIMENSIONS} dimensions"
    if math.prod(sizes) % 2:
        return "TensorRT-RTX takes no odd number of 4-bit weights"
    if node.op == "Conv" and precision is Precision.INT4:
        producer = model.producers.get(node.inputs[0])
        if producer is not None and producer.op == "DequantizeLinear":
            return "TensorRT-RTX compiles no INT4 Conv on a quantized input"
        return ScaleLayout(0, 0)
    if node.op not in {"MatMul", "Gemm"}:
        others = " and for Conv" if precision is Precision.INT4 else ""
        return f"{precision.upper()} weights are for products of matrices{others}"
    _, axis = get_weight_axes(node, len(sizes))
    if precision is Precision.FP4:
        if node.attributes.get("transA"):
            return "its input is turned, and blocks of FP4 lie along the last axis"
        if sizes[axis] % _FP4_BLOCK:
            return f"its weight does not divide into blocks of {_FP4_BLOCK}"
        return ScaleLayout(axis, _FP4_BLOCK)
    return ScaleLayout(axis, choose_int4_block(sizes[axis]))


#: Weights in four bits, by value and layout.
FourBitWeights: TypeAlias = Mapping[tuple[str, ScaleLayout], FourBitWeight]


def iter_stored_weights(
    model: Model, plan: FourBitPlan, precision: Precision, four_bit_weights: FourBitWeights
) -> Iterator[tuple[str, tuple[str, ...], FourBitWeight]]:
    """Each weight of a plan with the nodes that read it, to nearest unless it is among ``four_bit_weights``.

    Raises:
        ModelError: a weight holds NaN or infinity.
    """
    for (value, layout), nodes in plan.weights.items():
        stored = four_bit_weights.get((value, layout))
        if stored is None:
            stored = quantize_to_four_bits(read_weight(model, value, nodes[0]), layout, precision)
        yield value, nodes, stored


def store_weights(
    plan: FourBitPlan,
    precision: Precision,
    four_bit_weights: FourBitWeights | None = None,
    scales: Mapping[str, Scale] | None = None,
) -> passes.Pass:
    """Weights stored in four bits, and dequantized before the products that read them, which activations are too.

    Those that are not among ``four_bit_weights`` are rounded to nearest. ``scales`` are those of the plan's
    activations. Applied, it raises ModelError where a weight holds NaN or infinity, and so does
    ``dequantize_weights``.
    """

    def edit_graph(edit: Edit) -> None:
        _round_activations(edit, plan, scales or {})
        for value, nodes, stored in iter_stored_weights(edit.model, plan, precision, four_bit_weights or {}):
            name, form = f"{nodes[0]}/weight", stored.form
            place: dict[str, Any] = {"origin": nodes[0], "before": nodes[0]}
            like, is_int4 = edit.values[value], stored.tensor_scale is None
            kind = like.dtype or ir.DataType.FLOAT
            scale = edit.add_constant(
                f"{name}/scale", stored.scale.astype(kind.numpy()) if is_int4 else stored.scale
            )
            if stored.tensor_scale is not None:
                inputs = [scale, edit.add_constant(f"{name}/tensor_scale", stored.tensor_scale)]
                title = f"{name}/scale/DequantizeLinear"
                scale = edit.insert("DequantizeLinear", title, inputs, kind=ir.DataType.FLOAT, **place)
            inputs = [edit.add_constant(f"{name}/{precision}", stored.values), scale]
            attributes = {"axis": form.axis, **({"block_size": form.block} if form.block else {})}
            title = f"{name}/DequantizeLinear"
            numbers = edit.insert(
                "DequantizeLinear", title, inputs, like=like, kind=scale.dtype, attrs=attributes, **place
            )
            if scale.dtype != kind:
                numbers = edit.insert(
                    "Cast", f"{name}/Cast", [numbers], kind=kind, attrs={"to": int(kind)}, **place
                )
            for node in nodes:
                edit.set_input(node, 1, numbers)

    title = f"{precision.upper()} weights"
    return passes.Pass(title, edit_graph, passes.INSERTION_PROMISES, precision.stored.opset)


def dequantize_weights(
    plan: FourBitPlan,
    precision: Precision,
    halves: Mapping[str, Precision],
    four_bit_weights: FourBitWeights | None = None,
    scales: Mapping[str, Scale] | None = None,
) -> passes.Pass:
    """The numbers that the dequantizations of ``store_weights`` yield, of the weights' type; activations of FP4 too.

    ``halves`` are the nodes that compute in 16 bits; for those the scales of INT4 are of 16 bits too.
    """

    def edit_graph(edit: Edit) -> None:
        _round_activations(edit, plan, scales or {})
        for value, nodes, stored in iter_stored_weights(edit.model, plan, precision, four_bit_weights or {}):
            half, weight = halves.get(nodes[0], Precision.FP32), stored
            kind = (edit.values[value].dtype or ir.DataType.FLOAT).numpy()
            if precision is Precision.INT4:
                scale = stored.scale.astype(half.stored.dtype if half.is_half else kind)
                weight = dataclasses.replace(stored, scale=scale)
            numbers = edit.add_constant(f"{nodes[0]}/weight/dequantized", weight.dequantize().astype(kind))
            for node in nodes:
                edit.set_input(node, 1, numbers)

    return passes.Pass(f"numbers of {precision.upper()} weights", edit_graph, passes.INSERTION_PROMISES)


def _round_activations(edit: Edit, plan: FourBitPlan, scales: Mapping[str, Scale]) -> None:
    """Let the nodes of a plan read its activations in NVFP4, dequantized."""
    for value, nodes in plan.activations.items():
        name, source = f"{nodes[0]}/input", edit.values[value]
        place: dict[str, Any] = {"origin": nodes[0], "before": nodes[0]}
        tensor_scale = edit.add_constant(f"{name}/scale", np.array(scales[value].scale, np.float32))
        blocks = {"axis": -1, "block_size": _FP4_BLOCK}
        stored = edit.insert(
            "TRT_FP4DynamicQuantize", f"{name}/DynamicQuantize", [source, tensor_scale], domain=DOMAIN,
            kind=ir.DataType.FLOAT4E2M1, attrs={**blocks, "scale_type": int(ir.DataType.FLOAT8E4M3FN)}, **place,
        )  # fmt: skip
        shape = None if source.shape is None else [*source.shape[:-1], _count_blocks(source.shape[-1])]
        relative = edit.add_output(
            stored, ir.DataType.FLOAT8E4M3FN, None if shape is None else ir.Shape(shape)
        )
        kind, title = ir.DataType.FLOAT, f"{name}/scale/DequantizeLinear"
        scale = edit.insert("DequantizeLinear", title, [relative, tensor_scale], kind=kind, **place)
        title = f"{name}/DequantizeLinear"
        numbers = edit.insert(
            "DequantizeLinear", title, [stored, scale], like=source, kind=kind, attrs=blocks, **place
        )
        if source.dtype not in {None, kind}:
            attrs = {"to": int(source.dtype)}
            numbers = edit.insert("Cast", f"{name}/Cast", [numbers], kind=source.dtype, attrs=attrs, **place)
        for node in nodes:
            edit.set_input(node, 0, numbers)


def _count_blocks(size: int | ir.SymbolicDim) -> int | None:
    return size // _FP4_BLOCK if isinstance(size, int) else None


def quantize_to_four_bits(
    weight: NDArray[np.float32], form: ScaleLayout, precision: Precision
) -> FourBitWeight:
    """Quantize a weight to four bits, to nearest with ties to even.

    INT4: ``q = round(w / s)`` in [-7, 7] with ``s = amax / 7``. FP4: ``quantize_blocks`` with the scale of the whole
    weight.
    """
    amax = _compute_amax(weight, form)
    if precision is Precision.FP4:
        return quantize_blocks(weight, form, compute_tensor_scale(float(amax.max())))
    tiny, largest = np.finfo(np.float32).tiny, np.float32(precision.stored.largest)
    scale = np.maximum(np.where(amax > 0, amax, np.float32(1)) / largest, tiny).astype(np.float32)
    steps = weight / form.broadcast(scale, weight.ndim)
    return FourBitWeight(form, precision.stored.quantize(steps), scale)


def quantize_blocks(
    numbers: NDArray[np.float32], form: ScaleLayout, tensor_scale: np.float32
) -> FourBitWeight:
    """Numbers in NVIDIA's NVFP4, to nearest with ties to even.

    ``q = E2M1(x / s)`` with ``s = E4M3(amax / 6g) g`` for each block, and ``g`` for the whole tensor.
    """
    relative = round_block_scale(
        _compute_amax(numbers, form) / (np.float32(Precision.FP4.stored.largest) * tensor_scale)
    )
    scale = form.broadcast(relative.astype(np.float32) * tensor_scale, numbers.ndim)
    return FourBitWeight(
        form, Precision.FP4.stored.quantize(numbers / scale), relative, np.asarray(tensor_scale)
    )


def round_block_scale(relative: NDArray[np.floating]) -> NDArray[Any]:
    """Scales of blocks in E4M3 as ModelOpt stores them: 1 for a block of zeros, and never 0."""
    return Precision.FP8.stored.quantize(
        np.maximum(np.where(relative == 0, 1, relative), SMALLEST_BLOCK_SCALE)
    )


def compute_tensor_scale(amax: float) -> np.float32:
    """The scale of a whole weight in FP4 that scales of its blocks, in FP8, are multiples of: ``amax / (6 x 448)``."""
    return max(np.float32(amax or 1.0) / np.float32(NVFP4_RANGE), np.finfo(np.float32).tiny)


def _compute_amax(weight: NDArray[np.float32], form: ScaleLayout) -> NDArray[np.float32]:
    """The largest magnitude of each block or channel, in the shape of the scales."""
    first = np.moveaxis(weight, form.axis, 0)
    if not form.block:
        return compute_amax(first.reshape(len(first), -1), axis=1)
    blocks = compute_amax(first.reshape(-1, form.block, *first.shape[1:]), axis=1)
    return np.moveaxis(blocks, 0, form.axis)


def choose_int4_block(size: int) -> int:
    """The largest divisor up to 128 that leaves at least two blocks, or all in one block where there is none.

    TensorRT-RTX fuses the dequantization into the product for two blocks and more; for one it writes all
    numbers out first.
    """
    divisors = (d for d in range(min(_INT4_BLOCK, size // 2), _LEAST_BLOCK - 1, -1) if size % d == 0)
    return next(divisors, size)


def read_weight(model: Model, value: str, node: str) -> NDArray[np.float32]:
    """A weight in FP32.

    Raises:
        ModelError: it holds NaN or infinity.
    """
    return require_finite(np.asarray(model.known[value].numpy(), dtype=np.float32), value, node)
