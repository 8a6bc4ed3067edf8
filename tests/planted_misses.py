"""Fusions that are kept from happening: a fused edge of some network, and what is put in its way.

Each miss is proved before it counts: the compiler fuses the edge without what was planted, and does not with it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import onnx
import onnx_ir as ir
from onnx import helper, numpy_helper

import rtlab
from nets import fp32_proto
from rtlab.core.model import Model
from rtlab.quantize.edit import Edit


@dataclasses.dataclass(frozen=True)
class Edge:
    """An edge between two nodes: what one writes and the other reads."""

    first: str
    second: str
    value: str


@dataclasses.dataclass(frozen=True)
class Miss:
    """A model with something planted on an edge: the causes, and the nodes that were planted (none for an output)."""

    model: Model
    edge: Edge
    causes: frozenset[str]
    nodes: frozenset[str]


Plant = Callable[[Edit, Edge, np.random.Generator], "str | None"]


def random_network(seed: int) -> Model:
    rng = np.random.default_rng(seed)
    made = _Convolutional(rng) if rng.random() < 0.75 else _Products(rng)
    return rtlab.load(made.proto(), name=f"random{seed}")


class _Writer:
    def __init__(self, rng: np.random.Generator) -> None:
        self.rng = rng
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []
        self.count = 0

    def weight(self, *shape: int, positive: bool = False) -> str:
        numbers = self.rng.normal(0, 1 / np.sqrt(max(1, np.prod(shape[1:]))), shape).astype(np.float32)
        name = f"w{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(np.abs(numbers) + 0.5 if positive else numbers, name))
        return name

    def node(self, op: str, *inputs: str, **attributes: object) -> str:
        self.count += 1
        out = f"v{self.count}"
        self.nodes.append(helper.make_node(op, list(inputs), [out], name=f"{op}_{self.count}", **attributes))
        return out

    def finished(self, given: Sequence[int], out: str, size: Sequence[int]) -> onnx.ModelProto:
        return fp32_proto(self.nodes, {"x": given}, {out: size}, self.weights, name="random")


class _Convolutional(_Writer):
    def proto(self) -> onnx.ModelProto:
        channels = int(self.rng.choice([8, 16, 32]))
        x = self.node("Relu", self._conv("x", 3, channels))
        for _ in range(int(self.rng.integers(2, 5))):
            x = self._block(x, channels)
        x = self.node("GlobalAveragePool", x)
        x = self.node("Flatten", x)
        x = self.node("Gemm", x, self.weight(10, channels), self.weight(10), transB=1)
        return self.finished((1, 3, 16, 16), x, (1, 10))

    def _conv(self, x: str, before: int, after: int, kernel: int = 3, group: int = 1) -> str:
        bias = [self.weight(after)] if self.rng.random() < 0.5 else []
        reads = x, self.weight(after, before // group, kernel, kernel), *bias
        x = self.node("Conv", *reads, pads=[kernel // 2] * 4, group=group)
        if self.rng.random() < 0.5:
            more = [
                self.weight(after), self.weight(after), self.weight(after), self.weight(after, positive=True),
            ]  # fmt: skip
            x = self.node("BatchNormalization", x, *more)
        return x

    def _active(self, x: str) -> str:
        op = self.rng.choice(["Relu", "Relu", "LeakyRelu", "Clip6", "HardSwish"])
        if op != "Clip6":
            return self.node(str(op), x)
        ends = []
        for value in (0.0, 6.0):
            ends.append(f"w{len(self.weights)}")
            self.weights.append(numpy_helper.from_array(np.float32(value), ends[-1]))
        return self.node("Clip", x, *ends)

    def _block(self, x: str, channels: int) -> str:
        kind = self.rng.choice(["plain", "residual", "separable"])
        if kind == "plain":
            return self._active(self._conv(x, channels, channels, int(self.rng.choice([1, 3]))))
        if kind == "separable":
            y = self._active(self._conv(x, channels, channels, 3, channels))
            return self._active(self._conv(y, channels, channels, 1))
        y = self._active(self._conv(x, channels, channels))
        return self.node("Relu", self.node("Add", self._conv(y, channels, channels), x))


class _Products(_Writer):
    def proto(self) -> onnx.ModelProto:
        width = int(self.rng.choice([32, 64]))
        x = "x"
        for _ in range(int(self.rng.integers(2, 5))):
            y = self.node("Add", self.node("MatMul", x, self.weight(width, width)), self.weight(width))
            y = self.node(str(self.rng.choice(["Relu", "Sigmoid", "Tanh"])), y)
            x = self.node("Add", y, x) if self.rng.random() < 0.4 else y
        return self.finished((4, 16, width), x, (4, 16, width))


def _output(edit: Edit, edge: Edge, rng: np.random.Generator) -> str | None:
    value = edit.values[edge.value]
    edit.graph.outputs.append(value)
    return ""


def _reader(edit: Edit, edge: Edge, rng: np.random.Generator) -> str | None:
    value = edit.values[edge.value]
    rank = len(edit.model.sizes().get(edge.value) or ())
    if rank == 4:
        op, attributes = [
            ("MaxPool", {"kernel_shape": [2, 2]}),
            ("GlobalAveragePool", {}),
            ("Transpose", {"perm": [0, 2, 3, 1]}),
            ("Softmax", {"axis": 1}),
        ][int(rng.integers(4))]
    else:
        op, attributes = [("Softmax", {"axis": -1}), ("Transpose", {"perm": [0, 2, 1]})][int(rng.integers(2))]
    made = _made(edit, op, [value], f"planted_{op}", edge.second, attributes)
    made.type = value.type
    edit.graph.outputs.append(made)
    return made.producer().name  # type: ignore[union-attr]


def _cast(edit: Edit, edge: Edge, rng: np.random.Generator) -> str | None:
    value, node = edit.values[edge.value], edit.nodes[edge.second]
    half = _made(edit, "Cast", [value], "planted_half", edge.second, {"to": 10})
    back = _made(edit, "Cast", [half], "planted_back", edge.second, {"to": 1})
    _feed(node, value, back)
    return back.producer().name  # type: ignore[union-attr]


def _pair(edit: Edit, edge: Edge, rng: np.random.Generator) -> str | None:
    value, node = edit.values[edge.value], edit.nodes[edge.second]
    scale, zero = (
        edit.add_constant("planted_scale", np.float32(0.03)),
        edit.add_constant("planted_zero", np.int8(0)),
    )
    q = _made(edit, "QuantizeLinear", [value, scale, zero], "planted_Q", edge.second, {})
    dq = _made(edit, "DequantizeLinear", [q, scale, zero], "planted_DQ", edge.second, {})
    _feed(node, value, dq)
    return dq.producer().name  # type: ignore[union-attr]


def _rival(edit: Edit, edge: Edge, rng: np.random.Generator) -> str | None:
    node = edit.nodes[edge.second]
    if node.op_type != "Add":
        return None
    other = next((v for v in node.inputs if v is not None and v.name != edge.value), None)
    size = edit.model.sizes().get(other.name) if other is not None else None
    if other is None or size is None or other.const_value is not None:
        return None
    if len(size) == 4:
        weight = edit.add_constant(
            "planted_w", rng.normal(0, 0.1, (size[1], size[1], 3, 3)).astype(np.float32)
        )
        made = _made(edit, "Conv", [other, weight], "planted_Conv", edge.second, {"pads": [1, 1, 1, 1]})
    else:
        weight = edit.add_constant("planted_w", rng.normal(0, 0.1, (size[-1], size[-1])).astype(np.float32))
        made = _made(edit, "MatMul", [other, weight], "planted_MatMul", edge.second, {})
    made.type, made.shape = other.type, other.shape
    _feed(node, other, made)
    return made.producer().name  # type: ignore[union-attr]


def _broadcast(edit: Edit, edge: Edge, rng: np.random.Generator) -> str | None:
    node = edit.nodes[edge.second]
    if node.op_type not in {"Add", "Mul"}:
        return None
    other = next((v for v in node.inputs if v is not None and v.name != edge.value), None)
    size = edit.model.sizes().get(edge.value)
    if other is None or size is None or len(size) < 3:
        return None
    shape = [1, *size[1:-1], 1] if rng.random() < 0.5 else [1, size[1], *[1] * (len(size) - 2)]
    made = ir.Value(name="planted_small", type=ir.TensorType(ir.DataType.FLOAT), shape=ir.Shape(shape))
    edit.graph.inputs.append(made)
    edit.values["planted_small"] = made
    _feed(node, other, made)
    return node.name


def _typed(edit: Edit, edge: Edge, rng: np.random.Generator) -> str | None:
    """A sum of two tensors in FP16 among FP32."""
    value, node = edit.values[edge.value], edit.nodes[edge.second]
    operands = [v for v in node.inputs if v is not None]
    if node.op_type != "Add" or value not in operands or any(v.const_value is not None for v in operands):
        return None
    made = []
    for given in dict.fromkeys(operands):
        half = _made(edit, "Cast", [given], "planted_narrow", edge.second, {"to": 10})
        half.type, half.shape = ir.TensorType(ir.DataType.FLOAT16), given.shape
        _feed(node, given, half)
        made += [half] if given is value else []
    inner, outer = edit.split(node.outputs[0].name or "", "planted_sum")
    inner.type = ir.TensorType(ir.DataType.FLOAT16)
    edit.insert(
        "Cast", "planted_wide", [inner], origin=edge.second, output=outer, after=edge.second, attrs={"to": 1}
    )
    return made[0].producer().name  # type: ignore[union-attr]


def _transposed(edit: Edit, edge: Edge, rng: np.random.Generator) -> str | None:
    value, node = edit.values[edge.value], edit.nodes[edge.second]
    operands = [v for v in node.inputs if v is not None]
    sizes = [edit.model.sizes().get(v.name or "") for v in operands]
    moved = [v for v, s in zip(operands, sizes, strict=True) if s is None or len(s) == 4]
    alone = node.op_type in {"Relu", "LeakyRelu", "HardSwish"} or (
        node.op_type == "Add" and moved == operands
    )
    if value not in moved or not alone or any(v.const_value is not None for v in moved):
        return None
    made = []
    for given in dict.fromkeys(moved):
        there = _made(edit, "Transpose", [given], "planted_there", edge.second, {"perm": [0, 2, 3, 1]})
        there.type = given.type
        _feed(node, given, there)
        made += [there] if given is value else []
    inner, outer = edit.split(node.outputs[0].name or "", "planted_inner")
    inner.shape = None
    told = {"perm": [0, 3, 1, 2]}
    edit.insert(
        "Transpose", "planted_back", [inner], origin=edge.second, output=outer, after=edge.second, attrs=told
    )
    return made[0].producer().name  # type: ignore[union-attr]


PLANTS: dict[str, Plant] = {
    "output": _output, "reader": _reader, "cast": _cast, "quantization": _pair, "competitor": _rival,
    "broadcast": _broadcast, "type": _typed, "layout": _transposed,
}  # fmt: skip
#: What reads the value itself comes first, so that what stands between stands behind it; what needs the edge, last.
_ORDER = ("output", "reader", "competitor", "broadcast", "cast", "quantization", "type", "layout")


def _made(
    edit: Edit, op: str, inputs: list[ir.Value], name: str, before: str, attributes: dict[str, object]
) -> ir.Value:
    unique = edit.make_node_name(name)
    out = ir.Value(name=edit.make_value_name(f"{unique}/output"))
    node = ir.Node("", op, inputs, ir.convenience.convert_attributes(attributes), outputs=[out], name=unique)
    edit.graph.insert_before(edit.nodes[before], node)
    edit.nodes[unique], edit.values[out.name or ""] = node, out
    return out


def _feed(node: ir.Node, old: ir.Value, new: ir.Value) -> None:
    for position, given in enumerate(node.inputs):
        if given is old:
            node.replace_input_with(position, new)


def planted(model: Model, edge: Edge, kinds: Sequence[str], rng: np.random.Generator) -> Miss | None:
    edit = Edit(model, source=True)
    nodes: set[str] = set()
    for kind in sorted(kinds, key=_ORDER.index):
        found = PLANTS[kind](edit, edge, rng)
        if found is None:
            return None
        nodes |= {found} if found else set()
    edit.sort_and_reindex()
    edit.infer()
    made = rtlab.load(edit.model.proto(), name=f"{model.name}_planted")
    return Miss(made, edge, frozenset(kinds), frozenset(nodes))


def edges(model: Model) -> Iterator[Edge]:
    for node in model.top:
        for value in node.outputs:
            for reader in model.consumers.get(value, ()):
                yield Edge(node.id, reader.id, value)
