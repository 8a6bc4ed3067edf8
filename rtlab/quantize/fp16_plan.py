"""Deciding what is computed in FP16 and BF16: types of inputs and outputs of nodes, and what stays FP32, and why."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import onnx_ir as ir

from rtlab.core.external_data import derive_constant, is_lazy
from rtlab.core.node import ONNX_DOMAINS
from rtlab.core.phrases import list_first, pluralize
from rtlab.core.variant import Precision
from rtlab.quantize.placement import find_captured_values

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rtlab.core.model import Model
    from rtlab.core.node import Node

#: What masks become, as a share of the largest number: two of them and a score still have a sum.
_MASK_SHARE = 0.25
#: First opset in which the bounds of Clip and the filler of Pad are inputs, which are rounded like all inputs.
BOUNDS_ARE_INPUTS = 11
#: They read a value of any type, or read nothing.
ANY_TYPE = {"Shape", "Size", "Constant"}
#: They quantize by a scale, their second input, which has 16 bits where what they read or write has.
PAIR_OPS = {"QuantizeLinear", "DequantizeLinear"}
#: First opset in which scales of Q/DQ pairs may have 16 bits.
SCALES_OPSET = 19
#: Operators whose INT8 arithmetic a model already carries.
_QUANTIZED = PAIR_OPS | {"DynamicQuantizeLinear"}
#: Scales that 16 bits round by more than this share stay FP32: BF16 rounds by half of it.
_SCALE_ERROR = 2.0**-8
#: Operators with bounds and fillers, which are attributes before that opset.
BOUNDED = {"Clip", "Pad", "Where", "Max", "Min"}
#: What follows the mean of squares in a normalization.
_ROOTS = {"Add", "Sqrt", "Reciprocal"}
#: With a huge constant they mask, and a smaller one masks as well.
_MASKING = {"Add", "Sub", "Mul"}
#: Models are raised to no later opset: ONNX Runtime 1.31 and TensorRT-RTX 1.7 read this one.
_HIGHEST = 23
#: Their outputs are elements of their inputs, or zero: values that are rounded stay rounded.
EXACT = {
    "Identity", "Reshape", "Flatten", "Squeeze", "Unsqueeze", "Transpose", "Concat", "Split", "Slice", "Gather",
    "GatherElements", "GatherND", "Expand", "Tile", "DepthToSpace", "SpaceToDepth", "Where", "Pad", "Dropout",
    "Relu", "Clip", "Max", "Min", "MaxPool", "GlobalMaxPool", "ReduceMax", "ReduceMin", "TopK", "Abs", "Neg",
    "Compress", "ReverseSequence", "Trilu",
}  # fmt: skip


@dataclasses.dataclass(frozen=True)
class _HalfConstant:
    """One constant in one type; ``tensor`` keeps the key alive. The numbers of lazy ones are not kept."""

    tensor: ir.TensorProtocol
    values: NDArray[Any] | None
    overflows: bool
    underflow_count: int


class HalfConstants:
    """The constants of a model in types of 16 bits; ``check`` is called before each conversion, and may raise.

    Each is converted once, but for those that are lazy: they are looked at once, and converted as they are written.
    """

    def __init__(
        self, tensors: Mapping[str, ir.TensorProtocol], check: Callable[[], object] = lambda: None
    ) -> None:
        self.tensors, self._check = tensors, check
        self._cache: dict[tuple[int, Precision], _HalfConstant] = {}

    def overflows(self, tensor: ir.TensorProtocol, half: Precision) -> bool:
        """Whether a finite number of it is beyond the type."""
        return self._convert(tensor, half).overflows

    def holds_scales(self, tensor: ir.TensorProtocol, half: Precision) -> bool:
        """Whether the type rounds scales by a small share of each only."""
        scales = np.asarray(tensor.numpy())
        error = np.abs(narrow_values(scales, half).astype(np.float32) - scales)
        return bool((error <= _SCALE_ERROR * np.abs(scales)).all())

    def count_underflows(self, tensor: ir.TensorProtocol, half: Precision) -> int:
        """How many of its nonzero numbers become zero."""
        return self._convert(tensor, half).underflow_count

    def to_half(
        self, tensor: ir.TensorProtocol, half: Precision, *, as_mask: bool = False
    ) -> NDArray[Any] | ir.LazyTensor:
        """Its numbers in 16 bits; a finite one stays finite, and one that masks leaves room for a sum."""
        values = None if as_mask else self._convert(tensor, half).values
        narrow = functools.partial(narrow_mask if as_mask else narrow_values, half=half)
        return derive_constant(tensor, narrow, half.stored.dtype) if values is None else values

    def round(
        self, tensor: ir.TensorProtocol, half: Precision, *, as_mask: bool = False
    ) -> NDArray[Any] | ir.LazyTensor:
        """The numbers of ``to_half`` in FP32."""
        values = self.to_half(tensor, half, as_mask=as_mask)
        if isinstance(values, ir.LazyTensor):
            return derive_constant(values, _widen, np.float32)
        return _widen(values)

    def _convert(self, tensor: ir.TensorProtocol, half: Precision) -> _HalfConstant:
        key = (id(tensor), half)
        if key not in self._cache:
            self._check()
            values = np.asarray(tensor.numpy())
            half_values, overflows = _narrow(values, half)
            is_zero = half_values == 0
            underflow_count = int(np.count_nonzero(values[is_zero])) if is_zero.any() else 0
            kept_values = None if is_lazy(tensor) else half_values
            self._cache[key] = _HalfConstant(tensor, kept_values, overflows, underflow_count)
        return self._cache[key]


def _widen(values: NDArray[Any]) -> NDArray[np.float32]:
    return values.astype(np.float32)


def narrow_mask(values: NDArray[Any], half: Precision) -> NDArray[Any]:
    """Numbers that mask in 16 bits: a finite one leaves room for a sum."""
    limit = half.stored.largest * _MASK_SHARE
    return narrow_values(np.where(np.isfinite(values), values.clip(-limit, limit), values), half)


def narrow_values(values: NDArray[Any], half: Precision) -> NDArray[Any]:
    """Numbers in 16 bits, to nearest; a finite one beyond the type becomes its largest number of that sign."""
    return _narrow(values, half)[0]


def _narrow(values: NDArray[Any], half: Precision) -> tuple[NDArray[Any], bool]:
    """Numbers in 16 bits, and whether a finite one is beyond the type."""
    dtype, limit = half.stored.dtype, half.stored.largest
    with np.errstate(over="ignore"):
        half_values = values.astype(dtype)
    # Magnitudes are in the order of their bits, and integers are compared in a tenth of the time.
    magnitudes = half_values.view(np.uint16) & 0x7FFF
    if magnitudes.max(initial=0) < np.array(np.inf, dtype).view(np.uint16):
        return half_values, False
    overflows = np.isfinite(values) & np.isinf(half_values)
    limits = np.where(values < 0, -limit, limit).astype(dtype)
    return np.where(overflows, limits, half_values).astype(dtype), bool(overflows.any())


def get_onnx_type(precision: Precision) -> ir.DataType:
    """ONNX's type of a precision's numbers."""
    return ir.DataType.from_numpy(np.dtype(precision.stored.dtype))


def _get_type_text(precision: Precision) -> str:
    """The same as operators' schemas write it."""
    return f"tensor({np.dtype(precision.stored.dtype).name})"


