"""Decoders on random weights: RMS norms, rotary positions, causal attention, gated MLP."""

from __future__ import annotations

import dataclasses

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

import rtlab
from rtlab.core.model import Model


@dataclasses.dataclass(frozen=True)
class Decoder:
    """Its sizes; ``outlier`` multiplies a channel of the embedding and divides what reads it, ``length`` 0 is open."""

    layers: int = 4
    width: int = 128
    heads: int = 4
    length: int = 32
    words: int = 256
    outlier: float = 1.0
    kind: type = np.float32

    def ids(self, samples: int, length: int = 0) -> NDArray[np.int64]:
        shape = (samples, length or self.length or 32)
        return np.random.default_rng(5).integers(0, self.words, shape, dtype=np.int64)

    def make(self) -> Model:
        return rtlab.load(_Net(self).proto(), name="decoder")


class _Net:
    def __init__(self, sizes: Decoder) -> None:
        self.sizes, self.rng = sizes, np.random.default_rng(7)
        self.nodes: list[onnx.NodeProto] = []
        self.weights: dict[str, onnx.TensorProto] = {}

    def put(self, name: str, array: NDArray) -> str:
        if array.dtype == np.float32:
            array = array.astype(self.sizes.kind)
        self.weights.setdefault(name, numpy_helper.from_array(array, name))
        return name

    def node(self, op: str, at: str, *inputs: str, **attributes: object) -> str:
        self.nodes.append(helper.make_node(op, inputs, [f"{at}/{op}"], name=f"{at}/{op}", **attributes))
        return f"{at}/{op}"

    def number(self, value: float) -> str:
        return self.put(f"number/{value}", np.array(value, np.float32))

    def integers(self, *values: int) -> str:
        return self.put(f"integers/{'_'.join(map(str, values))}", np.array(values, np.int64))

    def linear(self, x: str, at: str, rows: int, columns: int, gain: float = 1.0) -> str:
        weight = self.rng.standard_normal((rows, columns), np.float32) * np.float32(gain / np.sqrt(rows))
        return self.node("MatMul", at, x, self.put(f"{at}/weight", weight))

    def norm(self, x: str, at: str) -> str:
        weight = np.ones(self.sizes.width, np.float32)
        weight[3] /= self.sizes.outlier
        mean = self.node("ReduceMean", at, self.node("Mul", f"{at}/square", x, x), axes=[-1], keepdims=1)
        root = self.node("Sqrt", at, self.node("Add", f"{at}/epsilon", mean, self.number(1e-6)))
        unit = self.node("Div", at, x, root)
        return self.node("Mul", at, unit, self.put(f"{at}/weight", weight))

    def rotate(self, x: str, at: str) -> str:
        half = self.sizes.width // self.sizes.heads // 2
        ends = [self.integers(0), self.integers(half), self.integers(2 * half), self.integers(3)]
        first = self.node("Slice", f"{at}/first", x, ends[0], ends[1], ends[3])
        second = self.node("Slice", f"{at}/second", x, ends[1], ends[2], ends[3])
        turned = self.node("Concat", at, self.node("Neg", at, second), first, axis=-1)
        parts = [self.node("Mul", f"{at}/{n}", v, n) for v, n in ((x, "cosine"), (turned, "sine"))]
        return self.node("Add", at, *parts)

    def attention(self, x: str, at: str) -> str:
        heads, width = self.sizes.heads, self.sizes.width
        size = width // heads
        parts = {}
        for part in ("q", "k", "v"):
            y = self.linear(x, f"{at}/{part}", width, width)
            y = self.node(
                "Reshape", f"{at}/{part}", y, self.integers(0, self.sizes.length or -1, heads, size)
            )
            y = self.node("Transpose", f"{at}/{part}", y, perm=[0, 2, 1, 3])
            parts[part] = y if part == "v" else self.rotate(y, f"{at}/{part}/rotary")
        keys = self.node("Transpose", f"{at}/keys", parts["k"], perm=[0, 1, 3, 2])
        scores = self.node("MatMul", f"{at}/scores", parts["q"], keys)
        scores = self.node("Mul", f"{at}/scores", scores, self.number(size**-0.5))
        shares = self.node("Softmax", at, self.node("Add", f"{at}/mask", scores, "mask"), axis=-1)
        context = self.node("MatMul", f"{at}/context", shares, parts["v"])
        context = self.node("Transpose", f"{at}/context", context, perm=[0, 2, 1, 3])
        context = self.node(
            "Reshape", f"{at}/context", context, self.integers(0, self.sizes.length or -1, width)
        )
        return self.linear(context, f"{at}/output", width, width, 0.5)

    def mlp(self, x: str, at: str) -> str:
        width, inner = self.sizes.width, 2 * self.sizes.width
        gate = self.linear(x, f"{at}/gate", width, inner)
        gate = self.node("Mul", f"{at}/silu", gate, self.node("Sigmoid", at, gate))
        y = self.node("Mul", at, gate, self.linear(x, f"{at}/up", width, inner))
        return self.linear(y, f"{at}/down", inner, width, 0.5)

    def positions(self) -> None:
        """Tables of as many rows as there are tokens, and the causal mask."""
        longest, size = self.sizes.length or 64, self.sizes.width // self.sizes.heads
        angles = np.arange(longest)[:, None] * 100.0 ** (-np.arange(size // 2) / (size // 2))
        angles = np.concatenate([angles, angles], 1)
        mask = np.triu(np.full((longest, longest), -1e4, np.float32), 1)
        tables = {"cosine": np.cos(angles), "sine": np.sin(angles), "mask": mask}
        for name, table in tables.items():
            array = table.astype(np.float32)
            if self.sizes.length:
                self.put(name, array)
                continue
            source = self.put(f"{name}/all", array)
            for axis in range(2 if name == "mask" else 1):
                ends = (self.integers(0), "count", self.integers(axis))
                source = self.node("Slice", f"{name}/{axis}", source, *ends)
            self.nodes[-1].output[:] = [name]

    def proto(self) -> onnx.ModelProto:
        sizes = self.sizes
        table = self.rng.standard_normal((sizes.words, sizes.width), np.float32)
        table[:, 3] *= sizes.outlier
        if not sizes.length:
            shape = self.node("Shape", "ids", "ids")
            self.node("Slice", "count", shape, self.integers(1), self.integers(2))
            self.nodes[-1].output[:] = ["count"]
        self.positions()
        x = self.node("Gather", "words", self.put("words/weight", table), "ids")
        for i in range(sizes.layers):
            at = f"layer{i}"
            x = self.node("Add", f"{at}/attention/sum", x, self.attention(self.norm(x, f"{at}/norm1"), at))
            x = self.node("Add", f"{at}/mlp/sum", x, self.mlp(self.norm(x, f"{at}/norm2"), f"{at}/mlp"))
        self.linear(self.norm(x, "norm"), "head", sizes.width, sizes.words)
        self.nodes[-1].output[:] = ["logits"]
        length, kind = sizes.length or "L", helper.np_dtype_to_tensor_dtype(np.dtype(sizes.kind))
        graph = helper.make_graph(
            self.nodes,
            "decoder",
            [helper.make_tensor_value_info("ids", TensorProto.INT64, ["N", length])],
            [helper.make_tensor_value_info("logits", kind, ["N", length, sizes.words])],
            [*self.weights.values()],
        )
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def operators(opset: int, kind: type = np.float32, size: int = 32) -> Model:
    """A block of the operators of opset 23: RMS norm, rotary positions, attention; two heads of ``size`` channels."""
    rng, width, heads, length = np.random.default_rng(0), 2 * size, 2, 32
    arrays = {n: rng.normal(0, 0.1, (width, width)) for n in ("wq", "wk", "wv", "wo")}
    angles = rng.uniform(0, 1, (length, width // heads // 2))
    arrays |= {"gain": np.ones(width), "cosine": np.cos(angles)[None], "sine": np.sin(angles)[None]}
    node = helper.make_node
    nodes = [node("RMSNormalization", ["x", "gain"], ["n"], name="norm", axis=-1)]
    nodes += [node("MatMul", ["n", f"w{p}"], [p], name=p) for p in "qkv"]
    nodes += [
        node("RotaryEmbedding", [p, "cosine", "sine"], [f"{p}r"], name=f"{p}_rotary", num_heads=heads)
        for p in "qk"
    ]
    nodes += [
        node(
            "Attention",
            ["qr", "kr", "v"],
            ["a"],
            name="attention",
            q_num_heads=heads,
            kv_num_heads=heads,
            is_causal=1,
        ),
        node("MatMul", ["a", "wo"], ["o"], name="output"),
        node("Add", ["o", "x"], ["y"], name="sum"),
    ]
    float_type = helper.np_dtype_to_tensor_dtype(np.dtype(kind))
    ends = [[helper.make_tensor_value_info(n, float_type, [1, length, width])] for n in "xy"]
    weights = [numpy_helper.from_array(a.astype(kind), n) for n, a in arrays.items()]
    graph = helper.make_graph(nodes, "operators", *ends, weights)
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)
    return rtlab.load(proto, name="operators")


@dataclasses.dataclass(frozen=True)
class AttentionNode:
    """One node of ONNX's Attention with Neg around it.

    ``mask`` is "", "float", "bool" or "row" (one for all queries); ``flat`` has no axis of heads.
    """

    heads: int = 4
    kv_heads: int = 4
    size: int = 32
    queries: int = 24
    keys: int = 24
    batch: int | str = 2
    mask: str = ""
    flat: bool = False
    opset: int = 23
    attributes: tuple[tuple[str, object], ...] = ()

    def make(self) -> Model:
        ends = [
            helper.make_tensor_value_info(n, TensorProto.FLOAT, self._shape(heads, length))
            for n, heads, length in (
                ("q", self.heads, self.queries), ("k", self.kv_heads, self.keys), ("v", self.kv_heads, self.keys),
                ("y", self.heads, self.queries),
            )
        ]  # fmt: skip
        nodes = [helper.make_node("Neg", [n], [f"{n}_n"], name=f"{n}_neg") for n in "qkv"]
        at = dict(self.attributes)
        if self.flat:
            at |= {"q_num_heads": self.heads, "kv_num_heads": self.kv_heads}
        reads = ["q_n", "k_n", "v_n", *(["mask"] if self.mask else [])]
        nodes.append(helper.make_node("Attention", reads, ["a"], name="attention", **at))
        nodes.append(helper.make_node("Neg", ["a"], ["y"], name="end"))
        masks = [numpy_helper.from_array(self._mask(), "mask")] if self.mask else []
        graph = helper.make_graph(nodes, "attention", ends[:3], ends[3:], masks)
        proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", self.opset)], ir_version=10)
        return rtlab.load(proto, name="attention")

    def _shape(self, heads: int, length: int) -> list[int | str]:
        return (
            [self.batch, length, heads * self.size] if self.flat else [self.batch, heads, length, self.size]
        )

    def _mask(self) -> NDArray:
        rng = np.random.default_rng(3)
        if self.mask == "row":
            return np.where(np.arange(self.keys) < 20, 0, -1e4).astype(np.float32)
        shown = rng.random((1, self.heads, self.queries, self.keys)) < 0.7
        shown[..., 0] = True
        return (
            shown
            if self.mask == "bool"
            else np.where(shown, rng.random(shown.shape), -1e4).astype(np.float32)
        )

    def feed(self) -> dict[str, NDArray]:
        rng, batch = np.random.default_rng(4), self.batch if isinstance(self.batch, int) else 3
        shapes = {
            "q": self._shape(self.heads, self.queries), "k": self._shape(self.kv_heads, self.keys),
            "v": self._shape(self.kv_heads, self.keys),
        }  # fmt: skip
        return {n: rng.standard_normal([batch, *s[1:]], np.float32) for n, s in shapes.items()}
