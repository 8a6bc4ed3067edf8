"""Small networks that already have Q/DQ, well placed, or with one fault planted. Shared by unit and backend tests."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from rtlab.core.finding import Finding
from rtlab.core.model import Model, load
from rtlab.quantize import findings

ACT, WEIGHT = 0.05, 0.001


class Net:
    """Writes a network node by node; each method returns the name of the value that it made."""

    def __init__(self, *, channels: int = 16, size: int = 8, opset: int = 17) -> None:
        self.rng = np.random.default_rng(0)
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []
        self.channels, self.size, self.opset = channels, size, opset
        self.shape = [1, channels, size, size]

    def constant(self, name: str, values: object, dtype: type = np.float32) -> str:
        self.weights.append(numpy_helper.from_array(np.asarray(values, dtype), name))
        return name

    def op(self, op: str, inputs: list[str], name: str, **attributes: object) -> str:
        self.nodes.append(helper.make_node(op, inputs, [f"{name}_out"], name=name, **attributes))
        return f"{name}_out"

    def pair(
        self,
        value: str,
        name: str,
        *,
        scale: object = ACT,
        zero: object = 0,
        dtype: type = np.int8,
        shape: tuple[int, ...] = (),
    ) -> str:
        s = self.constant(f"{name}_scale", np.full(shape, scale) if np.ndim(scale) == 0 else scale)
        z = self.constant(f"{name}_zero", np.full(shape, zero), dtype)
        q = self.op("QuantizeLinear", [value, s, z], f"{name}_q")
        return self.op("DequantizeLinear", [q, s, z], f"{name}_dq")

    def weight(
        self, name: str, shape: tuple[int, ...], *, axis: int | None = 0, quantized: bool = True
    ) -> str:
        """An INT8 weight behind a DequantizeLinear, per channel or (axis None) per tensor; or an FP32 one."""
        values = self.rng.integers(-127, 128, shape).astype(np.int8)
        if not quantized:
            return self.constant(f"{name}_w", values.astype(np.float32) * np.float32(WEIGHT))
        scales = np.float32(WEIGHT) if axis is None else np.full(shape[axis], WEIGHT, np.float32)
        s, w = self.constant(f"{name}_ws", scales), self.constant(f"{name}_w", values, np.int8)
        attributes = {} if axis is None or self.opset < 13 else {"axis": axis}
        return self.op("DequantizeLinear", [w, s], f"{name}_wdq", **attributes)

    def conv(self, value: str, name: str, *, quantized: bool = True, bias: str = "", kernel: int = 3) -> str:
        """A convolution with as many channels out as in; its input is quantized by the caller."""
        w = self.weight(name, (self.channels, self.channels, kernel, kernel), quantized=quantized)
        inputs = [value, w, bias] if bias else [value, w]
        return self.op("Conv", inputs, name, pads=[kernel // 2] * 4)

    def proto(self, *outputs: str, rank: int = 4) -> onnx.ModelProto:
        shape = self.shape if rank == 4 else [1, *self.shape[-2:]]
        graph = helper.make_graph(
            self.nodes, "qdq", [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
            [onnx.ValueInfoProto(name=o) for o in outputs], self.weights,
        )  # fmt: skip
        made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", self.opset)], ir_version=9)
        return onnx.shape_inference.infer_shapes(made)

    def model(self, *outputs: str, rank: int = 4) -> Model:
        return load(self.proto(*outputs, rank=rank), name="qdq")


def quantize_static(
    sample: object, folder: Path, *, count: int = 32, form: str = "QDQ", **options: object
) -> Model:
    """A sample as ONNX Runtime's own quantize_static writes it, in its format QDQ or QOperator, by its defaults."""
    import logging

    from onnxruntime.quantization import CalibrationDataReader, QuantFormat
    from onnxruntime.quantization import quantize_static as run

    class Reader(CalibrationDataReader):
        def __init__(self) -> None:
            (name,) = sample.model.inputs
            self.left = iter([{name: row[None]} for row in sample.calibration.arrays[name][:count]])

        def get_next(self) -> dict[str, np.ndarray] | None:
            return next(self.left, None)

    source, target = folder / "source.onnx", folder / "quantized.onnx"
    source.write_bytes(sample.model.bytes())
    # It advises to preprocess, on the root logger.
    logging.disable(logging.WARNING)
    try:
        run(str(source), str(target), Reader(), quant_format=QuantFormat[form], **options)
    finally:
        logging.disable(logging.NOTSET)
    return load(target, name="quantize_static")


def two_convolutions() -> Model:
    """X -> pair -> Conv -> Relu -> pair -> Conv: as it should be."""
    n = Net()
    v = n.op("Relu", [n.conv(n.pair("x", "p0"), "c0")], "r0")
    return n.model(n.conv(n.pair(v, "p1"), "c1"))


