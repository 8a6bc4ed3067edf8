"""Decoders of language models with random weights, as large as wanted, in a file beside the graph."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

node = helper.make_node

#: Sizes of a head, and of the blocks of random numbers that weights are made of.
_HEAD, _BLOCK = 64, 1 << 20
_TYPES = {np.float32: TensorProto.FLOAT, np.float16: TensorProto.FLOAT16}


class _Writer:
    """Collects nodes and initializers; the numbers of weights go to a file at once."""

    def __init__(self, file, location: str, dtype: type) -> None:
        self.file, self.location, self.dtype = file, location, dtype
        self.nodes: list[onnx.NodeProto] = []
        self.initializers: list[onnx.TensorProto] = []
        self._random = np.random.default_rng(0).standard_normal(_BLOCK, np.float32)

    def weight(self, name: str, *shape: int) -> str:
        """A weight of a standard deviation of one by the root of its first size; no two have the same numbers."""
        tensor = TensorProto(name=name, data_type=_TYPES[self.dtype], dims=shape)
        tensor.data_location = TensorProto.EXTERNAL
        count, start = int(np.prod(shape)), self.file.tell()
        numbers = (np.roll(self._random, len(self.initializers)) / np.sqrt(shape[0])).astype(self.dtype)
        for done in range(0, count, _BLOCK):
            self.file.write(numbers[: count - done].tobytes())
        place = {"location": self.location, "offset": start, "length": self.file.tell() - start}
        for key, value in place.items():
            tensor.external_data.add(key=key, value=str(value))
        self.initializers.append(tensor)
        return name

    def constant(self, name: str, values: object, dtype: type | None = None) -> str:
        """A small constant inside the graph."""
        self.initializers.append(numpy_helper.from_array(np.asarray(values, dtype or self.dtype), name))
        return name

    def add(self, op: str, name: str, *inputs: str, **attributes: object) -> str:
        """A node with one output of its own name."""
        self.nodes.append(node(op, list(inputs), [f"{name}.y"], name, **attributes))
        return f"{name}.y"

    def linear(self, name: str, x: str, inner: int, outer: int) -> str:
        """A product with a weight."""
        return self.add("MatMul", name, x, self.weight(f"{name}.weight", inner, outer))

    def norm(self, name: str, x: str, size: int) -> str:
        """A division by the root of the mean square, and a scale."""
        square = self.add("Mul", f"{name}/square", x, x)
        mean = self.add("ReduceMean", f"{name}/mean", square, axes=[-1])
        shifted = self.add("Add", f"{name}/shifted", mean, "epsilon")
        root = self.add("Sqrt", f"{name}/root", shifted)
        scale = self.constant(f"{name}.scale", np.ones(size))
        return self.add("Mul", f"{name}/scaled", self.add("Div", f"{name}/div", x, root), scale)


def write_decoder(
    path: Path, *, layers: int, hidden: int, vocabulary: int, dtype: type = np.float32, length: int = 8
) -> int:
    """Write a decoder at opset 17 and its weights, ``NAME.data``; returns the bytes of these.

    Each layer has attention with a causal mask and a gated feed-forward of 2.75 times the hidden size.
    """
    location, inner, heads = f"{path.name}.data", hidden * 11 // 4, hidden // _HEAD
    with path.with_name(location).open("wb") as file:
        writer = _Writer(file, location, dtype)
        writer.constant("epsilon", 1e-5)
        writer.constant("split", [1, length, heads, _HEAD], np.int64)
        writer.constant("merged", [1, length, hidden], np.int64)
        writer.constant("by_root", _HEAD**-0.5)
        writer.constant("mask", np.triu(np.full((length, length), -1e4), 1))
        x = writer.add("Gather", "embedding", writer.weight("embedding.weight", vocabulary, hidden), "ids")
        for i in range(layers):
            x = _add_layer(writer, f"layer{i}", x, hidden, inner)
        x = writer.norm("norm", x, hidden)
        logits = writer.linear("head", x, hidden, vocabulary)
        size = file.tell()
    graph = helper.make_graph(
        writer.nodes,
        "decoder",
        [helper.make_tensor_value_info("ids", TensorProto.INT64, [1, length])],
        [helper.make_tensor_value_info(logits, _TYPES[dtype], [1, length, vocabulary])],
        writer.initializers,
    )
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    path.write_bytes(proto.SerializeToString())
    return size


def _add_layer(writer: _Writer, name: str, x: str, hidden: int, inner: int) -> str:
    y = writer.norm(f"{name}/norm1", x, hidden)
    parts = {}
    for part in ("q", "k", "v"):
        product = writer.linear(f"{name}/{part}", y, hidden, hidden)
        heads = writer.add("Reshape", f"{name}/{part}/split", product, "split")
        order = [0, 2, 3, 1] if part == "k" else [0, 2, 1, 3]
        parts[part] = writer.add("Transpose", f"{name}/{part}/heads", heads, perm=order)
    scores = writer.add("MatMul", f"{name}/scores", parts["q"], parts["k"])
    scaled = writer.add("Mul", f"{name}/scaled", scores, "by_root")
    masked = writer.add("Add", f"{name}/masked", scaled, "mask")
    shares = writer.add("Softmax", f"{name}/shares", masked, axis=-1)
    mixed = writer.add("MatMul", f"{name}/mixed", shares, parts["v"])
    rows = writer.add("Transpose", f"{name}/rows", mixed, perm=[0, 2, 1, 3])
    merged = writer.add("Reshape", f"{name}/merged", rows, "merged")
    x = writer.add("Add", f"{name}/add1", x, writer.linear(f"{name}/o", merged, hidden, hidden))
    y = writer.norm(f"{name}/norm2", x, hidden)
    gate = writer.linear(f"{name}/gate", y, hidden, inner)
    opened = writer.add("Mul", f"{name}/silu", gate, writer.add("Sigmoid", f"{name}/sigmoid", gate))
    product = writer.add("Mul", f"{name}/product", opened, writer.linear(f"{name}/up", y, hidden, inner))
    return writer.add("Add", f"{name}/add2", x, writer.linear(f"{name}/down", product, inner, hidden))
