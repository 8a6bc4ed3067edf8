"""Deciding what is computed in FP16 and BF16: types of inputs and outputs of nodes, and what stays FP32, and why."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import onnx_ir as ir

from rtlab.core.node import ONNX_DOMAINS
from rtlab.core.phrases import list_first, pluralize
from rtlab.core.variant import Precision
from rtlab.quantize.narrow import HalfConstants, get_type_text, is_out_of_range
from rtlab.quantize.placement import find_captured_values

if TYPE_CHECKING:
    from rtlab.core.model import Model
    from rtlab.core.node import Node

#: First opset in which the bounds of Clip and the filler of Pad are inputs, which are rounded like all inputs.
BOUNDS_ARE_INPUTS = 11
#: The attributes that hold them before.
_BOUND_ATTRIBUTES = {"Clip": ("min", "max"), "Pad": ("value",)}
#: They read a value as it comes, or read nothing.
ANY_TYPE = {"Shape", "Size", "Constant"}
#: Operators whose INT8 arithmetic a model already carries.
_QUANTIZED = {"QuantizeLinear", "DequantizeLinear", "DynamicQuantizeLinear"}
#: Their bounds and fillers are attributes before that opset.
BOUNDED = {"Clip", "Pad", "Where", "Max", "Min"}
#: With a huge constant they hide what a mask leaves out, and a smaller one hides it as well.
_MASKING = {"Add", "Sub", "Mul"}
#: They hand on the numbers that they read, each as it is.
_PASS_THROUGH = {
    "Identity", "Reshape", "Flatten", "Squeeze", "Unsqueeze", "Transpose", "Concat", "Split", "Slice", "Gather",
    "Expand", "Tile", "Cast",
}  # fmt: skip
#: Models are raised to no later opset: ONNX Runtime 1.31 and TensorRT-RTX 1.7 were both seen to read this one.
_HIGHEST = 23
#: Their outputs are elements of their inputs, or zero: values that are rounded stay rounded.
EXACT = {
    "Identity", "Reshape", "Flatten", "Squeeze", "Unsqueeze", "Transpose", "Concat", "Split", "Slice", "Gather",
    "GatherElements", "GatherND", "Expand", "Tile", "DepthToSpace", "SpaceToDepth", "Where", "Pad", "Dropout",
    "Relu", "Clip", "Max", "Min", "MaxPool", "GlobalMaxPool", "ReduceMax", "ReduceMin", "TopK", "Abs", "Neg",
    "Compress", "ReverseSequence", "Trilu",
}  # fmt: skip


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
    for id_, name, _ in iter_overflowing_attributes(model, plan):
        saturated_values.setdefault((plan.nodes[id_], False), {})[f"{name} of {id_}"] = id_
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


def find_bf16_opset(model: Model, nodes: Collection[str]) -> int:
    """The lowest opset from the model's own on in which as many of the nodes as possible have a BF16 form.

    ONNX allowed BF16 an operator at a time, Conv only from opset 22 on. FP16 was there from the start.
    """
    opset = model.opset
    for node in model.top:
        floats = any(is_fp32(model, v) for v in (*node.inputs, *node.outputs))
        if (
            node.id not in nodes
            or not floats
            or node.op in ANY_TYPE | _QUANTIZED
            or node.domain not in ONNX_DOMAINS
        ):
            continue
        versions = range(model.opset, _HIGHEST + 1)
        text = get_type_text(Precision.BF16)
        opset = max(opset, next((v for v in versions if _allows_type(node.op, v, text)), 0))
    return opset


def plan(
    model: Model,
    types: Mapping[str, Precision],
    dequantizers: Collection[str] = frozenset(),
    *,
    constants: HalfConstants | None = None,
) -> HalfPlan:
    """Decide what the given nodes read and write in 16 bits.

    Args:
        model: The model as it will be edited.
        types: FP16 or BF16 by node id; other nodes and precisions are left alone.
        dequantizers: Ids of nodes that turn stored weights into numbers, which may do so in 16 bits.
        constants: The model's constants, where other passes ask for them too.
    """
    constants = constants or HalfConstants(model.known)
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
        reason = None if node.id in dequantizers else _explain_quantized(node, model, dequantizers)
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
    """Why a node that the source itself has quantized stays as it is."""
    makers = (model.producers.get(v) for v in node.inputs)
    reads_quantized = any(m is not None and m.op in _QUANTIZED and m.id not in dequantizers for m in makers)
    return "quantized already" if node.op in _QUANTIZED or reads_quantized else None


def _explain_fp32(
    node: Node, inner: ir.Node, model: Model, constants: HalfConstants, half: Precision
) -> str | None:
    """Why a node must stay FP32, or None."""
    if any(a.type in {ir.AttributeType.GRAPH, ir.AttributeType.GRAPHS} for a in inner.attributes.values()):
        return "control flow"
    if node.domain not in ONNX_DOMAINS or _get_schema(node, model) is None:
        return "a custom operator or function"
    if not all(_is_tensor(v) for v in (*inner.inputs, *inner.outputs) if v is not None):
        return "sequences"
    for value in node.inputs:
        constant = is_fp32(model, value) and value in constants.tensors
        if constant and not _may_saturate(node, value, model, constants, half):
            return f"a constant beyond {half.stored.largest_text}"
    reads, writes = _find_half_types(node, model, half)
    if reads or writes:
        return None
    return f"no {half.upper()} form in ONNX" + (f" opset {model.opset}" if half is Precision.BF16 else "")


def _find_half_types(node: Node, model: Model, half: Precision) -> tuple[list[int], list[str]]:
    """Positions of inputs that become 16 bits, and outputs that then are, by the operator's type constraints."""
    schema = _get_schema(node, model)
    if schema is None:
        return [], []
    allowed = {c.type_param_str: set(c.allowed_type_strs) for c in schema.type_constraints}
    reads: list[int] = []
    bound, halves = set[str](), set[str]()
    for i, value in enumerate(node.inputs):
        symbol = schema.inputs[min(i, len(schema.inputs) - 1)].type_str
        bound |= {symbol} if value else set()
        if is_fp32(model, value) and get_type_text(half) in allowed.get(symbol, ()):
            reads.append(i)
            halves.add(symbol)
    writes: list[str] = []
    for i, value in enumerate(node.outputs):
        symbol = schema.outputs[min(i, len(schema.outputs) - 1)].type_str
        if node.op != "Cast" and value and symbol not in bound and len(allowed.get(symbol, ())) > 1:
            # No input decides this type but an attribute or a default, which might follow the inputs.
            return [], []
        casts = node.op == "Cast" and get_type_text(half) in allowed.get(symbol, ())
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
    """Whether a constant beyond a type of 16 bits that a node reads in it is there to hide, and not as a bound."""
    return node.op in _MASKING or node.op == "Where"


