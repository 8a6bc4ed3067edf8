"""Quantized patterns in the forms that tools export, with numbers of their own: attention, and one linear layer."""

from __future__ import annotations

import dataclasses
from typing import Any

import ml_dtypes
import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

import rtlab
from rtlab.core.model import Model

TYPES = {"fp32": TensorProto.FLOAT, "fp16": TensorProto.FLOAT16, "bf16": TensorProto.BFLOAT16}
STORED = {"int8": TensorProto.INT8, "fp8": TensorProto.FLOAT8E4M3FN}


class _Graph:
    def __init__(self, kind: str = "fp32") -> None:
        self.kind = kind
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []

    def node(self, op: str, out: str, *inputs: str, domain: str = "", **attributes: object) -> str:
        name = f"{out}/{op}"
        self.nodes.append(helper.make_node(op, inputs, [out], name=name, domain=domain, **attributes))
        return out

    def number(self, name: str, value: float, dtype: int = 0) -> str:
        self.weights.append(helper.make_tensor(name, dtype or TYPES[self.kind], [], [value]))
        return name

    def array(self, name: str, array: NDArray[Any]) -> str:
        self.weights.append(numpy_helper.from_array(array, name))
        return name

    def pair(self, value: str, stored: str) -> str:
        scale, zero = self.number(f"{value}_s", 0.05), self.number(f"{value}_z", 0, STORED[stored])
        self.node("QuantizeLinear", f"{value}_q", value, scale, zero)
        return self.node("DequantizeLinear", f"{value}_dq", f"{value}_q", scale, zero)

    def model(self, inputs: dict[str, list[Any]], output: list[Any], opset: int = 21) -> Model:
        ends = [
            helper.make_tensor_value_info(n, TYPES[self.kind], s) for n, s in (*inputs.items(), ("y", output))
        ]
        graph = helper.make_graph(self.nodes, "pattern", ends[:-1], ends[-1:], self.weights)
        imports = [helper.make_opsetid(d, v) for d, v in (("", opset), ("trt", 1), ("com.microsoft", 1))]
        return rtlab.load(helper.make_model(graph, opset_imports=imports, ir_version=10), name="pattern")


