"""Nodes and constants in the making, which take the place of one node of a model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import helper, numpy_helper


class Fragment:
    """Collects nodes and constants; names begin with ``prefix``, so that they meet no other of the model.

    Methods named like operators add one node each and return the name of what it writes. All are of operator sets
    that any model from version 11 on has.
    """

    def __init__(self, prefix: str) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []
        self._prefix = prefix

    def node(self, op: str, *inputs: str, **attributes: Any) -> str:
        """Add a node."""
        name = f"{self._prefix}/{op}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, inputs, [name], name=name, **attributes))
        return name

    def constant(self, value: Any, dtype: Any = np.float32) -> str:
        """Add a constant."""
        array: NDArray[Any] = np.ascontiguousarray(value, dtype)
        name = f"{self._prefix}/constant_{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(array, name))
        return name

    def reshape(self, value: str, shape: Sequence[int]) -> str:
        """The same elements in another shape."""
        return self.node("Reshape", value, self.constant(shape, np.int64))

    def transpose(self, value: str, order: Sequence[int]) -> str:
        """Axes in another order."""
        return self.node("Transpose", value, perm=list(order))

    def pad(self, value: str, pads: Sequence[int]) -> str:
        """Zeros around, as many as ``pads`` says: all beginnings, then all ends; itself where there are none."""
        return self.node("Pad", value, self.constant(pads, np.int64)) if any(pads) else value

    def cut(
        self,
        value: str,
        axes: Sequence[int],
        starts: Sequence[int],
        ends: Sequence[int],
        steps: Sequence[int] = (),
    ) -> str:
        """A part of some axes."""
        arguments = [self.constant(part, np.int64) for part in (starts, ends, axes, steps or [1] * len(axes))]
        return self.node("Slice", value, *arguments)