@dataclasses.dataclass(frozen=True)
class HalfPlan:
    """What is computed in 16 bits.

    ``inputs`` are the node inputs read in a type, ``outputs`` the values written in one. ``skipped_nodes`` are the
    nodes that stay FP32, by reason; ``nodes`` those that do not.
    """

    inputs: Mapping[tuple[str, int], Precision]
    outputs: Mapping[str, Precision]
    skipped_nodes: Mapping[str, tuple[str, ...]]
    nodes: Mapping[str, Precision]


def describe_saturation(model: Model, plan: HalfPlan, constants: HalfConstants) -> tuple[str, ...]:
    """A sentence for each type in which constants become its largest number, with the nodes that read them."""
    tensors = constants.tensors
    fillers = find_overflowing_fills(model, plan, constants)
    saturated_values: dict[tuple[Precision, bool], dict[str, str]] = {}
    for (id_, i), precision in plan.inputs.items():
        node = model.by_id[id_]
        value = node.inputs[i]
        if value in fillers or (value in tensors and constants.overflows(tensors[value], precision)):
            saturated_values.setdefault((precision, is_masking(node)), {}).setdefault(value, id_)
    sentences = []
    for (precision, mask), values in saturated_values.items():
        nodes, is_single = list(dict.fromkeys(values.values())), len(values) == 1
        count = f"{len(values)} {'mask' if mask else 'constant'}{'' if is_single else 's'}"
        sentences.append(
            f"{count} beyond {precision.stored.largest_text} become{'s' * is_single} {'a quarter of ' * mask}the "
            f"largest number of {precision.upper()} ({list_first(nodes)})"
        )
    return tuple(sentences)


