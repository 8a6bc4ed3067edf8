"""Small networks that a backend is tried on, and what they compute."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from rtlab.core.model import Model, wrap
from rtlab.core.variant import Precision

#: Element types of products that are typed by casts, and of those whose inputs are quantized, with their opset.
CAST = {Precision.FP16: TensorProto.FLOAT16, Precision.BF16: TensorProto.BFLOAT16}
QUANTIZED = {Precision.INT8: TensorProto.INT8, Precision.FP8: TensorProto.FLOAT8E4M3FN}
#: Those of weights in four bits, how many share a scale, and the first opset with the type.
STORED = {Precision.INT4: (TensorProto.INT4, 64, 21), Precision.FP4: (TensorProto.FLOAT4E2M1, 16, 23)}


@functools.lru_cache(maxsize=4)
def _evaluator(model: Model, names: tuple[str, ...]) -> ReferenceEvaluator:
    proto = onnx.load_from_string(model.bytes())
    have = {o.name for o in proto.graph.output}
    proto.graph.output.extend(helper.make_empty_tensor_value_info(n) for n in names if n not in have)
    return ReferenceEvaluator(proto)


def compute_reference(model: Model, batch: Mapping[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    """What ONNX's own evaluator computes."""
    return dict(zip(names, _evaluator(model, names).run(list(names), dict(batch)), strict=True))


def product(precision: Precision) -> Model:
    """A product whose graph expresses a precision.

    By casts, by pairs of QuantizeLinear and DequantizeLinear, or by weights that are stored in four bits, with a scale
    for each block. A scale of FP4 is in FP8, and has one of its own. FP32 and TF32 are in no graph.
    """
    size, opset, node = 64, 19, helper.make_node
    weights = [numpy_helper.from_array(np.eye(size, dtype=np.float32), "w")]
    nodes = [node("MatMul", ["x", "w"], ["y"], name="product")]
    if (kind := CAST.get(precision)) is not None:
        nodes = [
            node("Cast", ["x"], ["x_cast"], name="to_x", to=kind),
            node("Cast", ["w"], ["w_cast"], name="to_w", to=kind),
            node("MatMul", ["x_cast", "w_cast"], ["y_cast"], name="product"),
            node("Cast", ["y_cast"], ["y"], name="back", to=TensorProto.FLOAT),
        ]
    elif (kind := QUANTIZED.get(precision)) is not None:
        weights += [
            numpy_helper.from_array(np.array(0.05, np.float32), "scale"),
            helper.make_tensor("zero", kind, [], [0]),
        ]
        nodes = [
            op
            for v in ("x", "w")
            for op in (
                node("QuantizeLinear", [v, "scale", "zero"], [f"{v}_q"], name=f"{v}/Q"),
                node("DequantizeLinear", [f"{v}_q", "scale", "zero"], [f"{v}_dq"], name=f"{v}/DQ"),
            )
        ]
        nodes.append(node("MatMul", ["x_dq", "w_dq"], ["y"], name="product"))
    elif precision in STORED:
        kind, block, opset = STORED[precision]
        narrow = TensorProto.FLOAT8E4M3FN if precision is Precision.FP4 else TensorProto.FLOAT
        count = size // block
        weights = [
            helper.make_tensor("w", kind, [size, size], np.eye(size).ravel()),
            helper.make_tensor("scale", narrow, [count, size], np.ones(count * size)),
            numpy_helper.from_array(np.array(0.05, np.float32), "whole"),
        ]
        nodes = [
            node("DequantizeLinear", ["w", "scale"], ["w_dq"], name="w/DQ", axis=0, block_size=block),
            node("MatMul", ["x", "w_dq"], ["y"], name="product"),
        ]
        if precision is Precision.FP4:
            nodes[0].input[1] = "scale_dq"
            nodes.insert(0, node("DequantizeLinear", ["scale", "whole"], ["scale_dq"], name="scale/DQ"))
        else:
            del weights[-1]
    value = functools.partial(helper.make_tensor_value_info, elem_type=TensorProto.FLOAT, shape=[size, size])
    graph = helper.make_graph(nodes, f"product in {precision}", [value("x")], [value("y")], weights)
    imports = [helper.make_opsetid("", opset)]
    version = helper.find_min_ir_version_for(imports)
    return wrap(helper.make_model(graph, opset_imports=imports, ir_version=version), name="product")


def make_unknown_op_model() -> Model:
    """A model of two nodes, the first of an operator in a domain that no compiler has."""
    nodes = [
        helper.make_node("Nobody", ["x"], ["y"], name="odd", domain="of.nowhere"),
        helper.make_node("Relu", ["y"], ["z"], name="behind"),
    ]
    value = functools.partial(helper.make_tensor_value_info, elem_type=TensorProto.FLOAT, shape=[1, 4])
    graph = helper.make_graph(nodes, "odd", [value("x")], [value("z")])
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("of.nowhere", 1)]
    return wrap(helper.make_model(graph, opset_imports=imports, ir_version=9), name="odd")
