"""TensorRT's operators of quantization on ONNX Runtime, against NumPy by the specification."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import trt_nets
from rtlab.backends.onnxruntime import OnnxRuntime, open_session_model
from rtlab.core.model import Model, load
from rtlab.core.progress import Silent
from rtlab.core.protocols import BuildRequest
from rtlab.core.trt_operators import TRT_OPS
from rtlab.core.variant import Variant
from rtlab.errors import BuildError
from rtlab.quantize import prepare
from sessions import computed, run
from trt_nets import E2M1, E4M3

node = helper.make_node


def output(model: Model, x: np.ndarray, names: list[str] | None = None) -> list[np.ndarray]:
    """By a session in this process of what the backend hands over."""
    with open_session_model(model, names or ()) as content:
        assert isinstance(content, bytes)
        return run(content, {model.inputs[0]: x}, names)


def one(
    nodes: list, x: tuple, y: tuple, constants: dict, opset: int = 21, dtype: int = TensorProto.FLOAT
) -> Model:
    """A model of an input x and an output y."""
    ends = [helper.make_tensor_value_info(n, dtype, shape) for n, shape in (("x", x), ("y", y))]
    inits = [numpy_helper.from_array(np.asarray(a), n) for n, a in constants.items()]
    graph = helper.make_graph(nodes, "one", ends[:1], ends[1:], inits)
    imports = [helper.make_opsetid("", opset), helper.make_opsetid("trt", 1)]
    return load(helper.make_model(graph, opset_imports=imports, ir_version=10))


@pytest.mark.parametrize("name", trt_nets.NETS)
def test_the_cpu_computes_what_numpy_does(name: str):
    proto, expected = trt_nets.NETS[name]()
    (got,) = output(load(proto), trt_nets.samples())
    np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("opset", [17, 20, 21])
def test_opsets_without_fp4_are_no_obstacle(opset: int):
    proto, expected = trt_nets.make_nvfp4(opset=opset)
    np.testing.assert_allclose(output(load(proto), trt_nets.samples())[0], expected, rtol=1e-5, atol=1e-5)


def fp8_pair(opset: int) -> list:
    return [
        node("TRT_FP8QuantizeLinear", ["x", "s"], ["q"], "q", domain="trt"),
        node("TRT_FP8DequantizeLinear", ["q", "s"], ["y"], "dq", domain="trt"),
    ]


@pytest.mark.parametrize("opset", [13, 17, 21])
def test_rounding_to_e4m3_is_to_nearest_ties_to_even_and_saturates(opset: int):
    every = np.arange(256, dtype=np.uint8).view(E4M3).astype(np.float32)
    every = np.unique(every[np.isfinite(every)])
    middles = (every[1:] + every[:-1]) / 2
    powers = np.exp2(np.arange(-14, 10, dtype=np.float32))
    near = [np.nextafter(v, np.float32(to)) for v in (middles, powers) for to in (0, 1000)]
    x = np.concatenate([every, middles, powers, *near, np.float32([449, 1e30, -np.inf])])
    model = one(fp8_pair(opset), (len(x),), (len(x),), {"s": np.float32(1)}, opset)
    expected = np.clip(x, -448, 448).astype(E4M3).astype(np.float32)
    np.testing.assert_array_equal(expected, output(model, x)[0])


def test_not_a_number_stays_one():
    model = one(fp8_pair(17), (3,), (3,), {"s": np.float32(1)}, 17)
    (got,) = output(model, np.array([np.nan, 1, 0], np.float32))
    assert np.isnan(got[0])
    assert got[1:].tolist() == [1, 0]


def dynamic_fp4(size: int) -> Model:
    blocks = {"axis": -1, "block_size": 16}
    nodes = [
        node("TRT_FP4DynamicQuantize", ["x", "g"], ["q", "s"], "q", domain="trt", **blocks),
        node("DequantizeLinear", ["s", "g"], ["d"], "d"),
        node("DequantizeLinear", ["q", "d"], ["y"], "dq", domain="trt", **blocks),
    ]
    return one(nodes, (2, size), (2, size), {"g": np.float32(1)})


def test_four_bits_by_hand():
    """The scale of all is 1. A block up to 3 has the scale 3 / 6, one of zeros 1, a tiny one the smallest of E4M3."""
    x = np.zeros((2, 48), np.float32)
    x[0, :8] = [3, 0.125, 0.375, 0.625, 0.875, 1.25, 1.75, -2.5]
    x[0, 32:34] = [1e-6, -1e-3]
    x[1, 0] = 6 * 448
    q, s, y = output(dynamic_fp4(48), x, ["q", "s", "y"])
    assert s.tolist() == [[0.5, 1, 2**-9], [448, 1, 1]]
    # In scales: 6, 0.25, 0.75, 1.25, 1.75, 2.5, 3.5, -5; ties go to the even one.
    assert q[0, :8].tolist() == [6, 0, 1, 1, 2, 2, 4, -4]
    assert q[0, 32:34].tolist() == [0, -0.5]
    assert y[0, :8].tolist() == [3, 0, 0.5, 0.5, 1, 1, 2, -2]
    assert y[1, 0] == 6 * 448


def test_powers_of_two_of_mxfp8_are_the_smallest_that_fit():
    """448 in a block needs the scale 1, and anything above it 2."""
    tops = [448, np.nextafter(np.float32(448), np.float32(1e9)), 447, 448 / 1024, 0, 3e38, 1e-40, 7.0, 3.5]
    x = np.zeros((len(tops), 32), np.float32)
    x[:, 3] = tops
    back = {"axis": -1, "block_size": 32}
    nodes = [
        node("TRT_MXFP8DynamicQuantize", ["x"], ["q", "s"], "q", domain="trt", **back),
        node("TRT_MXFP8DequantizeLinear", ["q", "s"], ["y"], "dq", domain="trt", output_dtype=1, **back),
    ]
    model = one(nodes, x.shape, x.shape, {}, 19)
    s, y = output(model, x, ["s", "y"])
    assert np.log2(s[:, 0].astype(np.float64)).tolist() == [0, 1, 0, -10, -127, 120, -127, -6, -7]
    assert y[[0, 3, 7, 8], 3].tolist() == [448, 448 / 1024, 7, 3.5]


def test_blocks_along_another_axis_and_in_halves():
    x = np.random.default_rng(3).standard_normal((2, 32, 5)).astype(np.float16)
    blocks = {"axis": 1, "block_size": 16}
    nodes = [
        node("TRT_FP4DynamicQuantize", ["x", "g"], ["q", "s"], "q", domain="trt", **blocks),
        node("DequantizeLinear", ["s", "g"], ["d"], "d", domain="trt"),
        node("DequantizeLinear", ["q", "d"], ["z"], "dq", domain="trt", **blocks),
        node("Cast", ["z"], ["y"], "back", to=TensorProto.FLOAT16),
    ]
    whole = np.float32(0.002)
    model = one(nodes, (2, 32, 5), (2, 32, 5), {"g": whole}, dtype=TensorProto.FLOAT16)
    assert [(2, 32, 5), (2, 2, 5)] == [model.values[v].shape for v in ("q", "s")]
    turned = np.moveaxis(x.astype(np.float32), 1, 2)
    expected = np.moveaxis(trt_nets.from_nvfp4(*trt_nets.nvfp4(turned, whole), whole), 2, 1)
    np.testing.assert_array_equal(expected.astype(np.float16), output(model, x)[0])


def test_a_scale_for_each_channel_and_a_moved_weight():
    w = np.random.default_rng(5).standard_normal((4, 8)).astype(np.float32)
    scale = np.float32([0.01, 0.02, 0.03, 0.04])
    nodes = [
        node("Transpose", ["w"], ["t"], "turn", perm=[1, 0]),
        node("TRT_FP8DequantizeLinear", ["t", "s"], ["d"], "dq", domain="trt", axis=1),
        node("MatMul", ["x", "d"], ["y"], "product"),
    ]
    stored = (w / scale[:, None]).astype(E4M3)
    model = one(nodes, (8, 8), (8, 4), {"w": stored, "s": scale})
    expected = (stored.astype(np.float32) * scale[:, None]).T
    np.testing.assert_allclose(output(model, np.eye(8, dtype=np.float32))[0], expected, rtol=1e-6)


def test_constants_of_nodes_are_widened_too():
    numbers = np.array([[0.5, -6.0]], np.float32)
    nodes = [
        node("Constant", [], ["w"], "w", value=numpy_helper.from_array(numbers.astype(E2M1), "w")),
        node("DequantizeLinear", ["w", "s"], ["d"], "dq"),
        node("Add", ["x", "d"], ["y"], "sum"),
    ]
    model = one(nodes, (1, 2), (1, 2), {"s": np.float32(2)}, 23)
    assert output(model, np.zeros((1, 2), np.float32))[0].tolist() == [[1, -12]]


def test_int4_reaches_minus_eight():
    nodes = [
        node("TRT_INT4QuantizeLinear", ["x", "s"], ["q"], "q", domain="trt"),
        node("TRT_INT4DequantizeLinear", ["q", "s"], ["y"], "dq", domain="trt"),
    ]
    model = one(nodes, (5,), (5,), {"s": np.float32(1)})
    assert output(model, np.float32([-9, -7.5, 2.5, 3.5, 8]))[0].tolist() == [-8, -8, 2, 4, 7]


def test_a_dimension_that_is_not_known_is_named():
    blocks = {"axis": 1, "block_size": 16}
    nodes = [node("TRT_FP4DynamicQuantize", ["x", "g"], ["q", "y"], "quantizer", domain="trt", **blocks)]
    model = one(nodes, (2, 32, "open"), (2, 2, "open"), {"g": np.float32(1)})
    with pytest.raises(BuildError, match=r'cannot run node "quantizer".*"x" behind'):
        output(model, np.zeros((2, 32, 3), np.float32))


@pytest.mark.parametrize("op", sorted(TRT_OPS))
@pytest.mark.parametrize("reads", [[], ["x"], ["", "s"]])
def test_a_node_without_its_inputs_is_left_to_errors_in_words(op: str, reads: list[str]):
    nodes = [node(op, reads, ["q"], "odd", domain="trt"), node("Transpose", ["q"], ["t"], "turn")]
    model = one(
        [*nodes, node("MatMul", ["x", "t"], ["y"], "product")], (16, 16), (16, 16), {"s": np.float32(1)}
    )
    assert prepare(model, Variant.of("fp32")).model is model
    with open_session_model(model) as content:
        assert isinstance(content, bytes)


def test_other_models_are_handed_over_as_they_are(tiny_model: Model):
    with open_session_model(tiny_model) as content:
        assert content == tiny_model.bytes()


def test_an_engine_says_that_its_times_are_of_an_emulation(tiny_model: Model):
    backend = OnnxRuntime(threads=1)
    for model, count in ((load(trt_nets.make_nvfp4()[0]), 1), (tiny_model, 0)):
        engine = backend.build(BuildRequest(model, Variant.of("fp32"), level="basic"), Silent())
        assert count == sum("computed in FP32 by operators of ONNX" in note for note in engine.notes)


@pytest.mark.slow
def test_the_backend_runs_such_a_model():
    """Through the child, and with weights large enough for a file of their own."""
    proto, expected = trt_nets.make_nvfp4()
    big = numpy_helper.from_array(np.zeros((1 << 22) + 1, np.float32), "big")
    proto.graph.initializer.append(big)
    next(n for n in proto.graph.node if n.name == "product").output[0] = "y0"
    proto.graph.node.append(node("ReduceSum", ["big"], ["zero"], "zero", keepdims=0))
    proto.graph.node.append(node("Add", ["y0", "zero"], ["y"], "sum"))
    got = computed(load(proto), {"x": trt_nets.samples()}, ["y", "x_dq"])
    np.testing.assert_allclose(got["y"], expected, rtol=1e-5, atol=1e-5)
    whole = np.float32(np.abs(trt_nets.samples()).max() / np.float32(2688))
    rounded = trt_nets.from_nvfp4(*trt_nets.nvfp4(trt_nets.samples(), whole), whole)
    np.testing.assert_array_equal(rounded, got["x_dq"])


def test_bf16_results_keep_their_type():
    nodes = [*fp8_pair(19)[:1], node("TRT_FP8DequantizeLinear", ["q", "s"], ["y"], "dq", domain="trt")]
    model = one(nodes, (2,), (2,), {"s": np.array(1, ml_dtypes.bfloat16)}, 19, TensorProto.BFLOAT16)
    assert model.values["q"].dtype == "fp8"
    assert model.values["y"].dtype == "bf16"
