"""What counts of a model when a build is looked up, and what does not."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from nets import graph_proto
from rtlab import samples
from rtlab.core.model import load


def quantized(
    *, scale: float = 0.1, zero: int = 0, factor: float = 2.0, weights: np.ndarray | None = None, rounded: int = 5,
    shape: tuple[int, ...] = (1, 6), op: str = "Relu", axis: int = 1, called: str = "act", size: int = 4,
    opset: int = 17,
) -> onnx.ModelProto:  # fmt: skip
    """A pair, a scaling by a constant, a weight, a reshape and a softmax along an axis."""
    rng = np.random.default_rng(0)
    held = {
        "scale": np.float32(scale),
        "zero": np.int8(zero),
        "factor": np.float32(factor),
        "weight": rng.normal(size=(4, 6)).astype(np.float32) if weights is None else weights,
        "rounded": np.arange(rounded, rounded + 24, dtype=np.int8).reshape(6, 4),
        "to": np.array(shape, np.int64),
    }
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "scale", "zero"], ["q"], "q"),
        helper.make_node("DequantizeLinear", ["q", "scale", "zero"], ["d"], "d"),
        helper.make_node("Mul", ["d", "factor"], ["m"], "m"),
        helper.make_node(op, ["m"], ["a"], called),
        helper.make_node("MatMul", ["a", "weight"], ["p"], "p"),
        helper.make_node("DequantizeLinear", ["rounded", "scale"], ["w"], "w"),
        helper.make_node("MatMul", ["p", "w"], ["u"], "u"),
        helper.make_node("MatMul", ["u", "weight"], ["v"], "v"),
        helper.make_node("Reshape", ["v", "to"], ["r"], "r"),
        helper.make_node("Softmax", ["r"], ["y"], "s", axis=axis),
    ]
    ends = [("x", TensorProto.FLOAT, [size // 4, 4])], [("y", TensorProto.FLOAT, ["rows", "columns"])]
    return graph_proto(nodes, *ends, held, opset)


def structure(**changed) -> str:
    return load(quantized(**changed)).structure


@pytest.mark.parametrize(
    "changed",
    [{"scale": 0.1000001}, {"scale": 3.0}, {"weights": 2 + np.eye(4, 6, dtype=np.float32)}, {"rounded": 6}],
    ids=["a scale's last bits", "another scale", "other weights", "weights that were rounded"],
)
def test_numbers_that_a_machine_computes_do_not_count(changed):
    """Scales differ in their last bits from processor to processor, and layers follow from neither."""
    assert structure() == structure(**changed)


@pytest.mark.parametrize(
    "changed",
    [
        {"zero": 3}, {"factor": 2.5}, {"weights": np.zeros((4, 6), np.float32)}, {"shape": (6, 1)}, {"op": "Sigmoid"},
        {"axis": 0}, {"called": "other"}, {"size": 8, "shape": (2, 6)}, {"opset": 18},
    ],
    ids=lambda c: next(iter(c)),
)  # fmt: skip
def test_what_a_compiler_may_decide_by_counts(changed):
    """An operator, an attribute, a name, a shape, an integer, a single number, a weight that is all one number."""
    assert structure() != structure(**changed)


def test_a_type_counts():
    other = quantized()
    weight = next(t for t in other.graph.initializer if t.name == "zero")
    weight.CopyFrom(numpy_helper.from_array(np.uint8(0), "zero"))
    assert structure() != load(other).structure


def test_the_nodes_of_a_body_count():
    info = helper.make_tensor_value_info

    def loop(op: str) -> onnx.ModelProto:
        inside = [
            helper.make_node(op, ["v"], ["w"], "inside"),
            helper.make_node("Identity", ["c"], ["d"], "keep"),
        ]
        scalars = [info("i", TensorProto.INT64, []), info("c", TensorProto.BOOL, [])]
        ends = [*scalars, info("v", 1, [2])], [info("d", TensorProto.BOOL, []), info("w", 1, [2])]
        body = helper.make_graph(inside, "body", *ends)
        node = helper.make_node("Loop", ["n", "", "x"], ["y"], "loop", body=body)
        return graph_proto([node], [("x", 1, [2])], [("y", 1, [2])], {"n": np.int64(3)})

    assert load(loop("Relu")).structure == load(loop("Relu")).structure
    assert load(loop("Relu")).structure != load(loop("Sigmoid")).structure


def test_a_size_that_the_user_named_counts():
    dynamic = samples.load("dynamic_shapes").model
    name, size = next(iter(dynamic.shapes.items()))
    larger = size + 1 if isinstance(size, int) else tuple(n * 2 for n in size)
    other = load(dynamic.bytes(), shapes={**dynamic.shapes, name: larger})
    assert dynamic.structure == load(dynamic.bytes(), shapes=dynamic.shapes).structure
    assert dynamic.structure != other.structure


def test_a_name_and_a_file_of_the_model_do_not_count(tmp_path):
    sample = samples.load("digits_qat").model
    (tmp_path / "mine.onnx").write_bytes(sample.bytes())
    assert sample.structure == load(tmp_path / "mine.onnx").structure
