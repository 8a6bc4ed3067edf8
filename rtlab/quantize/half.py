"""Expressing FP16 and BF16 in the graph: a typed model for compilers, and one that rounds at the same places in FP32.

ONNX Runtime's CPU kernels compute an FP16 model in FP32 and remove the casts that it inserted for that, so
such a model neither rounds nor overflows there; BF16 it lacks mostly. Pairs of explicit casts, FP32 to FP16 and
back, survive and round as they should; accumulation inside an operator stays FP32 in both.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import onnx_ir as ir

from rtlab.core.variant import Precision
from rtlab.quantize import passes
from rtlab.quantize.narrow import HALVES, HalfType, Narrowing, beyond, narrowed
from rtlab.quantize.placement import captured

if TYPE_CHECKING:
    from rtlab.core.model import Model
    from rtlab.core.node import Node
    from rtlab.quantize.edit import Edit

_FLOAT = int(onnx.TensorProto.FLOAT)
_DEFAULT = {"", "ai.onnx"}
#: First opset in which the bounds of Clip and the filler of Pad are inputs, which are rounded like all inputs.
_BOUNDS_ARE_INPUTS = 11
#: The attributes that hold them before.
_HELD = {"Clip": ("min", "max"), "Pad": ("value",)}
#: They read a value as it comes, or read nothing.
_ANY_TYPE = {"Shape", "Size", "Constant"}
#: Operators whose INT8 arithmetic a model already carries.
_QUANTIZED = {"QuantizeLinear", "DequantizeLinear", "DynamicQuantizeLinear"}
#: Their bounds and fillers are attributes before that opset.
_BOUNDED = {"Clip", "Pad", "Where", "Max", "Min"}
#: With a huge constant they hide what a mask leaves out, and a smaller one hides it as well.
_MASKING = {"Add", "Sub", "Mul"}
#: They hand on the numbers that they read, each as it is.
_HANDING = {
    "Identity", "Reshape", "Flatten", "Squeeze", "Unsqueeze", "Transpose", "Concat", "Split", "Slice", "Gather",
    "Expand", "Tile", "Cast",
}  # fmt: skip
#: Models are raised to no later opset: ONNX Runtime 1.31 and TensorRT-RTX 1.7 were both seen to read this one.
_HIGHEST = 23
#: Their outputs are elements of their inputs, or zero: values that are rounded stay rounded.
_EXACT = {
    "Identity", "Reshape", "Flatten", "Squeeze", "Unsqueeze", "Transpose", "Concat", "Split", "Slice", "Gather",
    "GatherElements", "GatherND", "Expand", "Tile", "DepthToSpace", "SpaceToDepth", "Where", "Pad", "Dropout",
    "Relu", "Clip", "Max", "Min", "MaxPool", "GlobalMaxPool", "ReduceMax", "ReduceMin", "TopK", "Abs", "Neg",
    "Compress", "ReverseSequence", "Trilu",
}  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Halves:
    """Both forms of a model in FP16 or BF16, and what stays FP32 in them, as sentences for people."""

    typed: Model
    emulation: Model
    notes: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class HalfPlan:
    """What is computed in 16 bits.

    ``inputs`` are the node inputs read in a type, ``outputs`` the values written in one. ``kept`` are the nodes
    that stay FP32, by reason; ``nodes`` those that do not.
    """

    inputs: Mapping[tuple[str, int], Precision]
    outputs: Mapping[str, Precision]
    kept: Mapping[str, tuple[str, ...]]
    nodes: Mapping[str, Precision]


def fp16(model: Model) -> Halves:
    """The whole model in FP16, twice.

    ``typed`` holds FP16 weights and activations between FP32 inputs and outputs, as a strongly typed compiler
    takes it. ``emulation`` computes in FP32 and rounds weights, and inputs and outputs of operators, where
    ``typed`` does, so every value of the source is there under its own name, rounded and overflowed as FP16
    would.

    FP32 stay: shape arithmetic, operators without an FP16 form, bodies and functions, quantized operators,
    and operators that compute with a constant beyond 65,504. Where such a constant is a bound or a filler, it becomes
    the largest number of its sign: infinity times zero is no number. Where it hides what a mask leaves out (selected by
    Where, added, or times a mask and added or taken away), it becomes a quarter of that, for the softmax of a row of
    infinities is no number either, and the largest number less 16 is infinity already.
    """
    seen = Narrowing(model.known)
    decided = plan(model, {n.id: Precision.FP16 for n in model.top}, seen=seen)
    notes = (*saturates(model, decided, seen), *stays(decided.kept))
    typed, emulated = (passes.run(model, [p(decided, seen)]) for p in (Narrow, Round))
    return Halves(typed, emulated, notes)


def saturates(model: Model, plan: HalfPlan, seen: Narrowing) -> tuple[str, ...]:
    """A sentence for each type in which constants become its largest number, with the nodes that read them."""
    known = seen.known
    filled = _filled(model, plan, seen)
    found: dict[tuple[Precision, bool], dict[str, str]] = {}
    for (id_, i), precision in plan.inputs.items():
        node = model.by_id[id_]
        value = node.inputs[i]
        if value in filled or (value in known and seen.overflows(known[value], HALVES[precision])):
            found.setdefault((precision, _hides(node)), {}).setdefault(value, id_)
    for id_, name, _ in _held(model, plan):
        found.setdefault((plan.nodes[id_], False), {})[f"{name} of {id_}"] = id_
    sentences = []
    for (precision, hides), values in found.items():
        half, nodes, one = HALVES[precision], list(dict.fromkeys(values.values())), len(values) == 1
        count = f"{len(values)} {'mask' if hides else 'constant'}{'' if one else 's'}"
        more = ", ..." if len(nodes) > 3 else ""
        sentences.append(
            f"{count} beyond {half.largest} become{'s' * one} {'a quarter of ' * hides}the largest number of "
            f"{half.title} ({', '.join(nodes[:3])}{more})"
        )
    return tuple(sentences)


def stays(kept: Mapping[str, Iterable[str]], where: str = "fp32") -> tuple[str, ...]:
    """A sentence for each reason for which nodes stay in another precision."""
    sentences = []
    for why, ids in kept.items():
        listed = list(ids)
        count = "1 node stays" if len(listed) == 1 else f"{len(listed)} nodes stay"
        more = ", ..." if len(listed) > 3 else ""
        sentences.append(f"{count} {where}: {why} ({', '.join(listed[:3])}{more})")
    return tuple(sentences)


def opset_for(model: Model, nodes: Collection[str]) -> int:
    """The lowest opset from the model's own on in which as many of the nodes as possible have a BF16 form.

    ONNX allowed BF16 an operator at a time, Conv only from opset 22 on. FP16 was there from the start.
    """
    wanted = model.opset
    for node in model.top:
        floats = any(_is_fp32(model, v) for v in (*node.inputs, *node.outputs))
        if (
            node.id not in nodes
            or not floats
            or node.op in _ANY_TYPE | _QUANTIZED
            or node.domain not in _DEFAULT
        ):
            continue
        versions = range(model.opset, _HIGHEST + 1)
        text = HALVES[Precision.BF16].text
        wanted = max(wanted, next((v for v in versions if _allows(node.op, v, text)), 0))
    return wanted


def plan(
    model: Model,
    types: Mapping[str, Precision],
    dequantizers: Collection[str] = frozenset(),
    *,
    seen: Narrowing | None = None,
) -> HalfPlan:
    """Decide what the given nodes read and write in 16 bits.

    Args:
        model: The model as it will be edited.
        types: FP16 or BF16 by node id; other nodes and precisions are left alone.
        dequantizers: Ids of nodes that turn stored weights into numbers, which may do so in 16 bits.
        seen: The model's constants, where other passes ask for them too.
    """
    seen = seen or Narrowing(model.known)
    shapes = _shape_arithmetic(model, seen.known)
    ir_nodes = {n.name: n for n in model.ir.graph}
    inputs: dict[tuple[str, int], Precision] = {}
    outputs: dict[str, Precision] = {}
    nodes: dict[str, Precision] = {}
    kept: dict[str, list[str]] = {}
    for node in model.top:
        precision = types.get(node.id, Precision.FP32)
        half = HALVES.get(precision)
        floats = [v for v in (*node.inputs, *node.outputs) if _is_fp32(model, v)]
        if half is None or not floats or node.op in _ANY_TYPE:
            continue
        reason = None if node.id in dequantizers else _quantized(node, model, dequantizers)
        if node.id in shapes:
            reason = reason or "shape arithmetic"
        reason = reason or _reason(node, ir_nodes[node.id], model, seen, half)
        if reason is not None:
            kept.setdefault(reason, []).append(node.id)
            continue
        reads, writes = _types(node, model, half)
        nodes[node.id] = precision
        inputs.update(((node.id, i), precision) for i in reads)
        outputs.update((v, precision) for v in writes)
    return HalfPlan(inputs, outputs, {k: tuple(v) for k, v in kept.items()}, nodes)


def _quantized(node: Node, model: Model, dequantizers: Collection[str]) -> str | None:
    """Why a node that the source itself has quantized stays as it is."""
    makers = (model.producers.get(v) for v in node.inputs)
    quantized = any(m is not None and m.op in _QUANTIZED and m.id not in dequantizers for m in makers)
    return "quantized already" if node.op in _QUANTIZED or quantized else None


def _reason(node: Node, inner: ir.Node, model: Model, seen: Narrowing, half: HalfType) -> str | None:
    """Why a node must stay FP32, or None."""
    if any(a.type in {ir.AttributeType.GRAPH, ir.AttributeType.GRAPHS} for a in inner.attributes.values()):
        return "control flow"
    if node.domain not in _DEFAULT or _schema(node, model) is None:
        return "a custom operator or function"
    if not all(_is_tensor(v) for v in (*inner.inputs, *inner.outputs) if v is not None):
        return "sequences"
    for value in node.inputs:
        constant = _is_fp32(model, value) and value in seen.known
        if constant and not _may_saturate(node, value, model, seen, half):
            return f"a constant beyond {half.largest}"
    reads, writes = _types(node, model, half)
    if reads or writes:
        return None
    return f"no {half.title} form in ONNX" + (f" opset {model.opset}" if half.title == "BF16" else "")


def _types(node: Node, model: Model, half: HalfType) -> tuple[list[int], list[str]]:
    """Positions of inputs that become 16 bits, and outputs that then are, by the operator's type constraints."""
    schema = _schema(node, model)
    if schema is None:
        return [], []
    allowed = {c.type_param_str: set(c.allowed_type_strs) for c in schema.type_constraints}
    reads: list[int] = []
    bound, halves = set[str](), set[str]()
    for i, value in enumerate(node.inputs):
        symbol = schema.inputs[min(i, len(schema.inputs) - 1)].type_str
        bound |= {symbol} if value else set()
        if _is_fp32(model, value) and half.text in allowed.get(symbol, ()):
            reads.append(i)
            halves.add(symbol)
    writes: list[str] = []
    for i, value in enumerate(node.outputs):
        symbol = schema.outputs[min(i, len(schema.outputs) - 1)].type_str
        if node.op != "Cast" and value and symbol not in bound and len(allowed.get(symbol, ())) > 1:
            # No input decides this type but an attribute or a default, which might follow the inputs.
            return [], []
        casts = node.op == "Cast" and half.text in allowed.get(symbol, ())
        if _is_fp32(model, value) and (symbol in halves or casts):
            writes.append(value)
    return reads, writes