def quantized_attention(dtype: type = np.int8) -> Model:
    """Two heads of attention between linear layers, all products by FP32 scales of INT8 or FP8."""
    net = Net(channels=2, size=64, opset=19)

    def linear(value: str, name: str) -> str:
        weight = net.constant(f"{name}_w", net.rng.standard_normal((64, 64)) / 8)
        pairs = [net.pair(value, f"{name}_x", dtype=dtype), net.pair(weight, f"{name}_k", dtype=dtype)]
        return net.op("MatMul", pairs, name)

    query, key, values = (linear("x", name) for name in "qkv")
    key = net.op("Transpose", [key], "turn", perm=[0, 1, 3, 2])
    pairs = [net.pair(query, "query", dtype=dtype), net.pair(key, "key", dtype=dtype)]
    shares = net.op("Softmax", [net.op("MatMul", pairs, "scores")], "shares", axis=-1)
    pairs = [net.pair(shares, "part", scale=1 / 127, dtype=dtype), net.pair(values, "value", dtype=dtype)]
    y = linear(net.op("MatMul", pairs, "mixed"), "y")
    return net.model(net.op("Add", ["x", y], "sum"))


def pair_before_relu(*, behind: bool) -> Model:
    n = Net()
    v = n.op("Relu", [n.pair(n.conv(n.pair("x", "p0"), "c0"), "wrong")], "r0")
    return n.model(n.conv(n.pair(v, "p1") if behind else v, "c1"))


def pair_before_batch_normalization() -> Model:
    n = Net()
    v = n.pair(n.conv(n.pair("x", "p0"), "c0"), "wrong")
    numbers = [n.constant(f"bn{i}", np.full(n.channels, k)) for i, k in enumerate((1.1, 0.1, 0.05, 0.9))]
    v = n.op("BatchNormalization", [v, *numbers], "bn0")
    return n.model(n.conv(n.pair(v, "p1"), "c1"))


def pair_on_the_convolutions_side_of_a_sum() -> Model:
    n = Net()
    skip = n.pair("x", "p0")
    v = n.op("Add", [n.pair(n.conv(skip, "c0"), "wrong"), skip], "add")
    return n.model(n.conv(n.pair(n.op("Relu", [v], "r0"), "p1"), "c1"))


def weight_in_fp32() -> Model:
    n = Net()
    v = n.op("Relu", [n.conv(n.pair("x", "p0"), "c0", quantized=False)], "r0")
    return n.model(n.conv(n.pair(v, "p1"), "c1"))


def transposed_weight_in_fp32() -> Model:
    """The same for a MatMul whose weight is stored transposed, as PyTorch writes a Linear."""
    n = Net()
    n.shape = [1, 8, 16]
    w = n.op("Transpose", [n.weight("m0", (32, 16), quantized=False)], "t0", perm=[1, 0])
    return n.model(n.op("MatMul", [n.pair("x", "p0"), w], "m0"))


def activation_in_fp32(*, known: bool) -> Model:
    n = Net()
    a = n.conv("x", "c0")
    return n.model(a, n.conv(n.pair("x", "p0"), "c1")) if known else n.model(a)


def activation_in_fp32_behind_a_pool() -> Model:
    n = Net()
    v = n.conv(n.op("MaxPool", ["x"], "mp", kernel_shape=[2, 2], strides=[2, 2]), "c0")
    return n.model(v, n.conv(n.pair("x", "p0"), "c1"))


def one_factor_in_fp32() -> Model:
    n = Net()
    n.shape = [1, 8, 16]
    t = n.op("Transpose", ["x"], "t0", perm=[0, 2, 1])
    return n.model(n.op("MatMul", [n.pair("x", "p0"), t], "m0"))


def residual_in_fp32(*, known: bool) -> Model:
    n = Net()
    skip = n.op("Relu", ["x"], "r0")
    v = n.conv(n.pair(skip, "p0"), "c0")
    v = n.op("Relu", [v], "r1")
    other = skip if known else n.op("Sigmoid", ["x"], "s0")
    v = n.op("Add", [n.conv(n.pair(v, "p1"), "c1"), other], "add")
    return n.model(n.conv(n.pair(n.op("Relu", [v], "r2"), "p2"), "c2"))


def concat_of_two_scales(*, behind: bool) -> Model:
    n = Net()
    p = n.pair("x", "p0")
    a = n.op("Relu", [n.conv(p, "a")], "ra")
    b = n.op("Relu", [n.conv(p, "b", kernel=1)], "rb")
    v = n.op("Concat", [n.pair(a, "pa"), n.pair(b, "pb", scale=0.07)], "cat", axis=1)
    w = n.weight("c1", (16, 32, 1, 1))
    return n.model(n.op("Conv", [n.pair(v, "pc") if behind else v, w], "c1"))


