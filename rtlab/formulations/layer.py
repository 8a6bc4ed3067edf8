"""The convolutions and products of a model, with all that decides how they can be computed."""

from __future__ import annotations

import dataclasses
import functools
import json
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, cast

import numpy as np
from onnx_ir import TensorProtocol

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
        return json.dumps(
            [
                self.op,
                self.shape,
                self.weight.shape,
                self.bias is not None,
                dict(sorted(self.attributes.items())),
            ]
        )

    @functools.cached_property
    def spatial(self) -> tuple[int, ...]:
        """Height and width of what a convolution writes."""
        a = self.attributes
        rank = len(self.shape) - 2
        return tuple(
            (size + a["pads"][i] + a["pads"][i + rank] - a["dilations"][i] * (kernel - 1) - 1)
            // a["strides"][i]
            + 1
            for i, (size, kernel) in enumerate(zip(self.shape[2:], self.weight.shape[2:], strict=True))
        )

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
    size = tuple(int(d) for d in shape)
    attributes: dict[str, Any]
    if node.op == "Conv":
        if len(size) != 4 or weight.ndim != 4 or 0 in size:
            return None
        attributes = _read_window(node, size, weight.shape)
    elif node.op == "Gemm":
        a = node.attributes
        plain = a.get("alpha", 1.0) == 1.0 and a.get("beta", 1.0) == 1.0 and not a.get("transA", 0)
        columns = weight.shape[0 if a.get("transB") else -1] if weight.ndim == 2 else 0
        if not plain or len(size) != 2 or weight.ndim != 2 or (bias is not None and bias.size != columns):
            return None
        bias = bias.reshape(-1) if bias is not None else None
        attributes = {"transB": int(cast("int", a.get("transB", 0)))}
    else:
        if len(size) < 2 or weight.ndim != 2 or 0 in size:
            return None
        attributes = {}
    return WeightedNode(
        node.id, cast("Op", node.op), node.inputs[0], node.outputs[0], size, weight, bias, attributes
    )


def _read_weights(model: Model, node: Node) -> tuple[NDArray[np.float32], NDArray[np.float32] | None] | None:
    constants = model.constants(node.id)
    if len(node.inputs) < 2 or node.inputs[0] in constants or node.inputs[1] not in constants:
        return None
    bias = node.inputs[2] if len(node.inputs) > 2 else ""
    if bias and bias not in constants:
        return None
    if any(constants[name].dtype.name != "FLOAT" for name in (node.inputs[1], bias) if name):
        return None
    return _array(constants[node.inputs[1]]), _array(constants[bias]) if bias else None


def _array(tensor: TensorProtocol) -> NDArray[np.float32]:
    return np.asarray(tensor.numpy(), np.float32)


def _read_window(node: Node, size: tuple[int, ...], weight: tuple[int, ...]) -> dict[str, Any]:
    """Strides, pads, dilations and groups, those that ``auto_pad`` asks for worked out."""
    a = cast("Mapping[str, Any]", node.attributes)
    strides, dilations = (list(a.get(k, (1, 1))) for k in ("strides", "dilations"))
    pads = list(a.get("pads", (0, 0, 0, 0)))
    mode = a.get("auto_pad", "NOTSET")
    if mode in {"SAME_UPPER", "SAME_LOWER", "VALID"}:
        pads = [0, 0, 0, 0]
    if mode.startswith("SAME"):
        for i in range(2):
            reach = dilations[i] * (weight[2 + i] - 1) + 1
            total = max(0, (math.ceil(size[2 + i] / strides[i]) - 1) * strides[i] + reach - size[2 + i])
            small, large = total // 2, total - total // 2
            pads[i], pads[2 + i] = (small, large) if mode == "SAME_UPPER" else (large, small)
    return {"strides": strides, "pads": pads, "dilations": dilations, "group": int(a.get("group", 1))}
