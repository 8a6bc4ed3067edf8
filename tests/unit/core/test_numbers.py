"""Constants whose fields hold another count of numbers than their dimensions say."""

from __future__ import annotations

import onnx
import pytest
from onnx import TensorProto, helper

import rtlab
from rtlab.errors import ModelError

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
