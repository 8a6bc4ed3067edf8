"""TensorRT's operators of quantization: what they write, stated by hand."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper

import trt_nets
from rtlab.backends.onnxruntime import OnnxRuntime
from rtlab.core.model import load
from rtlab.core.progress import Silent
from rtlab.core.protocols import BuildRequest
from rtlab.core.trt_operators import OPERATORS, TRT_OPS, is_dequantizer, make_function
from rtlab.core.variant import Variant
from rtlab.errors import ModelError

X, W, T = (2, 32, 64), (48, 64), (64, 48)
#: Values that nodes write, with type and shape.
WRITTEN = {
    "fp8": {"x_q": ("fp8", X), "x_dq": ("fp32", X), "w_q": ("fp8", T), "w_dq": ("fp32", T)},
    "int4": {"w_dq": ("fp32", W), "turned": ("fp32", T)},
    "int4_pair": {"w_q": ("int4", W), "w_dq": ("fp32", W), "turned": ("fp32", T)},
    "nvfp4": {"x_q": ("fp4", X), "x_scale": ("fp8", (2, 32, 4)), "x_s": ("fp32", (2, 32, 4)), "x_dq": ("fp32", X)},
    "nvfp4_trt": {"x_q": ("fp4", X), "x_scale": ("fp8", (2, 32, 4)), "x_s": ("fp32", (2, 32, 4)), "x_dq": ("fp32", X)},
    "nvfp4_weights": {"w_s": ("fp32", (48, 4)), "w_dq": ("fp32", W), "turned": ("fp32", T)},
    "nvfp4_static": {"w_dq": ("fp32", W), "turned": ("fp32", T)},
    "mxfp8": {"x_q": ("fp8", X), "x_s": ("e8m0", (2, 32, 2)), "x_dq": ("fp32", X), "w_dq": ("fp32", W)},
}  # fmt: skip


@pytest.mark.parametrize("name", trt_nets.NETS)
def test_types_and_shapes_follow_from_the_input(name: str):
    model = load(trt_nets.NETS[name]()[0])
    assert {v: (model.values[v].dtype, model.values[v].shape) for v in WRITTEN[name]} == WRITTEN[name]


def test_the_models_have_every_operator():
    written = {n.op_type for make in trt_nets.NETS.values() for n in make()[0].graph.node}
    # What computes no scale has the form of the one that has FP8 in blocks of another size.
    assert TRT_OPS - written == {"TRT_MXFP8QuantizeLinear"}


def test_shapes_at_another_batch_follow():
    proto = trt_nets.make_nvfp4()[0]
    for value in (*proto.graph.input, *proto.graph.output):
        value.type.tensor_type.shape.dim[0].dim_param = "batch"
    model = load(proto)
    assert (model.values["x_scale"].dtype, model.values["x_scale"].shape) == ("fp8", ("batch", 32, 4))
    sizes = model.sizes(batch=5)
    assert [sizes.get(v) for v in ("x_q", "x_scale", "x_dq", "y")] == [
        (5, 32, 64), (5, 32, 4), (5, 32, 64), (5, 32, 48),
    ]  # fmt: skip


def test_a_type_that_the_file_declares_stays():
    """ModelOpt declares what FP8 operators write as UINT8."""
    proto = trt_nets.make_fp8()[0]
    proto.graph.value_info.append(helper.make_tensor_value_info("x_q", TensorProto.UINT8, [2, 32, 64]))
    model = load(proto)
    assert model.values["x_dq"].dtype == "fp32"


def test_types_that_contradict_the_operators_are_those_of_the_operators():
    """As TensorRT reads such a file, and as what ModelOpt exports has to be read."""
    proto, expected = trt_nets.make_nvfp4_halves()
    model = load(proto)
    assert {"m": "fp16", "y": "fp16"} == {v: model.values[v].dtype for v in ("m", "y")}
    assert (2, 32, 48) == model.values["m"].shape
    (note,) = model.notes
    assert note.startswith("2 values have other types in the file than the operators that write them give")
    assert note.endswith("(m, y)")
    runner = OnnxRuntime()
    engine = runner.build(BuildRequest(model, Variant.of("fp32"), level="basic"), Silent())
    (y,) = runner.outputs(engine, {"x": trt_nets.samples()}, ("y",)).values()
    # FP16 has eleven bits, also of what a sum is stored in.
    assert np.abs(y - expected).max() < 2e-3 * np.abs(expected).max()


def test_a_wrong_type_in_a_plain_file_is_replaced_and_a_wrong_operator_is_not():
    nodes = [
        helper.make_node("Cast", ["x"], ["h"], to=TensorProto.FLOAT16),
        helper.make_node("Relu", ["h"], ["r"]),
    ]
    ends = [
        helper.make_tensor_value_info(n, t, [4])
        for n, t in (("x", TensorProto.FLOAT), ("y", TensorProto.FLOAT16))
    ]
    wrong = helper.make_tensor_value_info("r", TensorProto.FLOAT, [4])
    for more, first in ((["r"], "h"), (["r", "x"], "")):
        op = "Neg" if len(more) == 1 else "Add"
        graph = helper.make_graph(
            [*nodes, helper.make_node(op, more, ["y"])], "g", ends[:1], ends[1:], value_info=[wrong]
        )
        proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
        if first:
            assert "fp16" == load(proto).values["r"].dtype
        else:
            with pytest.raises(ModelError, match=r"Add.*inconsistent type"):
                load(proto)


@pytest.mark.parametrize("opset", [17, 20, 21])
def test_fp4_in_an_opset_without_it_is_read(opset: int):
    """ModelOpt writes it so, and TensorRT takes it."""
    model = load(trt_nets.make_nvfp4(opset=opset)[0])
    assert model.opset == opset
    assert [n.domain for n in model.top if n.op == "DequantizeLinear"] == [""] * 4
    assert (model.values["w_dq"].dtype, model.values["w_dq"].shape) == ("fp32", W)
    # What is wrong beside stays wrong.
    proto = trt_nets.make_nvfp4(opset=opset)[0]
    proto.graph.node.append(helper.make_node("Relu", ["y"], ["z"], block_size=16))
    with pytest.raises(ModelError, match="block_size"):
        load(proto)


def test_operators_of_other_domains_are_not_meant():
    for domain in ("", "of.nowhere"):
        assert make_function(helper.make_node("TRT_FP4QDQ", ["x"], ["y"], domain=domain)) is None
    assert is_dequantizer("", "DequantizeLinear")
    assert is_dequantizer("trt", "TRT_MXFP8DequantizeLinear")
    assert not is_dequantizer("trt", "TRT_FP8QuantizeLinear")
    assert {o.kind for o in OPERATORS.values()} == {"quantize", "dequantize", "round"}