def describe_skipped_nodes(
    skipped_nodes: Mapping[str, Iterable[str]], where: str = "fp32"
) -> tuple[str, ...]:
    """A sentence for each reason for which nodes stay in another precision."""
    sentences = []
    for reason, ids in skipped_nodes.items():
        node_ids = list(ids)
        count = pluralize(len(node_ids), "node stays", "nodes stay")
        sentences.append(f"{count} {where}: {reason} ({list_first(node_ids)})")
    return tuple(sentences)


def find_half_opset(model: Model, types: Mapping[str, Precision]) -> int:
    """The lowest opset from the model's own on in which as many nodes as possible have a form of 16 bits.

    ONNX allowed BF16 an operator at a time, Conv only from opset 22 on. FP16 was there from the start, but for scales
    of Q/DQ pairs, which may have 16 bits from opset 19 on. ``types`` are FP16 or BF16 by node id.
    """
    opset = model.opset
    for node in model.top:
        floats = any(is_fp32(model, v) for v in (*node.inputs, *node.outputs))
        half = types.get(node.id, Precision.FP32)
        is_possible = half is Precision.BF16 or (half is Precision.FP16 and node.op in PAIR_OPS)
        is_skipped = node.op in ANY_TYPE | {"DynamicQuantizeLinear"} or node.domain not in ONNX_DOMAINS
        if not is_possible or not floats or is_skipped:
            continue
        text = _get_type_text(half)
        for version in range(model.opset, _HIGHEST + 1):
            schema = _get_schema(node.op, version)
            if schema is not None and any(text in c.allowed_type_strs for c in schema.type_constraints):
                opset = max(opset, version)
                break
    return opset


def plan(
    model: Model,
    types: Mapping[str, Precision],
    dequantizers: Collection[str] = frozenset(),
    *,
    constants: HalfConstants,
) -> HalfPlan:
    """Decide what some nodes read and write in 16 bits.

    Args:
        model: The model as it will be edited.
        types: FP16 or BF16 by node id; other nodes stay as they are.
        dequantizers: Ids of nodes that dequantize stored weights, whose readers may compute in 16 bits in any case.
        constants: The model's constants.
    """
    shapes = _find_shape_arithmetic(model, constants.tensors)
    ir_nodes = {n.name: n for n in model.ir.graph}
    inputs: dict[tuple[str, int], Precision] = {}
    outputs: dict[str, Precision] = {}
    nodes: dict[str, Precision] = {}
    skipped_nodes: dict[str, list[str]] = {}
    for node in model.top:
        precision = types.get(node.id, Precision.FP32)
        floats = [v for v in (*node.inputs, *node.outputs) if is_fp32(model, v)]
        if not precision.is_half or not floats or node.op in ANY_TYPE:
            continue
        reason = _explain_quantized(node, model, {*dequantizers, *nodes})
        if node.id in shapes:
            reason = reason or "shape arithmetic"
        reason = reason or _explain_fp32(node, ir_nodes[node.id], model, constants, precision)
        if reason is not None:
            skipped_nodes.setdefault(reason, []).append(node.id)
            continue
        reads, writes = _find_half_types(node, model, precision)
        nodes[node.id] = precision
        inputs.update(((node.id, i), precision) for i in reads)
        outputs.update((v, precision) for v in writes)
    return HalfPlan(inputs, outputs, {k: tuple(v) for k, v in skipped_nodes.items()}, nodes)


