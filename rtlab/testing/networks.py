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


@functools.lru_cache(maxsize=4)
def _evaluator(model: Model, names: tuple[str, ...]) -> ReferenceEvaluator:
    proto = onnx.load_from_string(model.bytes())
    have = {o.name for o in proto.graph.output}
    proto.graph.output.extend(helper.make_empty_tensor_value_info(n) for n in names if n not in have)
    return ReferenceEvaluator(proto)


def expected(model: Model, batch: Mapping[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    """What ONNX's own evaluator computes."""
    return dict(zip(names, _evaluator(model, names).run(list(names), dict(batch)), strict=True))


def product(precision: Precision) -> Model:
    """A product whose graph expresses a precision: by casts, or by pairs of QuantizeLinear and DequantizeLinear."""
    size, node = 64, helper.make_node
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
    value = functools.partial(helper.make_tensor_value_info, elem_type=TensorProto.FLOAT, shape=[size, size])
    graph = helper.make_graph(nodes, f"product in {precision}", [value("x")], [value("y")], weights)
    return wrap(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=9), name="product"
    )
