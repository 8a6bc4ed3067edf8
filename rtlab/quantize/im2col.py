"""Convolutions and products of matrices as one form: rows of the input times rows of weights."""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rtlab.core.model import Model
    from rtlab.core.node import Node

_MATRIX = 2


@dataclasses.dataclass(frozen=True)
class ProductForm:
    """A Conv, Gemm or MatMul with a constant weight: ``groups`` times ``(rows, K) x (K, outputs)``.

    ``kernel`` is empty for a product of matrices; ``is_transposed`` says that its weight is stored ``(K, outputs)``.
    """

    node: str
    value: str
    weight: str
    shape: tuple[int, ...]
    groups: int = 1
    is_transposed: bool = False
    kernel: tuple[int, ...] = ()
    strides: tuple[int, ...] = ()
    dilations: tuple[int, ...] = ()
    pads: tuple[int, ...] = ()
    padding: str = "NOTSET"

    @property
    def size(self) -> int:
        """K: the weights of one output channel."""
        return self.shape[0] if self.is_transposed else math.prod(self.shape[1:])

    @property
    def outputs(self) -> int:
        """Output channels of each group."""
        return (self.shape[1] if self.is_transposed else self.shape[0]) // self.groups

    def to_rows(self, weight: NDArray[Any]) -> NDArray[Any]:
        """A tensor of the weight's shape as ``(groups, outputs, K)``."""
        flat = weight.T if self.is_transposed else weight.reshape(self.shape[0], -1)
        return flat.reshape(self.groups, self.outputs, self.size)

    def from_rows(self, rows: NDArray[Any]) -> NDArray[Any]:
        """The way back from ``to_rows``."""
        flat = rows.reshape(-1, self.size)
        return np.ascontiguousarray(flat.T) if self.is_transposed else flat.reshape(self.shape)

    def sum_positions(self, x: NDArray[np.float32]) -> tuple[NDArray[np.float64], int]:
        """The sum of all input rows, shape ``(groups, K)``, and how many there are."""
        if not self.kernel:
            flat = x.reshape(-1, self.size)
            return flat.sum(axis=0, dtype=np.float64)[None], len(flat)
        patches = self._extract_patches(x)
        total = np.stack([v.sum(axis=(0, *range(2, v.ndim)), dtype=np.float64) for v in patches], axis=1)
        places = len(x) * math.prod(patches[0].shape[2:])
        return total.reshape(self.groups, self.size), places

    def sample_rows(self, x: NDArray[np.float32], most: int) -> NDArray[np.float32]:
        """Input rows, at most ``most`` of each sample, spread evenly: shape ``(groups, rows, K)``."""
        if not self.kernel:
            flat = x.reshape(-1, self.size)
            step = max(1, -(-len(flat) // (most * max(1, len(x)))))
            return flat[None, ::step]
        patches = self._extract_patches(x)
        places = patches[0].shape[2:]
        total = math.prod(places)
        step = max(1, -(-total // most))
        # A divisor of the length of a line would meet the same columns in every line.
        while step > 1 and math.gcd(step, places[-1]) != 1:
            step += 1
        at = np.unravel_index(np.arange(0, total, step), places)
        index: tuple[Any, ...] = (slice(None), slice(None), *at)
        columns = [patch[index].reshape(len(x), self.groups, -1, len(at[0])) for patch in patches]
        # From (weights of the kernel, samples, groups, channels, places) to (groups, samples and places, K).
        rows = np.stack(columns).transpose(2, 1, 4, 3, 0)
        return np.ascontiguousarray(rows, np.float32).reshape(self.groups, -1, self.size)

    def _extract_patches(self, x: NDArray[np.float32]) -> list[NDArray[np.float32]]:
        """What each weight of the kernel reads at all places, shape ``(samples, channels, *places)``."""
        n = len(self.kernel)
        reach = [(k - 1) * d + 1 for k, d in zip(self.kernel, self.dilations, strict=True)]
        pads = list(zip(self.pads[:n], self.pads[n:], strict=True))
        if self.padding.startswith("SAME"):
            pads = []
            for size, s, r in zip(x.shape[2:], self.strides, reach, strict=True):
                total = max(0, (-(-size // s) - 1) * s + r - size)
                less, more = total // 2, total - total // 2
                pads.append((less, more) if self.padding == "SAME_UPPER" else (more, less))
        elif self.padding == "VALID":
            pads = [(0, 0)] * n
        padded_input = np.pad(x, [(0, 0), (0, 0), *pads]) if any(map(any, pads)) else x
        spatial = padded_input.shape[2:]
        sizes = [(s - r) // t + 1 for s, r, t in zip(spatial, reach, self.strides, strict=True)]
        patches = []
        for at in np.ndindex(*self.kernel):
            lines = [
                slice(i * d, i * d + (size - 1) * s + 1, s)
                for i, d, s, size in zip(at, self.dilations, self.strides, sizes, strict=True)
            ]
            index: tuple[Any, ...] = (slice(None), slice(None), *lines)
            patches.append(padded_input[index])
        return patches


def make_product_form(model: Model, node: Node) -> ProductForm | str:
    """A node as such a product, or why it is none."""
    weight = model.known.get(node.inputs[1]) if len(node.inputs) > 1 else None
    if weight is None:
        return "its weight is no constant"
    shape = tuple(weight.shape.numpy())
    value, name = node.inputs[0], node.inputs[1]
    if node.op == "Conv":
        kernel = shape[2:]
        n = len(kernel)

        def get_ints(key: str, default: list[int]) -> tuple[int, ...]:
            attribute = node.attributes.get(key)
            return tuple(attribute) if isinstance(attribute, list) and attribute else tuple(default)

        return ProductForm(
            node.id, value, name, shape, int(str(node.attributes.get("group", 1))), is_transposed=False, kernel=kernel,
            strides=get_ints("strides", [1] * n), dilations=get_ints("dilations", [1] * n),
            pads=get_ints("pads", [0] * 2 * n), padding=str(node.attributes.get("auto_pad", "NOTSET")),
        )  # fmt: skip
    if node.op not in {"Gemm", "MatMul"} or len(shape) != _MATRIX:
        return f"{node.op} of {len(shape)} dimensions has no such form"
    if node.op == "Gemm" and (node.attributes.get("transA", 0) or node.attributes.get("alpha", 1.0) != 1.0):
        return "its input is turned, or its product multiplied"
    return ProductForm(
        node.id, value, name, shape, is_transposed=node.op == "MatMul" or not node.attributes.get("transB", 0)
    )