def is_mask(node: Node, tensor: ir.TensorProtocol, constants: HalfConstants, half: Precision) -> bool:
    """Whether a node hides with a constant that is beyond a type."""
    return is_masking(node) and constants.overflows(tensor, half)


def _may_saturate(node: Node, value: str, model: Model, constants: HalfConstants, half: Precision) -> bool:
    """Whether a constant fits a type, or a number that does serves as well as what is beyond it."""
    tensor = constants.tensors[value]
    if not constants.overflows(tensor, half) or node.op in BOUNDED | EXACT:
        return True
    if node.op not in _MASKING:
        return False
    # What a mask hides, it takes far below zero; any other number so large is there to be computed with.
    values = np.asarray(tensor.numpy())
    above, below = bool(np.any(values > half.stored.largest)), bool(np.any(values < -half.stored.largest))
    if node.op == "Mul" and above and not below:
        other = next((v for v in node.inputs if v != value), "")
        return _is_only_subtracted(node, model) or (
            _is_mask_minus_one(other, model, constants.tensors) and _is_only_added(node, model)
        )
    is_subtrahend = node.op == "Sub" and node.inputs[1] == value
    return not (below if is_subtrahend else above)


def _is_mask_minus_one(value: str, model: Model, tensors: Mapping[str, ir.TensorProtocol]) -> bool:
    """Whether a value is a mask less one."""
    maker = model.producers.get(value)
    while maker is not None and maker.op in _PASS_THROUGH:
        maker = model.producers.get(maker.inputs[0])
    one = tensors.get(maker.inputs[1]) if maker is not None and maker.op == "Sub" else None
    return one is not None and bool(np.all(np.asarray(one.numpy()) == 1))


def _is_only_subtracted(node: Node, model: Model) -> bool:
    """Whether all that becomes of a node's output is to be taken away from something."""
    return _is_only_read_by(node, model, {("Sub", 1)}, {("Add", 0), ("Add", 1), ("Sub", 0)})


