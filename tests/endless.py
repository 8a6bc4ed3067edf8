"""A model that runs until the end of the world."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

STEPS = 2**62


def endless(*, constant: bool) -> onnx.ModelProto:
    """``z = 2 * (2 * x + STEPS)``, one by one; the number of steps is a constant or the input ``n``."""
    value = helper.make_tensor_value_info
    step = [
        helper.make_node("Identity", ["on"], ["go"], name="go"),
        helper.make_node("Add", ["sum", "one"], ["more"], name="add"),
    ]
    body = helper.make_graph(
        step,
        "body",
        [
            value("i", TensorProto.INT64, []),
            value("on", TensorProto.BOOL, []),
            value("sum", TensorProto.FLOAT, [1, 4]),
        ],
        [
            value("go", TensorProto.BOOL, []),
            value("more", TensorProto.FLOAT, [1, 4]),
        ],
        [numpy_helper.from_array(np.ones(4, np.float32), "one")],
    )
    steps = numpy_helper.from_array(np.array(STEPS, np.int64), "n")
    graph = helper.make_graph(
        [
            helper.make_node("MatMul", ["x", "w"], ["r"], name="double"),
            helper.make_node("Loop", ["n", "", "r"], ["y"], name="loop", body=body),
            helper.make_node("MatMul", ["y", "w"], ["z"], name="again"),
        ],
        "endless",
        [
            value("x", TensorProto.FLOAT, [1, 4]),
            *([] if constant else [value("n", TensorProto.INT64, [])]),
        ],
        [value("z", TensorProto.FLOAT, [1, 4])],
        [numpy_helper.from_array(2 * np.eye(4, dtype=np.float32), "w"), *([steps] if constant else [])],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