def _explain_quantized(node: Node, model: Model, dequantizers: Collection[str]) -> str | None:
    """Why a node stays as it is that reads what the source itself has quantized, and dequantizes to FP32."""
    makers = (model.producers.get(v) for v in node.inputs)
    reads_quantized = any(m is not None and m.op in _QUANTIZED and m.id not in dequantizers for m in makers)
    return "quantized already" if node.op == "DynamicQuantizeLinear" or reads_quantized else None


def _explain_fp32(
    node: Node, inner: ir.Node, model: Model, constants: HalfConstants, half: Precision
) -> str | None:
    """Why a node must stay FP32, or None."""
    if any(a.type in {ir.AttributeType.GRAPH, ir.AttributeType.GRAPHS} for a in inner.attributes.values()):
        return "control flow"
    if node.domain not in ONNX_DOMAINS or _get_schema(node.op, model.opset) is None:
        return "a custom operator or function"
    types = [v.type for v in (*inner.inputs, *inner.outputs) if v is not None and v.type is not None]
    if not all(isinstance(t, ir.TensorType) for t in types):
        return "sequences"
    for value in node.inputs:
        is_constant = is_fp32(model, value) and value in constants.tensors
        if is_constant and not _may_saturate(node, value, constants, half):
            return f"a constant beyond {half.stored.largest_text}"
    if node.op in PAIR_OPS and any(
        reader.op in PAIR_OPS and node.outputs[0] in reader.inputs[1:2]
        for reader in model.consumers.get(node.outputs[0], ())
    ):
        return "it dequantizes scales"
    if node.op in PAIR_OPS and is_fp32(model, node.inputs[1]):
        tensor = constants.tensors.get(node.inputs[1])
        if tensor is None or not constants.holds_scales(tensor, half):
            return "its scale is no constant" if tensor is None else f"a scale too small for {half.upper()}"
    reads, writes = _find_half_types(node, model, half)
    if reads or writes:
        return None
    return f"no {half.upper()} form in ONNX" + (f" opset {model.opset}" if half is Precision.BF16 else "")


def _find_half_types(node: Node, model: Model, half: Precision) -> tuple[list[int], list[str]]:
    """Positions of inputs that become 16 bits, and outputs that then are, by the operator's type constraints."""
    schema = _get_schema(node.op, model.opset)
    if schema is None:
        return [], []
    allowed = {c.type_param_str: set(c.allowed_type_strs) for c in schema.type_constraints}
    reads: list[int] = []
    bound, halves = set[str](), set[str]()
    for i, value in enumerate(node.inputs):
        symbol = schema.inputs[min(i, len(schema.inputs) - 1)].type_str
        bound |= {symbol} if value else set()
        if is_fp32(model, value) and _get_type_text(half) in allowed.get(symbol, ()):
            reads.append(i)
            halves.add(symbol)
    writes: list[str] = []
    for i, value in enumerate(node.outputs):
        symbol = schema.outputs[min(i, len(schema.outputs) - 1)].type_str
        is_free = symbol not in bound and len(allowed.get(symbol, ())) > 1
        follows_scale = node.op == "DequantizeLinear" and "output_dtype" not in node.attributes
        if node.op not in {"Cast", "QuantizeLinear"} and value and is_free and not follows_scale:
            # An attribute or a default decides this type.
            return [], []
        casts = node.op == "Cast" or (follows_scale and 1 in reads)
        casts = casts and _get_type_text(half) in allowed.get(symbol, ())
        if is_fp32(model, value) and (symbol in halves or casts):
            writes.append(value)
    return reads, writes


def count_constant_underflows(model: Model, plan: HalfPlan, constants: HalfConstants) -> tuple[int, int]:
    """How many elements of the constants read in 16 bits become zero without being it, and of how many."""
    tensors = constants.tensors
    edges = {(n.id, i): v for n in model.top for i, v in enumerate(n.inputs) if v in tensors}
    read_constants = {(edges[e], precision) for e, precision in plan.inputs.items() if e in edges}
    underflow_count = sum(
        constants.count_underflows(tensors[value], precision) for value, precision in read_constants
    )
    return underflow_count, sum(tensors[value].size for value, _ in read_constants)


