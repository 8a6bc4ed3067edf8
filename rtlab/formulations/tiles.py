"""Convolution by tiles: transform, multiply, transform back. Winograd's and Fourier's ways are both so.

A tile ``d`` of the input and a kernel ``g`` give a tile of the output as ``A ((G g) * (B d))``, with ``*`` element by
element. So the sums over channels are one matrix product for each row of ``B``, and fewer multiplications are needed
for each output than the kernel has elements.

Sources: Winograd, *Arithmetic Complexity of Computations* (1980); Lavin and Gray, *Fast Algorithms for Convolutional
Neural Networks* (arXiv:1509.09308); Mathieu, Henaff and LeCun, *Fast Training of Convolutional Networks through FFTs*
(arXiv:1312.5851).
"""

from __future__ import annotations

import dataclasses
import functools
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from rtlab.formulations.fragment import Fragment
from rtlab.formulations.layer import WeightedNode

#: Where the polynomials of Winograd's algorithm are evaluated, besides infinity; small ones round least.
_POINTS = tuple(Fraction(p) for p in ("0", "1", "-1", "2", "-2", "1/2", "-1/2"))


@dataclasses.dataclass(frozen=True)
class Tiling:
    """The matrices of an algorithm for one kernel: ``before`` is ``B``, ``kernel`` is ``G`` and ``after`` is ``A``.

    With ``r`` products, tiles of ``tile`` rows and columns, and ``step`` rows and columns of output from each, they
    have the shapes ``(r, tile²)``, ``(r, kernel height × width)`` and ``(step height × width, r)``.
    """

    before: NDArray[np.float64]
    kernel: NDArray[np.float64]
    after: NDArray[np.float64]
    tile: tuple[int, int]
    step: tuple[int, int]

    @property
    def products(self) -> int:
        """Multiplications for each tile and pair of channels."""
        return len(self.before)


@functools.cache
def winograd(step: int, kernel: tuple[int, int]) -> Tiling:
    """Winograd's algorithm ``F(step×step, kernel)`` by the method of Toom and Cook."""
    (b0, g0, a0), (b1, g1, a1) = (_toom_cook(step, k) for k in kernel)
    tile = (step + kernel[0] - 1, step + kernel[1] - 1)
    before, weights, after = (np.kron(x, y).astype(np.float64) for x, y in ((b0, b1), (g0, g1), (a0, a1)))
    return Tiling(before, weights, after, tile, (step, step))


def _toom_cook(
    outputs: int, kernel: int
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """The matrices in one dimension, exact until they are rounded to floats at the end."""
    size = outputs + kernel - 1
    points = _POINTS[: size - 1]
    before, weights, after = [], [], []
    for at in points:
        others = [p for p in points if p != at]
        scale = Fraction(1)
        for p in others:
            scale *= at - p
        before.append([*_from_roots(others), Fraction(0)])
        weights.append([at**k / scale for k in range(kernel)])
        after.append([at**i for i in range(outputs)])
    before.append(_from_roots(list(points)))
    weights.append([Fraction(int(k == kernel - 1)) for k in range(kernel)])
    after.append([Fraction(int(i == outputs - 1)) for i in range(outputs)])
    return np.array(before, float), np.array(weights, float), np.array(after, float).T


def _from_roots(roots: list[Fraction]) -> list[Fraction]:
    """Coefficients of the polynomial with these roots, the constant first."""
    coefficients = [Fraction(1)]
    for root in roots:
        shifted_coefficients = [Fraction(0), *coefficients]
        coefficients = [
            s - root * f for s, f in zip(shifted_coefficients, [*coefficients, Fraction(0)], strict=True)
        ]
    return coefficients


@functools.cache
def fourier(size: int, kernel: tuple[int, int]) -> Tiling:
    """Products of the discrete Fourier transforms of tiles of ``size`` rows and columns.

    Of a real tile half the frequencies tell the other half. A product of two complex numbers takes three real ones
    (Gauss), and one where a frequency is real.
    """
    rows, columns = (g.ravel() for g in np.indices((size, size)))
    taps = [g.ravel() for g in np.indices(kernel)]
    step = (size - kernel[0] + 1, size - kernel[1] + 1)
    outs = [g.ravel() for g in np.indices(step)]
    before, weights, after = [], [], []
    for u, v in np.ndindex(size, size):
        mirror = ((-u) % size, (-v) % size)
        if mirror < (u, v):
            continue
        turn = 2 * np.pi / size
        tile = np.exp(-1j * turn * (u * rows + v * columns))
        # Correlation, not convolution: the kernel's spectrum is conjugated.
        tap = np.exp(1j * turn * (u * taps[0] + v * taps[1]))
        angle = turn * (u * outs[0] + v * outs[1])
        if mirror == (u, v):
            before.append(tile.real)
            weights.append(tap.real)
            after.append(np.cos(angle) / size**2)
            continue
        before += [tile.real + tile.imag, tile.real, tile.imag]
        weights += [tap.real, tap.imag - tap.real, tap.real + tap.imag]
        twice = 2 / size**2
        after += [(np.cos(angle) - np.sin(angle)) * twice, -np.sin(angle) * twice, -np.cos(angle) * twice]
    return Tiling(np.array(before), np.array(weights), np.array(after).T, (size, size), step)


def tile_convolution(layer: WeightedNode, graph: Fragment, tiling: Tiling) -> str:
    """A convolution of stride 1, without groups and dilations, by square tiles; returns the value that it writes."""
    batch, channels, *size = layer.shape
    outputs = layer.weight.shape[0]
    y_begin, x_begin = layer.attributes["pads"][:2]
    counts = [-(-out // step) for out, step in zip(layer.spatial, tiling.step, strict=True)]
    # The last tiles reach beyond the map.
    ends = [
        (n - 1) * step + tile - start - length
        for n, step, tile, start, length in zip(
            counts, tiling.step, tiling.tile, (y_begin, x_begin), size, strict=True
        )
    ]
    flat = graph.reshape(layer.data, (batch * channels, 1, *size))
    products = tiling.products
    # A convolution whose step is that of the tiles cuts and transforms them at once.
    before = graph.node(
        "Conv",
        flat,
        graph.constant(tiling.before.reshape(products, 1, *tiling.tile)),
        strides=list(tiling.step),
        pads=[y_begin, x_begin, *ends],
    )
    parts = graph.transpose(graph.reshape(before, (batch, channels, products, -1)), (0, 2, 1, 3))
    kernels = np.tensordot(tiling.kernel, layer.weight.reshape(outputs, channels, -1), (1, 2))
    # The products of matrices, one for each row of B: ONNX Runtime is faster at groups of a convolution than at
    # a batch of products whose constant side it does not pack.
    channel_sums = graph.node(
        "Conv",
        graph.reshape(parts, (batch, products * channels, *counts)),
        graph.constant(kernels.reshape(products * outputs, channels, 1, 1)),
        group=products,
    )
    output = graph.node(
        "MatMul", graph.constant(tiling.after), graph.reshape(channel_sums, (batch, products, -1))
    )
    step = tiling.step[0]
    output = graph.reshape(output, (batch, step * step * outputs, *counts))
    output = graph.node("DepthToSpace", output, blocksize=step)
    if any(n * step != out for n, out in zip(counts, layer.spatial, strict=True)):
        output = graph.cut(output, (2, 3), (0, 0), layer.spatial)
    return output