@dataclasses.dataclass(frozen=True)
class QuantizedAttention:
    """Attention in single nodes, of which those of ``pairs`` are rounded: q, k, p(robabilities), v, o(utput).

    ``operator`` has ONNX's Attention instead, whose probabilities are out of reach; ``mask`` is "", "added" or "input".
    """

    stored: str = "int8"
    pairs: str = "qkpvo"
    kind: str = "fp16"
    heads: int = 4
    kv_heads: int = 4
    size: int = 64
    length: int | str = 64
    mask: str = ""
    operator: bool = False

    def make(self) -> Model:
        graph = _Graph(self.kind)
        queries, keys, values = (self._input(graph, n) for n in "qkv")
        length = self.length
        if self.operator:
            context = graph.node("Attention", "a", queries, keys, values)
        else:
            scores = graph.node("MatMul", "s", queries, keys)
            scores = graph.node("Mul", "scaled", scores, graph.number("scale", self.size**-0.5))
            if self.mask == "added":
                hidden = np.triu(np.full((length, length), -1e4), 1).ravel().tolist()
                graph.weights.append(helper.make_tensor("mask", TYPES[self.kind], [length, length], hidden))
            if self.mask:
                scores = graph.node("Add", "masked", scores, "mask")
            shares = graph.node("Softmax", "p", scores, axis=-1)
            context = graph.node("MatMul", "a", self._round(graph, shares, "p"), values)
        graph.node("Neg", "y", self._round(graph, context, "o"))
        inputs = {n: self._shape(self.heads if n == "q" else self.kv_heads) for n in "qkv"}
        masks: dict[str, list[Any]] = {"mask": [1, 1, length, length]} if self.mask == "input" else {}
        return graph.model({**inputs, **masks}, self._shape(self.heads), 23 if self.operator else 21)

    def _shape(self, heads: int) -> list[int | str]:
        return [1, heads, self.length, self.size]

    def _input(self, graph: _Graph, part: str) -> str:
        value = graph.node("Neg", f"{part}_n", part)
        if part != "q" and self.kv_heads != self.heads:
            repeats = np.array([1, self.kv_heads, self.heads // self.kv_heads, self.length, self.size])
            value = graph.node("Unsqueeze", f"{part}_u", value, graph.array(f"{part}_two", np.array([2])))
            value = graph.node("Expand", f"{part}_e", value, graph.array(f"{part}_sizes", repeats))
            shape = graph.array(f"{part}_shape", np.array(self._shape(self.heads)))
            value = graph.node("Reshape", f"{part}_r", value, shape)
        if part == "k" and not self.operator:
            value = graph.node("Transpose", "k_t", value, perm=[0, 1, 3, 2])
        return self._round(graph, value, part)

    def _round(self, graph: _Graph, value: str, part: str) -> str:
        return graph.pair(value, self.stored) if part in self.pairs else value


#: Rows of what a linear layer reads, and its weight.
ROWS, DEPTH, COLUMNS = 32, 256, 64


def linear(form: str, kind: str = "fp16") -> Model:
    """One product with a weight that is quantized as ``form`` says, between two of Neg."""
    graph, rng = _Graph(kind), np.random.default_rng(0)
    weight = (rng.standard_normal((DEPTH, COLUMNS)) / 16).astype(np.float32)
    x = graph.node("Neg", "n", "x")
    activation, _, kept = form.partition(" + ")
    if kept:
        x = graph.pair(x, activation)
    if form in {"int8", "fp8", "fp8 by channel"}:
        x = graph.pair(x, form.split(maxsplit=1)[0])
    if form == "dynamic":
        graph.nodes.append(helper.make_node("DynamicQuantizeLinear", [x], ["xq", "xs", "xz"], name="dynamic"))
        x = graph.node("DequantizeLinear", "x_dq", "xq", "xs", "xz")
    w = _WEIGHTS[kept or form](graph, weight)
    if form == "nbits":
        x = graph.node(
            "MatMulNBits",
            "m",
            x,
            *w.split(),
            domain="com.microsoft",
            K=DEPTH,
            N=COLUMNS,
            bits=4,
            block_size=32,
        )
    else:
        x = graph.node("MatMul", "m", x, w)
    graph.node("Neg", "y", x)
    # Exponents as scales came with opset 24.
    return graph.model({"x": [2, ROWS, DEPTH]}, [2, ROWS, COLUMNS], 24 if form == "e8m0" else 21)


def _scale(graph: _Graph, array: NDArray[Any]) -> str:
    dtype = helper.tensor_dtype_to_np_dtype(TYPES[graph.kind])
    return graph.array("w_s", array.astype(dtype))


def _by_channel(stored: Any, largest: float, zero: Any = None, axis: int = 1) -> Any:
    def write(graph: _Graph, weight: NDArray[Any]) -> str:
        scale = np.abs(weight).max(axis=1 - axis) / largest
        numbers = (weight / np.expand_dims(scale, 1 - axis)).clip(-largest, largest)
        numbers = (
            numbers.astype(stored) if stored is ml_dtypes.float8_e4m3fn else np.rint(numbers).astype(stored)
        )
        inputs = [graph.array("w", numbers), _scale(graph, scale)]
        if zero is not None:
            inputs.append(graph.array("w_z", np.full(scale.shape, zero).astype(stored)))
        return graph.node("DequantizeLinear", "w_dq", *inputs, axis=axis)

    return write


def _by_block(block: int, *, zero: int | None = None, stored: Any = ml_dtypes.int4) -> Any:
    """TensorRT's operator, one row for each output channel; ONNX's where there are zero points."""

    def write(graph: _Graph, weight: NDArray[Any]) -> str:
        turned = weight.T
        scale = np.abs(turned.reshape(COLUMNS, -1, block)).max(-1) / 7
        numbers = np.rint(turned / scale.repeat(block, 1)) + (8 if stored is ml_dtypes.uint4 else 0)
        inputs = [graph.array("w", numbers.astype(stored)), _scale(graph, scale)]
        if zero is None:
            dq = graph.node(
                "TRT_INT4DequantizeLinear", "w_dq", *inputs, domain="trt", axis=-1, block_size=block
            )
        else:
            inputs.append(graph.array("w_z", np.full(scale.shape, zero).astype(stored)))
            dq = graph.node("DequantizeLinear", "w_dq", *inputs, axis=1, block_size=block)
        return graph.node("Transpose", "w_t", dq, perm=[1, 0])

    return write


def _plain(graph: _Graph, weight: NDArray[Any]) -> str:
    return graph.array("w", weight.astype(helper.tensor_dtype_to_np_dtype(TYPES[graph.kind])))


def _nbits(graph: _Graph, weight: NDArray[Any]) -> str:
    rng = np.random.default_rng(1)
    graph.array("w", rng.integers(0, 255, (COLUMNS, DEPTH // 32, 16), np.uint8))
    _scale(graph, np.ones(COLUMNS * DEPTH // 32))
    return "w w_s"


def _e8m0(graph: _Graph, weight: NDArray[Any]) -> str:
    blocks = np.full((DEPTH // 32, COLUMNS), 2.0**-8).astype(ml_dtypes.float8_e8m0fnu)
    graph.array("w", (weight * 256).clip(-448, 448).astype(ml_dtypes.float8_e4m3fn))
    graph.array("w_s", blocks)
    attributes = {"axis": 0, "block_size": 32, "output_dtype": TYPES[graph.kind]}
    return graph.node("DequantizeLinear", "w_dq", "w", "w_s", **attributes)


_E4M3 = ml_dtypes.float8_e4m3fn
_WEIGHTS = {
    "int8": _by_channel(np.int8, 127), "int8 weights": _by_channel(np.int8, 127),
    "fp8": lambda g, w: g.pair(_plain(g, w), "fp8"), "fp8 by channel": _by_channel(_E4M3, 448),
    "int4 of 16": _by_block(16), "int4 of 128": _by_block(128),
    "int4 by channel": _by_channel(ml_dtypes.int4, 7), "int4 with zeros": _by_block(32, zero=1),
    "uint4": _by_block(32, zero=8, stored=ml_dtypes.uint4), "nbits": _nbits, "dynamic": _plain, "e8m0": _e8m0,
}  # fmt: skip