def underflow(model: Model, plan: HalfPlan, seen: Narrowing) -> tuple[int, int]:
    """How many elements of the constants read in 16 bits become zero without being it, and of how many."""
    known = seen.known
    edges = {(n.id, i): v for n in model.top for i, v in enumerate(n.inputs) if v in known}
    read = {(edges[e], precision) for e, precision in plan.inputs.items() if e in edges}
    lost = sum(seen.lost(known[value], HALVES[precision]) for value, precision in read)
    return lost, sum(known[value].size for value, _ in read)


@dataclasses.dataclass(frozen=True)
class Narrow:
    """Values of 16 bits and the casts between types; each value has one home, and a cast to the other where it is read.

    ``plan`` was made for the graph that it is applied to, and ``seen`` of its constants.
    """

    plan: HalfPlan
    seen: Narrowing
    notes: tuple[str, ...] = ()
    name = "16-bit types"
    needs = ()
    promises = passes.UNSENT

    @property
    def changes(self) -> str:
        """What becomes of the numbers."""
        return _rounded_to(self.plan)

    def __call__(self, edit: Edit) -> None:
        """Do it."""
        _Typed(edit, self.plan, self.seen)


class _Typed:
    """Writes the typed model."""

    def __init__(self, edit: Edit, plan: HalfPlan, seen: Narrowing) -> None:
        model = edit.model
        self._plan, self._edit, self._seen = plan, edit, seen
        # Whoever reads these by name, outside or in a body, reads FP32.
        self._outside = captured(model) | set(model.outputs)
        #: Where a value is found in another type than FP32, or in FP32 when that is not its home.
        self._forms: dict[tuple[str, Precision], ir.Value] = {}
        #: The same of constants; what hides is another number than what is computed with.
        self._held: dict[tuple[str, Precision, bool], ir.Value] = {}
        _saturate_attributes(edit, model, plan, seen)
        for node in model.top:
            for i, value in enumerate(node.inputs):
                if _is_fp32(model, value) and node.op not in _ANY_TYPE:
                    self._read(node, i, value)
            for i, value in enumerate(node.outputs):
                if value in plan.outputs:
                    self._write(node, i, value)

    def _read(self, node: Node, i: int, value: str) -> None:
        edit, name = self._edit, f"{node.id}/input{i or ''}"
        home = self._plan.outputs.get(value, Precision.FP32)
        wanted = self._plan.inputs.get((node.id, i), Precision.FP32)
        if wanted is home and value not in self._outside:
            return
        if wanted is Precision.FP32 and (home is Precision.FP32 or value in self._outside):
            return
        tensor = self._seen.known.get(value)
        if tensor is not None and wanted in HALVES:
            hides = _is_mask(node, tensor, self._seen, HALVES[wanted])
            if (value, wanted, hides) not in self._held:
                constant = self._seen.half(tensor, HALVES[wanted], hides=hides)
                self._held[value, wanted, hides] = edit.constant(f"{name}/{wanted}", constant)
            edit.feed(node.id, i, self._held[value, wanted, hides])
            return
        form = (value, wanted)
        if form not in self._forms:
            held = self._forms.get((value, home), edit.values[value])
            number = HALVES[wanted].number if wanted in HALVES else _FLOAT
            self._forms[form] = _cast(edit, held, number, name, edit.origin(node.id), before=node.id)
        edit.feed(node.id, i, self._forms[form])

    def _write(self, node: Node, i: int, value: str) -> None:
        edit, precision = self._edit, self._plan.outputs[value]
        half = HALVES[precision]
        if node.op == "Cast":
            edit.set_attribute(node.id, "to", half.number)
        if value not in self._outside:
            edit.retype(value, ir.DataType(half.number))
            return
        name = f"{node.id}/output{i or ''}"
        inner, outer = edit.split(value, f"{name}/{precision}")
        edit.retype(inner.name or "", ir.DataType(half.number))
        self._forms[value, precision] = inner
        _cast(edit, inner, _FLOAT, name, edit.origin(node.id), after=node.id, output=outer)


