"""TensorRT's operators of quantization, and numbers in FP4, written with operators that ONNX Runtime has.

Quantized numbers, and scales that are powers of two (E8M0), are held in FP32 there: the same numbers in a wider type.
Zero points are left out, since TensorRT takes none but 0.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np
import onnx
import onnx_ir as ir
from onnx import TensorProto, helper, numpy_helper

from rtlab.core import proto_repair, trt_operators
from rtlab.core.node import ONNX_DOMAINS
from rtlab.core.precision import NVFP4_RANGE, SMALLEST_BLOCK_SCALE, Precision
from rtlab.core.value import dtype_text
from rtlab.errors import BuildError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rtlab.core.model import Model
    from rtlab.core.node import Node

#: Types that ONNX Runtime has no kernels for.
_WIDENED = frozenset({"fp4", "e8m0"})
#: The first opsets with others, by rtlab's names.
_FIRST_OPSETS = {dtype_text(ir.DataType(k)): opset for k, opset in trt_operators.FIRST_OPSETS.items()}
_PAIR_OPS = frozenset({"QuantizeLinear", "DequantizeLinear"})
#: Operators that move numbers, whatever their type.
_MOVES = frozenset({"Identity", "Reshape", "Transpose", "Squeeze", "Unsqueeze", "Flatten", "Slice", "Gather"})
#: Types in which a result is computed, by rtlab's names.
_RESULTS = {"fp16": TensorProto.FLOAT16, "bf16": TensorProto.BFLOAT16, "fp64": TensorProto.DOUBLE}
#: The smallest exponent of a normal number and the bits of its mantissa, by a type of few bits.
_FLOATS = {Precision.FP8: (-6, 3), Precision.FP4: (0, 1)}
#: Exponents of E8M0.
_EXPONENTS = range(-127, 128)
#: First opset whose ReduceMax takes axes as an input.
_AXES_INPUT = 18


def needs_standard_operators(model: Model) -> bool:
    """Whether a model has such operators or numbers, outside of local functions."""
    nodes = _list_nodes(model)
    return any(n.domain == trt_operators.DOMAIN for n in nodes) or any(
        _is_unknown_pair(model, n) for n in nodes if n.op in _PAIR_OPS
    )


def _list_nodes(model: Model) -> list[Node]:
    """The nodes of the main graph and of bodies."""
    return [n for n in model.nodes if not (n.scope and n.scope[0].startswith("function "))]


def _is_unknown_pair(model: Model, node: Node) -> bool:
    """Whether a node of ONNX has a type, or blocks in an opset, that ONNX Runtime lacks."""
    is_early = "block_size" in node.attributes and model.opset < trt_operators.BLOCK_OPSET
    kinds = {model.values[v].dtype for v in (*node.inputs, *node.outputs) if v}
    return is_early or any(k in _WIDENED or model.opset < _FIRST_OPSETS.get(k, 0) for k in kinds)


class StandardForm:
    """What of a model is written otherwise: ``nodes`` by id, and values that hold FP32 numbers, by name."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self.nodes: dict[str, trt_operators.TrtOperator] = {}
        self.wide: set[str] = {n for n, v in model.values.items() if v.dtype in _WIDENED}
        nodes, before = _list_nodes(model), -1
        # A constant that a rewritten node reads is wide for all of its readers.
        while before < len(self.nodes) + len(self.wide):
            before = len(self.nodes) + len(self.wide)
            for node in nodes:
                self._classify(node)

    def _classify(self, node: Node) -> None:
        operator = trt_operators.get_operator(node.domain, node.op)
        is_pair = node.domain in ONNX_DOMAINS and node.op in _PAIR_OPS
        if is_pair and (
            self.wide.intersection((*node.inputs, *node.outputs)) or _is_unknown_pair(self.model, node)
        ):
            operator = trt_operators.OPERATORS[node.op]
        if operator is not None and all(node.inputs[: operator.reads]) and len(node.inputs) >= operator.reads:
            self.nodes[node.id] = operator
            if operator.kind == "quantize":
                self.wide.update(filter(None, node.outputs))
            if operator.kind == "dequantize":
                self.wide.add(node.inputs[0])
                if node.op == "TRT_MXFP8DequantizeLinear":
                    self.wide.add(node.inputs[1])
        elif node.op in _MOVES and node.domain in ONNX_DOMAINS:
            moved = {node.inputs[0], node.outputs[0]}
            if moved & self.wide:
                self.wide |= moved

    def widen(self, name: str, tensor: NDArray[Any]) -> NDArray[np.float32]:
        """The numbers that a constant holds in FP32."""
        if tensor.dtype == np.uint8 and name in self._exponents:
            tensor = tensor.view(ml_dtypes.float8_e8m0fnu)
        return tensor.astype(np.float32)

    @property
    def _exponents(self) -> set[str]:
        """Scales that are stored as the exponents of powers of two."""
        return {n.inputs[1] for n in self.model.nodes if n.op.startswith("TRT_MXFP8") and len(n.inputs) > 1}

    def widen_constants(self, graph: ir.Graph) -> None:
        """Let the wide initializers of a copy of the model's graph hold FP32."""
        for name in self.wide & graph.initializers.keys():
            value = graph.initializers[name]
            if value.const_value is not None:
                array = self.widen(name, np.asarray(value.const_value.numpy()))
                value.const_value = ir.Tensor(array, name=name)
                value.type = ir.TensorType(ir.DataType.FLOAT)

    def rewrite(self, proto: onnx.ModelProto) -> None:
        """Write the nodes of the model's proto, whose initializers are wide already, with standard operators."""
        used = {n.id for n in self.model.nodes} | {*self.model.values}
        # Bodies first: nodes are copied where those of a graph change.
        for graph in reversed(list(proto_repair.iter_graphs(proto))):
            if isinstance(graph, onnx.GraphProto):
                self._rewrite_graph(graph, proto, used)

    def _rewrite_graph(self, graph: onnx.GraphProto, proto: onnx.ModelProto, used: set[str]) -> None:
        nodes: list[onnx.NodeProto] = []
        for node in graph.node:
            # The names in it are the ids of the model.
            if node.name in self.nodes:
                writer = _Writer(self, self.model.by_id[node.name], proto, used)
                writer.write(self.nodes[node.name])
                nodes += writer.nodes
                continue
            if node.op_type == "Constant" and self.wide.intersection(node.output):
                _widen_constant(self, node.output[0], node)
            nodes.append(node)
        del graph.node[:]
        graph.node.extend(nodes)
        kept = [v for v in graph.value_info if v.name not in self.wide]
        del graph.value_info[:]
        graph.value_info.extend(kept)
        for value in (*graph.output, *graph.input):
            if value.name in self.wide:
                value.type.tensor_type.elem_type = TensorProto.FLOAT


