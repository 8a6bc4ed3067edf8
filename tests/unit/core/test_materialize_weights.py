"""Weights of a loaded model as arrays, and constants that hold another count of numbers than they say."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import rtlab
from rtlab.errors import ModelError

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


NUMBERS = ("FLOAT", "DOUBLE", "INT64", "UINT64", "INT8", "BOOL", "FLOAT16", "BFLOAT16", "INT4", "COMPLEX64")
TYPES = (*NUMBERS, "STRING")


def constant(type_: str, count: int, dims: int) -> onnx.ModelProto:
    """A model that gives a constant of ``count`` numbers which says that it has ``dims``."""
    kind = TensorProto.DataType.Value(type_)
    tensor = helper.make_tensor("c", kind, [count], ["a" if type_ == "STRING" else 1] * count)
    tensor.dims[:] = [dims]
    info = helper.make_tensor_value_info
    graph = helper.make_graph(
        [helper.make_node("Constant", [], ["y"], value=tensor), helper.make_node("Relu", ["x"], ["z"])],
        "g", [info("x", 1, [1])], [info("y", kind, ["n"]), info("z", 1, [1])],
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


@pytest.mark.parametrize("type_", TYPES)
def test_constants_hold_as_many_numbers_as_they_say(type_) -> None:
    assert rtlab.load(constant(type_, 4, 4)).nodes[0].op == "Constant"
    if type_ != "STRING":
        for dims in (1, 9):
            with pytest.raises(ModelError, match="the file holds"):
                rtlab.load(constant(type_, 4, dims))