def pair_per_reader() -> Model:
    n = Net()
    a = n.conv(n.pair("x", "p0"), "a")
    return n.model(a, n.conv(n.pair("x", "p1", scale=ACT), "b", kernel=1))


def bias_as_int32() -> Model:
    n = Net()
    b, s = n.constant("bias", np.arange(16) * 10 - 50, np.int32), n.constant("bias_s", np.full(16, 1e-3))
    return n.model(n.conv(n.pair("x", "p0"), "c0", bias=n.op("DequantizeLinear", [b, s], "bdq", axis=0)))


def batch_normalization_in_int8() -> Model:
    n = Net()
    v = n.conv(n.pair("x", "p0"), "c0")
    g, s = n.constant("g", np.arange(16) * 8, np.int8), n.constant("gs", 0.01)
    g = n.op("DequantizeLinear", [g, s], "gdq")
    numbers = [n.constant(f"bn{i}", np.full(n.channels, k)) for i, k in enumerate((0.1, 0.05, 0.9))]
    v = n.op("Relu", [n.op("BatchNormalization", [v, g, *numbers], "bn0")], "r0")
    return n.model(n.conv(n.pair(v, "p1"), "c1"))


def zero_point(zero: int, dtype: type, *, scale: float = ACT) -> Model:
    n = Net()
    return n.model(n.conv(n.pair("x", "p0", zero=zero, dtype=dtype, scale=scale), "c0"))


def zero_point_of_weight(zero: int, dtype: type) -> Model:
    n = Net()
    low = np.iinfo(dtype).min
    w = n.constant("w", n.rng.integers(low + 1, low + 255, (16, 16, 3, 3)), dtype)
    s, z = n.constant("ws", WEIGHT), n.constant("wz", zero, dtype)
    w = n.op("DequantizeLinear", [w, s, z], "wdq")
    return n.model(n.op("Conv", [n.pair("x", "p0"), w], "c0", pads=[1] * 4))


def scale_of(shape: tuple[int, ...], scale: object = ACT) -> Model:
    n = Net()
    return n.model(n.conv(n.pair("x", "p0", shape=shape, scale=scale), "c0"))


def weight_with_scale_of_one() -> Model:
    n = Net()
    w = n.constant("w", n.rng.integers(-127, 128, (16, 16, 3, 3)), np.int8)
    w = n.op("DequantizeLinear", [w, n.constant("ws", [WEIGHT])], "wdq")
    return n.model(n.op("Conv", [n.pair("x", "p0"), w], "c0", pads=[1] * 4))


def scale_at_run_time() -> Model:
    n = Net()
    s = n.op("Div", [n.op("ReduceMax", ["x"], "max", keepdims=0), n.constant("k", 127.0)], "div")
    z = n.constant("z", 0, np.int8)
    q = n.op("QuantizeLinear", ["x", s, z], "p0_q")
    return n.model(n.conv(n.op("DequantizeLinear", [q, s, z], "p0_dq"), "c0"))


def chain(*, view: bool = False) -> Model:
    n = Net()
    v = n.pair("x", "p0")
    if view:
        v = n.op("Reshape", [v, n.constant("to", [1, 16, 4, 16], np.int64)], "view")
    return n.model(n.conv(n.pair(v, "p1", scale=ACT), "c0"))


def around(op: str) -> Model:
    """A pair in front of an operator that has no INT8 form that pays, between two MatMuls."""
    n = Net()
    n.shape = [1, 8, 16]
    v = n.pair(n.op("MatMul", [n.pair("x", "p0"), n.weight("m0", (16, 16), axis=1)], "m0"), "wrong")
    if op == "LayerNormalization":
        v = n.op(op, [v, n.constant("g", np.ones(16)), n.constant("b", np.zeros(16))], "norm", axis=-1)
    else:
        v = n.op(op, [v], "norm", axis=-1)
    return n.model(n.op("MatMul", [n.pair(v, "p1"), n.weight("m1", (16, 16), axis=1)], "m1"))


def shape_of_a_pair() -> Model:
    n = Net()
    size = n.op("Shape", [n.pair(n.op("Abs", ["x"], "abs"), "wrong")], "shape")
    return n.model(n.op("Reshape", [n.conv(n.pair("x", "p0"), "c0"), size], "view"))


def vector(*, rows: int, columns: int) -> Model:
    n = Net()
    n.shape = [rows, 16]
    return n.model(n.op("MatMul", [n.pair("x", "p0"), n.weight("m0", (16, columns), axis=1)], "m0"))


def pair_between_add_and_relu() -> Model:
    """Outputs quantized one by one: two activations are added, quantized, and pass a Relu."""
    n = Net()
    v = n.op("Add", [n.op("Sigmoid", ["x"], "s0"), n.op("Tanh", ["x"], "t0")], "add")
    v = n.op("Relu", [n.pair(v, "wrong")], "r0")
    return n.model(n.conv(n.pair(v, "p1"), "c1"))


