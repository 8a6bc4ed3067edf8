"""Bytes of outputs, counted by hand."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import strategies
from rtlab import load
from rtlab.backends.compiler_info import TENSORRT
from rtlab.core.engine import Allocation, Engine, Layer, Tensor
from rtlab.core.variant import Target
from rtlab.relation.footprint import nbytes, of_layers, of_nodes
from rtlab.testing import tiny_model


@pytest.mark.parametrize(
    ("dtype", "shape", "expected"),
    [
        ("fp32", (1, 3, 8, 8), 768), ("bf16", (2, 5), 20), ("int4", (3, 3), 5), ("fp4", (), 1), ("fp8", (7,), 7),
        ("bool", (7,), 7), ("int64", (0, 4), 0), ("fp32", (1, -1), None), ("fp32", ("N", 2), None),
        ("fp32", None, None), ("", (1,), None),
    ],
)  # fmt: skip
def test_a_dense_tensor_takes_elements_times_bits(dtype, shape, expected) -> None:
    """Two 4-bit numbers share a byte; what has no known size has none."""
    assert expected == nbytes(dtype, shape)


def test_nodes_count_every_output_at_the_named_size() -> None:
    node = helper.make_node("Split", ["x", "at"], ["y", "z"], name="split", axis=1)
    proto = strategies.of_nodes(
        [node], weights=[numpy_helper.from_array(np.array([1, 3]), "at")], shape=("N", 4), result=("N", 1)
    )
    proto.graph.output.append(helper.make_tensor_value_info("z", TensorProto.FLOAT, ("N", 3)))
    assert 4 * 4 == of_nodes(load(proto))["split"].nbytes
    found = of_nodes(load(proto, shapes={"N": 5}))["split"]
    assert (5 * 4 * 4, 2, "estimated") == (found.nbytes, found.tensors, found.origin)


def engine_of(*outputs: Tensor, **rest) -> Engine:
    layers = tuple(
        Layer(id=t.name, name=t.name, kind="kgen", index=i, outputs=(t,)) for i, t in enumerate(outputs)
    )
    return Engine("tensorrt", "11", Target("sm86"), layers, **rest, maker=TENSORRT)


def test_what_the_compiler_reported_goes_before_the_estimate() -> None:
    told = Allocation("a", 512, 0, 1, None, "reported")
    engine = engine_of(Tensor("a", "fp16", (1, 3)), Tensor("b", "fp16", (1, 3)), allocations=(told,))
    found = of_layers(engine, tiny_model())
    assert (512, "reported") == (found["a"].nbytes, found["a"].origin)
    assert (6, "estimated") == (found["b"].nbytes, found["b"].origin)


def test_a_dimension_that_the_engine_leaves_open_is_that_of_the_model() -> None:
    """In the engine's own type; a tensor that the model does not know is left out."""
    engine = engine_of(Tensor("stem", "fp16", (-1, 8, 8, 8)), Tensor("own", "fp16", (-1, 2)))
    assert {"stem": 8 * 8 * 8 * 2} == {k: f.nbytes for k, f in of_layers(engine, tiny_model()).items()}


def test_a_node_of_unknown_size_is_left_out() -> None:
    node = helper.make_node("NonZero", ["x"], ["y"], name="found")
    proto = strategies.of_nodes([node], result=(2, "found"))
    proto.graph.output[0].type.tensor_type.elem_type = TensorProto.INT64
    assert {} == of_nodes(load(proto))
