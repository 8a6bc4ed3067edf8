"""From an observed range to a threshold: one function per method, all from the same histogram.

Every function takes a ``Range`` and returns *amax*, the magnitude that the largest quantized number stands for,
in the value's unit. Larger magnitudes saturate.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from rtlab.core.variant import Calibrator, Method, Precision
from rtlab.errors import CalibrationError
from rtlab.quantize.noise import Moments, grid

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rtlab.quantize.ranges import Range, Ranges

#: Linear bins over [0, amax] and quantization levels of the entropy search (Migacz, GTC 2017, S7310).
ENTROPY_BINS = int(Calibrator.ENTROPY["bins"])
ENTROPY_LEVELS = int(Calibrator.ENTROPY["levels"])
#: Candidates that the entropy search rates in one step, so that its tables stay in the processor's cache, and
#: the size of a search up to which the table of its levels is kept.
_TOGETHER, _KEPT = 256, 1 << 19


@dataclasses.dataclass(frozen=True)
class Scale:
    """How one value is quantized: ``q = saturate(round(x / scale))``.

    ``amax`` is ``largest`` scales, the largest quantized number: 127 for INT8, 448 for FP8 E4M3.
    """

    amax: float
    note: str = ""
    largest: float = 127.0

    @property
    def scale(self) -> float:
        """``amax / largest`` rounded to float32, as the graph holds it; never zero."""
        smallest = float(np.finfo(np.float32).tiny)
        return max(float(np.float32(self.amax) / np.float32(self.largest)), smallest)


def scales(
    ranges: Ranges, calibrator: Calibrator, *, precision: Precision = Precision.INT8
) -> Mapping[str, Scale]:
    """A scale for every observed value.

    A value that was zero throughout gets the threshold 1, which represents zero exactly, and a note.

    Raises:
        CalibrationError: a value was observed without a single element.
        VariantError: activations have no scale in this precision.
    """
    return {name: scale(name, seen, calibrator, precision) for name, seen in ranges.values.items()}


def scale(
    name: str, seen: Range, calibrator: Calibrator, precision: Precision, moments: Moments | None = None
) -> Scale:
    """The scale of one value; ``moments`` are those of the range, where they are known already.

    Raises:
        CalibrationError: the value was observed without a single element.
        VariantError: activations have no scale in this precision.
    """
    largest = float(grid(precision)[-1])
    if seen.count == 0:
        raise CalibrationError(
            f'Cannot calibrate value "{name}": it had no elements in any batch. '
            "Give data that reaches this part of the model."
        )
    if seen.amax == 0:
        note = f'value "{name}" was zero in all {seen.count} elements: any scale represents it'
        return Scale(1.0, note, largest)
    amax = _amax(seen, calibrator, precision, moments)
    # A threshold can only be zero where nearly everything was; the largest magnitude then is the only fact
    # left.
    return Scale(amax if amax > 0 else seen.amax, largest=largest)


def minmax(seen: Range) -> float:
    """The largest magnitude; nothing saturates."""
    return seen.amax


def entropy(seen: Range, *, bins: int = ENTROPY_BINS, levels: int = ENTROPY_LEVELS) -> float:
    """Least KL divergence where the first bin, in which all zeros lie, takes the count of the second.

    So does the search that NVIDIA published (``pytorch_quantization.calib.histogram``); TensorRT's own is closed. With
    zeros counted as they are, half of a ReLU's output would stand in one bin and push the threshold far down.
    """
    histogram = linear(seen, bins)
    histogram[0] = histogram[1]
    return _least_divergence(seen, histogram, levels)


def entropy2(seen: Range, *, bins: int = ENTROPY_BINS, levels: int = ENTROPY_LEVELS) -> float:
    """Least KL divergence over the nonzero magnitudes.

    Zero is represented exactly at any scale, so the half of an activation that a ReLU cut off must not decide
    where the other half is clipped; small magnitudes keep their count, which is the one difference from ``entropy``.
    """
    return _least_divergence(seen, linear(seen, bins), levels)


def percentile(seen: Range, *, p: float = Calibrator.PERCENTILE["p"]) -> float:
    """The magnitude that ``p`` percent of all elements do not exceed."""
    below = seen.zeros + seen.small + np.concatenate([[0], np.cumsum(seen.counts)])
    wanted = p / 100 * seen.count
    i = int(np.searchsorted(below, wanted))
    if i == 0:  # nearly all elements are zero, which any scale represents
        return seen.amax
    edges = seen.edges
    place = (wanted - below[i - 1]) / (below[i] - below[i - 1])
    return min(float(edges[i - 1] + place * (edges[i] - edges[i - 1])), seen.amax)


def mse(
    seen: Range,
    *,
    candidates: int = int(Calibrator.MSE["candidates"]),
    precision: Precision = Precision.INT8,
    moments: Moments | None = None,
) -> float:
    """The threshold with the least mean square error on the precision's grid, among equal steps up to the maximum."""
    if not seen.counts.any():  # nothing but subnormals
        return seen.amax
    tried = seen.amax * np.arange(1, candidates + 1) / candidates
    return float(tried[np.argmin((moments or Moments.of(seen)).noise(tried, precision))])


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
    number = np.concatenate([[0.0], np.cumsum(filled)])
    kept = mass[size]
    beyond = total - kept
    gap = (beyond > 0) & ~filled[size - 1]
    # sum P log Q, a level at a time, since all its filled bins share one Q: first without what all Q are
    # divided by, and without what lies beyond
    cross = np.empty(len(size))
    for first in range(0, len(size), _TOGETHER):
        part = slice(first, first + _TOGETHER)
        start = _starts(bins, levels, first)
        at = mass.take(start)
        level = at[:, 1:] - at[:, :-1]
        at = number.take(start)
        height = np.maximum(at[:, 1:] - at[:, :-1], 1.0)
        np.divide(level, height, out=height)
        height[height == 0] = 1.0  # an empty level contributes nothing
        log = np.log(height, out=height)
        cross[part] = np.einsum("ij,ij->i", level, log) + np.where(gap[part], 0.0, beyond[part]) * log[:, -1]
    cross -= total * np.log(np.maximum(kept + gap, 1.0))
    # sum P log P, from running sums; only the last bin differs between candidates
    inner = np.concatenate([[0.0], np.cumsum(histogram * _log(histogram))])[size - 1]
    last = histogram[size - 1] + beyond
    own = inner + last * _log(last) - total * np.log(total)
    result: NDArray[np.float64] = (own - cross) / total
    return result


