"""Models with TensorRT's operators of quantization, in the forms that ModelOpt exports, with their numbers by NumPy."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import ml_dtypes
import numpy as np
from onnx import ModelProto, TensorProto, helper, numpy_helper

node = helper.make_node
ROWS, DEPTH, COLUMNS = 32, 64, 48
#: Types of stored numbers.
E4M3, E2M1, E8M0 = ml_dtypes.float8_e4m3fn, ml_dtypes.float4_e2m1fn, ml_dtypes.float8_e8m0fnu
Array = np.ndarray[Any, Any]


def weight(seed: int = 0) -> Array:
    """As PyTorch stores it: columns by depth."""
    rng = np.random.default_rng(seed)
    spread = np.exp2(rng.integers(-3, 3, (COLUMNS, DEPTH // 16))).repeat(16, axis=1)
    return (rng.standard_normal((COLUMNS, DEPTH)) / 8 * spread).astype(np.float32)


def samples(seed: int = 1) -> Array:
    rng = np.random.default_rng(seed)
    return rng.standard_normal((2, ROWS, DEPTH)).astype(np.float32)


def encode(x: Array, dtype: Any, largest: float) -> Array:
    return np.clip(x, -largest, largest).astype(dtype)


def nvfp4(x: Array, whole: np.float32) -> tuple[Array, Array]:
    """Numbers in E2M1 and scales in E4M3, along the last axis, by the specification."""
    blocks = x.reshape(*x.shape[:-1], -1, 16)
    relative = np.abs(blocks).max(axis=-1) / (np.float32(6) * whole)
    relative = np.maximum(np.where(relative == 0, np.float32(1), relative), np.float32(2**-9))
    scales = encode(relative, E4M3, 448)
    numbers = blocks / (scales.astype(np.float32) * whole)[..., None]
    return encode(numbers, E2M1, 6).reshape(x.shape), scales


def from_nvfp4(numbers: Array, scales: Array, whole: np.float32) -> Array:
    return numbers.astype(np.float32) * (scales.astype(np.float32) * whole).repeat(16, axis=-1)


def mxfp8(x: Array) -> tuple[Array, Array]:
    """Numbers in E4M3 and the exponents of scales, with a bias of 127, along the last axis."""
    blocks = x.reshape(*x.shape[:-1], -1, 32)
    exponents = np.ceil(np.log2(np.abs(blocks).max(axis=-1).astype(np.float64) / 448)).clip(-127, 127)
    numbers = blocks / np.exp2(exponents)[..., None].astype(np.float32)
    return encode(numbers, E4M3, 448).reshape(x.shape), (exponents + 127).astype(np.uint8)


def from_mxfp8(numbers: Array, scales: Array) -> Array:
    return numbers.astype(np.float32) * np.exp2(scales.astype(np.float32) - 127).repeat(32, axis=-1)


def model(
    nodes: list[Any], constants: Mapping[str, Array], opset: int, dtype: int = TensorProto.FLOAT
) -> ModelProto:
    ends = [
        helper.make_tensor_value_info(n, dtype, [2, ROWS, size]) for n, size in (("x", DEPTH), ("y", COLUMNS))
    ]
    inits = [numpy_helper.from_array(np.asarray(array), name) for name, array in constants.items()]
    graph = helper.make_graph(nodes, "net", ends[:1], ends[1:], inits)
    imports = [helper.make_opsetid("", opset), helper.make_opsetid("trt", 1)]
    return helper.make_model(graph, opset_imports=imports, ir_version=10 if opset < 23 else 11)


def make_fp8() -> tuple[ModelProto, Array]:
    """Pairs of one scale, which ModelOpt writes for opsets without FP8."""
    w, x, scale = weight().T, samples(), np.float32(0.01)
    pairs = [
        op
        for v in ("x", "w")
        for op in (
            node("TRT_FP8QuantizeLinear", [v, f"{v}_scale"], [f"{v}_q"], f"{v}/Q", domain="trt"),
            node("TRT_FP8DequantizeLinear", [f"{v}_q", f"{v}_scale"], [f"{v}_dq"], f"{v}/DQ", domain="trt"),
        )
    ]
    constants = {"w": w, "x_scale": scale, "w_scale": np.float32(0.002)}
    rounded = [
        encode(v / s, E4M3, 448).astype(np.float32) * s for v, s in ((x, scale), (w, constants["w_scale"]))
    ]
    return model([*pairs, node("MatMul", ["x_dq", "w_dq"], ["y"], "product")], constants, 17), np.matmul(
        *rounded
    )


def make_int4(opset: int = 21) -> tuple[ModelProto, Array]:
    """Weights in blocks of 32 along the last axis, turned before the product."""
    w, x = weight(), samples()
    scale = (np.abs(w.reshape(COLUMNS, -1, 32)).max(axis=-1) / 7).astype(np.float32)
    numbers = np.rint(w / scale.repeat(32, axis=1)).clip(-8, 7)
    nodes = [
        node(
            "TRT_INT4DequantizeLinear", ["w", "scale"], ["w_dq"], "w/DQ", domain="trt", axis=-1, block_size=32
        ),
        node("Transpose", ["w_dq"], ["turned"], "turn", perm=[1, 0]),
        node("MatMul", ["x", "turned"], ["y"], "product"),
    ]
    constants = {"w": numbers.astype(ml_dtypes.int4), "scale": scale}
    return model(nodes, constants, opset), x @ (numbers.astype(np.float32) * scale.repeat(32, axis=1)).T


def make_int4_pair() -> tuple[ModelProto, Array]:
    """A weight that is rounded in the graph, by one scale a row."""
    w, x = weight(), samples()
    scale = (np.abs(w).max(axis=1) / 7).astype(np.float32)
    numbers = np.rint(w / scale[:, None]).clip(-8, 7)
    nodes = [
        node("TRT_INT4QuantizeLinear", ["w", "scale"], ["w_q"], "w/Q", domain="trt", axis=0),
        node("TRT_INT4DequantizeLinear", ["w_q", "scale"], ["w_dq"], "w/DQ", domain="trt", axis=0),
        node("Transpose", ["w_dq"], ["turned"], "turn", perm=[1, 0]),
        node("MatMul", ["x", "turned"], ["y"], "product"),
    ]
    return model(nodes, {"w": w, "scale": scale}, 21), x @ (numbers * scale[:, None]).astype(np.float32).T


def make_nvfp4(
    *, activations: bool = True, opset: int = 23, domain: str = "", dtype: int = TensorProto.FLOAT
) -> tuple[ModelProto, Array]:
    """Both factors, or the weight alone, behind two dequantizations each."""
    w, x = weight(), samples()
    whole, seen = (
        np.float32(np.abs(w).max() / np.float32(2688)),
        np.float32(np.abs(x).max() / np.float32(2688)),
    )
    numbers, scales = nvfp4(w, whole)
    blocks = {"axis": -1, "block_size": 16}
    nodes = [
        node("DequantizeLinear", ["w_scale", "w_whole"], ["w_s"], "w/scale/DQ"),
        node("DequantizeLinear", ["w", "w_s"], ["w_dq"], "w/DQ", **blocks),
        node("Transpose", ["w_dq"], ["turned"], "turn", perm=[1, 0]),
        node("MatMul", ["x_dq" if activations else "x", "turned"], ["y"], "product"),
    ]
    if activations:
        nodes[:0] = [
            node("TRT_FP4DynamicQuantize", ["x", "x_whole"], ["x_q", "x_scale"], "x/Q", domain="trt", **blocks),
            node("DequantizeLinear", ["x_scale", "x_whole"], ["x_s"], "x/scale/DQ", domain=domain),
            node("DequantizeLinear", ["x_q", "x_s"], ["x_dq"], "x/DQ", domain=domain, **blocks),
        ]  # fmt: skip
        x = from_nvfp4(*nvfp4(x, seen), seen)
    constants = {"w": numbers, "w_scale": scales, "w_whole": whole}
    if activations:
        constants["x_whole"] = seen
    return model(nodes, constants, opset, dtype), x @ from_nvfp4(numbers, scales, whole).T


def make_nvfp4_halves() -> tuple[ModelProto, Array]:
    """Both factors in FP16 behind their dequantizations; the file says FP32 of what is computed from them."""
    proto, y = make_nvfp4()
    graph, rest = proto.graph, [n for n in proto.graph.node if n.op_type != "MatMul"]
    casts = [
        node("Cast", [v], [f"{v}_half"], f"{v}/Cast", to=TensorProto.FLOAT16) for v in ("x_dq", "turned")
    ]
    product = node("MatMul", ["x_dq_half", "turned_half"], ["m"], "product")
    del graph.node[:]
    graph.node.extend([*rest, *casts, product, node("Relu", ["m"], ["y"], "relu")])
    graph.value_info.append(helper.make_tensor_value_info("m", TensorProto.FLOAT, ["A", "B", "C"]))
    return proto, np.maximum(y, 0)


def make_nvfp4_static() -> tuple[ModelProto, Array]:
    """A weight before ModelOpt stores it in four bits: an operator stands for all of it."""
    w, x = weight(), samples()
    whole = np.float32(np.abs(w).max() / np.float32(2688))
    nodes = [
        node("TRT_FP4QDQ", ["w"], ["w_dq"], "w/QDQ", domain="trt", block_size=16),
        node("Transpose", ["w_dq"], ["turned"], "turn", perm=[1, 0]),
        node("MatMul", ["x", "turned"], ["y"], "product"),
    ]
    return model(nodes, {"w": w}, 21), x @ from_nvfp4(*nvfp4(w, whole), whole).T


def make_mxfp8(dtype: int = TensorProto.FLOAT) -> tuple[ModelProto, Array]:
    """Both factors; scales of the weight are stored as bytes."""
    w, x = weight(), samples()
    numbers, scales = mxfp8(w)
    blocks = {"axis": -1, "block_size": 32}
    back = {**blocks, "output_dtype": dtype}
    nodes = [
        node(
            "TRT_MXFP8DynamicQuantize", ["x"], ["x_q", "x_s"], "x/Q", domain="trt", output_dtype=17, **blocks
        ),
        node("TRT_MXFP8DequantizeLinear", ["x_q", "x_s"], ["x_dq"], "x/DQ", domain="trt", **back),
        node("TRT_MXFP8DequantizeLinear", ["w", "w_s"], ["w_dq"], "w/DQ", domain="trt", **back),
        node("Transpose", ["w_dq"], ["turned"], "turn", perm=[1, 0]),
        node("MatMul", ["x_dq", "turned"], ["y"], "product"),
    ]
    rounded = from_mxfp8(*mxfp8(x))
    return model(nodes, {"w": numbers, "w_s": scales}, 19, dtype), rounded @ from_mxfp8(numbers, scales).T


#: Each of the operators at least once.
NETS: Mapping[str, Callable[[], tuple[ModelProto, Array]]] = {
    "fp8": make_fp8, "int4": make_int4, "int4_pair": make_int4_pair, "nvfp4": make_nvfp4,
    "nvfp4_trt": lambda: make_nvfp4(domain="trt"), "nvfp4_weights": lambda: make_nvfp4(activations=False),
    "nvfp4_static": make_nvfp4_static, "mxfp8": make_mxfp8,
}  # fmt: skip
