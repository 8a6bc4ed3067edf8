"""From an observed range to a threshold: one function per method, all from the same histogram.

Every function takes a ``Range`` and returns *amax*, the magnitude that the largest of 127 levels stands for,
in the value's unit. Larger magnitudes saturate.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import numpy as np

from rtlab.core.variant import Calibrator
from rtlab.errors import CalibrationError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rtlab.quantize.ranges import Range, Ranges

#: Linear bins over [0, amax] and quantization levels of the entropy search (Migacz, GTC 2017, S7310).
ENTROPY_BINS = 2048
ENTROPY_LEVELS = 128
#: Levels of one sign in symmetric INT8.
_STEPS = 127
#: Share of magnitudes that the percentile method keeps, TensorRT's legacy default.
_KEPT = 0.9999
#: Thresholds that the mean-square method tries.
_CANDIDATES = 128


@dataclasses.dataclass(frozen=True)
class Scale:
    """How one value is quantized: ``q = saturate(round(x / scale))``; ``amax`` is 127 scales."""

    amax: float
    note: str = ""

    @property
    def scale(self) -> float:
        """``amax / 127`` rounded to float32, as the graph holds it; never zero."""
        smallest = float(np.finfo(np.float32).tiny)
        return max(float(np.float32(self.amax) / np.float32(_STEPS)), smallest)


def scales(ranges: Ranges, calibrator: Calibrator) -> Mapping[str, Scale]:
    """A scale for every observed value.

    A value that was zero throughout gets the scale 1/127, which represents zero exactly, and a note.

    Raises:
        CalibrationError: a value was observed without a single element.
    """
    method = _METHODS[calibrator]
    return {name: _scale(name, seen, method) for name, seen in ranges.values.items()}


def minmax(seen: Range) -> float:
    """The largest magnitude; nothing saturates."""
    return seen.amax


def entropy(seen: Range) -> float:
    """Least KL divergence with every element counted, as the talk S7310 writes it: zeros are magnitudes too."""
    return _least_divergence(seen, zeros=True)


def entropy2(seen: Range) -> float:
    """Least KL divergence over the nonzero magnitudes.

    Zero is represented exactly at any scale, so the half of an activation that a ReLU cut off must not decide
    where the other half is clipped. This is the one difference from ``entropy``.
    """
    return _least_divergence(seen, zeros=False)


def percentile(seen: Range) -> float:
    """The magnitude that 99.99 % of all elements do not exceed."""
    below = seen.zeros + seen.small + np.concatenate([[0], np.cumsum(seen.counts)])
    wanted = _KEPT * seen.count
    i = int(np.searchsorted(below, wanted))
    if i == 0:  # nearly all elements are zero, which any scale represents
        return seen.amax
    edges = seen.edges
    place = (wanted - below[i - 1]) / (below[i] - below[i - 1])
    return min(float(edges[i - 1] + place * (edges[i] - edges[i - 1])), seen.amax)


def mse(seen: Range) -> float:
    """The threshold with the least mean square error of quantization, among 128 equal steps up to the maximum."""
    used = np.flatnonzero(seen.counts)
    if not used.size:  # nothing but subnormals
        return seen.amax
    counts, edges = seen.counts[used].astype(np.float64), seen.edges
    middle = (edges[used] + edges[used + 1]) / 2
    best, least = seen.amax, np.inf
    for amax in seen.amax * np.arange(1, _CANDIDATES + 1) / _CANDIDATES:
        step = amax / _STEPS
        error = middle - step * np.minimum(np.rint(middle / step), _STEPS)
        total = float(counts @ (error * error))
        if total < least:
            best, least = float(amax), total
    return best


def divergence(histogram: NDArray[np.float64], *, levels: int = ENTROPY_LEVELS) -> NDArray[np.float64]:
    """KL divergence of clipping a histogram of magnitudes after its first ``i`` bins, for every ``i >= levels``.

    For each candidate, the reference P is the first ``i`` bins with everything beyond added to the last of
    them; the candidate Q is the same bins without that, merged into ``levels`` levels and spread again evenly
    over those bins of each level that were not empty (Migacz, GTC 2017, S7310). Where the last bin is empty
    and something lies beyond, the talk's divergence is infinite, so one stray element behind a gap would
    forbid all clipping; here such a bin counts as seen once.

    Args:
        histogram: Counts, shape ``(bins,)``.
        levels: Number of quantization levels.

    Returns:
        Divergence in nats, shape ``(bins - levels + 1,)``; entry k belongs to ``i = levels + k``.
    """
    bins = len(histogram)
    size = np.arange(levels, bins + 1)
    total = float(histogram.sum())
    filled = histogram > 0
    mass = np.concatenate([[0.0], np.cumsum(histogram)])
    number = np.concatenate([[0], np.cumsum(filled)])
    # Bin b of i belongs to level floor(b * levels / i), so level j starts at bin ceil(j * i / levels).
    start = -(-np.arange(levels + 1) * size[:, None] // levels)
    level = np.diff(mass[start], axis=1)
    spread = np.maximum(np.diff(number[start], axis=1), 1)
    kept = mass[size]
    beyond = total - kept
    gap = (beyond > 0) & ~filled[size - 1]
    within = np.maximum(kept + gap, 1.0)
    reference = level.copy()
    reference[:, -1] += np.where(gap, 0.0, beyond)
    # sum P log Q, a level at a time: all its filled bins share one Q
    cross = (reference * _log(level / spread / within[:, None])).sum(axis=1) - gap * beyond * np.log(within)
    # sum P log P, from running sums; only the last bin differs between candidates
    inner = np.concatenate([[0.0], np.cumsum(histogram * _log(histogram))])[size - 1]
    last = histogram[size - 1] + beyond
    own = inner + last * _log(last) - total * np.log(total)
    result: NDArray[np.float64] = (own - cross) / total
    return result


def linear(seen: Range, bins: int) -> NDArray[np.float64]:
    """Nonzero magnitudes in ``bins`` bins of equal width over [0, amax], resampled from the logarithmic ones.

    A logarithmic bin that straddles an edge is divided in proportion, with running sums rounded to whole
    counts, so that a lone element stays in one bin; the sum is exact.
    """
    grid = np.linspace(0.0, seen.amax, bins + 1)
    edges = seen.edges
    below = seen.small + np.concatenate([[0], np.cumsum(seen.counts)]).astype(np.float64)
    at = np.interp(grid, edges, below)
    # The last bin ends at the maximum although its logarithmic bin reaches further; "small" lies in the
    # first.
    at[0], at[-1] = 0.0, below[-1]
    return np.diff(np.rint(at))


def display(ranges: Ranges, value: str, bins: int = 64) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """A value's magnitudes for a picture.

    Returns:
        Edges in the value's unit, shape ``(bins + 1,)``, and counts, shape ``(bins,)``; exact zeros are
        counted in the first bin. A value that was zero throughout has edges from 0 to 1.

    Raises:
        CalibrationError: the value was not observed.
    """
    seen = ranges.values.get(value)
    if seen is None:
        raise CalibrationError(
            f'Cannot show the magnitudes of "{value}": it is not among the {len(ranges.values)} observed values. '
            "Choose one of ranges.values."
        )
    if seen.amax == 0:
        counts, edges = np.zeros(bins), np.linspace(0.0, 1.0, bins + 1)
    else:
        counts, edges = linear(seen, bins), np.linspace(0.0, seen.amax, bins + 1)
    counts[0] += seen.zeros
    return edges, counts


def _log(x: NDArray[np.float64]) -> NDArray[np.float64]:
    """The logarithm, with 0 for 0: an empty bin contributes nothing."""
    return np.log(x, out=np.zeros_like(x), where=x > 0)


def _least_divergence(seen: Range, *, zeros: bool) -> float:
    histogram = linear(seen, ENTROPY_BINS)
    if zeros:
        histogram[0] += seen.zeros
    best = ENTROPY_LEVELS + int(np.argmin(divergence(histogram)))
    # The upper edge of the last kept bin, so that keeping all bins is exactly minmax.
    return seen.amax * best / ENTROPY_BINS


def _scale(name: str, seen: Range, method: Callable[[Range], float]) -> Scale:
    if seen.count == 0:
        raise CalibrationError(
            f'Cannot calibrate value "{name}": it had no elements in any batch. '
            "Give data that reaches this part of the model."
        )
    if seen.amax == 0:
        return Scale(1.0, f'value "{name}" was zero in all {seen.count} elements: any scale represents it')
    amax = method(seen)
    # A threshold can only be zero where nearly everything was; the largest magnitude then is the only fact
    # left.
    return Scale(amax if amax > 0 else seen.amax)


_METHODS: Mapping[Calibrator, Callable[[Range], float]] = {
    Calibrator.MINMAX: minmax,
    Calibrator.ENTROPY: entropy,
    Calibrator.ENTROPY2: entropy2,
    Calibrator.PERCENTILE: percentile,
    Calibrator.MSE: mse,
}