def pair_on_the_output() -> Model:
    n = Net()
    return n.model(n.pair(n.conv(n.pair("x", "p0"), "c0"), "wrong"))


#: Each planted fault: its name, how to make it, and the ids of the findings that it must give, no more and no less.
FAULTS: dict[str, tuple[Callable[[], Model], tuple[str, ...]]] = {
    "pair before Relu": (lambda: pair_before_relu(behind=True), ("before-activation:wrong_q",)),
    "pair before Relu, none behind": (lambda: pair_before_relu(behind=False), ("before-activation:wrong_q",)),
    "pair before BatchNormalization": (pair_before_batch_normalization, ("before-activation:wrong_q",)),
    "pair before Add": (pair_on_the_convolutions_side_of_a_sum, ("before-activation:wrong_q",)),
    "weight in FP32": (weight_in_fp32, ("weight-missing:c0",)),
    "transposed weight in FP32": (transposed_weight_in_fp32, ("weight-missing:m0",)),
    "activation in FP32, scale known": (lambda: activation_in_fp32(known=True), ("activation-missing:c0",)),
    "activation in FP32": (lambda: activation_in_fp32(known=False), ("activation-missing:c0",)),
    "activation in FP32 behind MaxPool": (activation_in_fp32_behind_a_pool, ("activation-missing:c0",)),
    "one factor in FP32": (one_factor_in_fp32, ("activation-missing:m0",)),
    "residual in FP32, scale known": (lambda: residual_in_fp32(known=True), ("residual:add",)),
    "residual in FP32": (lambda: residual_in_fp32(known=False), ("residual:add",)),
    "concat of two scales": (lambda: concat_of_two_scales(behind=False), ("concat:cat",)),
    "concat of two scales, pair behind": (lambda: concat_of_two_scales(behind=True), ("concat:cat",)),
    "pair per reader": (pair_per_reader, ("duplicate:p0_q",)),
    "INT32 bias": (bias_as_int32, ("parameter:bdq",)),
    "INT8 BatchNormalization": (batch_normalization_in_int8, ("parameter:gdq",)),
    "UINT8 around 128": (lambda: zero_point(128, np.uint8), ("zero-point:p0_q",)),
    "UINT8 from 0": (lambda: zero_point(0, np.uint8), ("zero-point:p0_q",)),
    "INT8 with zero point": (lambda: zero_point(3, np.int8), ("zero-point:p0_q",)),
    "UINT8 weight": (lambda: zero_point_of_weight(128, np.uint8), ("zero-point:wdq",)),
    "UINT8 weight off centre": (lambda: zero_point_of_weight(100, np.uint8), ("zero-point:wdq",)),
    "INT8 weight with zero point": (lambda: zero_point_of_weight(5, np.int8), ("zero-point:wdq",)),
    "scale of shape (1,)": (lambda: scale_of((1,)), ("scale-shape:p0_q",)),
    "weight scale of shape (1,)": (weight_with_scale_of_one, ("scale-shape:wdq",)),
    "scale per channel": (lambda: scale_of((16,)), ("channel-scale:p0_q",)),
    "scale 0": (lambda: scale_of((), 0.0), ("scale-value:p0_q",)),
    "scale NaN": (lambda: scale_of((), np.nan), ("scale-value:p0_q",)),
    "scale below 0": (lambda: scale_of((), -0.05), ("scale-value:p0_q",)),
    "scale infinite": (lambda: scale_of((), np.inf), ("scale-value:p0_q",)),
    "scale at run time": (scale_at_run_time, ("dynamic-scale:p0_q",)),
    "chain": (chain, ("chain:p1_q",)),
    "chain through a view": (lambda: chain(view=True), ("chain:p1_q",)),
    "before LayerNormalization": (lambda: around("LayerNormalization"), ("no-int8-kernel:wrong_q",)),
    "before Softmax": (lambda: around("Softmax"), ("no-int8-kernel:wrong_q",)),
    "before Shape": (shape_of_a_pair, ("no-int8-kernel:wrong_q",)),
    "one column": (lambda: vector(rows=8, columns=1), ("vector:m0",)),
    "between Add and Relu": (pair_between_add_and_relu, ("between:wrong_q",)),
    "on the output": (pair_on_the_output, ("output:wrong_q",)),
}


def repair(
    model: Model,
    selection: Iterable[Finding | str] | None = None,
    *,
    scale_of: Callable[[str], float] | None = None,
) -> Model:
    """A model without some findings; by default without all that are fixable."""
    chosen = findings.select(model, selection, calibrated=scale_of is not None)
    return findings.apply(model, chosen, scale_of)[0]
