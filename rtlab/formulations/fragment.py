"""Nodes and constants in the making, which take the place of one node of a model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from numpy.typing import ArrayLike
from onnx import helper, numpy_helper


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
        self,
        value: str,
        axes: Sequence[int],
        starts: Sequence[int],
        ends: Sequence[int],
        steps: Sequence[int] = (1, 1),
    ) -> str:
        """A part of two axes."""
        return self.node("Slice", value, *map(self.shape, (starts, ends, axes, steps)))