def _is_only_added(node: Node, model: Model) -> bool:
    """Whether all that becomes of a node's output is to be added to something."""
    return _is_only_read_by(node, model, {("Add", 0), ("Add", 1), ("Sub", 0)}, {("Sub", 1)})


def _is_only_read_by(
    node: Node, model: Model, readers: Collection[tuple[str, int]], negated: Collection[tuple[str, int]]
) -> bool:
    """Whether a node's output is read so alone, as it is or moved, or so behind a change of its sign."""
    todo, outside = [(node.outputs[0], readers, negated)], set(model.outputs) | find_captured_values(model)
    while todo:
        value, expected_reads, otherwise = todo.pop()
        consumers = model.consumers.get(value, ())
        if value in outside or not consumers:
            return False
        for reader in consumers:
            if reader.op in _PASS_THROUGH:
                todo.extend((v, expected_reads, otherwise) for v in reader.outputs)
            elif reader.op == "Neg":
                todo.append((reader.outputs[0], otherwise, expected_reads))
            elif any(
                v == value and (reader.op, i) not in expected_reads for i, v in enumerate(reader.inputs)
            ):
                return False
    return True


def iter_overflowing_attributes(model: Model, plan: HalfPlan) -> Iterator[tuple[str, str, float]]:
    """Bounds and fillers in attributes of nodes of 16 bits that are beyond these: node id, name and number."""
    if model.opset >= BOUNDS_ARE_INPUTS:
        return
    for id_, precision in plan.nodes.items():
        node = model.by_id[id_]
        for name in _BOUND_ATTRIBUTES.get(node.op, ()):
            number = node.attributes.get(name)
            if isinstance(number, float) and is_out_of_range(number, precision):
                yield id_, name, number


def find_overflowing_fills(model: Model, plan: HalfPlan, constants: HalfConstants) -> dict[str, Precision]:
    """Outputs of ConstantOfShape beyond the type of 16 bits in which each of their readers takes them."""
    ir_nodes = [n for n in model.ir.graph if n.op_type == "ConstantOfShape"]
    outside = find_captured_values(model) | set(model.outputs) if ir_nodes else set()
    precisions: dict[str, Precision] = {}
    for inner in ir_nodes:
        fill_attribute = inner.attributes.get("value")
        output = inner.outputs[0].name or ""
        if fill_attribute is None or output in outside or not is_fp32(model, output):
            continue
        edges = [
            (n.id, i) for n in model.consumers.get(output, ()) for i, v in enumerate(n.inputs) if v == output
        ]
        read_precisions = {plan.inputs.get(edge, Precision.FP32) for edge in edges}
        precision = read_precisions.pop() if len(read_precisions) == 1 else Precision.FP32
        if precision.is_half and constants.overflows(fill_attribute.as_tensor(), precision):
            precisions[output] = precision
    return precisions


def _get_schema(node: Node, model: Model) -> Any:
    try:
        return onnx.defs.get_schema(node.op, model.opset, "")
    except onnx.defs.SchemaError:
        return None


def _allows_type(op: str, opset: int, text: str) -> bool:
    """Whether some input or output of an operator may have a type."""
    if not onnx.defs.has(op, domain="", max_inclusive_version=opset):
        return False
    schema = onnx.defs.get_schema(op, opset, "")
    return any(text in c.allowed_type_strs for c in schema.type_constraints)


def is_fp32(model: Model, value: str) -> bool:
    """Whether a model has an FP32 value of this name."""
    return bool(value) and value in model.values and model.values[value].dtype == "fp32"


def _is_tensor(value: ir.Value) -> bool:
    return value.type is None or isinstance(value.type, ir.TensorType)


def _find_shape_arithmetic(model: Model, tensors: Mapping[str, ir.TensorProtocol]) -> set[str]:
    """Ids of nodes that compute from shapes only, where FP16 would lose whole numbers beyond 2,048."""
    shape_values, shape_nodes = set[str](), set[str]()
    for node in model.top:
        inputs = [v for v in node.inputs if v and v not in tensors]
        if node.op in {"Shape", "Size"} or (inputs and all(v in shape_values for v in inputs)):
            shape_values.update(node.outputs)
            shape_nodes.add(node.id)
    return shape_nodes
