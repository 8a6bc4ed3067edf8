"""The convolutions and products of a model, with all that decides how they can be computed, and what replaces them."""

from __future__ import annotations

import dataclasses
import functools
import json
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, cast

import numpy as np
import onnx
from numpy.typing import ArrayLike
from onnx import helper, numpy_helper

from rtlab.core.model import Model
from rtlab.core.node import Node
from rtlab.core.value import shape_text

if TYPE_CHECKING:
    from numpy.typing import NDArray

#: Operators that can be formulated in more than one way.
Op = Literal["Conv", "Gemm", "MatMul"]
OPS: tuple[Op, ...] = ("Conv", "Gemm", "MatMul")


@dataclasses.dataclass(frozen=True, eq=False)
class WeightedNode:
    """A node that reads one activation and constant weights, all in FP32.

    ``data`` and ``output`` are the values that it reads and writes, ``shape`` the size of the first. ``weight`` and
    ``bias`` are as the node has them. ``attributes`` are the node's own, with nothing left to defaults where shapes
    decide: ``strides``, ``pads`` (beginnings, then ends), ``dilations`` and ``group`` of a convolution.
    """

    node: str
    op: Op
    data: str
    output: str
    shape: tuple[int, ...]
    weight: NDArray[np.float32]
    bias: NDArray[np.float32] | None
    attributes: Mapping[str, Any]

    def __repr__(self) -> str:
        return f"<WeightedNode {self.node}: {self.title}>"

    @property
    def title(self) -> str:
        """What it is, in one line."""
        kind = f"{self.op} {shape_text(self.weight.shape)} on {shape_text(self.shape)}"
        group = self.attributes.get("group", 1)
        return kind + (f", {group} groups" if group != 1 else "")

    @property
    def key(self) -> str:
        """What its time depends on: operator, shapes and attributes, whatever the numbers in it are."""
        attributes = dict(sorted(self.attributes.items()))
        return json.dumps([self.op, self.shape, self.weight.shape, self.bias is not None, attributes])

    @functools.cached_property
    def spatial(self) -> tuple[int, ...]:
        """Height and width of what a convolution writes."""
        a, sizes = self.attributes, zip(self.shape[2:], self.weight.shape[2:], strict=True)
        padded = [size + a["pads"][i] + a["pads"][i + 2] for i, (size, _) in enumerate(sizes)]
        reach = [d * (kernel - 1) for d, kernel in zip(a["dilations"], self.weight.shape[2:], strict=True)]
        return tuple((p - r - 1) // s + 1 for p, r, s in zip(padded, reach, a["strides"], strict=True))

    @property
    def flops(self) -> int:
        """Operations of the direct formulation, a multiplication and an addition counted as two."""
        if self.op == "Conv":
            outputs = self.shape[0] * self.weight.shape[0] * math.prod(self.spatial)
            return int(2 * outputs * math.prod(self.weight.shape[1:]))
        return int(2 * math.prod(self.shape[:-1]) * self.weight.size)


def find_tunable_nodes(model: Model) -> tuple[Node, ...]:
    """Nodes of the main graph whose weights are constants in FP32, and that read one activation."""
    return tuple(n for n in model.top if n.op in OPS and not n.domain and _read_weights(model, n) is not None)


def create_weighted_node(model: Model, node: Node, shape: Sequence[int]) -> WeightedNode | None:
    """A node with the shape that it reads; None where its numbers of dimensions or attributes are not supported.

    Supported are two-dimensional convolutions, products with a matrix, and a Gemm with the plain meaning of both.
    """
    weights = _read_weights(model, node)
    if weights is None:
        return None
    weight, bias = weights
    size, a = tuple(int(d) for d in shape), cast("Mapping[str, Any]", node.attributes)
    attributes: dict[str, Any] = {}
    if node.op == "Conv":
        if len(size) != 4 or weight.ndim != 4 or 0 in size:
            return None
        attributes = _read_window(a, size, weight.shape)
    elif node.op == "Gemm":
        plain = a.get("alpha", 1.0) == 1.0 and a.get("beta", 1.0) == 1.0 and not a.get("transA", 0)
        if not plain or len(size) != 2 or weight.ndim != 2:
            return None
        attributes = {"transB": int(a.get("transB", 0))}
        if bias is not None and bias.size != weight.shape[0 if attributes["transB"] else 1]:
            return None
        bias = None if bias is None else bias.reshape(-1)
    elif len(size) < 2 or weight.ndim != 2 or 0 in size:
        return None
    return WeightedNode(
        node.id, cast("Op", node.op), node.inputs[0], node.outputs[0], size, weight, bias, attributes
    )


def _read_weights(model: Model, node: Node) -> tuple[NDArray[np.float32], NDArray[np.float32] | None] | None:
    constants = model.constants(node.id)
    data, weight, bias = (*node.inputs, "", "", "")[:3]
    names = [weight, bias] if bias else [weight]
    if data in constants or any(n not in constants or constants[n].dtype.name != "FLOAT" for n in names):
        return None
    arrays = [np.asarray(constants[name].numpy(), np.float32) for name in names]
    return arrays[0], arrays[1] if bias else None


def _read_window(a: Mapping[str, Any], size: tuple[int, ...], weight: tuple[int, ...]) -> dict[str, Any]:
    """Strides, pads, dilations and groups, with the pads that ``auto_pad`` stands for."""
    strides, dilations = (list(a.get(k, (1, 1))) for k in ("strides", "dilations"))
    mode = a.get("auto_pad", "NOTSET")
    pads = list(a.get("pads", (0, 0, 0, 0))) if mode == "NOTSET" else [0, 0, 0, 0]
    if mode.startswith("SAME"):
        for i in range(2):
            reach = dilations[i] * (weight[2 + i] - 1) + 1
            total = max(0, (math.ceil(size[2 + i] / strides[i]) - 1) * strides[i] + reach - size[2 + i])
            small, large = total // 2, total - total // 2
            pads[i], pads[2 + i] = (small, large) if mode == "SAME_UPPER" else (large, small)
    return {"strides": strides, "pads": pads, "dilations": dilations, "group": int(a.get("group", 1))}


class Fragment:
    """Collects nodes and constants; names begin with ``prefix``, so that they meet no other of the model.

    All nodes are of operator sets that any model from version 11 on has.
    """

    def __init__(self, prefix: str) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []
        self._prefix = prefix

    def node(self, op: str, *inputs: str, **attributes: Any) -> str:
        """Add a node; returns the name of what it writes."""
        name = f"{self._prefix}/{op}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, inputs, [name], name=name, **attributes))
        return name

    def constant(self, value: ArrayLike, dtype: type[np.generic] = np.float32) -> str:
        """Add a constant; returns its name."""
        name = f"{self._prefix}/constant_{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.ascontiguousarray(value, dtype), name))
        return name

    def shape(self, sizes: Sequence[int]) -> str:
        """Add a constant of whole numbers; returns its name."""
        return self.constant(sizes, np.int64)

    def reshape(self, value: str, shape: Sequence[int]) -> str:
        """The same elements in another shape."""
        return self.node("Reshape", value, self.shape(shape))

    def cut(
        self, value: str, starts: Sequence[int], ends: Sequence[int], steps: Sequence[int] = (1, 1)
    ) -> str:
        """A part of rows and columns, the axes 2 and 3."""
        return self.node("Slice", value, *map(self.shape, (starts, ends, (2, 3), steps)))
