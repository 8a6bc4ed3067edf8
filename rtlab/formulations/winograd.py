"""Winograd's algorithm: convolution by tiles that are transformed, multiplied and transformed back.

A tile ``d`` of the input and a kernel ``g`` give a tile of the output as ``A ((G g) * (B d))``, with ``*`` element by
element. So the sums over channels are one matrix product for each row of ``B``, and fewer multiplications are needed
for each output than the kernel has elements.

Sources: Winograd, *Arithmetic Complexity of Computations* (1980); Lavin and Gray, *Fast Algorithms for Convolutional
Neural Networks* (arXiv:1509.09308).
"""

from __future__ import annotations

import functools
import math
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from rtlab.formulations.layer import Fragment, WeightedNode

#: Where the polynomials are evaluated, besides infinity; small ones round least.
_POINTS = tuple(Fraction(p) for p in ("0", "1", "-1", "2", "-2", "1/2", "-1/2"))
#: Rows and columns of a kernel.
_KERNEL = 3


@functools.cache
def compute_transforms(step: int) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """The matrices ``B``, ``G`` and ``A`` of ``F(step×step, 3×3)``, by the method of Toom and Cook.

    With ``r = (step + 2)²`` products their shapes are ``(r, r)``, ``(r, 9)`` and ``(step², r)``.
    """
    size = step + _KERNEL - 1
    points = _POINTS[: size - 1]
    before, weights, after = [], [], []
    for at in points:
        others = [p for p in points if p != at]
        scale = math.prod(at - p for p in others)
        before.append([*_expand_roots(others), Fraction(0)])
        weights.append([at**k / scale for k in range(_KERNEL)])
        after.append([at**i for i in range(step)])
    before.append(_expand_roots(list(points)))
    weights.append([Fraction(int(k == _KERNEL - 1)) for k in range(_KERNEL)])
    after.append([Fraction(int(i == step - 1)) for i in range(step)])
    b, g, a = np.array(before, float), np.array(weights, float), np.array(after, float).T
    return np.kron(b, b), np.kron(g, g), np.kron(a, a)


def _expand_roots(roots: list[Fraction]) -> list[Fraction]:
    """Coefficients of the polynomial with these roots, the constant first; exact."""
    coefficients, zero = [Fraction(1)], Fraction(0)
    for root in roots:
        pairs = zip([zero, *coefficients], [*coefficients, zero], strict=True)
        coefficients = [shifted - root * own for shifted, own in pairs]
    return coefficients


def convolve_tiles(layer: WeightedNode, graph: Fragment, step: int) -> str:
    """Add a convolution 3×3 of stride 1, without groups and dilations, by tiles; returns the value that it writes."""
    batch, channels, *size = layer.shape
    outputs, tile = layer.weight.shape[0], step + _KERNEL - 1
    begins = layer.attributes["pads"][:2]
    counts = [-(-out // step) for out in layer.spatial]
    # The last tiles reach beyond the map.
    ends = [(n - 1) * step + tile - pad - length for n, pad, length in zip(counts, begins, size, strict=True)]
    before, kernel, after = compute_transforms(step)
    products = len(before)
    # A convolution whose step is that of the tiles cuts and transforms them at once.
    tiles = graph.node(
        "Conv",
        graph.reshape(layer.data, (batch * channels, 1, *size)),
        graph.constant(before.reshape(products, 1, tile, tile)),
        strides=[step, step],
        pads=[*begins, *ends],
    )
    parts = graph.node("Transpose", graph.reshape(tiles, (batch, channels, products, -1)), perm=[0, 2, 1, 3])
    kernels = np.tensordot(kernel, layer.weight.reshape(outputs, channels, -1), (1, 2))
    # The products of matrices, one for each row of B: ONNX Runtime is faster at groups of a convolution than at
    # a batch of products whose constant side it does not pack.
    channel_sums = graph.node(
        "Conv",
        graph.reshape(parts, (batch, products * channels, *counts)),
        graph.constant(kernels.reshape(products * outputs, channels, 1, 1)),
        group=products,
    )
    output = graph.node("MatMul", graph.constant(after), graph.reshape(channel_sums, (batch, products, -1)))
    output = graph.reshape(output, (batch, step * step * outputs, *counts))
    output = graph.node("DepthToSpace", output, blocksize=step)
    if any(n * step != out for n, out in zip(counts, layer.spatial, strict=True)):
        output = graph.cut(output, (0, 0), layer.spatial)
    return output
