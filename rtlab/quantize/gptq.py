"""GPTQ: rounding weights so that the error of a layer's output is minimal.

A layer writes ``W x``; with rounded weights ``Q`` its mean square error is ``tr((W - Q) H (W - Q)ᵀ)`` with
``H = mean(x xᵀ)``. Columns are rounded one after the other, and after each the others take up its error (Frantar,
Ashkboos, Hoefler and Alistarh, GPTQ, ICLR 2023; the update is that of Hassibi and Stork's optimal brain surgeon). Then
each weight is rounded anew given all others, which never makes the error larger. Where scales are free too, several are
tried, and the best are fitted to the rounded weights by least squares, in turn with the weights. Rows are independent.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

#: Columns that are rounded before the others are updated, so that most of the work is a product of matrices.
_BLOCK = 64
#: How often each weight is rounded anew, given all others; while scales are still sought, and how often these are.
_SWEEPS, _EARLY, _FITS = 4, 2, 3
#: Multiples of the scales with the least error by weight, of which the one with the least error of the output is taken:
#: the more, the less a row costs, by the largest number of weights in it.
_MULTIPLES = (
    (16, np.linspace(0.72, 1.28, 15)),
    (64, np.linspace(0.76, 1.24, 9)),
    (math.inf, np.linspace(0.84, 1.16, 5)),
)
#: Numbers of weights that are gone over at once, so that what is computed of them stays small.
_AT_ONCE = 1 << 21
#: Scales of blocks are sought at these multiples of the one that clips nothing.
_SHRINK = np.linspace(1.0, 0.5, 21)

Array: TypeAlias = "NDArray[np.float64]"
#: From multiples of a scale to those that a type has, or from scales to those that are stored.
Grid: TypeAlias = Callable[[Array], Array]


def reconstruct(weight: Array, scale: Array, second: Array, nearest: Grid, damping: float) -> Array:
    """Weights as multiples of their scales, each row with no larger an error than to nearest.

    Args:
        weight: ``(..., outputs, K)``.
        scale: The scale of each weight; with a scale of zero it is zero.
        second: ``(..., K, K)``, mean of ``x xᵀ``.
        nearest: What rounds multiples of a scale to those that there are.
        damping: Share of the mean diagonal that is added to the diagonal before the inverse, so that there is one.
    """
    factor, steps = _factorize(second, damping), np.empty_like(weight)
    for part in _iter_row_slices(weight, 1):
        live = np.where(scale[..., part, :] > 0, scale[..., part, :], 1.0)
        initial_steps = _round_initial(weight[..., part, :], live, second, nearest, factor)
        refined_steps = _refine_steps(weight[..., part, :], live, second, nearest, initial_steps)
        steps[..., part, :] = refined_steps * (scale[..., part, :] > 0)
    return steps


def fit_scales(
    weight: Array, largest: Array, second: Array, nearest: Grid, *, store: Grid, damping: float
) -> tuple[Array, Array]:
    """Scales of blocks, and weights as multiples of them.

    Args:
        weight: ``(..., outputs, K)``.
        largest: The scale of each block that clips nothing, ``(..., outputs, blocks)``; blocks part K evenly.
        second: As of ``reconstruct``, and so are the others.
        nearest: What rounds multiples of a scale.
        store: What becomes of scales when they are stored.
        damping: Share of the mean diagonal.

    Returns:
        ``(..., outputs, blocks)`` and ``(..., outputs, K)``.
    """
    size, blocks = weight.shape[-1], largest.shape[-1]
    multiples = next(m for most, m in _MULTIPLES if size <= most)
    importance = np.diagonal(second, axis1=-2, axis2=-1).reshape(*second.shape[:-2], 1, blocks, -1)
    factor, scale, steps = _factorize(second, damping), np.empty_like(largest), np.empty_like(weight)
    for part in _iter_row_slices(weight, len(multiples)):
        rows = weight[..., part, :]
        base_scales = search_scales(
            rows.reshape(*rows.shape[:-1], blocks, -1), largest[..., part, :], importance, nearest, store
        )
        candidate_scales = base_scales[..., None, :] * multiples[:, None]
        candidate_scales = store(candidate_scales.reshape(*rows.shape[:-2], -1, blocks))
        many, divisors = (
            np.repeat(rows, len(multiples), axis=-2),
            _expand_nonzero_scales(candidate_scales, size),
        )
        candidate_steps = _round_initial(many, divisors, second, nearest, factor)
        candidate_steps = _refine_steps(many, divisors, second, nearest, candidate_steps, sweeps=_EARLY)
        numbers = candidate_steps * _expand_scales(candidate_scales, size)
        row_errors = _compute_row_errors(many, numbers, second)
        best = row_errors.reshape(*rows.shape[:-1], -1).argmin(axis=-1)[..., None, None]

        best_scales, best_steps = (
            np.take_along_axis(a.reshape(*best.shape[:-2], -1, a.shape[-1]), best, axis=-2)[..., 0, :]
            for a in (candidate_scales, candidate_steps)
        )
        scale[..., part, :], steps[..., part, :] = _fit_scales_and_steps(
            rows, best_scales, best_steps, second, nearest, store=store
        )
    return scale, steps


def _compute_row_errors(weight: Array, numbers: Array, second: Array) -> Array:
    """The mean square error of what each row of a layer writes, ``(..., outputs)``."""
    residual = weight - numbers
    each: Array = np.einsum("...k,...k->...", residual @ second, residual)
    return each


def _iter_row_slices(weight: Array, times: int) -> Iterator[slice]:
    """Slices of rows of a weight that are not too much at once where each is gone over so many times."""
    rows = weight.shape[-2]
    step = max(1, _AT_ONCE * rows // (weight.size * times or 1))
    for start in range(0, rows, step):
        yield slice(start, start + step)


def _expand_scales(scale: Array, size: int) -> Array:
    """The scale of each weight from those of blocks."""
    return np.repeat(scale, size // scale.shape[-1], axis=-1)


def _expand_nonzero_scales(scale: Array, size: int) -> Array:
    """The same to divide by: one in place of zero, whose weights are zeros whatever their multiple."""
    return _expand_scales(np.where(scale > 0, scale, 1.0), size)


def _round_initial(weight: Array, scale: Array, second: Array, nearest: Grid, factor: Factor) -> Array:
    """By columns, or to nearest for the rows where that is better."""
    nearest_steps, gptq_steps = nearest(weight / scale), _round_columns(weight, scale, factor, nearest)
    nearest_errors, gptq_errors = (
        _compute_row_errors(weight, s * scale, second) for s in (nearest_steps, gptq_steps)
    )
    return np.where((gptq_errors < nearest_errors)[..., None], gptq_steps, nearest_steps)


def _fit_scales_and_steps(
    weight: Array, scale: Array, steps: Array, second: Array, nearest: Grid, *, store: Grid
) -> tuple[Array, Array]:
    """Scales by least squares given the multiples, then these given the scales, while a row gets better by it."""
    size = weight.shape[-1]
    steps = steps * (_expand_scales(scale, size) > 0)
    best_errors = _compute_row_errors(weight, steps * _expand_scales(scale, size), second)
    for last in range(_FITS, -1, -1):
        other = store(_solve_scales(weight, scale, steps, second)) if last else scale
        divisors, sweeps = _expand_nonzero_scales(other, size), _EARLY if last else _SWEEPS
        new_steps = _refine_steps(weight, divisors, second, nearest, steps, sweeps=sweeps)
        new_steps *= _expand_scales(other, size) > 0
        new_errors = _compute_row_errors(weight, new_steps * _expand_scales(other, size), second)
        better = (new_errors < best_errors)[..., None]
        scale, steps = np.where(better, other, scale), np.where(better, new_steps, steps)
        best_errors = np.minimum(new_errors, best_errors)
    return scale, steps


def _solve_scales(weight: Array, scale: Array, steps: Array, second: Array) -> Array:
    """The best scale of each block given its multiples and the blocks before it; one that would not be positive stays.

    The error is a parabola in one scale: with ``q`` the multiples of its block, the least is at
    ``s + (W - Q) H q / (q H q)``.
    """
    scale = scale.copy()
    width = weight.shape[-1] // scale.shape[-1]
    slope = (weight - steps * _expand_scales(scale, weight.shape[-1])) @ second
    for block in range(scale.shape[-1]):
        columns = slice(block * width, (block + 1) * width)
        weighted_steps = steps[..., columns] @ second[..., columns, :]
        bend = np.einsum("...k,...k->...", weighted_steps[..., columns], steps[..., columns])
        rise = np.einsum("...k,...k->...", slope[..., columns], steps[..., columns])
        new = scale[..., block] + np.divide(rise, bend, out=np.zeros_like(rise), where=bend > 0)
        new = np.where(new > 0, new, scale[..., block])
        slope -= (new - scale[..., block])[..., None] * weighted_steps
        scale[..., block] = new
    return scale


#: Which column comes first, second and so on, ``(..., K)``, and the factor of the inverse in that order.
Factor: TypeAlias = "tuple[NDArray[np.intp], Array]"


def _factorize(second: Array, damping: float) -> Factor:
    """The columns of the largest second moment first."""
    diagonal = np.diagonal(second, axis1=-2, axis2=-1)
    order = np.argsort(-diagonal, axis=-1, kind="stable")
    moments = np.take_along_axis(second, order[..., :, None], axis=-2)
    moments = np.take_along_axis(moments, order[..., None, :], axis=-1)
    # A column that nothing reaches has any weight.
    mean = diagonal.mean(axis=-1, keepdims=True)
    at = np.arange(second.shape[-1])
    moments[..., at, at] += damping * np.where(mean > 0, mean, 1.0)
    return order, _invert(moments)


def _round_columns(weight: Array, scale: Array, factor: Factor, nearest: Grid) -> Array:
    """GPTQ: column after column in the factor's order."""
    order, upper = factor
    residual, sizes = (np.take_along_axis(a, order[..., None, :], axis=-1) for a in (weight, scale))
    steps, size = np.empty_like(residual), weight.shape[-1]
    for start in range(0, size, _BLOCK):
        end = min(start + _BLOCK, size)
        errors = np.empty((*weight.shape[:-1], end - start))
        for i in range(start, end):
            steps[..., i] = nearest(residual[..., i] / sizes[..., i])
            error = residual[..., i] - steps[..., i] * sizes[..., i]
            errors[..., i - start] = error / upper[..., i, i, None]
            residual[..., i + 1 : end] -= errors[..., i - start, None] * upper[..., i, None, i + 1 : end]
        residual[..., end:] -= errors @ upper[..., start:end, end:]
    back = np.empty_like(steps)
    np.put_along_axis(back, np.broadcast_to(order[..., None, :], steps.shape), steps, axis=-1)
    return back