@dataclasses.dataclass(frozen=True)
class Round:
    """Values of FP32 that are rounded where ``Narrow`` holds 16 bits, by a cast there and back; the fields as there."""

    plan: HalfPlan
    seen: Narrowing
    notes: tuple[str, ...] = ()
    name = "rounding to 16 bits"
    needs = ()
    promises = passes.UNSENT

    @property
    def changes(self) -> str:
        """What becomes of the numbers."""
        return _rounded_to(self.plan)

    def __call__(self, edit: Edit) -> None:
        """Do it."""
        model, plan, seen, known = edit.model, self.plan, self.seen, self.seen.known
        rounded: dict[tuple[str, Precision, bool], ir.Value] = {}
        exact = _EXACT if model.opset >= _BOUNDS_ARE_INPUTS else _EXACT - _BOUNDED
        _saturate_attributes(edit, model, plan, seen)
        for node in model.top:
            for i, value in enumerate(node.inputs):
                precision = plan.inputs.get((node.id, i))
                if precision is None or plan.outputs.get(value) is precision:
                    continue
                name, half = f"{node.id}/input{i or ''}", HALVES[precision]
                hides = value in known and _is_mask(node, known[value], seen, half)
                form = (value, precision, hides)
                if form not in rounded and value in known:
                    values = seen.half(known[value], half, hides=hides).astype(np.float32)
                    rounded[form] = edit.constant(f"{name}/rounded", values)
                elif form not in rounded:
                    held = edit.values[value]
                    rounded[form] = _round(edit, held, name, edit.origin(node.id), precision, before=node.id)
                edit.feed(node.id, i, rounded[form])
            for i, value in enumerate(node.outputs):
                if value in plan.outputs and node.op not in exact:
                    name = f"{node.id}/output{i or ''}"
                    inner, outer = edit.split(value, f"{name}/unrounded")
                    origin = edit.origin(node.id)
                    _round(edit, inner, name, origin, plan.outputs[value], after=node.id, output=outer)