def serialize_standard(model: Model) -> bytes:
    """A model without operators and types that ONNX Runtime lacks."""
    form, copy = StandardForm(model), ir.from_proto(model.proto())
    form.widen_constants(copy.graph)
    proto = ir.to_proto(copy)
    form.rewrite(proto)
    return bytes(proto.SerializeToString())


def _widen_constant(form: StandardForm, name: str, node: onnx.NodeProto) -> None:
    for attribute in node.attribute:
        if attribute.name == "value":
            array = numpy_helper.to_array(attribute.t)
            attribute.t.CopyFrom(numpy_helper.from_array(form.widen(name, array)))


class _Writer:
    """The standard nodes of one node."""

    def __init__(self, form: StandardForm, node: Node, proto: onnx.ModelProto, used: set[str]) -> None:
        self._form, self._node, self._proto, self._used = form, node, proto, used
        self._opset = form.model.opset
        self.nodes: list[onnx.NodeProto] = []
        shape = form.model.values[node.inputs[0]].shape
        self._shape: Sequence[int | str | None] | None = shape
        self._axis = 0

    def write(self, operator: trt_operators.TrtOperator) -> None:
        node, attributes = self._node, self._node.attributes
        block = int(str(attributes.get("block_size", 0) or operator.block))
        self._axis = int(str(attributes.get("axis", -1 if operator.block else 1)))
        if self._shape is not None and self._axis < 0:
            self._axis += len(self._shape)
        if block and not all(isinstance(d, int) for d in (self._shape or ("",))[self._axis + 1 :]):
            raise BuildError(
                f'Backend "onnxruntime" cannot run node "{node.id}": {node.op} is written with operators of ONNX for '
                f'it, and the dimensions of "{node.inputs[0]}" behind those of its blocks are not known. Name sizes, '
                "for example rtlab.load(..., shapes=...)."
            )
        data = self._to_float(node.inputs[0])
        if operator.kind == "dequantize":
            self._finish(0, self._join(self._multiply(self._divide(data, block), self._scale(block)), block))
        elif node.op == "TRT_FP4DynamicQuantize":
            blocks, tensor_scale = self._divide(data, block), self._to_float(node.inputs[1])
            relative = self._compute_relative_scale(blocks, tensor_scale)
            self._finish(0, self._join(self._to_fp4(blocks, relative, tensor_scale), block))
            self._finish(1, self._join_scales(relative))
        elif node.op == "TRT_FP4QDQ":
            blocks = self._divide(data, block)
            largest = self._op("ReduceMax", [self._op("Abs", [data])], keepdims=0)
            tensor_scale = self._op("Div", [largest, self._number(NVFP4_RANGE)])
            tensor_scale = self._op("Max", [tensor_scale, self._number(float(np.finfo(np.float32).tiny))])
            relative = self._compute_relative_scale(blocks, tensor_scale)
            numbers = self._multiply(
                self._to_fp4(blocks, relative, tensor_scale), self._multiply(relative, tensor_scale)
            )
            self._finish(0, self._join(numbers, block))
        elif node.op == "TRT_MXFP8DynamicQuantize":
            blocks = self._divide(data, block)
            scale = self._compute_power_of_two(blocks)
            self._finish(0, self._join(self._round(self._op("Div", [blocks, scale]), Precision.FP8), block))
            self._finish(1, self._join_scales(scale))
        else:
            precision = self._get_stored_precision(operator)
            steps = self._op("Div", [self._divide(data, block), self._scale(block)])
            self._finish(0, self._join(self._round(steps, precision), block))

    def _get_stored_precision(self, operator: trt_operators.TrtOperator) -> Precision:
        written = self._form.model.values[self._node.outputs[0]].dtype
        dtype = dtype_text(ir.DataType(operator.stored)) if operator.stored else written
        return Precision(dtype) if dtype in {"int4", "int8", "fp4"} else Precision.FP8

    # Arithmetic.

    def _compute_relative_scale(self, blocks: str, tensor_scale: str) -> str:
        """The scale of each block in E4M3, in multiples of the tensor's scale; 1 for a block of zeros."""
        largest = self._reduce_max(blocks)
        unit = self._op("Mul", [tensor_scale, self._number(Precision.FP4.stored.largest)])
        relative = self._op("Div", [largest, unit])
        is_zero = self._op("Equal", [relative, self._number(0.0)])
        relative = self._op("Where", [is_zero, self._number(1.0), relative])
        relative = self._op("Max", [relative, self._number(SMALLEST_BLOCK_SCALE)])
        return self._round(relative, Precision.FP8)

    def _to_fp4(self, blocks: str, relative: str, tensor_scale: str) -> str:
        return self._round(self._op("Div", [blocks, self._multiply(relative, tensor_scale)]), Precision.FP4)

    def _compute_power_of_two(self, blocks: str) -> str:
        """The smallest power of two, of those in E8M0, that keeps each block within E4M3."""
        share = self._op("Div", [self._reduce_max(blocks), self._number(Precision.FP8.stored.largest)])
        index = self._find_exponent(share, _EXPONENTS)
        table = self._constant(np.ldexp(np.float32(1), np.array(_EXPONENTS)).astype(np.float32))
        # A logarithm is exact to a unit in the last place: it may be on the wrong side of an integer.
        for _ in range(2):
            power = self._op("Gather", [table, index])
            more = self._op("Cast", [self._op("Greater", [share, power])], to=TensorProto.INT64)
            last = self._constant(np.array(len(_EXPONENTS) - 1))
            index = self._op(
                "Where", [self._op("Less", [index, last]), self._op("Add", [index, more]), index]
            )
        return self._op("Gather", [table, index])

    def _round(self, numbers: str, precision: Precision) -> str:
        """To the nearest number of a type, ties to even; larger magnitudes saturate."""
        largest, is_float = precision.stored.largest, precision in _FLOATS
        numbers = self._op("Max", [numbers, self._number(-largest if is_float else -largest - 1)])
        numbers = self._op("Min", [numbers, self._number(largest)])
        if not is_float:
            return self._op("Round", [numbers])
        least, bits = _FLOATS[precision]
        exponents = range(least, math.frexp(largest)[1])
        # Next to a power of two the wrong one of two steps has the same nearest number.
        index = self._find_exponent(self._op("Abs", [numbers]), exponents)
        table = self._constant(np.ldexp(np.float32(1), np.array(exponents) - bits).astype(np.float32))
        step = self._op("Gather", [table, index])
        return self._multiply(self._op("Round", [self._op("Div", [numbers, step])]), step)

    def _find_exponent(self, magnitudes: str, exponents: range) -> str:
        """Which of some exponents each magnitude has, as an index; of NaN the first."""
        logarithm = self._op("Log", [magnitudes])
        exponent = self._op("Floor", [self._multiply(logarithm, self._number(1 / math.log(2)))])
        exponent = self._op("Max", [exponent, self._number(float(exponents[0]))])
        exponent = self._op("Min", [exponent, self._number(float(exponents[-1]))])
        nan = self._op("IsNaN", [exponent])
        exponent = self._op("Where", [nan, self._number(float(exponents[0])), exponent])
        shifted = self._op("Sub", [exponent, self._number(float(exponents[0]))])
        return self._op("Cast", [shifted], to=TensorProto.INT64)

    # Shapes.

    def _scale(self, block: int) -> str:
        """The scales that a node reads, in a shape that broadcasts over its numbers, which are in blocks or not."""
        name = self._node.inputs[1]
        scale, value = self._to_float(name), self._form.model.values[name]
        if value.shape is None or len(value.shape) == 0:
            return scale
        if block:
            return self._reshape(scale, [0] * (self._axis + 1), 1, self._list_trailing())
        if len(value.shape) == 1 and value.shape[0] != 1:
            rank = len(self._shape or ())
            return self._reshape(scale, [1] * self._axis, -1, [1] * (rank - self._axis - 1))
        return scale

    def _divide(self, data: str, block: int) -> str:
        """Numbers with an axis more, that of a block."""
        if not block:
            return data
        trailing = self._list_trailing()
        return self._reshape(data, [0] * self._axis, -1, [block, *trailing])

    def _join(self, blocks: str, block: int) -> str:
        return self._reshape(blocks, [0] * self._axis, -1, self._list_trailing()) if block else blocks

    def _join_scales(self, scales: str) -> str:
        return self._reshape(scales, [0] * self._axis, -1, self._list_trailing())

    def _list_trailing(self) -> list[int]:
        """The dimensions behind the axis of the blocks."""
        return [d for d in (self._shape or ())[self._axis + 1 :] if isinstance(d, int)]

    def _reshape(self, data: str, first: Sequence[int], middle: int, last: Sequence[int]) -> str:
        return self._op("Reshape", [data, self._constant(np.array([*first, middle, *last], np.int64))])

    def _reduce_max(self, blocks: str) -> str:
        magnitudes, axis = self._op("Abs", [blocks]), self._axis + 1
        if self._opset >= _AXES_INPUT:
            return self._op("ReduceMax", [magnitudes, self._constant(np.array([axis]))], keepdims=1)
        return self._op("ReduceMax", [magnitudes], keepdims=1, axes=[axis])

    # Nodes.

    def _to_float(self, name: str) -> str:
        is_float = name in self._form.wide or self._form.model.values[name].dtype == "fp32"
        return name if is_float else self._op("Cast", [name], to=TensorProto.FLOAT)

    def _multiply(self, first: str, second: str) -> str:
        return self._op("Mul", [first, second])

    def _finish(self, position: int, name: str) -> None:
        """Let an output of the node be this value, in the type that it has in the model."""
        outputs = self._node.outputs
        if position >= len(outputs) or not outputs[position]:
            return
        output = outputs[position]
        dtype = "fp32" if output in self._form.wide else self._form.model.values[output].dtype
        if dtype in _RESULTS:
            self._op("Cast", [name], output, to=_RESULTS[dtype])
        else:
            self._op("Identity", [name], output)

    def _number(self, number: float) -> str:
        return self._constant(np.array(number, np.float32))

    def _constant(self, array: NDArray[Any]) -> str:
        name = self._make_name("constant")
        self._proto.graph.initializer.append(numpy_helper.from_array(array, name))
        return name

    def _op(self, op: str, inputs: Sequence[str], output: str = "", **attributes: Any) -> str:
        # The number is how a compiler tells apart several layers of one node, so that they are mapped to it.
        name = self._make_name("")
        output = output or self._make_name("value")
        self.nodes.append(helper.make_node(op, inputs, [output], name=name, **attributes))
        return output

    def _make_name(self, what: str) -> str:
        """A name of its own: the node's, and a number."""
        base = f"{self._node.id}/{what}" if what else self._node.id
        name = next(n for i in itertools.count(1) if (n := f"{base}_{i}") not in self._used)
        self._used.add(name)
        return name