def _starts(bins: int, levels: int, first: int) -> NDArray[np.intp]:
    """The bin that each level starts with and the end, for ``_TOGETHER`` candidates; shape ``(.., levels + 1)``."""
    return (_kept_starts if bins * levels <= _KEPT else _kept_starts.__wrapped__)(bins, levels, first)


@functools.lru_cache(maxsize=64)
def _kept_starts(bins: int, levels: int, first: int) -> NDArray[np.intp]:
    size = np.arange(levels, bins + 1)[first : first + _TOGETHER, None]
    # Bin b of i belongs to level floor(b * levels / i), so level j starts at bin ceil(j * i / levels).
    starts: NDArray[np.intp] = -(-np.arange(levels + 1) * size // levels)
    return starts


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


def _least_divergence(seen: Range, histogram: NDArray[np.float64], levels: int) -> float:
    if not histogram.any():  # nothing but what stood in the first bin
        return seen.amax
    best = levels + int(np.argmin(divergence(histogram, levels=levels)))
    # The upper edge of the last kept bin, so that keeping all bins is exactly minmax.
    return seen.amax * best / len(histogram)


def _amax(seen: Range, calibrator: Calibrator, precision: Precision, moments: Moments | None) -> float:
    method = calibrator.method
    if method is Method.MINMAX:
        return minmax(seen)
    if method is Method.PERCENTILE:
        return percentile(seen, p=calibrator["p"])
    if method is Method.MSE:
        return mse(seen, candidates=int(calibrator["candidates"]), precision=precision, moments=moments)
    search = entropy if method is Method.ENTROPY else entropy2
    return search(seen, bins=int(calibrator["bins"]), levels=int(calibrator["levels"]))