def _rounded_to(plan: HalfPlan) -> str:
    types = sorted({HALVES[p].title for p in plan.nodes.values()})
    return f"rounded to {' and '.join(types)}" if types else ""


def _cast(edit: Edit, value: ir.Value, to: int, name: str, origin: str, **place: Any) -> ir.Value:
    kind = ir.DataType(to)
    return edit.insert("Cast", f"{name}/Cast", [value], origin=origin, kind=kind, attrs={"to": to}, **place)


def _round(
    edit: Edit,
    value: ir.Value,
    name: str,
    origin: str,
    precision: Precision,
    *,
    output: ir.Value | None = None,
    **place: Any,
) -> ir.Value:
    half = _cast(edit, value, HALVES[precision].number, f"{name}/{precision}", origin, **place)
    return _cast(edit, half, _FLOAT, f"{name}/fp32", origin, output=output, **place)


def _hides(node: Node) -> bool:
    """Whether a constant beyond a type of 16 bits that a node reads in it is there to hide, and not as a bound."""
    return node.op in _MASKING or node.op == "Where"


def _is_mask(node: Node, tensor: ir.TensorProtocol, seen: Narrowing, half: HalfType) -> bool:
    return _hides(node) and seen.overflows(tensor, half)


def _may_saturate(node: Node, value: str, model: Model, seen: Narrowing, half: HalfType) -> bool:
    """Whether a constant fits a type, or a number that does serves as well as what is beyond it."""
    tensor = seen.known[value]
    if not seen.overflows(tensor, half) or node.op in _BOUNDED | _EXACT:
        return True
    if node.op not in _MASKING:
        return False
    # What a mask hides, it takes far below zero; any other number so large is there to be computed with.
    values = np.asarray(tensor.numpy())
    above, below = bool(np.any(values > half.most)), bool(np.any(values < -half.most))
    if node.op == "Mul" and above and not below:
        other = next((v for v in node.inputs if v != value), "")
        return _taken_away(node, model) or (_below_zero(other, model, seen.known) and _added(node, model))
    taken = node.op == "Sub" and node.inputs[1] == value
    return not (below if taken else above)