def is_masking(node: Node) -> bool:
    """Whether a constant beyond 16 bits that a node reads masks, and is no bound."""
    return node.op in _MASKING or node.op == "Where"


def is_mask(node: Node, tensor: ir.TensorProtocol, constants: HalfConstants, half: Precision) -> bool:
    """Whether a node masks with a constant that is beyond a type."""
    return is_masking(node) and constants.overflows(tensor, half)


def _may_saturate(node: Node, value: str, constants: HalfConstants, half: Precision) -> bool:
    """Whether a constant fits a type, or the nearest number that fits does as well."""
    tensor = constants.tensors[value]
    if not constants.overflows(tensor, half) or node.op in BOUNDED | EXACT:
        return True
    # A mask moves values far below zero; any other number so large is computed with.
    values = np.asarray(tensor.numpy())
    is_subtrahend = node.op == "Sub" and node.inputs[1] == value
    return node.op in _MASKING and not np.any((-values if is_subtrahend else values) > half.stored.largest)


def find_overflowing_fills(model: Model, plan: HalfPlan, constants: HalfConstants) -> dict[str, Precision]:
    """Outputs of ConstantOfShape beyond the type of 16 bits in which each of their readers takes them."""
    ir_nodes = [n for n in model.ir.graph if n.op_type == "ConstantOfShape"]
    outside = find_captured_values(model) | set(model.outputs) if ir_nodes else set()
    precisions: dict[str, Precision] = {}
    for inner in ir_nodes:
        fill, output = inner.attributes.get("value"), inner.outputs[0].name or ""
        if fill is None or output in outside or not is_fp32(model, output):
            continue
        readers = model.consumers.get(output, ())
        edges = [(n.id, i) for n in readers for i, v in enumerate(n.inputs) if v == output]
        read_precisions = {plan.inputs.get(edge, Precision.FP32) for edge in edges}
        precision = read_precisions.pop() if len(read_precisions) == 1 else Precision.FP32
        if precision.is_half and constants.overflows(fill.as_tensor(), precision):
            precisions[output] = precision
    return precisions


def _get_schema(op: str, opset: int) -> Any:
    try:
        return onnx.defs.get_schema(op, opset, "")
    except onnx.defs.SchemaError:
        return None


def is_fp32(model: Model, value: str) -> bool:
    """Whether a model has an FP32 value of this name."""
    return bool(value) and value in model.values and model.values[value].dtype == "fp32"


def find_variances(model: Model) -> tuple[str, ...]:
    """Ids of the nodes that square and average for a normalization, up to its root: FP16 holds no square of 256."""
    squares = {
        n.outputs[0]: n.id
        for n in model.top
        if (n.op == "Mul" and n.inputs[0] == n.inputs[1]) or (n.op == "Pow" and _is_two(model, n.inputs[1]))
    }
    nodes: dict[str, None] = {}
    for node in model.top:
        if node.op != "ReduceMean" or node.inputs[0] not in squares:
            continue
        nodes |= dict.fromkeys((squares[node.inputs[0]], node.id))
        behind = model.consumers.get(node.outputs[0], ())
        while len(behind) == 1 and behind[0].op in _ROOTS:
            nodes[behind[0].id] = None
            behind = model.consumers.get(behind[0].outputs[0], ())
    return tuple(nodes)


def _is_two(model: Model, value: str) -> bool:
    tensor = model.known.get(value)
    return tensor is not None and tensor.size == 1 and float(tensor.numpy().reshape(())) == 2.0


def _find_shape_arithmetic(model: Model, tensors: Mapping[str, ir.TensorProtocol]) -> set[str]:
    """Ids of nodes that compute from shapes only, where FP16 would lose whole numbers beyond 2,048."""
    shape_values, shape_nodes = set[str](), set[str]()
    for node in model.top:
        inputs = [v for v in node.inputs if v and v not in tensors]
        if node.op in {"Shape", "Size"} or (inputs and all(v in shape_values for v in inputs)):
            shape_values.update(node.outputs)
            shape_nodes.add(node.id)
    return shape_nodes
