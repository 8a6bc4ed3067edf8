"""TensorRT's own operators of quantization, which ModelOpt exports in the domain ``trt``: their types and shapes.

ONNX has no schema for them. Each is described as a function of standard operators, which ONNX infers like any other.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import onnx
from onnx import TensorProto, helper

from rtlab.core import proto_repair
from rtlab.core.node import ONNX_DOMAINS

DOMAIN = "trt"
#: Opset of the functions: the first with all their types.
_OPSET = 24
_LARGEST = (1 << 63) - 1
_FP8, _FP4, _INT4, _E8M0 = (
    TensorProto.FLOAT8E4M3FN, TensorProto.FLOAT4E2M1, TensorProto.INT4, TensorProto.FLOAT8E8M0,
)  # fmt: skip


@dataclasses.dataclass(frozen=True)
class TrtOperator:
    """One operator.

    Attributes:
        kind: What it does: ``quantize``, ``dequantize``, or both (``round``).
        stored: ONNX's type of the quantized numbers; 0 where the inputs tell it.
        scales: ONNX's type of the scales that it computes, a second output; 0 where scales are an input.
        block: Numbers that share a scale unless the attribute ``block_size`` says so; 0 for no blocks.
    """

    kind: str
    stored: int = 0
    scales: int = 0
    block: int = 0

    @property
    def reads(self) -> int:
        """The fewest inputs: the scale is one, unless it follows from the numbers alone."""
        return 1 if self.kind == "round" or self.scales == _E8M0 else 2


OPERATORS: Mapping[str, TrtOperator] = {
    "QuantizeLinear": TrtOperator("quantize"),
    "DequantizeLinear": TrtOperator("dequantize"),
    "TRT_FP8QuantizeLinear": TrtOperator("quantize", _FP8),
    "TRT_FP8DequantizeLinear": TrtOperator("dequantize", _FP8),
    "TRT_INT4QuantizeLinear": TrtOperator("quantize", _INT4),
    "TRT_INT4DequantizeLinear": TrtOperator("dequantize", _INT4),
    "TRT_FP4DynamicQuantize": TrtOperator("quantize", _FP4, _FP8, 16),
    "TRT_FP4QDQ": TrtOperator("round", _FP4, 0, 16),
    "TRT_MXFP8DynamicQuantize": TrtOperator("quantize", _FP8, _E8M0, 32),
    "TRT_MXFP8QuantizeLinear": TrtOperator("quantize", _FP8, 0, 32),
    "TRT_MXFP8DequantizeLinear": TrtOperator("dequantize", _FP8, 0, 32),
}


#: Those whose names no operator of ONNX has.
TRT_OPS = frozenset(name for name in OPERATORS if name.startswith("TRT_"))


def get_operator(domain: str, op: str) -> TrtOperator | None:
    """The description of an operator; None of one that is not TensorRT's."""
    return OPERATORS.get(op) if domain == DOMAIN else None


def is_dequantizer(domain: str, op: str) -> bool:
    """Whether an operator turns stored numbers into those that they stand for, ONNX's own included."""
    operator = get_operator(domain, op)
    return op == "DequantizeLinear" if operator is None else operator.kind == "dequantize"


def make_function(node: onnx.NodeProto) -> onnx.FunctionProto | None:
    """A function with the types and shapes of a node's outputs, and not their numbers; None for other operators."""
    operator = get_operator(node.domain, node.op_type)
    if operator is None or not node.input or not node.output:
        return None
    numbers = {a.name: a.i for a in node.attribute if a.type == onnx.AttributeProto.INT}
    axis, block = numbers.get("axis", -1), numbers.get("block_size") or operator.block or 1
    dtype = numbers.get("output_dtype", 0)
    if operator.kind == "quantize":
        dtype = operator.stored or dtype
    elif node.op_type == "TRT_MXFP8DequantizeLinear":
        # Its scales are powers of two, and no type to compute in.
        dtype = dtype or TensorProto.FLOAT
    scales = numbers.get("scale_type") or operator.scales or _FP8
    reads, writes = (
        [f"{c}{i}" for i in range(len(ends))] for c, ends in (("x", node.input), ("y", node.output))
    )
    make = helper.make_node
    if dtype:
        nodes = [make("Cast", ["x0"], ["y0"], to=dtype)]
    elif operator.kind == "round" or len(reads) == 1:
        nodes = [make("Identity", ["x0"], ["y0"])]
    else:
        # Where no attribute tells the type, the scale tells the one of numbers, and the zero point the stored one.
        nodes = [make("CastLike", ["x0", reads[1 if operator.kind == "dequantize" else -1]], ["y0"])]
    if len(writes) > 1:
        parts = {"begin": 0, "end": _LARGEST, "axis": axis, "step": block}
        nodes += [make("Constant", [], [n], value_ints=[number]) for n, number in parts.items()]
        nodes += [make("Slice", ["x0", *parts], ["first"]), make("Cast", ["first"], ["y1"], to=scales)]
    name = ".".join(map(str, (node.op_type, len(reads), len(writes), axis, block, dtype, scales)))
    imports = [helper.make_opsetid("", _OPSET)]
    return helper.make_function(DOMAIN, name, reads, writes, nodes, imports)


#: The first opset whose pairs have blocks, and the first with types of stored numbers.
BLOCK_OPSET = 21
FIRST_OPSETS: Mapping[int, int] = {_FP8: 19, _INT4: 21, TensorProto.UINT4: 21, _FP4: 23}


def move_early_pairs(proto: onnx.ModelProto) -> None:
    """Let pairs in an opset without their blocks or types be of this domain, for ONNX's checker alone.

    ModelOpt exports such from opset 17 on, and TensorRT takes them (seen with TensorRT-RTX 1.7.1).
    """
    opset = max((o.version for o in proto.opset_import if o.domain in ONNX_DOMAINS), default=0)
    graph, moved = proto.graph, False
    early = {t.name for t in (*graph.initializer, *graph.input) if opset < FIRST_OPSETS.get(_get_type(t), 0)}
    early |= {
        n.output[0]
        for n in graph.node
        if n.op_type == "Constant" and any(opset < FIRST_OPSETS.get(_get_type(a.t), 0) for a in n.attribute)
    }
    for node in graph.node:
        if node.op_type not in OPERATORS or node.domain not in ONNX_DOMAINS:
            continue
        has_blocks = any(a.name == "block_size" for a in node.attribute)
        if (has_blocks and opset < BLOCK_OPSET) or early.intersection(node.input[:1]):
            node.domain, moved = DOMAIN, True
    if moved and all(o.domain != DOMAIN for o in proto.opset_import):
        proto.opset_import.add(domain=DOMAIN, version=1)


def _get_type(entry: onnx.TensorProto | onnx.ValueInfoProto) -> int:
    """The element type of a tensor, or of an input."""
    return entry.type.tensor_type.elem_type if isinstance(entry, onnx.ValueInfoProto) else entry.data_type


def add_functions(proto: onnx.ModelProto) -> None:
    """Let each node of such an operator call a function of its types and shapes, for ONNX's inference alone."""
    local_functions = {(f.domain, f.name) for f in proto.functions}
    functions: dict[str, onnx.FunctionProto] = {}
    for graph in list(proto_repair.iter_graphs(proto)):
        for node in graph.node:
            if node.domain != DOMAIN or (node.domain, node.op_type) in local_functions:
                continue
            function = make_function(node)
            if function is not None:
                functions[function.name] = function
                node.op_type = function.name
    proto.functions.extend(functions.values())