def _below_zero(value: str, model: Model, known: Mapping[str, ir.TensorProtocol]) -> bool:
    """Whether a value is a mask less one."""
    maker = model.producers.get(value)
    while maker is not None and maker.op in _HANDING:
        maker = model.producers.get(maker.inputs[0])
    one = known.get(maker.inputs[1]) if maker is not None and maker.op == "Sub" else None
    return one is not None and bool(np.all(np.asarray(one.numpy()) == 1))


def _taken_away(node: Node, model: Model) -> bool:
    """Whether all that becomes of a node's output is to be taken away from something."""
    return _only(node, model, {("Sub", 1)}, {("Add", 0), ("Add", 1), ("Sub", 0)})


def _added(node: Node, model: Model) -> bool:
    """Whether all that becomes of a node's output is to be added to something."""
    return _only(node, model, {("Add", 0), ("Add", 1), ("Sub", 0)}, {("Sub", 1)})


def _only(
    node: Node, model: Model, readers: Collection[tuple[str, int]], negated: Collection[tuple[str, int]]
) -> bool:
    """Whether a node's output is read so alone, as it is or moved, or so behind a change of its sign."""
    todo, outside = [(node.outputs[0], readers, negated)], set(model.outputs) | captured(model)
    while todo:
        value, wanted, otherwise = todo.pop()
        found = model.consumers.get(value, ())
        if value in outside or not found:
            return False
        for reader in found:
            if reader.op in _HANDING:
                todo.extend((v, wanted, otherwise) for v in reader.outputs)
            elif reader.op == "Neg":
                todo.append((reader.outputs[0], otherwise, wanted))
            elif any(v == value and (reader.op, i) not in wanted for i, v in enumerate(reader.inputs)):
                return False
    return True


