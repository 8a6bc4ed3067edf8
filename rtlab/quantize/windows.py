"""Convolutions and products of matrices as one form: rows of what is read times rows of weights."""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rtlab.core.model import Model
    from rtlab.core.node import Node

_MATRIX = 2


@dataclasses.dataclass(frozen=True)
class ProductForm:
    """A Conv, Gemm or MatMul with a constant weight: ``groups`` times ``(rows, K) x (K, outputs)``.

    ``kernel`` is empty for a product of matrices; ``turned`` says that its weight is stored ``(K, outputs)``.
    """

    node: str
    value: str
    weight: str
    shape: tuple[int, ...]
    groups: int = 1
    turned: bool = False
    kernel: tuple[int, ...] = ()
    strides: tuple[int, ...] = ()
    dilations: tuple[int, ...] = ()
    pads: tuple[int, ...] = ()
    padding: str = "NOTSET"

    @property
    def size(self) -> int:
        """K: the weights of one output channel."""
        return self.shape[0] if self.turned else math.prod(self.shape[1:])

    @property
    def outputs(self) -> int:
        """Output channels of each group."""
        return (self.shape[1] if self.turned else self.shape[0]) // self.groups

    def rows(self, weight: NDArray[Any]) -> NDArray[Any]:
        """A tensor of the weight's shape as ``(groups, outputs, K)``."""
        flat = weight.T if self.turned else weight.reshape(self.shape[0], -1)
        return flat.reshape(self.groups, self.outputs, self.size)

    def tensor(self, rows: NDArray[Any]) -> NDArray[Any]:
        """The way back from ``rows``."""
        flat = rows.reshape(-1, self.size)
        return np.ascontiguousarray(flat.T) if self.turned else flat.reshape(self.shape)

    def mean(self, x: NDArray[np.float32]) -> tuple[NDArray[np.float64], int]:
        """The sum over all places of what they read, shape ``(groups, K)``, and how many places there are."""
        if not self.kernel:
            flat = x.reshape(-1, self.size)
            return flat.sum(axis=0, dtype=np.float64)[None], len(flat)
        windows = self._windows(x)
        # (samples, channels, *places, *kernel): the sum over samples and places.
        n = len(self.kernel)
        total = windows.sum(axis=tuple(i for i in range(windows.ndim - n) if i != 1), dtype=np.float64)
        places = windows.shape[0] * math.prod(windows.shape[2 : 2 + n])
        return total.reshape(self.groups, self.size), places

    def read(self, x: NDArray[np.float32], most: int) -> NDArray[np.float32]:
        """Rows of what places read, at most so many of each sample, spread evenly: shape ``(groups, rows, K)``."""
        if not self.kernel:
            flat = x.reshape(-1, self.size)
            step = max(1, -(-len(flat) // (most * max(1, len(x)))))
            return flat[None, ::step]
        windows = self._windows(x)
        n = len(self.kernel)
        places = windows.shape[2 : 2 + n]
        total = math.prod(places)
        step = max(1, -(-total // most))
        # A number that divides the length of a line would meet the same columns in every line.
        while step > 1 and math.gcd(step, places[-1]) != 1:
            step += 1
        chosen = np.unravel_index(np.arange(0, total, step), places)
        index: tuple[Any, ...] = (slice(None), slice(None), *chosen)
        taken = windows[index]
        count = taken.shape[2]
        # (samples, channels, places, *kernel) to (groups, samples x places, channels of the group x kernel)
        grouped = taken.reshape(len(x), self.groups, -1, count, math.prod(self.kernel))
        return np.ascontiguousarray(grouped.transpose(1, 0, 3, 2, 4)).reshape(self.groups, -1, self.size)

    def _windows(self, x: NDArray[np.float32]) -> NDArray[np.float32]:
        n = len(self.kernel)
        reach = [(k - 1) * d + 1 for k, d in zip(self.kernel, self.dilations, strict=True)]
        pads = list(zip(self.pads[:n], self.pads[n:], strict=True))
        if self.padding.startswith("SAME"):
            pads = []
            for size, s, r in zip(x.shape[2:], self.strides, reach, strict=True):
                whole = max(0, (-(-size // s) - 1) * s + r - size)
                half = whole // 2
                pads.append((half, whole - half) if self.padding == "SAME_UPPER" else (whole - half, half))
        elif self.padding == "VALID":
            pads = [(0, 0)] * n
        padded = np.pad(x, [(0, 0), (0, 0), *pads]) if any(map(any, pads)) else x
        windows = sliding_window_view(padded, reach, axis=tuple(range(2, 2 + n)))
        steps = [slice(None, None, s) for s in self.strides]
        inside = [slice(None, None, d) for d in self.dilations]
        index: tuple[Any, ...] = (slice(None), slice(None), *steps, *inside)
        found: NDArray[np.float32] = windows[index]
        return found


def product(model: Model, node: Node) -> ProductForm | str:
    """A node as such a product, or why it is none."""
    weight = model.known.get(node.inputs[1]) if len(node.inputs) > 1 else None
    if weight is None:
        return "its weight is no constant"
    shape = tuple(weight.shape.numpy())
    value, name = node.inputs[0], node.inputs[1]
    if node.op == "Conv":
        kernel = shape[2:]
        n = len(kernel)

        def told(key: str, usual: list[int]) -> tuple[int, ...]:
            found = node.attributes.get(key)
            return tuple(found) if isinstance(found, list) and found else tuple(usual)

        return ProductForm(
            node.id, value, name, shape, int(str(node.attributes.get("group", 1))), turned=False, kernel=kernel,
            strides=told("strides", [1] * n), dilations=told("dilations", [1] * n), pads=told("pads", [0] * 2 * n),
            padding=_text(node.attributes.get("auto_pad", "NOTSET")),
        )  # fmt: skip
    if node.op not in {"Gemm", "MatMul"} or len(shape) != _MATRIX:
        return f"{node.op} of {len(shape)} dimensions has no such form"
    if node.op == "Gemm" and (node.attributes.get("transA", 0) or node.attributes.get("alpha", 1.0) != 1.0):
        return "its input is turned, or its product multiplied"
    return ProductForm(
        node.id, value, name, shape, turned=node.op == "MatMul" or not node.attributes.get("transB", 0)
    )


def _text(told: object) -> str:
    return told.decode() if isinstance(told, bytes) else str(told)