def _invert(moments: Array) -> Array:
    """The upper triangular ``U`` with ``UᵀU`` the inverse.

    From the Cholesky factor of the matrix turned end to end: ``J H J = L Lᵀ`` gives ``H = R Rᵀ`` with the upper
    ``R = J L J``, and ``U = R⁻¹``.
    """
    lower = np.linalg.cholesky(moments[..., ::-1, ::-1])
    # Imported here: loading LAPACK takes memory and time.
    from scipy.linalg import lapack

    upper = np.empty_like(moments)
    for at in np.ndindex(moments.shape[:-2]):
        upper[at], wrong = lapack.dtrtri(np.asfortranarray(lower[at][::-1, ::-1]), lower=0)
        if wrong:
            raise np.linalg.LinAlgError("no inverse")
    return upper


def _refine_steps(
    weight: Array, scale: Array, second: Array, nearest: Grid, steps: Array, *, sweeps: int = _SWEEPS
) -> Array:
    """Each weight rounded to what is best given the others, some times over; the error never grows."""
    steps, size = steps.copy(), weight.shape[-1]
    diagonal = np.diagonal(second, axis1=-2, axis2=-1)[..., None, :]
    is_active = diagonal > 0
    curvature = np.where(is_active, diagonal, 1.0) * scale
    for _ in range(sweeps):
        slope = (weight - steps * scale) @ second
        changed = False
        for start in range(0, size, _BLOCK):
            end = min(start + _BLOCK, size)
            deltas = np.zeros((*weight.shape[:-1], end - start))
            local_slope = slope[..., start:end].copy()
            for i in range(start, end):
                new = nearest(steps[..., i] + local_slope[..., i - start] / curvature[..., i])
                new = np.where(is_active[..., i], new, steps[..., i])
                deltas[..., i - start] = (new - steps[..., i]) * scale[..., i]
                local_slope -= deltas[..., i - start, None] * second[..., i, None, start:end]
                steps[..., i] = new
            if deltas.any():
                changed = True
                slope -= deltas @ second[..., start:end, :]
        if not changed:
            break
    return steps


def search_scales(weight: Array, largest: Array, importance: Array, nearest: Grid, store: Grid) -> Array:
    """The scale of each block with the least error of its weights, each weighed by the second moment of its input.

    Args:
        weight: ``(..., outputs, blocks, size)``.
        largest: The scale of each block that clips nothing, ``(..., outputs, blocks)``.
        importance: ``(..., blocks, size)``, with one for all outputs.
        nearest: What rounds multiples of a scale to those that there are.
        store: What becomes of scales when they are stored.
    """
    best, best_errors = store(largest), np.full(largest.shape, np.inf)
    for share in _SHRINK:
        scale = store(largest * share)
        steps = np.divide(weight, scale[..., None], out=np.zeros_like(weight), where=scale[..., None] > 0)
        block_errors = (np.square(weight - nearest(steps) * scale[..., None]) * importance).sum(axis=-1)
        better = block_errors < best_errors
        best, best_errors = np.where(better, scale, best), np.where(better, block_errors, best_errors)
    return best