def _held(model: Model, plan: HalfPlan) -> Iterator[tuple[str, str, float]]:
    """Bounds and fillers in attributes of nodes of 16 bits that are beyond these: node id, name and number."""
    if model.opset >= _BOUNDS_ARE_INPUTS:
        return
    for id_, precision in plan.nodes.items():
        node = model.by_id[id_]
        for name in _HELD.get(node.op, ()):
            number = node.attributes.get(name)
            if isinstance(number, float) and beyond(number, HALVES[precision]):
                yield id_, name, number


def _filled(model: Model, plan: HalfPlan, seen: Narrowing) -> dict[str, Precision]:
    """Outputs of ConstantOfShape beyond the type of 16 bits in which each of their readers takes them."""
    ir_nodes = [n for n in model.ir.graph if n.op_type == "ConstantOfShape"]
    outside = captured(model) | set(model.outputs) if ir_nodes else set()
    found: dict[str, Precision] = {}
    for inner in ir_nodes:
        held = inner.attributes.get("value")
        output = inner.outputs[0].name or ""
        if held is None or output in outside or not _is_fp32(model, output):
            continue
        edges = [
            (n.id, i) for n in model.consumers.get(output, ()) for i, v in enumerate(n.inputs) if v == output
        ]
        read = {plan.inputs.get(edge, Precision.FP32) for edge in edges}
        precision = read.pop() if len(read) == 1 else Precision.FP32
        if precision in HALVES and seen.overflows(held.as_tensor(), HALVES[precision]):
            found[output] = precision
    return found


def _saturate_attributes(edit: Edit, model: Model, plan: HalfPlan, seen: Narrowing) -> None:
    """Numbers that stand in attributes and not among the constants, as the type of 16 bits holds them."""
    for value, precision in _filled(model, plan, seen).items():
        maker = model.producers[value]
        held = next(n for n in model.ir.graph if n.name == maker.id).attributes["value"].as_tensor()
        hides = all(_hides(n) for n in model.consumers[value])
        numbers = seen.half(held, HALVES[precision], hides=hides).astype(np.float32)
        edit.set_attribute(maker.id, "value", ir.Tensor(numbers, name=f"{maker.id}/value"))
    for id_, name, number in _held(model, plan):
        most = float(narrowed(np.array([number]), HALVES[plan.nodes[id_]])[0])
        edit.set_attribute(id_, name, most)


def _schema(node: Node, model: Model) -> Any:
    try:
        return onnx.defs.get_schema(node.op, model.opset, "")
    except onnx.defs.SchemaError:
        return None


def _allows(op: str, opset: int, text: str) -> bool:
    """Whether some input or output of an operator may have a type."""
    if not onnx.defs.has(op, domain="", max_inclusive_version=opset):
        return False
    schema = onnx.defs.get_schema(op, opset, "")
    return any(text in c.allowed_type_strs for c in schema.type_constraints)


def _is_fp32(model: Model, value: str) -> bool:
    return bool(value) and value in model.values and model.values[value].dtype == "fp32"


def _is_tensor(value: ir.Value) -> bool:
    return value.type is None or isinstance(value.type, ir.TensorType)


def _shape_arithmetic(model: Model, known: Mapping[str, ir.TensorProtocol]) -> set[str]:
    """Ids of nodes that compute from shapes only, where FP16 would lose whole numbers beyond 2,048."""
    derived, found = set[str](), set[str]()
    for node in model.top:
        inputs = [v for v in node.inputs if v and v not in known]
        if node.op in {"Shape", "Size"} or (inputs and all(v in derived for v in inputs)):
            derived.update(node.outputs)
            found.add(node.id)
    return found
