"""Weights of a loaded model as arrays."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import onnx
from onnx import helper, numpy_helper

import rtlab

node = helper.make_node


def proto(weight: onnx.TensorProto, *more: onnx.NodeProto) -> onnx.ModelProto:
    graph = helper.make_graph(
        [node("Identity", ["w"], ["y"], name="n"), *more], "net", [],
        [helper.make_tensor_value_info("y", weight.data_type, list(weight.dims))], [weight],
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def test_a_large_weight_is_read_without_a_copy() -> None:
    values = np.arange(2048, dtype=np.float32)
    model = rtlab.load(proto(numpy_helper.from_array(values, "w")))
    weight = model.ir.graph.initializers["w"].const_value
    assert weight.numpy() is weight.numpy()
    np.testing.assert_array_equal(values, weight.numpy())


def test_a_model_is_written_as_it_was_read_to_the_last_byte() -> None:
    """Large and small, raw and in fields, in four bits, with a word beside it; its digest is its key in caches."""
    told = numpy_helper.from_array(np.ones(2048, ml_dtypes.bfloat16), "w")
    told.doc_string = "of a checkpoint"
    weights = [
        numpy_helper.from_array(np.ones(2048, np.float32), "w"),
        numpy_helper.from_array(np.ones(3, np.float32), "w"),
        helper.make_tensor("w", onnx.TensorProto.FLOAT, [2048], [1.0] * 2048),
        helper.make_tensor("w", onnx.TensorProto.INT4, [4096], [3] * 4096),
        helper.make_tensor("w", onnx.TensorProto.STRING, [2], [b"a", b"b"]),
        told,
    ]
    for weight in weights:
        source = proto(weight)
        loaded = rtlab.load(source)
        assert source.graph.initializer[0] == loaded.proto().graph.initializer[0]
