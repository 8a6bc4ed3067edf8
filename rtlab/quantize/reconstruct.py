"""Rounding weights so that what a product writes stays, where each of them alone would be rounded to the nearest.

A layer writes ``W x``; with rounded weights ``Q`` its mean square error is ``tr((W - Q) H (W - Q)ᵀ)`` with
``H = mean(x xᵀ)`` over what it reads. Columns are rounded one after the other, and after each the others take up its
error as well as they can (Frantar, Ashkboos, Hoefler and Alistarh, GPTQ, ICLR 2023; the update is that of Hassibi and
Stork's optimal brain surgeon). Then each weight is rounded anew given all others, which never makes the error larger.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np

from rtlab.core.variant import Precision
from rtlab.quantize.blocks import to_fp8

if TYPE_CHECKING:
    from numpy.typing import NDArray

#: Columns that are rounded before the others hear of it, so that most of the work is a product of matrices.
_BLOCK = 64
#: How often each weight is rounded anew, given all others.
_SWEEPS = 4
#: Scales of blocks are sought at these multiples of the one that clips nothing.
_SHRINK = np.linspace(1.0, 0.5, 21)
_FP4 = np.array([0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0])
_LARGEST = {Precision.INT8: 127.0, Precision.INT4: 7.0, Precision.FP4: 6.0, Precision.FP8: 448.0}

#: From multiples of a scale to those that a type has.
Grid = Callable[["NDArray[np.float64]"], "NDArray[np.float64]"]


@dataclasses.dataclass(frozen=True)
class Second:
    """The second moments of what the readers of one weight read: ``(groups, K, K)``, and the damping to use."""

    moments: NDArray[Any]
    damping: float


def grid(precision: Precision) -> Grid:
    """What rounds multiples of a scale to the nearest that the type has."""
    largest = _LARGEST[precision]
    if precision in {Precision.INT8, Precision.INT4}:
        return lambda u: np.clip(np.rint(u), -largest, largest)
    if precision is Precision.FP8:
        return lambda u: to_fp8(np.clip(u, -largest, largest).astype(np.float32)).astype(np.float64)
    return lambda u: np.clip(u, -largest, largest).astype(ml_dtypes.float4_e2m1fn).astype(np.float64)


def reconstruct(
    weight: NDArray[np.float64],
    scale: NDArray[np.float64],
    second: NDArray[np.float64],
    nearest: Grid,
    damping: float,
) -> NDArray[np.float64]:
    """Weights as multiples of their scales.

    Args:
        weight: ``(outputs, K)``.
        scale: The scale of each weight; a scale of zero stands for zeros.
        second: ``(K, K)``, mean of ``x xᵀ``.
        nearest: What rounds multiples of a scale to those that there are.
        damping: Share of the mean diagonal that is added to the diagonal before the inverse, so that there is one.
    """
    live = np.where(scale > 0, scale, 1.0)
    rounded = nearest(weight / live) * (scale > 0)
    found = _columns(weight, live, second, nearest, damping) * (scale > 0)
    steps = (
        found if error(weight, found * scale, second) < error(weight, rounded * scale, second) else rounded
    )
    return _again(weight, live, second, nearest, steps) * (scale > 0)


def error(weight: NDArray[np.float64], numbers: NDArray[np.float64], second: NDArray[np.float64]) -> float:
    """The mean square error of what a layer writes, summed over its outputs."""
    off = weight - numbers
    return float(np.vdot(off @ second, off))


def _columns(
    weight: NDArray[np.float64],
    scale: NDArray[np.float64],
    second: NDArray[np.float64],
    nearest: Grid,
    damping: float,
) -> NDArray[np.float64]:
    """GPTQ, the columns of the largest second moment first."""
    size = len(second)
    order = np.argsort(-np.diagonal(second), kind="stable")
    moments = second[np.ix_(order, order)].copy()
    # A column that nothing reaches has any weight.
    mean = float(np.diagonal(moments).mean()) or 1.0
    moments[np.diag_indices(size)] += damping * mean
    upper = _inverse(moments)
    left, steps = weight[:, order].copy(), np.empty_like(weight)
    sizes = scale[:, order]
    for start in range(0, size, _BLOCK):
        end = min(start + _BLOCK, size)
        lost = np.empty((len(weight), end - start))
        for i in range(start, end):
            steps[:, i] = nearest(left[:, i] / sizes[:, i])
            lost[:, i - start] = (left[:, i] - steps[:, i] * sizes[:, i]) / upper[i, i]
            left[:, i + 1 : end] -= lost[:, i - start, None] * upper[i, i + 1 : end]
        left[:, end:] -= lost @ upper[start:end, end:]
    back = np.empty_like(steps)
    back[:, order] = steps
    return back


def _inverse(moments: NDArray[np.float64]) -> NDArray[np.float64]:
    """The upper triangular ``U`` with ``UᵀU`` the inverse.

    From the Cholesky factor of the matrix turned end to end: ``J H J = L Lᵀ`` gives ``H = R Rᵀ`` with the upper
    ``R = J L J``, and ``U = R⁻¹``.
    """
    lower = np.linalg.cholesky(moments[::-1, ::-1])
    # Its library takes room that a process may not have, and time that nobody should wait who reconstructs nothing.
    from scipy.linalg import lapack

    inverse, wrong = lapack.dtrtri(np.asfortranarray(lower[::-1, ::-1]), lower=0)
    if wrong:
        raise np.linalg.LinAlgError("no inverse")
    upper: NDArray[np.float64] = inverse
    return upper


def _again(
    weight: NDArray[np.float64],
    scale: NDArray[np.float64],
    second: NDArray[np.float64],
    nearest: Grid,
    steps: NDArray[np.float64],
) -> NDArray[np.float64]:
    """Each weight rounded to what is best given the others, some times over; the error never grows."""
    steps = steps.copy()
    diagonal = np.diagonal(second)
    for _ in range(_SWEEPS):
        slope = (weight - steps * scale) @ second
        changed = False
        for start in range(0, len(second), _BLOCK):
            end = min(start + _BLOCK, len(second))
            moved = np.zeros((len(weight), end - start))
            near = slope[:, start:end].copy()
            for i in range(start, end):
                if diagonal[i] <= 0:
                    continue
                sought = steps[:, i] * scale[:, i] + near[:, i - start] / diagonal[i]
                new = nearest(sought / scale[:, i])
                moved[:, i - start] = (new - steps[:, i]) * scale[:, i]
                near -= moved[:, i - start, None] * second[i, start:end]
                steps[:, i] = new
            if moved.any():
                changed = True
                slope -= moved @ second[start:end]
        if not changed:
            break
    return steps


def shrunk(
    weight: NDArray[np.float64],
    largest: NDArray[np.float64],
    importance: NDArray[np.float64],
    nearest: Grid,
    store: Callable[[NDArray[np.float64]], NDArray[np.float64]],
) -> NDArray[np.float64]:
    """The scale of each block with the least error of its weights, each weighed by the second moment of its input.

    Args:
        weight: ``(outputs, blocks, size)``.
        largest: The scale of each block that clips nothing, ``(outputs, blocks)``.
        importance: ``(blocks, size)``.
        nearest: What rounds multiples of a scale to those that there are.
        store: What becomes of scales when they are stored.
    """
    best, least = store(largest), np.full(largest.shape, np.inf)
    for share in _SHRINK:
        scale = store(largest * share)
        steps = np.divide(weight, scale[..., None], out=np.zeros_like(weight), where=scale[..., None] > 0)
        off = np.einsum("obk,bk->ob", np.square(weight - nearest(steps) * scale[..., None]), importance)
        better = off < least
        best, least = np.where(better, scale, best), np.where(better, off, least)
    return best
